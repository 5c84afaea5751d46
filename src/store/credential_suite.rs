//! What every store of credentials does.

use std::{future::Future, sync::Arc};

use tokio::sync::oneshot;

use super::{
    Store,
    suite::{Place, result},
};
use crate::{
    clock::Clock,
    credential::{
        CacheLimits, Credential, CredentialRef, InProcess, Keeper, KeyringFile, Kms, Owner, Whose,
        key_of,
        store::{Anew, CredentialStore, Held, KeyUse, NewCredential, Pick, StoreFault, Then},
    },
    model::caller::{EmployeeId, TenantId},
};

const NOW: u64 = 1_790_000_000_000;

/// A store, and what keeps it open.
struct Opened {
    credentials: Arc<dyn CredentialStore>,
    _store: Option<Store>,
}

fn open(place: &Place) -> Opened {
    let Some(address) = &place.address else {
        return Opened { credentials: Arc::new(InProcess::default()), _store: None };
    };
    let opened = Store::open(address, &place.clock).unwrap();
    Opened { credentials: opened.credentials, _store: Some(opened.store) }
}

fn whose(tenant: &str, employee: &str, server_key: &str) -> Whose {
    let owner = Owner::Employee(EmployeeId::parse(employee).unwrap());
    Whose { tenant: TenantId::new(tenant), owner, server_key: server_key.into() }
}

fn new(whose: &Whose, key: &str, sealed: &[u8], now_ms: u64) -> NewCredential {
    let kind = Credential::Bearer("".into()).kind();
    NewCredential {
        whose: whose.clone(),
        kind,
        key: key.to_owned(),
        sealed: sealed.to_vec(),
        now_ms,
    }
}

fn ask<T: Send + 'static>(
    opened: &Opened,
    question: impl FnOnce(&dyn CredentialStore, Then<T>),
) -> impl Future<Output = T> {
    let (told, answer) = oneshot::channel::<Result<T, StoreFault>>();
    question(&*opened.credentials, Box::new(move |it| drop(told.send(it))));
    async move { answer.await.unwrap().unwrap() }
}

async fn put(opened: &Opened, new: NewCredential) -> CredentialRef {
    ask(opened, |store, then| store.put(new, then)).await
}

async fn get(opened: &Opened, whose: &Whose) -> Option<Held> {
    let whose = whose.clone();
    ask(opened, |store, then| store.get(whose, then)).await
}

pub async fn an_owner_has_one_for_a_server(place: Place) {
    let opened = open(&place);
    let own = whose("acme", "E1", "mcp_a_1");
    assert_eq!(get(&opened, &own).await, None);
    let reference = put(&opened, new(&own, "k1", b"one", NOW)).await;
    // Another in its place has its name, so what refers to it need not change.
    assert_eq!(put(&opened, new(&own, "k2", b"two", NOW + 5)).await, reference);
    let held = get(&opened, &own).await.unwrap();
    assert_eq!((held.reference, &*held.key, &*held.sealed), (reference, "k2", &b"two"[..]));
    assert_eq!((held.created_ms, held.updated_ms), (NOW, NOW + 5));
    assert_eq!(held.whose, own);
    // Two that come in one millisecond are told apart.
    put(&opened, new(&own, "k2", b"again", NOW + 5)).await;
    let again = get(&opened, &own).await.unwrap();
    assert_eq!((&*again.sealed, again.updated_ms), (&b"again"[..], NOW + 6));
    assert_ne!(again.stamp(), held.stamp());
    let gone = || ask(&opened, |store, then| store.delete(own.clone(), then));
    assert!(gone().await);
    assert!(!gone().await);
    assert_eq!(get(&opened, &own).await, None);
    assert_ne!(put(&opened, new(&own, "k1", b"three", NOW)).await, reference);
}

