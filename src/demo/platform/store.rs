//! The platform's database: opening it, and what it says of tasks and cases.
//!
//! Every query that answers an employee joins the view `access`, so what is neither his own nor
//! shared with him is not found here, and nobody above has to look. Runs are in `runs.rs`.

use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use sqlx::{
    Row, SqlitePool,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteRow},
};

use crate::{
    clock::Clock,
    model::caller::{EmployeeId, TenantId},
};

/// The database, and the clock that stamps what is written.
#[derive(Debug, Clone)]
pub(super) struct Store {
    pub pool: SqlitePool,
    pub clock: Clock,
}

/// An employee of the platform: for whom a tool acts. One without a tenant is nobody that the
/// platform knows, and owns nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Employee {
    pub emp_id: EmployeeId,
    pub tenant: Option<TenantId>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Task {
    task_id: String,
    name: String,
    target: String,
    owner: String,
    /// `own` or `shared`.
    access: String,
    case_count: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskDetail {
    #[serde(flatten)]
    task: Task,
    description: String,
    created_at: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Case {
    case_id: String,
    name: String,
    priority: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CaseDetail {
    #[serde(flatten)]
    case: Case,
    task_id: String,
    steps: Value,
    expected: String,
}

// === impl Store ===

impl Store {
    /// Opens the file, or a database in memory, with its tables and what the demo starts with.
    pub async fn open(file: Option<&Path>, clock: Clock) -> Result<Self, sqlx::Error> {
        let options = match file {
            Some(file) => SqliteConnectOptions::new().filename(file).create_if_missing(true),
            None => SqliteConnectOptions::new().in_memory(true),
        };
        // One connection, never given up: SQLite writes one at a time anyway, and a database in
        // memory lives as long as its connection.
        let pool = SqlitePoolOptions::new()
            .min_connections(1)
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_with(options.foreign_keys(true))
            .await?;
        sqlx::raw_sql(include_str!("schema.sql")).execute(&pool).await?;
        sqlx::raw_sql(include_str!("seed.sql")).execute(&pool).await?;
        Ok(Self { pool, clock })
    }

    pub fn now_ms(&self) -> i64 {
        i64::try_from(self.clock.now_ms()).unwrap_or(i64::MAX)
    }

    pub async fn tenant_of(&self, emp_id: &EmployeeId) -> Result<Option<TenantId>, sqlx::Error> {
        let tenant: Option<String> =
            sqlx::query_scalar("SELECT tenant FROM employee WHERE emp_id = ?")
                .bind(emp_id.as_str())
                .fetch_optional(&self.pool)
                .await?;
        Ok(tenant.map(TenantId::new))
    }

    /// The tasks an employee owns or was given a share of.
    pub async fn tasks(&self, who: &Employee) -> Result<Vec<Task>, sqlx::Error> {
        let rows = sqlx::query(
            "SELECT task.*, access.kind,
                    (SELECT count(*) FROM test_case WHERE task_id = task.task_id) AS case_count
             FROM task JOIN access ON access.task_id = task.task_id
             WHERE access.emp_id = ? AND access.tenant = ?
             ORDER BY task.task_id",
        )
        .bind(who.emp_id.as_str())
        .bind(who.tenant_name())
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(Task::read).collect()
    }

    pub async fn task(
        &self,
        who: &Employee,
        task_id: &str,
    ) -> Result<Option<TaskDetail>, sqlx::Error> {
        let row = sqlx::query(
            "SELECT task.*, access.kind,
                    (SELECT count(*) FROM test_case WHERE task_id = task.task_id) AS case_count
             FROM task JOIN access ON access.task_id = task.task_id
             WHERE access.emp_id = ? AND access.tenant = ? AND task.task_id = ?",
        )
        .bind(who.emp_id.as_str())
        .bind(who.tenant_name())
        .bind(task_id)
        .fetch_optional(&self.pool)
        .await?;
        row.as_ref().map(TaskDetail::read).transpose()
    }

    /// The cases of a task, in their order; none at all if the task is not the employee's.
    pub async fn cases(
        &self,
        who: &Employee,
        task_id: &str,
    ) -> Result<Option<Vec<Case>>, sqlx::Error> {
        if self.task(who, task_id).await?.is_none() {
            return Ok(None);
        }
        let rows = sqlx::query("SELECT * FROM test_case WHERE task_id = ? ORDER BY position")
            .bind(task_id)
            .fetch_all(&self.pool)
            .await?;
        rows.iter().map(Case::read).collect::<Result<_, _>>().map(Some)
    }

    pub async fn case(
        &self,
        who: &Employee,
        case_id: &str,
    ) -> Result<Option<CaseDetail>, sqlx::Error> {
        let row = sqlx::query(
            "SELECT test_case.*
             FROM test_case JOIN access ON access.task_id = test_case.task_id
             WHERE access.emp_id = ? AND access.tenant = ? AND test_case.case_id = ?",
        )
        .bind(who.emp_id.as_str())
        .bind(who.tenant_name())
        .bind(case_id)
        .fetch_optional(&self.pool)
        .await?;
        row.as_ref().map(CaseDetail::read).transpose()
    }
}

/// A moment as callers see it: RFC 3339, in UTC.
pub(super) fn moment(ms: i64) -> Result<String, sqlx::Error> {
    let moment = Timestamp::from_millisecond(ms);
    moment.map(|moment| format!("{moment:.3}")).map_err(|error| sqlx::Error::Decode(error.into()))
}

// === impl Employee ===

impl Employee {
    /// For comparison in SQL: nothing equals the tenant of one who has none.
    pub(super) fn tenant_name(&self) -> Option<&str> {
        self.tenant.as_ref().map(TenantId::as_str)
    }
}

// === impl Task ===

impl Task {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            task_id: row.try_get("task_id")?,
            name: row.try_get("name")?,
            target: row.try_get("target")?,
            owner: row.try_get("owner")?,
            access: row.try_get("kind")?,
            case_count: row.try_get("case_count")?,
        })
    }
}

// === impl TaskDetail ===

impl TaskDetail {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            task: Task::read(row)?,
            description: row.try_get("description")?,
            created_at: moment(row.try_get("created_ms")?)?,
        })
    }
}

// === impl Case ===

impl Case {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            case_id: row.try_get("case_id")?,
            name: row.try_get("name")?,
            priority: row.try_get("priority")?,
        })
    }
}

// === impl CaseDetail ===

impl CaseDetail {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let steps: String = row.try_get("steps")?;
        Ok(Self {
            case: Case::read(row)?,
            task_id: row.try_get("task_id")?,
            steps: serde_json::from_str(&steps)
                .map_err(|error| sqlx::Error::Decode(error.into()))?,
            expected: row.try_get("expected")?,
        })
    }
}
