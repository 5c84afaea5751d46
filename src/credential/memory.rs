//! Sealed credentials in this process, for whoever keeps no store: they end with it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    CredentialRef, Owner, Whose,
    store::{Anew, CredentialStore, Held, KeyUse, NewCredential, Pick, Then},
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
        let renewed_ms = None;
        let held = Held {
            reference,
            whose: whose.clone(),
            kind,
            key,
            sealed,
            created_ms,
            updated_ms,
            renewed_ms,
        };
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

    fn pick(&self, pick: Pick, then: Then<Vec<Held>>) {
        let Pick { tenant, owner, server_keys, after, most } = pick;
        let is = |held: &&Held| {
            let Whose { tenant: of, owner: whose, server_key } = &held.whose;
            tenant.as_ref().is_none_or(|tenant| tenant == of)
                && owner.as_ref().is_none_or(|owner| owner == whose)
                && server_keys.as_ref().is_none_or(|keys| keys.contains(server_key))
                && after.as_ref().is_none_or(|after| place(&held.whose) > place(after))
        };
        let mut held: Vec<Held> = self.0.lock().values().filter(is).cloned().collect();
        held.sort_by_key(|held| place(&held.whose));
        held.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        then(Ok(held));
    }

    fn delete_all(&self, tenant: TenantId, owner: Owner, then: Then<Vec<Arc<str>>>) {
        let mut gone = Vec::new();
        self.0.lock().retain(|whose, _| {
            let is = whose.tenant == tenant && whose.owner == owner;
            if is {
                gone.push(whose.server_key.clone());
            }
            !is
        });
        gone.sort();
        then(Ok(gone));
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

    fn replace_sealed(&self, old: Held, anew: Anew, then: Then<bool>) {
        let mut all = self.0.lock();
        let same = |held: &&mut Held| held.reference == old.reference && held.sealed == old.sealed;
        let was = match all.get_mut(&old.whose).filter(same) {
            Some(held) => {
                (held.key, held.sealed) = (anew.key, anew.sealed);
                held.renewed_ms = anew.renewed_ms.or(held.renewed_ms);
                true
            }
            None => false,
        };
        drop(all);
        then(Ok(was));
    }
}

/// In which order all of them stand.
fn place(whose: &Whose) -> (String, String, Arc<str>) {
    (whose.tenant.as_str().to_owned(), whose.owner.text(), whose.server_key.clone())
}
