//! Sealed credentials: what the engine asks for, as statements.
//!
//! The statements are the same for both databases; only the types of their connections differ,
//! for which a macro writes them twice. What is sealed is not looked at here.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use sqlx::{Executor, PgConnection, Postgres, Row, Sqlite, SqliteConnection};

use super::{
    Handle,
    lane::Backend,
    number::{signed, unsigned},
};
use crate::{
    credential::{
        CredentialKind, CredentialRef, Owner, Whose,
        store::{Anew, CredentialStore, Held, KeyUse, NewCredential, Pick, Then},
    },
    model::caller::TenantId,
};

/// How many one question about other keys answers at most.
const SOME: i64 = 100;

const PUT: &str = "
INSERT INTO credential
    (reference, tenant, owner, server_key, kind, key_id, sealed, created_ms, updated_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)
ON CONFLICT (tenant, owner, server_key) DO UPDATE SET
    kind = excluded.kind, key_id = excluded.key_id, sealed = excluded.sealed,
    renewed_ms = NULL,
    updated_ms = CASE WHEN excluded.updated_ms > credential.updated_ms
        THEN excluded.updated_ms ELSE credential.updated_ms + 1 END
RETURNING reference";

macro_rules! columns {
    ($rest:literal) => {
        concat!(
            "SELECT reference, tenant, owner, server_key, kind, key_id, sealed, created_ms, \
             updated_ms, renewed_ms FROM credential ",
            $rest
        )
    };
}

const GET: &str = columns!("WHERE tenant = $1 AND owner = $2 AND server_key = $3");

const FIND: &str = columns!("WHERE tenant = $1 AND reference = $2");

const LIST: &str = columns!("WHERE tenant = $1 AND owner = $2 ORDER BY server_key");

/// What is not said is null; without a place to begin behind, it is before all of them.
const PICK: &str = columns!(
    "WHERE (CAST($1 AS TEXT) IS NULL OR tenant = $1) \
     AND (CAST($2 AS TEXT) IS NULL OR owner = $2) \
     AND (CAST($3 AS TEXT) IS NULL OR server_key IN ($3, $4)) \
     AND (tenant, owner, server_key) > ($5, $6, $7) \
     ORDER BY tenant, owner, server_key LIMIT $8"
);

const DELETE_ALL: &str =
    "DELETE FROM credential WHERE tenant = $1 AND owner = $2 RETURNING server_key";

const NOT_UNDER: &str =
    columns!("WHERE key_id <> $1 AND reference > $2 ORDER BY reference LIMIT $3");

const DELETE: &str = "DELETE FROM credential WHERE tenant = $1 AND owner = $2 AND server_key = $3";

const REPLACE: &str = "
UPDATE credential SET key_id = $3, sealed = $4, renewed_ms = COALESCE($5, renewed_ms)
WHERE reference = $1 AND sealed = $2";

const KEYS: &str = "SELECT key_id, count(*) FROM credential GROUP BY key_id";

const REPLAY_KEYS: &str = "SELECT key_id, count(*), max(expires_ms) FROM replay GROUP BY key_id";

/// The statements over a connection.
pub(super) trait CredentialSql {
    async fn put_credential(
        &mut self,
        reference: CredentialRef,
        new: &NewCredential,
    ) -> Result<CredentialRef, sqlx::Error>;

    async fn credential_of(&mut self, whose: &Whose) -> Result<Option<Held>, sqlx::Error>;

    async fn credential_by(
        &mut self,
        tenant: &TenantId,
        reference: CredentialRef,
    ) -> Result<Option<Held>, sqlx::Error>;

    async fn delete_credential(&mut self, whose: &Whose) -> Result<bool, sqlx::Error>;

    async fn credentials_of(
        &mut self,
        tenant: &TenantId,
        owner: &Owner,
    ) -> Result<Vec<Held>, sqlx::Error>;

    async fn pick_credentials(&mut self, pick: &Pick) -> Result<Vec<Held>, sqlx::Error>;

    async fn delete_credentials_of(
        &mut self,
        tenant: &TenantId,
        owner: &Owner,
    ) -> Result<Vec<Arc<str>>, sqlx::Error>;

    async fn key_uses(&mut self) -> Result<Vec<KeyUse>, sqlx::Error>;

    async fn credentials_not_under(
        &mut self,
        key: &str,
        after: Option<CredentialRef>,
    ) -> Result<Vec<Held>, sqlx::Error>;

    async fn replace_sealed(&mut self, old: &Held, anew: &Anew) -> Result<bool, sqlx::Error>;
}

