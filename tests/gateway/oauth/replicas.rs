//! Several gateways with one store: an employee is sent away by one, and comes back to another.

use std::{fs, os::unix::fs::PermissionsExt, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use super::{
    Pair,
    consent::{Browser, POLICY, call, connect_url, yaml},
};
use crate::{
    durable::create_database,
    support::{Gateway, postgres},
};

/// Two with one database and one keyring; none where there is no database to be had.
fn replicas(pair: &Pair) -> Option<[Gateway; 2]> {
    let server = postgres::shared()?;
    let name = format!("hangu_oauth_{:016x}", rand::random::<u64>());
    create_database(&server, &name);
    let material = STANDARD.encode(rand::random::<[u8; 32]>());
    let keyring = json!({ "version": 1, "keys": [{ "id": "1a2b3c4d", "state": "primary",
        "created": "2026-12-01T00:00:00Z", "since": "2026-12-01T00:00:00Z", "material": material }] });
    let file = "store: { file: database }\nkeyring: { file: keyring.json }
credentials: { cache_age: 100ms }";
    Some([(); 2].map(|()| {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        for (name, text) in
            [("database", format!("{server}/{name}")), ("keyring.json", keyring.to_string())]
        {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        Gateway::start_in(folder, None, &yaml(pair, "", file), &[POLICY])
    }))
}

#[test]
fn an_answer_is_good_once_at_whichever_replica() {
    let pair = Pair::start();
    let Some([one, other]) = replicas(&pair) else { return };
    let url = connect_url(&call(&one, "E1"));
    let mut browser = Browser::default();
    let location = browser.leave(&one, &url);
    let back = browser.consent(&pair, &location);
    // Many at once, at both: the first one is taken.
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let come = |gateway| {
            let (mut browser, back) = (browser.clone(), back.clone());
            scope.spawn(move || browser.get(gateway, &back).status)
        };
        let all: Vec<_> = (0..4).flat_map(|_| [&one, &other]).map(come).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let taken = statuses.iter().filter(|status| **status == 200).count();
    assert!(
        taken == 1 && statuses.iter().all(|status| matches!(status, 200 | 400)),
        "{statuses:?}"
    );
    assert_eq!(pair.requests_for_tokens().len(), 1);
    for gateway in [&one, &other] {
        crate::support::wait_for("the grant is seen", std::time::Duration::from_secs(5), || {
            !call(gateway, "E1").is_error()
        });
    }
}

#[test]
fn a_call_that_waits_at_one_replica_sees_the_grant_of_another() {
    let pair = Pair::start();
    let Some([one, other]) = replicas(&pair) else { return };
    let (url, state) = super::asked::asked(&super::asked::echo(&json!({}), &json!({})).ask(&one));
    let done = Browser::default().connect(&other, &pair, &url);
    assert_eq!(done.status, 200, "{done:?}");
    let more = super::asked::says("accept", &state);
    super::asked::ran(&super::asked::echo(&json!({}), &more).ask(&one));
}
