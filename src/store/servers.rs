//! Personal servers: what the registry asks for.
//!
//! Whoever writes takes one lock first: people register, so there are few, and the numbers of
//! the writes come in the order of their commits, so that who asks for what follows a number
//! misses none. Nothing is read at the start. The statements are in `servers/sql.rs`.

mod sql;

use std::sync::Arc;

use sha2::{Digest, Sha256};

pub(super) use self::sql::ServerSql;
use self::sql::Which;
use super::{Handle, lane::Backend};
use crate::{
    model::caller::{EmployeeId, TenantId},
    registry::{
        server::{Archive, Changes, Kept, Marker, NotPut, Registration, ServerStore},
        store::Then,
    },
};

/// The place of what writes among what shares a transaction, and the lane that does it.
const PLACE: [u8; 32] = [0x53; 32];

/// Whoever reads waits for no writer of other owners' servers.
fn lane(tenant: &TenantId, owner: &EmployeeId) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix("server");
    for part in [tenant.as_str(), owner.as_str()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

impl<B> ServerStore for Handle<B>
where
    B: Backend,
    B::Conn: ServerSql,
{
    fn put(&self, registration: Registration, most: u32, then: Then<Result<Registration, NotPut>>) {
        let work = async move |conn: &mut B::Conn| {
            conn.lock_servers().await?;
            let put = conn.put_server(&registration, most).await?;
            if let Ok(kept) = &put {
                conn.note_server(&Which::of(kept)).await?;
            }
            let changed = put.is_ok();
            Ok((put, changed))
        };
        self.submit(&PLACE, work, then);
    }

    fn get(
        &self,
        tenant: TenantId,
        owner: EmployeeId,
        server_key: Arc<str>,
        then: Then<Option<Kept>>,
    ) {
        let (key, which) = (lane(&tenant, &owner), Which { tenant, owner, server_key });
        let work = async move |conn: &mut B::Conn| Ok((conn.server(&which).await?, false));
        self.submit(&key, work, then);
    }

    fn list_of(&self, tenant: TenantId, owner: EmployeeId, then: Then<Vec<Kept>>) {
        let key = lane(&tenant, &owner);
        let work =
            async move |conn: &mut B::Conn| Ok((conn.servers_of(&tenant, &owner).await?, false));
        self.submit(&key, work, then);
    }

    fn visible_to(
        &self,
        tenant: TenantId,
        employee: EmployeeId,
        teams: Vec<Arc<str>>,
        then: Then<Vec<Kept>>,
    ) {
        let key = lane(&tenant, &employee);
        let work = async move |conn: &mut B::Conn| {
            let mut all = conn.servers_of(&tenant, &employee).await?;
            for team in &teams {
                all.extend(conn.servers_shared(&tenant, team, &employee).await?);
            }
            Ok((Kept::seen_by(&employee, all), false))
        };
        self.submit(&key, work, then);
    }

    fn delete(&self, tenant: TenantId, owner: EmployeeId, server_key: Arc<str>, then: Then<bool>) {
        let which = Which { tenant, owner, server_key };
        let work = async move |conn: &mut B::Conn| {
            conn.lock_servers().await?;
            let was = conn.delete_server(&which).await?;
            if was {
                conn.note_server(&which).await?;
            }
            Ok((was, was))
        };
        self.submit(&PLACE, work, then);
    }

    fn set_archive(
        &self,
        tenant: TenantId,
        owner: EmployeeId,
        server_key: Arc<str>,
        archive: Archive,
        then: Then<bool>,
    ) {
        let which = Which { tenant, owner, server_key };
        let listing = archive.encode();
        let work = async move |conn: &mut B::Conn| {
            conn.lock_servers().await?;
            let (known, news) = conn.put_archive(&which, &archive, &listing).await?;
            if news {
                conn.note_server(&which).await?;
            }
            Ok((known, known))
        };
        self.submit(&PLACE, work, then);
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
        let which = Which { tenant, owner, server_key };
        let work = async move |conn: &mut B::Conn| {
            conn.lock_servers().await?;
            if !conn.share_server(&which, team.as_deref(), now_ms).await? {
                return Ok((None, false));
            }
            conn.note_server(&which).await?;
            Ok((conn.server(&which).await?.map(|kept| kept.registration), true))
        };
        self.submit(&PLACE, work, then);
    }

    fn count(&self, tenant: TenantId, owner: EmployeeId, then: Then<u64>) {
        let key = lane(&tenant, &owner);
        let work =
            async move |conn: &mut B::Conn| Ok((conn.count_servers(&tenant, &owner).await?, false));
        self.submit(&key, work, then);
    }

    fn changes_since(&self, marker: Marker, then: Then<Changes>) {
        let work = async move |conn: &mut B::Conn| Ok((conn.server_changes(marker).await?, false));
        self.submit(&[0; 32], work, then);
    }
}