pub async fn nobody_finds_another_s(place: Place) {
    let opened = open(&place);
    let all = [
        whose("acme", "E1", "mcp_b_2"),
        whose("acme", "E1", "mcp_a_1"),
        whose("acme", "E2", "mcp_a_1"),
        whose("globex", "E1", "mcp_a_1"),
        Whose { owner: Owner::Gateway, ..whose("acme", "E1", "mcp_a_1") },
    ];
    let mut references = Vec::new();
    for own in &all {
        let sealed = format!("{own:?}");
        references.push(put(&opened, new(own, "k1", sealed.as_bytes(), NOW)).await);
    }
    for (own, reference) in all.iter().zip(&references) {
        let held = get(&opened, own).await.unwrap();
        assert_eq!((held.reference, held.sealed), (*reference, format!("{own:?}").into_bytes()));
        let find = |tenant: &str| {
            let (tenant, reference) = (TenantId::new(tenant), *reference);
            ask(&opened, move |store, then| store.find(tenant, reference, then))
        };
        assert_eq!(find(own.tenant.as_str()).await.unwrap().whose, *own);
        assert_eq!(find("other").await, None, "another tenant has no use for the reference");
    }
    let (tenant, owner) = (all[0].tenant.clone(), all[0].owner.clone());
    let listed = ask(&opened, |store, then| store.list(tenant, owner, then)).await;
    let listed: Vec<_> = listed.into_iter().map(|held| held.whose.server_key).collect();
    assert_eq!(listed, ["mcp_a_1".into(), Arc::from("mcp_b_2")]);
}

pub async fn what_is_sealed_under_which_key_is_counted(place: Place) {
    {
        // An idempotency record, which is sealed under a key too.
        let process = place.start();
        assert!(process.run("k1").await.finish(&result("paid")).wait().await);
    }
    let opened = open(&place);
    for (number, key) in ["k1", "k1", "k2"].into_iter().enumerate() {
        put(&opened, new(&whose("acme", "E1", &format!("s{number}")), key, b"x", NOW)).await;
    }
    let uses = ask(&opened, |store, then| store.key_uses(then)).await;
    let of = |key: &str| uses.iter().find(|found| found.key == key).unwrap().clone();
    let credentials =
        |key: &str, credentials| KeyUse { key: key.to_owned(), credentials, ..KeyUse::default() };
    assert_eq!(of("k1"), credentials("k1", 2));
    assert_eq!(of("k2"), credentials("k2", 1));
    let replays = of("00000001");
    assert_eq!((replays.credentials, replays.replays, uses.len()), (0, 1, 3));
    assert_eq!(replays.replays_until_ms, place.clock.now_ms() + 86_400_000);
    let others = |after| ask(&opened, move |store, then| store.not_under("k2".into(), after, then));
    let some = others(None).await;
    assert_eq!(some.len(), 2);
    assert!(some.is_sorted_by_key(|held| held.reference));
    assert_eq!(others(Some(some[0].reference)).await, [some[1].clone()]);
    assert_eq!(others(Some(some[1].reference)).await, []);
}

pub async fn one_that_changed_meanwhile_is_not_rewrapped(place: Place) {
    let opened = open(&place);
    let own = whose("acme", "E1", "s");
    put(&opened, new(&own, "k1", b"one", NOW)).await;
    let old = get(&opened, &own).await.unwrap();
    let replace = |held: &Held, sealed: &[u8]| {
        let (held, sealed) = (held.clone(), sealed.to_vec());
        let anew = Anew { key: "k2".to_owned(), sealed, renewed_ms: None };
        ask(&opened, move |store, then| store.replace_sealed(held, anew, then))
    };
    assert!(replace(&old, b"rewrapped").await);
    let held = get(&opened, &own).await.unwrap();
    assert_eq!((&*held.key, &*held.sealed), ("k2", &b"rewrapped"[..]));
    assert_eq!(held.updated_ms, NOW, "its owner changed nothing");
    put(&opened, new(&own, "k2", b"another", NOW + 1)).await;
    assert!(!replace(&held, b"late").await);
    assert_eq!(get(&opened, &own).await.unwrap().sealed, b"another");
}

pub async fn a_renewal_is_remembered_until_its_owner_sets_another(place: Place) {
    let opened = open(&place);
    let own = whose("acme", "E1", "s");
    let renewed = async || get(&opened, &own).await.unwrap().renewed_ms;
    let anew = async |sealed: &[u8], renewed_ms| {
        let held = get(&opened, &own).await.unwrap();
        let anew = Anew { key: "k2".to_owned(), sealed: sealed.to_vec(), renewed_ms };
        assert!(ask(&opened, |store, then| store.replace_sealed(held, anew, then)).await);
    };
    put(&opened, new(&own, "k1", b"one", NOW)).await;
    assert_eq!(renewed().await, None);
    anew(b"two", Some(NOW + 7)).await;
    assert_eq!(renewed().await, Some(NOW + 7));
    anew(b"wrapped anew", None).await;
    assert_eq!(renewed().await, Some(NOW + 7), "what is sealed is the same");
    put(&opened, new(&own, "k1", b"three", NOW + 9)).await;
    assert_eq!(renewed().await, None);
}

