//! Sealed credentials in this process, for whoever keeps no store: they end with it.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

use super::{
    CredentialRef, Owner, Whose,
    store::{CredentialStore, Held, KeyUse, NewCredential, Then},
};
use crate::model::caller::TenantId;

/// As many as a question about other keys is answered with.
const SOME: usize = 100;

/// Keeps them in a map. What it is asked it answers at once.
#[derive(Default)]
pub struct InProcess(Mutex<HashMap<Whose, Held>>);

impl CredentialStore for InProcess {
    fn put(&self, new: NewCredential, then: Then<CredentialRef>) {
        let NewCredential { whose, kind, key, sealed, now_ms } = new;
        let mut all = self.0.lock();
        let before = all.get(&whose);
        let reference = before.map_or_else(CredentialRef::random, |held| held.reference);
        let created_ms = before.map_or(now_ms, |held| held.created_ms);
        // Two within a millisecond are told apart, too.
        let updated_ms = before.map_or(now_ms, |held| now_ms.max(held.updated_ms + 1));
        let held =
            Held { reference, whose: whose.clone(), kind, key, sealed, created_ms, updated_ms };
        all.insert(whose, held);
        drop(all);
        then(Ok(reference));
    }

    fn get(&self, whose: Whose, then: Then<Option<Held>>) {
        let held = self.0.lock().get(&whose).cloned();
        then(Ok(held));
    }

    fn find(&self, tenant: TenantId, reference: CredentialRef, then: Then<Option<Held>>) {
        let is = |held: &&Held| held.reference == reference && held.whose.tenant == tenant;
        let held = self.0.lock().values().find(is).cloned();
        then(Ok(held));
    }

    fn delete(&self, whose: Whose, then: Then<bool>) {
        let was = self.0.lock().remove(&whose).is_some();
        then(Ok(was));
    }

    fn list(&self, tenant: TenantId, owner: Owner, then: Then<Vec<Held>>) {
        let is = |held: &&Held| held.whose.tenant == tenant && held.whose.owner == owner;
        let mut held: Vec<Held> = self.0.lock().values().filter(is).cloned().collect();
        held.sort_by(|a, b| a.whose.server_key.cmp(&b.whose.server_key));
        then(Ok(held));
    }

    fn key_uses(&self, then: Then<Vec<KeyUse>>) {
        let mut uses: BTreeMap<String, u64> = BTreeMap::new();
        for held in self.0.lock().values() {
            *uses.entry(held.key.clone()).or_default() += 1;
        }
        let told = |(key, credentials)| KeyUse { key, credentials, ..KeyUse::default() };
        then(Ok(uses.into_iter().map(told).collect()));
    }

    fn not_under(&self, key: String, after: Option<CredentialRef>, then: Then<Vec<Held>>) {
        let is = |held: &&Held| held.key != key && after.is_none_or(|after| held.reference > after);
        let mut held: Vec<Held> = self.0.lock().values().filter(is).cloned().collect();
        held.sort_by_key(|held| held.reference);
        held.truncate(SOME);
        then(Ok(held));
    }

    fn replace_sealed(&self, old: Held, key: String, sealed: Vec<u8>, then: Then<bool>) {
        let mut all = self.0.lock();
        let same = |held: &&mut Held| held.reference == old.reference && held.sealed == old.sealed;
        let was = match all.get_mut(&old.whose).filter(same) {
            Some(held) => {
                (held.key, held.sealed) = (key, sealed);
                true
            }
            None => false,
        };
        drop(all);
        then(Ok(was));
    }
}