/// A row of either database.
macro_rules! held {
    ($row:ident) => {
        (|| -> Result<Held, sqlx::Error> {
            let reference: String = $row.try_get(0)?;
            let (tenant, owner): (String, String) = ($row.try_get(1)?, $row.try_get(2)?);
            let (server_key, kind): (String, String) = ($row.try_get(3)?, $row.try_get(4)?);
            let (created, updated): (i64, i64) = ($row.try_get(7)?, $row.try_get(8)?);
            let renewed: Option<i64> = $row.try_get(9)?;
            Ok(Held {
                reference: CredentialRef::parse(&reference).ok_or_else(broken)?,
                whose: Whose {
                    tenant: TenantId::new(tenant),
                    owner: Owner::parse(&owner).ok_or_else(broken)?,
                    server_key: server_key.into(),
                },
                kind: kind_of(&kind).ok_or_else(broken)?,
                key: $row.try_get(5)?,
                sealed: $row.try_get(6)?,
                created_ms: unsigned(created),
                updated_ms: unsigned(updated),
                renewed_ms: renewed.map(unsigned),
            })
        })()
    };
}
macro_rules! statements {
    ($connection:ty, $database:ty) => {
        impl CredentialSql for $connection {
            async fn put_credential(
                &mut self,
                reference: CredentialRef,
                new: &NewCredential,
            ) -> Result<CredentialRef, sqlx::Error> {
                let put = sqlx::query::<$database>(PUT)
                    .bind(reference.to_string())
                    .bind(new.whose.tenant.as_str())
                    .bind(new.whose.owner.text())
                    .bind(&*new.whose.server_key)
                    .bind(new.kind.as_str())
                    .bind(&*new.key)
                    .bind(&new.sealed[..])
                    .bind(signed(new.now_ms));
                let row = self.fetch_one(put).await?;
                let reference: String = row.try_get(0)?;
                CredentialRef::parse(&reference).ok_or_else(broken)
            }

            async fn credential_of(&mut self, whose: &Whose) -> Result<Option<Held>, sqlx::Error> {
                let get = sqlx::query::<$database>(GET)
                    .bind(whose.tenant.as_str())
                    .bind(whose.owner.text())
                    .bind(&*whose.server_key);
                let row = self.fetch_optional(get).await?;
                row.map(|row| held!(row)).transpose()
            }

            async fn credential_by(
                &mut self,
                tenant: &TenantId,
                reference: CredentialRef,
            ) -> Result<Option<Held>, sqlx::Error> {
                let find = sqlx::query::<$database>(FIND)
                    .bind(tenant.as_str())
                    .bind(reference.to_string());
                let row = self.fetch_optional(find).await?;
                row.map(|row| held!(row)).transpose()
            }

            async fn delete_credential(&mut self, whose: &Whose) -> Result<bool, sqlx::Error> {
                let delete = sqlx::query::<$database>(DELETE)
                    .bind(whose.tenant.as_str())
                    .bind(whose.owner.text())
                    .bind(&*whose.server_key);
                Ok(self.execute(delete).await?.rows_affected() > 0)
            }

            async fn credentials_of(
                &mut self,
                tenant: &TenantId,
                owner: &Owner,
            ) -> Result<Vec<Held>, sqlx::Error> {
                let list = sqlx::query::<$database>(LIST).bind(tenant.as_str()).bind(owner.text());
                let rows = self.fetch_all(list).await?;
                rows.into_iter().map(|row| held!(row)).collect()
            }

            async fn pick_credentials(&mut self, pick: &Pick) -> Result<Vec<Held>, sqlx::Error> {
                let Pick { tenant, owner, server_keys, after, most } = pick;
                let (key, other) =
                    server_keys.as_ref().map(|[key, other]| (&**key, &**other)).unzip();
                let behind = after.as_ref().map(|it| {
                    (it.tenant.as_str().to_owned(), it.owner.text(), it.server_key.to_string())
                });
                let (of, whose, server_key) = behind.unwrap_or_default();
                let some = sqlx::query::<$database>(PICK)
                    .bind(tenant.as_ref().map(TenantId::as_str))
                    .bind(owner.as_ref().map(Owner::text))
                    .bind(key)
                    .bind(other)
                    .bind(of)
                    .bind(whose)
                    .bind(server_key)
                    .bind(i64::from(*most));
                let rows = self.fetch_all(some).await?;
                rows.into_iter().map(|row| held!(row)).collect()
            }

            async fn delete_credentials_of(
                &mut self,
                tenant: &TenantId,
                owner: &Owner,
            ) -> Result<Vec<Arc<str>>, sqlx::Error> {
                let delete =
                    sqlx::query::<$database>(DELETE_ALL).bind(tenant.as_str()).bind(owner.text());
                let mut gone = Vec::new();
                for row in self.fetch_all(delete).await? {
                    let server_key: String = row.try_get(0)?;
                    gone.push(server_key.into());
                }
                gone.sort();
                Ok(gone)
            }

            async fn key_uses(&mut self) -> Result<Vec<KeyUse>, sqlx::Error> {
                let mut uses: Vec<KeyUse> = Vec::new();
                for row in self.fetch_all(sqlx::query::<$database>(KEYS)).await? {
                    let credentials: i64 = row.try_get(1)?;
                    let credentials = unsigned(credentials);
                    uses.push(KeyUse { key: row.try_get(0)?, credentials, ..KeyUse::default() });
                }
                for row in self.fetch_all(sqlx::query::<$database>(REPLAY_KEYS)).await? {
                    let number: i64 = row.try_get(0)?;
                    let (replays, until): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
                    let key = format!("{number:08x}");
                    let replays = unsigned(replays);
                    let replays_until_ms = unsigned(until);
                    match uses.iter_mut().find(|known| known.key == key) {
                        Some(known) => {
                            (known.replays, known.replays_until_ms) = (replays, replays_until_ms);
                        }
                        None => {
                            uses.push(KeyUse { key, credentials: 0, replays, replays_until_ms });
                        }
                    }
                }
                Ok(uses)
            }

            async fn credentials_not_under(
                &mut self,
                key: &str,
                after: Option<CredentialRef>,
            ) -> Result<Vec<Held>, sqlx::Error> {
                let after = after.map(|reference| reference.to_string()).unwrap_or_default();
                let some = sqlx::query::<$database>(NOT_UNDER).bind(key).bind(after).bind(SOME);
                let rows = self.fetch_all(some).await?;
                rows.into_iter().map(|row| held!(row)).collect()
            }

            async fn replace_sealed(
                &mut self,
                old: &Held,
                anew: &Anew,
            ) -> Result<bool, sqlx::Error> {
                let replace = sqlx::query::<$database>(REPLACE)
                    .bind(old.reference.to_string())
                    .bind(&old.sealed[..])
                    .bind(&*anew.key)
                    .bind(&anew.sealed[..])
                    .bind(anew.renewed_ms.map(signed));
                Ok(self.execute(replace).await?.rows_affected() > 0)
            }
        }
    };
}

