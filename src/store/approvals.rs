//! Requests for approval: what the engine asks for, as statements.
//!
//! All of them take one lock first, in one order with whatever else shares their transaction:
//! people decide, so there are few, and two processes that ask for the same at once come one
//! after the other. How a request is written down is in `approvals/row.rs`.

mod row;

use sqlx::{Executor, PgConnection, Postgres, Row, Sqlite, SqliteConnection};

use super::{
    Fault, Handle,
    lane::Backend,
    number::{signed, unsigned},
};
use crate::approval::{
    Approval, ApprovalId, DecideFault, Standing, Token,
    store::{ApprovalStore, Change, MAX_LISTED, Pick, Room, StoreFault, Then},
};

/// The place of this work among what shares a transaction, and the lane that does it.
const PLACE: [u8; 32] = [0x41; 32];

/// How many requests one transaction forgets at most.
const SOME: i64 = 500;

const NEWEST: &str = "SELECT body, sealed FROM approval WHERE binding = $1 AND newest = 1";

const FIND: &str = "SELECT body, sealed FROM approval WHERE id = $1";

const LIST: &str = "SELECT body, sealed FROM approval WHERE id < $1 ORDER BY id DESC LIMIT $2";

const OF_TENANT: &str = "SELECT body, sealed FROM approval WHERE id < $1 AND tenant = $3 \
                         ORDER BY id DESC LIMIT $2";

/// After every id that is given to a request.
const LAST: [u8; 16] = [0xff; 16];

/// All that wait, and those of one requester.
const WAITING: &str = "
SELECT count(*), count(CASE WHEN holder = $2 THEN 1 END)
FROM approval WHERE settled = 0 AND expires_ms > $1";

const AGE: &str = "UPDATE approval SET newest = 0 WHERE binding = $1 AND newest = 1";

const INSERT: &str = "
INSERT INTO approval
    (id, binding, newest, tenant, holder, expires_ms, asked_ms, settled, body, sealed)
VALUES ($1, $2, 1, $3, $4, $5, $6, 0, $7, $8)";

const UPDATE: &str = "UPDATE approval SET settled = $2, body = $3 WHERE id = $1";

/// Of several processes one gets each of them. Nobody decides on them any more, so that their
/// arguments go: a caller who only ever asks would fill the disk with them.
const EXPIRE: &str = "
UPDATE approval SET settled = 2, sealed = NULL WHERE settled = 0 AND expires_ms <= $1
RETURNING expires_ms - asked_ms";

const FORGET: &str = "
DELETE FROM approval WHERE id IN (SELECT id FROM approval WHERE expires_ms < $1 LIMIT $2)";

const TAKE: &str = "
INSERT INTO approval_taken (token, expires_ms) VALUES ($1, $2) ON CONFLICT (token) DO NOTHING";

const PUT_BACK: &str = "DELETE FROM approval_taken WHERE token = $1";

const FORGET_TAKEN: &str = "DELETE FROM approval_taken WHERE expires_ms <= $1";

/// The statements over a connection.
pub(super) trait ApprovalSql {
    /// Until the transaction ends nobody else gets here.
    async fn lock_approvals(&mut self) -> Result<(), sqlx::Error>;

    async fn newest_approval(
        &mut self,
        binding: &[u8; 32],
    ) -> Result<Option<Approval>, sqlx::Error>;

    async fn find_approval(&mut self, id: ApprovalId) -> Result<Option<Approval>, sqlx::Error>;

    async fn list_approvals(&mut self, pick: &Pick) -> Result<Vec<Approval>, sqlx::Error>;

    async fn has_room(&mut self, room: &Room) -> Result<bool, sqlx::Error>;

    /// Another newest one of its binding.
    async fn insert_approval(&mut self, approval: &Approval) -> Result<(), sqlx::Error>;

    async fn update_approval(&mut self, approval: &Approval) -> Result<(), sqlx::Error>;

    /// How long each had waited that nobody decided in time.
    async fn expire_approvals(&mut self, now_ms: u64) -> Result<Vec<u64>, sqlx::Error>;

    async fn forget_approvals(&mut self, now_ms: u64, before_ms: u64) -> Result<(), sqlx::Error>;

    /// Whether it was there to be taken.
    async fn take(&mut self, token: &Token, expires_ms: u64) -> Result<bool, sqlx::Error>;

    async fn put_back(&mut self, token: &Token) -> Result<bool, sqlx::Error>;
}

