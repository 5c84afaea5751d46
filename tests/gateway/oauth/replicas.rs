//! What a store makes of employees who were sent away: they come back once, to whichever gateway
//! of it, also after a restart, and to none while it cannot be used.

use std::{fs, os::unix::fs::PermissionsExt, sync::Arc, thread, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;
use sqlx::{Connection, Executor, SqliteConnection};
use tempfile::TempDir;

use super::{
    Pair,
    asked::{asked, echo, ran, says},
    consent::{Browser, POLICY, call, connect_url, yaml},
};
use crate::{
    durable::create_database,
    support::{Gateway, postgres, wait_for},
};

const SOON: Duration = Duration::from_secs(5);

/// A folder with a keyring, and with the address of a store.
fn folder(keyring: &str, store: &str) -> Arc<TempDir> {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    for (name, text) in [("keyring.json", keyring), ("store", store)] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    folder
}

fn keyring() -> String {
    let material = STANDARD.encode(rand::random::<[u8; 32]>());
    let key = json!({ "id": "1a2b3c4d", "state": "primary", "created": "2026-12-01T00:00:00Z",
                      "since": "2026-12-01T00:00:00Z", "material": material });
    json!({ "version": 1, "keys": [key] }).to_string()
}

fn start(pair: &Pair, folder: Arc<TempDir>) -> Gateway {
    start_caching(pair, folder, "100ms")
}

/// The same with another age of what it keeps in memory.
fn start_caching(pair: &Pair, folder: Arc<TempDir>, age: &str) -> Gateway {
    let file = format!(
        "store: {{ file: store }}\nkeyring: {{ file: keyring.json }}
credentials: {{ cache_age: {age} }}"
    );
    Gateway::start_in(folder, None, &yaml(pair, "", &file), &[POLICY])
}

/// Two with one database and one keyring; none where there is no database to be had.
fn replicas(pair: &Pair, age: &str) -> Option<[Gateway; 2]> {
    let server = postgres::shared()?;
    let name = format!("hangu_oauth_{:016x}", rand::random::<u64>());
    create_database(&server, &name);
    let keyring = keyring();
    let folder = || folder(&keyring, &format!("{server}/{name}"));
    Some([(); 2].map(|()| start_caching(pair, folder(), age)))
}

#[test]
fn an_answer_is_good_once_at_whichever_replica() {
    let pair = Pair::start();
    let Some([one, other]) = replicas(&pair, "100ms") else { return };
    let url = connect_url(&call(&one, "E1"));
    let mut browser = Browser::default();
    let location = browser.leave(&one, &url);
    let back = browser.consent(&pair, &location);
    // Many at once, at both: the first one is taken.
    let statuses: Vec<u16> = thread::scope(|scope| {
        let come = |gateway| {
            let (mut browser, back) = (browser.clone(), back.clone());
            scope.spawn(move || browser.get(gateway, &back).status)
        };
        let all: Vec<_> = (0..4).flat_map(|_| [&one, &other]).map(come).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let taken = statuses.iter().filter(|status| **status == 200).count();
    assert!(taken == 1 && statuses.iter().all(|one| matches!(one, 200 | 400)), "{statuses:?}");
    assert_eq!(pair.requests_for_tokens().len(), 1);
    for gateway in [&one, &other] {
        wait_for("the grant is seen", SOON, || !call(gateway, "E1").is_error());
    }
}

#[test]
fn a_call_that_waits_at_one_replica_sees_the_grant_of_another() {
    let pair = Pair::start();
    let Some([one, other]) = replicas(&pair, "100ms") else { return };
    let (url, state) = asked(&echo(&json!({}), &json!({})).ask(&one));
    let done = Browser::default().connect(&other, &pair, &url);
    assert_eq!(done.status, 200, "{done:?}");
    ran(&echo(&json!({}), &says("accept", &state)).ask(&one));
}

#[test]
fn an_answer_that_was_taken_is_known_after_a_restart() {
    let pair = Pair::start();
    let folder = folder(&keyring(), "sqlite:hangu.db");
    let gateway = start(&pair, folder.clone());
    let url = connect_url(&call(&gateway, "E1"));
    let mut browser = Browser::default();
    let location = browser.leave(&gateway, &url);
    let back = browser.consent(&pair, &location);
    assert_eq!(browser.get(&gateway, &back).status, 200);
    drop(gateway);
    let gateway = start(&pair, folder);
    let again = browser.get(&gateway, &back);
    assert!(again.status == 400 && again.text().contains("given already"), "{again:?}");
    assert_eq!(pair.requests_for_tokens().len(), 1);
    assert!(!call(&gateway, "E1").is_error());
}

#[test]
fn without_its_store_nobody_is_taken_back() {
    let pair = Pair::start();
    let folder = folder(&keyring(), "sqlite:hangu.db");
    let gateway = start(&pair, folder.clone());
    let url = connect_url(&call(&gateway, "E1"));
    let mut browser = Browser::default();
    let location = browser.leave(&gateway, &url);
    let back = browser.consent(&pair, &location);
    let store = format!("sqlite:{}", folder.path().join("hangu.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut other = runtime.block_on(SqliteConnection::connect(&store)).unwrap();
    runtime.block_on(other.execute("BEGIN IMMEDIATE")).unwrap();
    let refused = browser.get(&gateway, &back);
    assert!(refused.status == 503 && refused.text().contains("again in a while"), "{refused:?}");
    assert!(pair.requests_for_tokens().is_empty());
    runtime.block_on(other.execute("ROLLBACK")).unwrap();
    wait_for("the store is back", SOON, || {
        let url = connect_url(&call(&gateway, "E1"));
        Browser::default().connect(&gateway, &pair, &url).status == 200
    });
    assert!(!call(&gateway, "E1").is_error());
}

/// A refresh token that is brought again ends the grant at careful authorization servers.
#[test]
fn replicas_bring_no_refresh_token_twice() {
    let pair = Pair::start();
    // So short that every call needs another one.
    pair.rules.lock().expires_in = Some(1);
    let Some(both) = replicas(&pair, "1h") else { return };
    let url = connect_url(&call(&both[0], "E1"));
    assert_eq!(Browser::default().connect(&both[0], &pair, &url).status, 200);
    let served = |gateway: &Gateway| {
        let reply = call(gateway, "E1");
        assert!(!reply.is_error(), "{}", reply.text());
    };
    // Each knows the grant by now, and the other one renews it.
    for _ in 0..3 {
        both.iter().for_each(served);
    }
    thread::scope(|scope| {
        for number in 0..8 {
            let gateway = &both[number % 2];
            scope.spawn(move || served(gateway));
        }
    });
    let rules = pair.rules.lock();
    assert_eq!((rules.stale, rules.refresh.len()), (0, 1));
}
