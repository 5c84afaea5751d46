//! Credentials as those have them who use them: what is kept in memory, and how long it is
//! believed.

use std::time::Duration;

use parking_lot::Mutex;

use super::{
    super::store::{Anew, CredentialStore, Held, KeyUse, NewCredential, Pick, StoreFault, Then},
    *,
};

const SOON: VaultLimits = VaultLimits { age: Duration::from_millis(40), entries: 100 };
const LATE: VaultLimits = VaultLimits { age: Duration::from_secs(3_600), entries: 100 };

fn vault(store: &Arc<Other>, place: &Place, limits: VaultLimits) -> Vault {
    Vault::new(store.clone(), Some(place.kms()), limits, Clock::manual(NOW))
}

fn token(text: &str) -> Credential {
    Credential::Bearer(text.into())
}

async fn opened(vault: &Vault, whose: &Whose) -> Option<String> {
    vault.open(whose).await.unwrap().map(|credential| shown(&credential))
}

/// A store that can be away, and does something between a question and its answer.
#[derive(Default)]
struct Other {
    inner: InProcess,
    away: Mutex<bool>,
    asked: Mutex<usize>,
    meanwhile: Mutex<Option<NewCredential>>,
}

impl CredentialStore for Other {
    fn put(&self, new: NewCredential, then: Then<CredentialRef>) {
        self.inner.put(new, then);
    }

    fn get(&self, whose: Whose, then: Then<Option<Held>>) {
        *self.asked.lock() += 1;
        if *self.away.lock() {
            return then(Err(StoreFault::Unavailable));
        }
        let meanwhile = self.meanwhile.lock().take();
        let answered = Arc::new(Mutex::new(None));
        let kept = answered.clone();
        self.inner.get(whose, Box::new(move |held| *kept.lock() = Some(held)));
        if let Some(new) = meanwhile {
            self.inner.put(new, Box::new(|_| {}));
        }
        let answer = answered.lock().take().unwrap();
        then(answer);
    }

    fn find(&self, tenant: TenantId, reference: CredentialRef, then: Then<Option<Held>>) {
        self.inner.find(tenant, reference, then);
    }

    fn delete(&self, whose: Whose, then: Then<bool>) {
        self.inner.delete(whose, then);
    }

    fn list(&self, tenant: TenantId, owner: Owner, then: Then<Vec<Held>>) {
        self.inner.list(tenant, owner, then);
    }

    fn key_uses(&self, then: Then<Vec<KeyUse>>) {
        self.inner.key_uses(then);
    }

    fn not_under(&self, key: String, after: Option<CredentialRef>, then: Then<Vec<Held>>) {
        self.inner.not_under(key, after, then);
    }

    fn pick(&self, pick: Pick, then: Then<Vec<Held>>) {
        self.inner.pick(pick, then);
    }

    fn delete_all(&self, tenant: TenantId, owner: Owner, then: Then<Vec<Arc<str>>>) {
        self.inner.delete_all(tenant, owner, then);
    }

    fn replace_sealed(&self, old: Held, anew: Anew, then: Then<bool>) {
        self.inner.replace_sealed(old, anew, then);
    }
}

#[tokio::test]
async fn a_change_of_this_process_is_seen_at_once_and_another_s_soon() {
    let (store, place) = (Arc::new(Other::default()), Place::new());
    let own = whose("acme", "E1", "mcp_s_1");
    let (late, soon) = (vault(&store, &place, LATE), vault(&store, &place, SOON));
    for vault in [&late, &soon] {
        assert_eq!(opened(vault, &own).await, None);
    }
    let reference = late.put(own.clone(), token("one")).await.unwrap();
    assert_eq!(opened(&late, &own).await.as_deref(), Some("bearer one"));
    tokio::time::sleep(2 * SOON.age).await;
    assert_eq!(opened(&soon, &own).await.as_deref(), Some("bearer one"));
    // Once known, it is not asked for again.
    let asked = *store.asked.lock();
    for _ in 0..10 {
        opened(&late, &own).await;
    }
    assert_eq!(*store.asked.lock(), asked);
    assert_eq!(late.put(own.clone(), token("two")).await.unwrap(), reference);
    assert_eq!(opened(&late, &own).await.as_deref(), Some("bearer two"));
    let listed = late.list(own.tenant.clone(), own.owner.clone()).await.unwrap();
    assert_eq!((listed.len(), listed[0].kind), (1, CredentialKind::Bearer));
    assert!(late.delete(own.clone()).await.unwrap());
    assert_eq!(opened(&late, &own).await, None);
    assert!(!late.delete(own.clone()).await.unwrap());
}

#[tokio::test]
async fn what_was_looked_up_before_a_change_is_not_kept_after_it() {
    let (store, place) = (Arc::new(Other::default()), Place::new());
    let own = whose("acme", "E1", "mcp_s_1");
    let vault = vault(&store, &place, LATE);
    vault.put(own.clone(), token("old")).await.unwrap();
    let sealed = token("new").seal(&*place.kms(), &own).unwrap();
    let (kind, key) = (CredentialKind::Bearer, key_of(&sealed).unwrap());
    let new = NewCredential { whose: own.clone(), kind, key, sealed, now_ms: NOW };
    *store.meanwhile.lock() = Some(new);
    // The answer is on its way while another process writes: believed until its age.
    assert_eq!(opened(&vault, &own).await.as_deref(), Some("bearer old"));
    // This process writes: the lookup under way begins anew.
    let before = vault.held(&own).await.unwrap().unwrap();
    assert!(!vault.renew(&before, token("late")).await.unwrap(), "it was replaced meanwhile");
    assert_eq!(opened(&vault, &own).await.as_deref(), Some("bearer new"));
}