macro_rules! statements {
    ($connection:ty, $database:ty, $lock:literal) => {
        impl ApprovalSql for $connection {
            async fn lock_approvals(&mut self) -> Result<(), sqlx::Error> {
                self.execute(sqlx::query::<$database>($lock)).await.map(|_| ())
            }

            async fn newest_approval(
                &mut self,
                binding: &[u8; 32],
            ) -> Result<Option<Approval>, sqlx::Error> {
                let find = sqlx::query::<$database>(NEWEST).bind(&binding[..]);
                let found = self.fetch_optional(find).await?;
                found.map(|row| row::read(row.try_get(0)?, row.try_get(1)?)).transpose()
            }

            async fn find_approval(
                &mut self,
                id: ApprovalId,
            ) -> Result<Option<Approval>, sqlx::Error> {
                let id = id.to_bytes();
                let find = sqlx::query::<$database>(FIND).bind(&id[..]);
                let found = self.fetch_optional(find).await?;
                found.map(|row| row::read(row.try_get(0)?, row.try_get(1)?)).transpose()
            }

            async fn list_approvals(&mut self, pick: &Pick) -> Result<Vec<Approval>, sqlx::Error> {
                let most = i64::try_from(MAX_LISTED).unwrap_or(i64::MAX);
                let before = pick.before.map_or(LAST, ApprovalId::to_bytes);
                let some = |sql| sqlx::query::<$database>(sql).bind(&before[..]).bind(most);
                let list = match &pick.tenant {
                    Some(tenant) => some(OF_TENANT).bind(tenant.as_str()),
                    None => some(LIST),
                };
                let rows = self.fetch_all(list).await?;
                rows.iter().map(|row| row::read(row.try_get(0)?, row.try_get(1)?)).collect()
            }

            async fn has_room(&mut self, room: &Room) -> Result<bool, sqlx::Error> {
                let count = sqlx::query::<$database>(WAITING)
                    .bind(signed(room.now_ms))
                    .bind(&room.holder[..]);
                let row = self.fetch_one(count).await?;
                let fits = |count: i64, most: usize| usize::try_from(count).is_ok_and(|n| n < most);
                let (all, own): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
                Ok(fits(all, room.bounds.total) && fits(own, room.bounds.each))
            }

            async fn insert_approval(&mut self, approval: &Approval) -> Result<(), sqlx::Error> {
                let Approval { id, request, .. } = approval;
                let (id, binding) = (id.to_bytes(), request.subject.binding());
                let holder = request.subject.holder();
                self.execute(sqlx::query::<$database>(AGE).bind(&binding[..])).await?;
                let insert = sqlx::query::<$database>(INSERT)
                    .bind(&id[..])
                    .bind(&binding[..])
                    .bind(request.subject.tenant.as_str())
                    .bind(&holder[..])
                    .bind(signed(request.expires_ms))
                    .bind(signed(request.asked_ms))
                    .bind(row::write(approval)?)
                    .bind(request.sealed.as_deref());
                self.execute(insert).await.map(|_| ())
            }

            async fn update_approval(&mut self, approval: &Approval) -> Result<(), sqlx::Error> {
                let id = approval.id.to_bytes();
                let update = sqlx::query::<$database>(UPDATE)
                    .bind(&id[..])
                    .bind(i64::from(approval.is_decided()))
                    .bind(row::write(approval)?);
                self.execute(update).await.map(|_| ())
            }

            async fn expire_approvals(&mut self, now_ms: u64) -> Result<Vec<u64>, sqlx::Error> {
                let expire = sqlx::query::<$database>(EXPIRE).bind(signed(now_ms));
                let rows = self.fetch_all(expire).await?;
                let waited = |row: &_| -> Result<u64, sqlx::Error> {
                    let waited: i64 = Row::try_get(row, 0)?;
                    Ok(unsigned(waited))
                };
                rows.iter().map(waited).collect()
            }

            async fn forget_approvals(
                &mut self,
                now_ms: u64,
                before_ms: u64,
            ) -> Result<(), sqlx::Error> {
                let forget = sqlx::query::<$database>(FORGET).bind(signed(before_ms)).bind(SOME);
                self.execute(forget).await?;
                let taken = sqlx::query::<$database>(FORGET_TAKEN).bind(signed(now_ms));
                self.execute(taken).await.map(|_| ())
            }

            async fn take(&mut self, token: &Token, expires_ms: u64) -> Result<bool, sqlx::Error> {
                let take = sqlx::query::<$database>(TAKE).bind(&token[..]).bind(signed(expires_ms));
                Ok(self.execute(take).await?.rows_affected() > 0)
            }

            async fn put_back(&mut self, token: &Token) -> Result<bool, sqlx::Error> {
                let put_back = sqlx::query::<$database>(PUT_BACK).bind(&token[..]);
                Ok(self.execute(put_back).await?.rows_affected() > 0)
            }
        }
    };
}

