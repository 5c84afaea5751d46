//! Whose key is whose.

use super::*;

const NOW: u64 = 1_000;

fn key(plain: &str, expires_ms: Option<u64>) -> KeyDigest {
    KeyDigest::of(&SecretString::from(plain), expires_ms)
}

fn caller(id: &str, keys: Vec<KeyDigest>) -> CallerEntry {
    CallerEntry {
        id: CallerId::new(id),
        tenant: TenantId::new("acme"),
        keys,
        identity: Identity::None,
        catalog_roles: Roles::default(),
        call_sources: CallSources::default(),
    }
}

fn two() -> Callers {
    Callers::new(vec![
        caller("gateway", vec![key("old", Some(NOW + 1)), key("new", None)]),
        caller("script", vec![key("script key", Some(NOW))]),
    ])
    .unwrap()
}

fn check(presented: &[u8], expected: Result<&str, KeyFault>) {
    let callers = two();
    let found = callers.verify(presented, NOW).map(|caller| caller.id.as_str().to_owned());
    assert_eq!(found, expected.map(str::to_owned), "{}", presented.escape_ascii());
}

#[test]
fn a_key_names_its_caller() {
    check(b"new", Ok("gateway"));
    // Rotation: both are good until the old one's time has come.
    check(b"old", Ok("gateway"));
    assert_eq!(two().verify(b"old", NOW + 1).err(), Some(KeyFault::Expired));
    assert!(two().verify(b"new", u64::MAX).is_ok());
}

#[test]
fn nothing_else_names_anybody() {
    check(b"", Err(KeyFault::Missing));
    check(b"script key", Err(KeyFault::Expired));
    for wrong in ["ne", "newx", "new ", " new", "NEW", "script", "old,new", "\u{fffd}"] {
        check(wrong.as_bytes(), Err(KeyFault::Unknown));
    }
    check(&[0xff, 0x00], Err(KeyFault::Unknown));
    // The digest is no key.
    check(&key("new", None).sha256, Err(KeyFault::Unknown));
}

#[test]
fn a_digest_can_be_configured_instead_of_the_key() {
    // SHA-256 of "abc", from FIPS 180-2.
    let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let mut sha256 = [0; 32];
    for (byte, pair) in sha256.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    }
    let keys = vec![KeyDigest { sha256, expires_ms: None }];
    let callers = Callers::new(vec![caller("abc", keys)]).unwrap();
    assert!(callers.verify(b"abc", NOW).is_ok());
}

#[test]
fn a_key_of_two_callers_is_refused() {
    let both = |first, second| {
        Callers::new(vec![
            caller(first, vec![key("a", None), key("b", None)]),
            caller(second, vec![key("b", Some(NOW))]),
        ])
        .unwrap_err()
    };
    assert_eq!(
        both("one", "two"),
        CallersFault::SharedKey(CallerId::new("one"), CallerId::new("two"))
    );
    assert_eq!(both("one", "one"), CallersFault::RepeatedCaller(CallerId::new("one")));
    let twice = caller("one", vec![key("a", None), key("a", Some(NOW))]);
    assert_eq!(
        Callers::new(vec![twice]).unwrap_err(),
        CallersFault::RepeatedKey(CallerId::new("one"))
    );
}

#[test]
fn a_digest_is_not_shown() {
    let shown = format!("{:?}", two());
    assert!(!shown.contains("sha256"), "{shown}");
    let shown = format!("{:?}", caller("a", vec![key("new", None)]));
    assert!(shown.contains("KeyDigest") && !shown.contains("sha256"), "{shown}");
}