pub async fn all_of_them_are_looked_through_page_by_page(place: Place) {
    let opened = open(&place);
    let mut all = Vec::new();
    for (tenant, employee, key) in [
        ("acme", "E1", "mcp_a_1"),
        ("acme", "E1", "mcp_b_2"),
        ("acme", "E2", "mcp_a_1"),
        ("globex", "E1", "mcp_a_1"),
    ] {
        all.push(whose(tenant, employee, key));
        put(&opened, new(all.last().unwrap(), "k1", b"x", NOW)).await;
    }
    let secret = Whose::secret("crm");
    put(&opened, new(&secret, "k1", b"x", NOW)).await;
    all.insert(0, secret);
    let pick = async |pick: Pick| -> Vec<Whose> {
        let some = ask(&opened, |store, then| store.pick(pick, then)).await;
        some.into_iter().map(|held| held.whose).collect()
    };
    let mut seen: Vec<Whose> = Vec::new();
    loop {
        let after = seen.last().cloned();
        let page = pick(Pick { after, most: 2, ..Pick::default() }).await;
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        seen.extend(page);
    }
    assert_eq!(seen, all);
    let (acme, e1) = (Some(all[1].tenant.clone()), Some(all[1].owner.clone()));
    let keys = Some(["mcp_a_1".into(), Arc::from("other")]);
    for (tenant, owner, server_keys, expected) in [
        (acme.clone(), None, None, vec![1, 2, 3]),
        (None, e1.clone(), None, vec![1, 2, 4]),
        (None, None, keys.clone(), vec![1, 3, 4]),
        (acme.clone(), e1.clone(), keys.clone(), vec![1]),
        (Some(TenantId::new("nobody")), None, None, vec![]),
    ] {
        let wanted = Pick { tenant, owner, server_keys, after: None, most: 10 };
        let expected: Vec<_> = expected.into_iter().map(|n| all[n].clone()).collect();
        assert_eq!(pick(wanted.clone()).await, expected, "{wanted:?}");
    }
    let gone = async || {
        let (tenant, owner) = (all[1].tenant.clone(), all[1].owner.clone());
        ask(&opened, |store, then| store.delete_all(tenant, owner, then)).await
    };
    assert_eq!(gone().await, ["mcp_a_1".into(), Arc::from("mcp_b_2")]);
    assert_eq!(gone().await, [] as [Arc<str>; 0]);
    let left = pick(Pick { most: 10, ..Pick::default() }).await;
    assert_eq!(left, [all[0].clone(), all[3].clone(), all[4].clone()]);
}

pub async fn what_was_kept_is_there_after_a_restart(place: Place) {
    let own = whose("acme", "E1", "s");
    let reference = {
        let opened = open(&place);
        put(&opened, new(&own, "k1", b"one", NOW)).await
    };
    let opened = open(&place);
    assert_eq!(get(&opened, &own).await.unwrap().reference, reference);
}

/// With a real keyring: whoever has the database has nothing.
pub async fn nothing_planted_is_in_the_file(place: Place) {
    let folder = tempfile::tempdir().unwrap();
    let file = KeyringFile::new(folder.path().join("keyring.json"));
    let cache = CacheLimits { age: std::time::Duration::from_secs(1), uses: 1 };
    let keeper = Keeper::new(file, None, cache, Clock::manual(NOW));
    keeper.create().unwrap();
    let kms: Arc<dyn Kms> = keeper.kms(Arc::new(keeper.open().unwrap()));
    let own = whose("acme", "E1", "s");
    let credential = Credential::Headers(vec![("X-Key".into(), "planted-credential".into())]);
    let sealed = credential.seal(&*kms, &own).unwrap();
    let key = key_of(&sealed).unwrap();
    let opened = open(&place);
    put(&opened, new(&own, &key, &sealed, NOW)).await;
    let held = get(&opened, &own).await.unwrap();
    assert!(!format!("{held:?}").contains("planted"));
    let Credential::Headers(headers) = Credential::open(&*kms, &own, &held.sealed).unwrap() else {
        panic!("another kind")
    };
    assert_eq!(secrecy::ExposeSecret::expose_secret(&headers[0].1), "planted-credential");
    drop(opened);
    let super::Address::Sqlite(path) = place.address.as_ref().unwrap() else { panic!() };
    for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(7).any(|part| part == b"planted"));
    }
}
