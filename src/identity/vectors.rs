//! What clients and browsers were given by format 1 is known for ever: the vectors were made by
//! another implementation.
//!
//! `tests/fixtures/sealing/tokens-1.json` is never made anew, and nothing in it is changed. Where a
//! token gets another form, the next version adds `tokens-2.json` and reads both.

use std::time::Duration;

use secrecy::SecretBox;
use serde::Deserialize;

use super::{
    cursor::{self, Cursors, List},
    seal::Sealer,
    session::{self, Owner, Sessions},
    state::{self, States},
    task::{self, TaskIds},
    ticket::{self, Tickets},
};
use crate::{
    mcp::{Capabilities, Family, Version},
    model::{
        call::Surface,
        caller::{CallerId, EmployeeId, TenantId},
        ids::{from_hex, hex},
        keys::{KeySecret, KeySecrets},
        server::UpstreamName,
    },
};

#[derive(Deserialize)]
struct Vectors {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    kind: String,
    key_id: u32,
    secret: String,
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    caller: String,
    employee: Option<String>,
    #[serde(default)]
    expires_ms: u64,
    #[serde(default)]
    call: String,
    #[serde(default)]
    says: String,
    #[serde(default)]
    surface: String,
    #[serde(default)]
    family: String,
    #[serde(default)]
    revision: String,
    #[serde(default)]
    capabilities: u16,
    #[serde(default)]
    number: String,
    token: String,
}

/// What a token says at a moment.
fn opened(vector: &Vector, now_ms: u64) -> Option<String> {
    let secret = SecretBox::new(Box::new(from_hex(&vector.secret).unwrap()));
    let primary = KeySecret { id: vector.key_id, secret };
    let secrets = KeySecrets { primary, others: Vec::new() };
    let sealer = |purpose| Sealer::new(purpose, &secrets);
    let (tenant, caller) = (TenantId::new(&*vector.tenant), CallerId::new(&*vector.caller));
    let employee = vector.employee.as_deref().map(|id| EmployeeId::parse(id).unwrap());
    let owner = Owner { tenant: &tenant, caller: &caller, employee: employee.as_ref() };
    let life = Duration::from_secs(1);
    let token = &*vector.token;
    match &*vector.kind {
        "session" => {
            let sessions = Sessions::new(sealer(session::PURPOSE), life);
            let session = sessions.open(token, owner, now_ms).ok()?;
            assert_eq!(session.version, Version::parse(&vector.revision).unwrap());
            assert_eq!(session.capabilities, Capabilities::from_bits(vector.capabilities));
            assert_eq!(session.employee, employee);
            assert_eq!(session.expires_ms, vector.expires_ms);
            let hash = hex::<8, 16>(session.hash());
            assert!(vector.number.as_bytes().starts_with(&hash), "{}", vector.number);
            Some(String::new())
        }
        "state" => {
            let states = States::new(sealer(state::PURPOSE), life);
            states.open(owner, &vector.call, token, now_ms).ok()
        }
        "task" => {
            let task = TaskIds::new(sealer(task::PURPOSE)).open(owner, token, now_ms).ok()?;
            assert_eq!(*task.tool, *vector.call);
            Some(task.own.into())
        }
        "cursor" => {
            let surface = match &*vector.surface {
                "" => Surface::Aggregate,
                name => Surface::Upstream(UpstreamName::parse(name).unwrap()),
            };
            let mut families = Family::ALL.into_iter();
            let family = families.find(|it| it.member() == vector.family).unwrap();
            let list = List { owner, surface: &surface, family };
            Cursors::new(sealer(cursor::PURPOSE)).open(list, token, now_ms).ok()
        }
        "ticket" => {
            let plain = Tickets::new(sealer(ticket::PURPOSE)).open(token)?;
            Some(String::from_utf8(plain).unwrap())
        }
        kind => panic!("{kind}"),
    }
}

#[test]
fn tokens_of_form_1_are_known_as_ever() {
    let text = include_str!("../../tests/fixtures/sealing/tokens-1.json");
    let Vectors { mut vectors } = serde_json::from_str(text).unwrap();
    for kind in ["session", "state", "task", "cursor", "ticket"] {
        let of = vectors.iter().filter(|vector| vector.kind == kind).count();
        assert!(of >= 2, "under both keys: {kind}");
    }
    for vector in &mut vectors {
        let at = vector.expires_ms.saturating_sub(1);
        assert_eq!(opened(vector, at).as_deref(), Some(&*vector.says), "{}", vector.kind);
        // A ticket's time is its owner's business.
        if vector.kind != "ticket" {
            assert_eq!(opened(vector, vector.expires_ms), None, "{}", vector.kind);
            vector.tenant.push('x');
            assert_eq!(opened(vector, at), None, "{}", vector.kind);
        }
    }
}
