//! Accounts of quotas: what the engine asks for, as statements.
//!
//! An account has one row, which is turned with its window. The statements are the same for both
//! databases; only the types of their connections differ, for which a macro writes them twice.

use sqlx::{Executor, PgConnection, Postgres, Row, Sqlite, SqliteConnection};

use super::{
    Fault, Handle,
    lane::Backend,
    number::{signed, unsigned},
};
use crate::{
    limit::quota::store::{AccountId, Correction, QuotaStore, Standing, Take, Taken, Then},
    model::quota::Period,
};

/// How many rows one transaction forgets at most.
const SOME: i64 = 500;

/// Makes the row of a window, in the place of an older one's.
const TURN: &str = "
INSERT INTO quota (account, start_ms, end_ms, used, granted) VALUES ($1, $2, $3, 0, 0)
ON CONFLICT (account) DO UPDATE SET
    start_ms = excluded.start_ms, end_ms = excluded.end_ms, used = 0, granted = 0
WHERE quota.start_ms < excluded.start_ms";

/// Takes as much as there is, if that is enough. What stands on the right is from before.
const TAKE: &str = "
UPDATE quota SET
    granted = CASE WHEN used <= $5 - $4 THEN $4 ELSE $5 - used END,
    used = CASE WHEN used <= $5 - $4 THEN used + $4 ELSE $5 END
WHERE account = $1 AND start_ms = $2 AND used <= $5 - $3
RETURNING granted, used, start_ms, end_ms";

const LOOK: &str = "SELECT used, start_ms, end_ms FROM quota WHERE account = $1";

const CORRECT: &str = "
UPDATE quota SET used = CASE WHEN used + $3 < $4 THEN 0 ELSE used + $3 - $4 END
WHERE account = $1 AND start_ms = $2";

/// The condition stands there twice, for a row that is turned meanwhile.
const SWEEP: &str = "
DELETE FROM quota WHERE end_ms < $1 AND account IN (
    SELECT account FROM quota WHERE end_ms < $1 LIMIT $2)";

/// The statements over a connection.
pub(super) trait QuotaSql {
    async fn take(&mut self, take: &Take) -> Result<Taken, sqlx::Error>;

    async fn correct(&mut self, correction: &Correction) -> Result<(), sqlx::Error>;

    async fn standing(
        &mut self,
        account: &AccountId,
        period: Period,
    ) -> Result<Standing, sqlx::Error>;

    /// How many rows are forgotten.
    async fn forget_quotas(&mut self, before_ms: u64) -> Result<u64, sqlx::Error>;
}

macro_rules! statements {
    ($connection:ty, $database:ty) => {
        impl QuotaSql for $connection {
            async fn take(&mut self, take: &Take) -> Result<Taken, sqlx::Error> {
                let Take { account, period, least, most, ceiling } = take;
                let turn = sqlx::query::<$database>(TURN)
                    .bind(&account[..])
                    .bind(amount(period.start_ms))
                    .bind(amount(period.end_ms));
                self.execute(turn).await?;
                let taken = sqlx::query::<$database>(TAKE)
                    .bind(&account[..])
                    .bind(amount(period.start_ms))
                    .bind(amount(*least))
                    .bind(amount((*most).min(*ceiling)))
                    .bind(amount(*ceiling));
                if let Some(row) = self.fetch_optional(taken).await? {
                    let standing = standing(row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
                    return Ok(Taken { granted: unsigned(row.try_get(0)?), standing });
                }
                Ok(Taken { granted: 0, standing: self.standing(account, *period).await? })
            }

            async fn correct(&mut self, correction: &Correction) -> Result<(), sqlx::Error> {
                let Correction { account, period, spent, unneeded } = correction;
                let turn = sqlx::query::<$database>(TURN)
                    .bind(&account[..])
                    .bind(amount(period.start_ms))
                    .bind(amount(period.end_ms));
                self.execute(turn).await?;
                let correct = sqlx::query::<$database>(CORRECT)
                    .bind(&account[..])
                    .bind(amount(period.start_ms))
                    .bind(amount(*spent))
                    .bind(amount(*unneeded));
                self.execute(correct).await?;
                Ok(())
            }

            async fn standing(
                &mut self,
                account: &AccountId,
                period: Period,
            ) -> Result<Standing, sqlx::Error> {
                let look = sqlx::query::<$database>(LOOK).bind(&account[..]);
                let Some(row) = self.fetch_optional(look).await? else {
                    return Ok(Standing { used: 0, period });
                };
                let found = standing(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                let is_older = found.period.start_ms < period.start_ms;
                Ok(if is_older { Standing { used: 0, period } } else { found })
            }

            async fn forget_quotas(&mut self, before_ms: u64) -> Result<u64, sqlx::Error> {
                let sweep = sqlx::query::<$database>(SWEEP).bind(amount(before_ms)).bind(SOME);
                Ok(self.execute(sweep).await?.rows_affected())
            }
        }
    };
}

statements!(SqliteConnection, Sqlite);
statements!(PgConnection, Postgres);

/// A part of what a database counts is enough for every amount, so that sums fit, too.
fn amount(number: u64) -> i64 {
    signed(number).min(i64::MAX / 4)
}

fn standing(used: i64, start_ms: i64, end_ms: i64) -> Standing {
    let period = Period { start_ms: unsigned(start_ms), end_ms: unsigned(end_ms) };
    Standing { used: unsigned(used), period }
}

impl<B> QuotaStore for Handle<B>
where
    B: Backend,
    B::Conn: QuotaSql,
{
    fn take(&self, take: Take, then: Then<Taken>) {
        let work = async move |conn: &mut B::Conn| {
            let taken = conn.take(&take).await?;
            let changed = taken.granted > 0;
            Ok((taken, changed))
        };
        self.submit(&take.account, work, then);
    }

    fn correct(&self, correction: Correction, then: Then<()>) {
        let work = async move |conn: &mut B::Conn| {
            conn.correct(&correction).await?;
            Ok(((), true))
        };
        self.submit(&correction.account, work, then);
    }

    fn look(&self, accounts: Vec<(AccountId, Period)>, then: Then<Vec<Standing>>) {
        let work = async move |conn: &mut B::Conn| {
            let mut standings = Vec::with_capacity(accounts.len());
            for (account, period) in &accounts {
                standings.push(conn.standing(account, *period).await?);
            }
            Ok((standings, false))
        };
        self.submit(&[0; 32], work, then);
    }

    fn sweep(&self, before_ms: u64, then: Then<()>) {
        let again = self.clone();
        let work = async move |conn: &mut B::Conn| {
            let gone = conn.forget_quotas(before_ms).await?;
            Ok((gone, gone > 0))
        };
        self.submit(&[0; 32], work, move |result: Result<u64, Fault>| match result {
            // There may be more; others have their turn first.
            Ok(gone) if i64::try_from(gone).is_ok_and(|gone| gone >= SOME) => {
                again.sweep(before_ms, then);
            }
            Ok(_) => then(Ok(())),
            Err(fault) => then(Err(fault)),
        });
    }
}
