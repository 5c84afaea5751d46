//! Test runs: started once for each key, moved on in the background, read and stopped.
//!
//! A run's whole state is in the database, so a start is one atomic insert, and runs that a
//! process left unfinished in a file go on in the next one.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use sqlx::{Row, sqlite::SqliteRow};
use tokio::sync::Notify;

use super::store::{Employee, Store, moment};

/// A run's number, which callers see as `R-1001`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunId(i64);

/// What became of a wish to start a run.
#[derive(Debug)]
pub(super) enum Start {
    /// The one run of this key: new, or started by an earlier call.
    Run(Brief),
    /// The task does not exist for this employee.
    NoTask,
    /// The key was used for another task.
    KeyTaken,
}

/// What became of a wish to stop a run.
#[derive(Debug)]
pub(super) enum Stop {
    Stopped(Brief),
    NoRun,
    /// It had ended by itself, so.
    Finished(String),
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Brief {
    run_id: String,
    status: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Run {
    run_id: String,
    task_id: String,
    status: String,
    progress: Progress,
    started_by: String,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
}

#[derive(Debug, Serialize)]
struct Progress {
    done: i64,
    total: i64,
}

/// What a finished run found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    run_id: String,
    task_id: String,
    status: String,
    passed: usize,
    failed: usize,
    cases: Vec<CaseOutcome>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CaseOutcome {
    case_id: String,
    name: String,
    /// `passed`, `failed`, or `not_run` in a run that was stopped.
    outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// Every run, and the background task that moves them on.
#[derive(Debug, Clone)]
pub(super) struct Runs {
    store: Store,
    wake: Arc<Notify>,
}

/// Wakes the background task when dropped: also when the caller of a start goes away while the
/// database still writes.
struct Wake<'a>(&'a Notify);

impl Drop for Wake<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

// === impl Runs ===

impl Runs {
    pub fn new(store: Store) -> Self {
        Self { store, wake: Arc::default() }
    }

    /// Moves all unfinished runs on by one step at a time, and sleeps while there are none.
    pub async fn drive(self, step: Duration) {
        loop {
            tokio::time::sleep(step).await;
            match self.advance().await {
                Ok(0) => self.wake.notified().await,
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "the platform could not move its runs on");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Queues a run of a task, or finds the one that this key has started already.
    pub async fn start(
        &self,
        who: &Employee,
        task_id: &str,
        idempotency_key: &str,
    ) -> Result<Start, sqlx::Error> {
        let _wake = Wake(&self.wake);
        let mut both = self.store.pool.begin().await?;
        sqlx::query(
            "INSERT INTO run (task_id, emp_id, idempotency_key, status, created_ms)
             SELECT task_id, emp_id, ?, 'queued', ? FROM access
             WHERE emp_id = ? AND tenant = ? AND task_id = ?
             ON CONFLICT (emp_id, idempotency_key) DO NOTHING",
        )
        .bind(idempotency_key)
        .bind(self.store.now_ms())
        .bind(who.emp_id.as_str())
        .bind(who.tenant_name())
        .bind(task_id)
        .execute(&mut *both)
        .await?;
        let run = sqlx::query(
            "SELECT run.* FROM run JOIN employee ON employee.emp_id = run.emp_id
             WHERE run.emp_id = ? AND employee.tenant = ? AND run.idempotency_key = ?",
        )
        .bind(who.emp_id.as_str())
        .bind(who.tenant_name())
        .bind(idempotency_key)
        .fetch_optional(&mut *both)
        .await?;
        both.commit().await?;
        match run {
            None => Ok(Start::NoTask),
            Some(run) if run.try_get::<&str, _>("task_id")? != task_id => Ok(Start::KeyTaken),
            Some(run) => Brief::read(&run).map(Start::Run),
        }
    }

    pub async fn run(&self, who: &Employee, id: RunId) -> Result<Option<Run>, sqlx::Error> {
        self.row(who, id).await?.as_ref().map(Run::read).transpose()
    }

    /// What a run found; `Err` in the inner result is the status of one that has not ended.
    pub async fn outcome(
        &self,
        who: &Employee,
        id: RunId,
    ) -> Result<Option<Result<Outcome, String>>, sqlx::Error> {
        let Some(run) = self.row(who, id).await? else { return Ok(None) };
        let status: String = run.try_get("status")?;
        if matches!(status.as_str(), "queued" | "running") {
            return Ok(Some(Err(status)));
        }
        let task_id: String = run.try_get("task_id")?;
        let rows = sqlx::query(
            "SELECT test_case.case_id, test_case.name,
                    coalesce(case_result.outcome, 'not_run') AS outcome,
                    case_result.duration_ms, case_result.message
             FROM test_case
             LEFT JOIN case_result
                    ON case_result.case_id = test_case.case_id AND case_result.run_id = ?
             WHERE test_case.task_id = ? ORDER BY test_case.position",
        )
        .bind(id.0)
        .bind(&task_id)
        .fetch_all(&self.store.pool)
        .await?;
        let cases: Vec<_> = rows.iter().map(CaseOutcome::read).collect::<Result<_, _>>()?;
        let count = |outcome| cases.iter().filter(|case| case.outcome == outcome).count();
        let (passed, failed) = (count("passed"), count("failed"));
        Ok(Some(Ok(Outcome { run_id: id.to_string(), task_id, status, passed, failed, cases })))
    }

    /// Stops a run that has not ended; stopping it again changes nothing.
    pub async fn stop(&self, who: &Employee, id: RunId) -> Result<Stop, sqlx::Error> {
        sqlx::query(
            "UPDATE run SET status = 'stopped', finished_ms = ?
             WHERE run_id = ? AND status IN ('queued', 'running')
               AND EXISTS (SELECT 1 FROM access WHERE access.task_id = run.task_id
                           AND access.emp_id = ? AND access.tenant = ?)",
        )
        .bind(self.store.now_ms())
        .bind(id.0)
        .bind(who.emp_id.as_str())
        .bind(who.tenant_name())
        .execute(&self.store.pool)
        .await?;
        let Some(run) = self.row(who, id).await? else { return Ok(Stop::NoRun) };
        let brief = Brief::read(&run)?;
        Ok(if brief.status == "stopped" {
            Stop::Stopped(brief)
        } else {
            Stop::Finished(brief.status)
        })
    }

    async fn row(&self, who: &Employee, id: RunId) -> Result<Option<SqliteRow>, sqlx::Error> {
        sqlx::query(
            "SELECT run.*,
                    (SELECT count(*) FROM case_result WHERE run_id = run.run_id) AS done,
                    (SELECT count(*) FROM test_case WHERE task_id = run.task_id) AS total
             FROM run JOIN access ON access.task_id = run.task_id
             WHERE access.emp_id = ? AND access.tenant = ? AND run.run_id = ?",
        )
        .bind(who.emp_id.as_str())
        .bind(who.tenant_name())
        .bind(id.0)
        .fetch_optional(&self.store.pool)
        .await
    }

    /// One step of every unfinished run: a case more for those that run, and those that wait
    /// begin. Says how many are unfinished afterwards.
    async fn advance(&self) -> Result<i64, sqlx::Error> {
        let now = self.store.now_ms();
        let mut step = self.store.pool.begin().await?;
        sqlx::query(
            "INSERT INTO case_result (run_id, case_id, outcome, duration_ms, message)
             SELECT run.run_id, this.case_id, this.outcome, this.duration_ms, this.message
             FROM run JOIN test_case AS this ON this.case_id = (
                 SELECT case_id FROM test_case AS next
                 WHERE next.task_id = run.task_id AND NOT EXISTS (
                     SELECT 1 FROM case_result AS done
                     WHERE done.run_id = run.run_id AND done.case_id = next.case_id)
                 ORDER BY next.position LIMIT 1)
             WHERE run.status = 'running'",
        )
        .execute(&mut *step)
        .await?;
        sqlx::query(
            "UPDATE run SET finished_ms = ?, status = CASE
                 WHEN EXISTS (SELECT 1 FROM case_result
                              WHERE run_id = run.run_id AND outcome = 'failed')
                 THEN 'failed' ELSE 'passed' END
             WHERE status = 'running'
               AND (SELECT count(*) FROM case_result WHERE run_id = run.run_id)
                 = (SELECT count(*) FROM test_case WHERE task_id = run.task_id)",
        )
        .bind(now)
        .execute(&mut *step)
        .await?;
        sqlx::query("UPDATE run SET status = 'running', started_ms = ? WHERE status = 'queued'")
            .bind(now)
            .execute(&mut *step)
            .await?;
        let unfinished =
            sqlx::query_scalar("SELECT count(*) FROM run WHERE status IN ('queued', 'running')")
                .fetch_one(&mut *step)
                .await?;
        step.commit().await?;
        Ok(unfinished)
    }
}

// === impl RunId ===

impl RunId {
    /// Reads an id exactly as it is written, so that a run has one name.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Self(text.strip_prefix("R-")?.parse().ok()?);
        (id.to_string() == text).then_some(id)
    }
}

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "R-{}", self.0)
    }
}

// === impl Brief ===

impl Brief {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let run_id = RunId(row.try_get("run_id")?).to_string();
        Ok(Self { run_id, status: row.try_get("status")? })
    }
}

// === impl Run ===

impl Run {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let at = |column| row.try_get::<Option<i64>, _>(column)?.map(moment).transpose();
        Ok(Self {
            run_id: RunId(row.try_get("run_id")?).to_string(),
            task_id: row.try_get("task_id")?,
            status: row.try_get("status")?,
            progress: Progress { done: row.try_get("done")?, total: row.try_get("total")? },
            started_by: row.try_get("emp_id")?,
            created_at: moment(row.try_get("created_ms")?)?,
            started_at: at("started_ms")?,
            finished_at: at("finished_ms")?,
        })
    }
}

// === impl CaseOutcome ===

impl CaseOutcome {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            case_id: row.try_get("case_id")?,
            name: row.try_get("name")?,
            outcome: row.try_get("outcome")?,
            duration_ms: row.try_get("duration_ms")?,
            message: row.try_get("message")?,
        })
    }
}