// Whoever begins to write in SQLite is alone already.
statements!(SqliteConnection, Sqlite, "SELECT 1");
statements!(PgConnection, Postgres, "SELECT pg_advisory_xact_lock(7461018463)");

impl From<Fault> for StoreFault {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unavailable => StoreFault::Unavailable,
            Fault::Unclear => StoreFault::Unclear,
        }
    }
}

impl<B> ApprovalStore for Handle<B>
where
    B: Backend,
    B::Conn: ApprovalSql,
{
    fn ask(
        &self,
        binding: [u8; 32],
        room: Room,
        mut change: Change<Standing>,
        then: Then<Standing>,
    ) {
        let work = async move |conn: &mut B::Conn| {
            conn.lock_approvals().await?;
            let known = conn.newest_approval(&binding).await?;
            let before = known.as_ref().map(|known| known.id);
            let (changed, answer) = change(known);
            match &changed {
                Some(changed) if before == Some(changed.id) => {
                    conn.update_approval(changed).await?;
                }
                Some(_) if !conn.has_room(&room).await? => {
                    return Ok((Err(StoreFault::Full), false));
                }
                Some(changed) => conn.insert_approval(changed).await?,
                None => {}
            }
            Ok((Ok(answer), changed.is_some()))
        };
        self.submit(&PLACE, work, |result| then(result.map_err(Into::into).flatten()));
    }

    fn newest(&self, binding: [u8; 32], then: Then<Option<Approval>>) {
        let work =
            async move |conn: &mut B::Conn| Ok((conn.newest_approval(&binding).await?, false));
        self.submit(&PLACE, work, |result| then(result.map_err(Into::into)));
    }

    fn decide(
        &self,
        id: ApprovalId,
        mut change: Change<Result<Approval, DecideFault>>,
        then: Then<Result<Approval, DecideFault>>,
    ) {
        let work = async move |conn: &mut B::Conn| {
            conn.lock_approvals().await?;
            let (changed, answer) = change(conn.find_approval(id).await?);
            if let Some(changed) = &changed {
                conn.update_approval(changed).await?;
            }
            Ok((answer, changed.is_some()))
        };
        self.submit(&PLACE, work, |result| then(result.map_err(Into::into)));
    }

    fn find(&self, id: ApprovalId, then: Then<Option<Approval>>) {
        let work = async move |conn: &mut B::Conn| Ok((conn.find_approval(id).await?, false));
        self.submit(&PLACE, work, |result| then(result.map_err(Into::into)));
    }

    fn list(&self, pick: Pick, then: Then<Vec<Approval>>) {
        let work = async move |conn: &mut B::Conn| Ok((conn.list_approvals(&pick).await?, false));
        self.submit(&PLACE, work, |result| then(result.map_err(Into::into)));
    }

    fn sweep(&self, now_ms: u64, before_ms: u64, then: Then<Vec<u64>>) {
        let work = async move |conn: &mut B::Conn| {
            conn.lock_approvals().await?;
            let expired = conn.expire_approvals(now_ms).await?;
            conn.forget_approvals(now_ms, before_ms).await?;
            let changed = !expired.is_empty();
            Ok((expired, changed))
        };
        self.submit(&PLACE, work, |result| then(result.map_err(Into::into)));
    }

    fn take(&self, token: Token, expires_ms: u64, then: Then<bool>) {
        let work = async move |conn: &mut B::Conn| {
            conn.lock_approvals().await?;
            let taken = conn.take(&token, expires_ms).await?;
            Ok((taken, taken))
        };
        self.submit(&PLACE, work, |result| then(result.map_err(Into::into)));
    }

    fn put_back(&self, token: Token, then: Then<()>) {
        let work = async move |conn: &mut B::Conn| {
            conn.lock_approvals().await?;
            Ok(((), conn.put_back(&token).await?))
        };
        self.submit(&PLACE, work, |result| then(result.map_err(Into::into)));
    }
}
