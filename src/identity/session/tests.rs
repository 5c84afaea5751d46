//! Whose session an id opens, and when it does no more.

use std::time::Duration;

use secrecy::SecretBox;

use super::*;

const NOW: u64 = 1_700_000_000_000;
const LIFE: Duration = Duration::from_secs(3_600);
const END: u64 = NOW + 3_600_000;

struct Names {
    tenant: TenantId,
    caller: CallerId,
    employee: Option<EmployeeId>,
}

impl Names {
    fn owner(&self) -> Owner<'_> {
        let Names { tenant, caller, employee } = self;
        Owner { tenant, caller, employee: employee.as_ref() }
    }
}

fn names(tenant: &str, caller: &str, employee: Option<&str>) -> Names {
    Names {
        tenant: TenantId::new(tenant),
        caller: CallerId::new(caller),
        employee: employee.map(|id| EmployeeId::parse(id).unwrap()),
    }
}

fn secrets() -> KeySecrets {
    KeySecrets::one(SecretBox::new(Box::new([9; 32])))
}

fn sessions() -> Sessions {
    Sessions::new(Sealer::new(PURPOSE, &secrets()), LIFE)
}

fn start(sessions: &Sessions, names: &Names) -> String {
    let version = Version::V2025_06_18;
    sessions.start(names.owner(), version, Capabilities::ROOTS, NOW).unwrap()
}

#[test]
fn every_replica_knows_a_session() {
    let owner = names("acme", "gateway", Some("E1001"));
    let id = start(&sessions(), &owner);
    let session = sessions().open(&id, owner.owner(), NOW).unwrap();
    assert_eq!(session.version, Version::V2025_06_18);
    assert!(session.capabilities.contains(Capabilities::ROOTS));
    assert!(!session.capabilities.contains(Capabilities::SAMPLING));
    assert_eq!(session.employee, owner.employee);
    assert_eq!(session.expires_ms, END);
    assert!(id.bytes().all(|b| b.is_ascii_graphic()), "{id}");
    assert!(id.len() < 200, "{}", id.len());
}

#[test]
fn a_session_belongs_to_whoever_opened_it() {
    let sessions = sessions();
    for (opened_by, asks, good) in [
        (("acme", "gateway", Some("E1")), ("acme", "gateway", Some("E1")), true),
        (("acme", "gateway", Some("E1")), ("acme", "gateway", Some("E2")), false),
        (("acme", "gateway", Some("E1")), ("acme", "gateway", None), false),
        (("acme", "gateway", Some("E1")), ("acme", "script", Some("E1")), false),
        (("acme", "gateway", Some("E1")), ("globex", "gateway", Some("E1")), false),
        // Opened without an employee, it serves each of the caller's.
        (("acme", "gateway", None), ("acme", "gateway", Some("E1")), true),
        (("acme", "gateway", None), ("acme", "gateway", Some("E2")), true),
        (("acme", "gateway", None), ("acme", "gateway", None), true),
        (("acme", "gateway", None), ("acme", "script", Some("E1")), false),
        (("acme", "gateway", None), ("globex", "gateway", None), false),
        (("acme", "gateway", None), ("acmeg", "ateway", None), false),
    ] {
        let id = start(&sessions, &names(opened_by.0, opened_by.1, opened_by.2));
        let asks = names(asks.0, asks.1, asks.2);
        let opened = sessions.open(&id, asks.owner(), NOW);
        assert_eq!(opened.is_ok(), good, "{opened_by:?}");
    }
}

#[test]
fn a_session_expires() {
    let (sessions, owner) = (sessions(), names("acme", "gateway", None));
    let id = start(&sessions, &owner);
    assert!(sessions.open(&id, owner.owner(), END - 1).is_ok());
    assert_eq!(sessions.open(&id, owner.owner(), END), Err(SessionFault));
}

#[test]
fn what_was_not_sealed_here_is_no_session() {
    let (sessions, owner) = (sessions(), names("acme", "gateway", None));
    let foreign = Sessions::new(Sealer::random(PURPOSE).unwrap(), LIFE);
    let other_purpose = Sealer::new("cursor", &secrets());
    let good = start(&sessions, &owner);
    for id in [
        start(&foreign, &owner),
        other_purpose.seal(b"\x01\x01").unwrap(),
        sessions.sealer.seal(b"").unwrap(),
        sessions.sealer.seal(b"\x01\x02\0\0").unwrap(),
        good.to_lowercase(),
        format!("{good} "),
        String::new(),
        "550e8400-e29b-41d4-a716-446655440000".to_owned(),
    ] {
        assert_eq!(sessions.open(&id, owner.owner(), NOW), Err(SessionFault), "{id}");
    }
}

#[test]
fn an_ended_session_is_gone_and_others_are_not() {
    let (sessions, owner) = (sessions(), names("acme", "gateway", None));
    let (first, second) = (start(&sessions, &owner), start(&sessions, &owner));
    let open = |id| sessions.open(id, owner.owner(), NOW);
    let ended = open(&first).unwrap();
    sessions.end(&ended, NOW).unwrap();
    sessions.end(&ended, NOW).unwrap();
    sessions.sweep(END - 1);
    assert_eq!(open(&first), Err(SessionFault));
    assert!(open(&second).is_ok());
    assert_ne!(ended.hash(), open(&second).unwrap().hash());
    // Then its expiry says so, and there is nothing left to remember.
    sessions.sweep(END);
    assert_eq!(sessions.ended.len.load(Ordering::Relaxed), 0);
    assert_eq!(sessions.open(&first, owner.owner(), END), Err(SessionFault));
}

#[test]
fn no_ended_session_is_forgotten_to_make_room() {
    let ended = Ended::new(2);
    ended.add([1; 16], END, NOW).unwrap();
    ended.add([2; 16], END + 1, NOW).unwrap();
    assert_eq!(ended.add([3; 16], END, NOW), Err(EndedFull));
    assert_eq!(ended.add([1; 16], END, NOW), Ok(()));
    assert!(ended.contains(&[1; 16]) && ended.contains(&[2; 16]));
    assert_eq!(ended.add([3; 16], END + 2, END), Ok(()));
    assert!(!ended.contains(&[1; 16]) && ended.contains(&[3; 16]));
    assert_eq!(ended.len.load(Ordering::Relaxed), 2);
}

#[test]
fn names_too_long_for_an_id_are_refused() {
    let owner = names(&"t".repeat(256), "gateway", None);
    let started =
        sessions().start(owner.owner(), Version::V2025_03_26, Capabilities::default(), NOW);
    assert_eq!(started, Err(SealFault::TooLong));
}

#[test]
fn every_version_has_a_byte_of_its_own() {
    for version in Version::ALL {
        assert_eq!(version_of(version_byte(version)), Some(version));
    }
    assert_eq!(version_of(0), None);
}