statements!(SqliteConnection, Sqlite);
statements!(PgConnection, Postgres);

fn kind_of(text: &str) -> Option<CredentialKind> {
    CredentialKind::ALL.into_iter().find(|kind| kind.as_str() == text)
}

fn broken() -> sqlx::Error {
    sqlx::Error::Decode("a credential's row is none".into())
}

/// What is of one owner is done in the order in which it came.
fn lane(tenant: &TenantId, owner: &Owner) -> [u8; 32] {
    let owner = owner.text();
    let mut hash = Sha256::new_with_prefix("credential");
    for part in [tenant.as_str(), &owner] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

impl<B> CredentialStore for Handle<B>
where
    B: Backend,
    B::Conn: CredentialSql,
{
    fn put(&self, new: NewCredential, then: Then<CredentialRef>) {
        let key = lane(&new.whose.tenant, &new.whose.owner);
        // Of the first attempt and of each after it.
        let reference = CredentialRef::random();
        let work =
            async move |conn: &mut B::Conn| Ok((conn.put_credential(reference, &new).await?, true));
        self.submit(&key, work, then);
    }

    fn get(&self, whose: Whose, then: Then<Option<Held>>) {
        let key = lane(&whose.tenant, &whose.owner);
        let work = async move |conn: &mut B::Conn| Ok((conn.credential_of(&whose).await?, false));
        self.submit(&key, work, then);
    }

    fn find(&self, tenant: TenantId, reference: CredentialRef, then: Then<Option<Held>>) {
        let work = async move |conn: &mut B::Conn| {
            Ok((conn.credential_by(&tenant, reference).await?, false))
        };
        self.submit(&[0; 32], work, then);
    }

    fn delete(&self, whose: Whose, then: Then<bool>) {
        let key = lane(&whose.tenant, &whose.owner);
        let work = async move |conn: &mut B::Conn| {
            let was = conn.delete_credential(&whose).await?;
            Ok((was, was))
        };
        self.submit(&key, work, then);
    }

    fn list(&self, tenant: TenantId, owner: Owner, then: Then<Vec<Held>>) {
        let key = lane(&tenant, &owner);
        let work = async move |conn: &mut B::Conn| {
            Ok((conn.credentials_of(&tenant, &owner).await?, false))
        };
        self.submit(&key, work, then);
    }

    fn pick(&self, pick: Pick, then: Then<Vec<Held>>) {
        let work = async move |conn: &mut B::Conn| Ok((conn.pick_credentials(&pick).await?, false));
        self.submit(&[0; 32], work, then);
    }

    fn delete_all(&self, tenant: TenantId, owner: Owner, then: Then<Vec<Arc<str>>>) {
        let key = lane(&tenant, &owner);
        let work = async move |conn: &mut B::Conn| {
            let gone = conn.delete_credentials_of(&tenant, &owner).await?;
            let changed = !gone.is_empty();
            Ok((gone, changed))
        };
        self.submit(&key, work, then);
    }

    fn key_uses(&self, then: Then<Vec<KeyUse>>) {
        let work = async move |conn: &mut B::Conn| Ok((conn.key_uses().await?, false));
        self.submit(&[0; 32], work, then);
    }

    fn not_under(&self, key: String, after: Option<CredentialRef>, then: Then<Vec<Held>>) {
        let work = async move |conn: &mut B::Conn| {
            Ok((conn.credentials_not_under(&key, after).await?, false))
        };
        self.submit(&[0; 32], work, then);
    }

    fn replace_sealed(&self, old: Held, anew: Anew, then: Then<bool>) {
        let lane = lane(&old.whose.tenant, &old.whose.owner);
        let work = async move |conn: &mut B::Conn| {
            let was = conn.replace_sealed(&old, &anew).await?;
            Ok((was, was))
        };
        self.submit(&lane, work, then);
    }
}
