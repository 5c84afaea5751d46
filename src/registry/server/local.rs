//! Personal servers in memory: they end with the process.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use url::Url;

use super::{Archive, Change, Changes, Kept, Marker, NotPut, Registration, ServerStore};
use crate::{
    model::caller::{EmployeeId, TenantId},
    registry::store::Then,
};

/// A store without a disk.
#[derive(Debug, Default)]
pub struct Local(Mutex<Servers>);

/// Tenant, owner and serverKey.
type Place = (TenantId, EmployeeId, Arc<str>);

/// Servers that are gone and yet remembered.
const MAX_GONE: usize = 10_000;

#[derive(Debug, Default)]
struct Servers {
    all: BTreeMap<Place, Kept>,
    /// By tenant and key: the address, and how many have registered it.
    addresses: HashMap<(TenantId, Arc<str>), (Url, usize)>,
    /// Of all writes the last.
    last: u64,
    /// When each server was written last, those that are gone too.
    written: HashMap<Place, u64>,
    /// The same, in the order of the writes.
    writes: BTreeMap<u64, Place>,
    /// The last write that is not remembered.
    forgotten: u64,
}

// === impl Servers ===

impl Servers {
    fn note(&mut self, place: &Place) {
        self.last += 1;
        if let Some(before) = self.written.insert(place.clone(), self.last) {
            self.writes.remove(&before);
        }
        self.writes.insert(self.last, place.clone());
        if self.writes.len() > self.all.len() + MAX_GONE {
            self.forget();
        }
    }

    /// Half of what is gone, the oldest first.
    fn forget(&mut self) {
        let gone = self.writes.iter().filter(|(_, place)| !self.all.contains_key(*place));
        let gone: Vec<u64> = gone.take(MAX_GONE / 2).map(|(write, _)| *write).collect();
        for write in gone {
            self.forgotten = write;
            if let Some(place) = self.writes.remove(&write) {
                self.written.remove(&place);
            }
        }
    }

    fn remove(&mut self, place: &Place) -> bool {
        if self.all.remove(place).is_none() {
            return false;
        }
        let key = (place.0.clone(), place.2.clone());
        if let Some((_, count)) = self.addresses.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&key);
            }
        }
        self.note(place);
        true
    }

    fn of(&self, tenant: &TenantId, owner: &EmployeeId) -> impl Iterator<Item = &Kept> {
        let first: Place = (tenant.clone(), owner.clone(), "".into());
        let (tenant, owner) = (tenant.clone(), owner.clone());
        let own = self.all.range(first..);
        own.take_while(move |(place, _)| place.0 == tenant && place.1 == owner)
            .map(|(_, kept)| kept)
    }

    fn put(&mut self, mut new: Registration, most: u32) -> Result<Registration, NotPut> {
        let place = (new.tenant.clone(), new.owner.clone(), new.server_key.clone());
        let key = (new.tenant.clone(), new.server_key.clone());
        if self.addresses.get(&key).is_some_and(|(known, _)| *known != new.url) {
            return Err(NotPut::Collision);
        }
        let before = self.all.get(&place).map(|kept| &kept.registration);
        let revision = before.map_or(0, |before| before.revision);
        if revision != new.revision {
            return Err(NotPut::Changed { revision });
        }
        match before {
            Some(before) => new.created_ms = before.created_ms,
            None if self.of(&place.0, &place.1).count() >= most as usize => {
                return Err(NotPut::Full { most });
            }
            None => {}
        }
        new.revision = revision + 1;
        match self.all.get_mut(&place) {
            Some(kept) => kept.registration = new.clone(),
            None => {
                let kept = Kept { registration: new.clone(), archive: None };
                self.all.insert(place.clone(), kept);
                let address = self.addresses.entry(key);
                address.or_insert_with(|| (new.url.clone(), 0)).1 += 1;
            }
        }
        self.note(&place);
        Ok(new)
    }
}

impl ServerStore for Local {
    fn put(&self, registration: Registration, most: u32, then: Then<Result<Registration, NotPut>>) {
        let outcome = self.0.lock().put(registration, most);
        then(Ok(outcome));
    }

    fn get(
        &self,
        tenant: TenantId,
        owner: EmployeeId,
        server_key: Arc<str>,
        then: Then<Option<Kept>>,
    ) {
        let found = self.0.lock().all.get(&(tenant, owner, server_key)).cloned();
        then(Ok(found));
    }

    fn list_of(&self, tenant: TenantId, owner: EmployeeId, then: Then<Vec<Kept>>) {
        let own = self.0.lock().of(&tenant, &owner).cloned().collect();
        then(Ok(own));
    }

    fn visible_to(
        &self,
        tenant: TenantId,
        employee: EmployeeId,
        teams: Vec<Arc<str>>,
        then: Then<Vec<Kept>>,
    ) {
        let sees = |kept: &&Kept| {
            let known = &kept.registration;
            let shared = known.team.as_ref().is_some_and(|team| teams.contains(team));
            known.tenant == tenant && (known.owner == employee || shared)
        };
        let all = self.0.lock().all.values().filter(sees).cloned().collect();
        then(Ok(Kept::seen_by(&employee, all)));
    }

    fn delete(&self, tenant: TenantId, owner: EmployeeId, server_key: Arc<str>, then: Then<bool>) {
        let was = self.0.lock().remove(&(tenant, owner, server_key));
        then(Ok(was));
    }

    fn set_archive(
        &self,
        tenant: TenantId,
        owner: EmployeeId,
        server_key: Arc<str>,
        archive: Archive,
        then: Then<bool>,
    ) {
        let place = (tenant, owner, server_key);
        let mut servers = self.0.lock();
        let is_known = match servers.all.get_mut(&place) {
            None => false,
            Some(kept) => {
                let same = kept.archive.as_ref().is_some_and(|before| before.says_same(&archive));
                kept.archive = Some(archive);
                if !same {
                    servers.note(&place);
                }
                true
            }
        };
        drop(servers);
        then(Ok(is_known));
    }

    fn share(
        &self,
        tenant: TenantId,
        owner: EmployeeId,
        server_key: Arc<str>,
        team: Option<Arc<str>>,
        now_ms: u64,
        then: Then<Option<Registration>>,
    ) {
        let place = (tenant, owner, server_key);
        let mut servers = self.0.lock();
        let shared = servers.all.get_mut(&place).map(|kept| {
            let known = &mut kept.registration;
            known.team = team;
            known.updated_ms = now_ms;
            known.revision += 1;
            known.clone()
        });
        if shared.is_some() {
            servers.note(&place);
        }
        drop(servers);
        then(Ok(shared));
    }

    fn count(&self, tenant: TenantId, owner: EmployeeId, then: Then<u64>) {
        let count = self.0.lock().of(&tenant, &owner).count();
        then(Ok(count as u64));
    }

    fn changes_since(&self, marker: Marker, then: Then<Changes>) {
        let servers = self.0.lock();
        let changes = servers.writes.range(marker.0 + 1..).map(|(_, place)| Change {
            tenant: place.0.clone(),
            owner: place.1.clone(),
            server_key: place.2.clone(),
            team: servers.all.get(place).and_then(|kept| kept.registration.team.clone()),
        });
        let changes = Changes {
            marker: Marker(servers.last),
            too_old: marker.0 < servers.forgotten,
            changes: changes.collect(),
        };
        drop(servers);
        then(Ok(changes));
    }
}