#[tokio::test]
async fn a_renewed_token_is_the_same_grant() {
    let (store, place) = (Arc::new(Other::default()), Place::new());
    let own = whose("acme", "E1", "mcp_s_1");
    let vault = vault(&store, &place, LATE);
    vault.put(own.clone(), token("first")).await.unwrap();
    let first = vault.held(&own).await.unwrap().unwrap();
    assert!(vault.renew(&first, token("second")).await.unwrap());
    let second = vault.held(&own).await.unwrap().unwrap();
    assert_eq!(second.stamp(), first.stamp());
    assert_eq!((first.renewed_ms, second.renewed_ms), (None, Some(NOW)));
    assert_eq!(opened(&vault, &own).await.as_deref(), Some("bearer second"));
    vault.put(own.clone(), token("third")).await.unwrap();
    let third = vault.held(&own).await.unwrap().unwrap();
    assert_ne!(third.stamp(), first.stamp());
    assert_eq!(third.renewed_ms, None, "its owner set it anew");
}

#[tokio::test]
async fn who_looks_after_all_of_them_sees_who_has_what_and_takes_it_away_at_once() {
    let (store, place) = (Arc::new(Other::default()), Place::new());
    let vault = vault(&store, &place, LATE);
    let (one, other) = (whose("acme", "E1", "mcp_a_1"), whose("acme", "E2", "mcp_a_1"));
    let granted = whose("acme", "E1", "mcp_b_2");
    let grant = oauth::Grant {
        access: "planted-access".into(),
        refresh: Some("planted-refresh".into()),
        expires_ms: Some(NOW + 5),
        scope: "read write".to_owned(),
        issuer: "https://as.example".to_owned(),
        token_endpoint: "https://as.example/token".to_owned(),
        resource: "https://mcp.example".to_owned(),
        client_id: "c1".to_owned(),
    };
    for whose in [&one, &other] {
        vault.put(whose.clone(), token("planted")).await.unwrap();
    }
    vault.put(granted.clone(), Credential::OAuth(grant)).await.unwrap();
    let settings = oauth::OwnSettings::new(Some("c".into()), Some("planted".into()), &[]);
    let of = |id: &str| EmployeeId::parse(id).unwrap();
    let place = oauth::OwnSettings::place(one.tenant.clone(), of("E1"), "mcp_b_2");
    vault.put(place.clone(), settings.to_credential().unwrap()).await.unwrap();

    let all = Pick { most: 10, ..Pick::default() };
    let seen = vault.survey(all.clone()).await.unwrap();
    assert!(!format!("{seen:?}").contains("planted"), "{seen:?}");
    let places: Vec<_> = seen.iter().map(|it| it.whose.clone()).collect();
    assert_eq!(places, [one.clone(), granted.clone(), place, other.clone()]);
    let told = seen[1].grant.clone().unwrap().unwrap();
    assert_eq!((&*told.issuer, &*told.scope), ("https://as.example", "read write"));
    assert_eq!((told.expires_ms, told.renewable, &*told.client_id), (Some(NOW + 5), true, "c1"));
    assert!(seen[0].grant.is_none());

    opened(&vault, &one).await;
    let gone = vault.delete_all(one.tenant.clone(), one.owner.clone()).await.unwrap();
    assert_eq!(gone, ["mcp_a_1".into(), Arc::from("mcp_b_2")]);
    assert_eq!(opened(&vault, &one).await, None, "not even from memory");
    assert_eq!(opened(&vault, &other).await.as_deref(), Some("bearer planted"));
    assert_eq!(vault.survey(all).await.unwrap().len(), 1);
    assert_eq!(vault.delete_all(one.tenant, one.owner).await, Ok(vec![]));
}

#[tokio::test]
async fn a_store_that_is_away_opens_what_is_known_and_nothing_else() {
    let (store, place) = (Arc::new(Other::default()), Place::new());
    let own = whose("acme", "E1", "mcp_s_1");
    let vault = vault(&store, &place, LATE);
    vault.put(own.clone(), token("one")).await.unwrap();
    opened(&vault, &own).await;
    *store.away.lock() = true;
    assert_eq!(opened(&vault, &own).await.as_deref(), Some("bearer one"));
    let other = vault.open(&whose("acme", "E2", "mcp_s_1")).await.unwrap_err();
    assert_eq!(other, VaultFault::Store(StoreFault::Unavailable));
}

#[tokio::test]
async fn without_a_keyring_nothing_is_kept() {
    let store = Arc::new(InProcess::default());
    let vault = Vault::new(store, None, LATE, Clock::manual(NOW));
    let own = whose("acme", "E1", "mcp_s_1");
    assert!(!vault.has_keys());
    assert_eq!(vault.put(own.clone(), token("one")).await, Err(VaultFault::NoKeyring));
    assert_eq!(vault.held(&own).await, Ok(None));
    let place = Place::new();
    vault.rekey(place.kms());
    vault.put(own.clone(), token("one")).await.unwrap();
    assert_eq!(opened(&vault, &own).await.as_deref(), Some("bearer one"));
}

#[tokio::test]
async fn a_secret_of_an_operator_is_nobody_s_credential() {
    let (store, place) = (Arc::new(Other::default()), Place::new());
    let vault = vault(&store, &place, LATE);
    vault.put(Whose::secret("crm"), Credential::Value("v".into())).await.unwrap();
    assert_eq!(opened(&vault, &Whose::secret("crm")).await.as_deref(), Some("value v"));
    assert_eq!(opened(&vault, &whose("acme", "", "crm")).await, None);
    let own = Whose::secret("crm");
    assert_eq!(Whose::secret_name(&own.server_key), Some("crm"));
    assert_eq!(Whose::secret_name("mcp_crm_00000000"), None);
}
