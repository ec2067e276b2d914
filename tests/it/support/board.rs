//! The board's file, as somebody with a SQL shell sees it: to look at rows, and to break them by hand.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Params};

use super::kernel;

/// A connection of another process would do the same; the daemon has its own.
pub struct Board {
    pub connection: Connection,
}

/// A run row to be written by hand; what is not set is as a proper claim of a registered worker has it.
pub struct HandMade {
    pub claimant: Option<&'static str>,
    pub lease_expires_ms: Option<i64>,
    pub epoch: Option<String>,
    pub pid: Option<i64>,
    pub fingerprint: Cell,
    pub stage: &'static str,
    pub started_ms: Option<i64>,
    pub max_runtime_ms: Option<i64>,
}

/// What a fingerprint column holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    Null,
    Integer(i64),
    Text(String),
}

impl Default for HandMade {
    fn default() -> Self {
        let now = kernel::mono_ms();
        Self {
            claimant: Some("by hand"),
            lease_expires_ms: Some(now + 900_000),
            epoch: Some(kernel::epoch()),
            pid: None,
            fingerprint: Cell::Null,
            stage: "running",
            started_ms: Some(now - 60_000),
            max_runtime_ms: None,
        }
    }
}

impl HandMade {
    /// Its lease ran out a minute ago.
    pub fn lease_expired(self) -> Self {
        Self { lease_expires_ms: Some(kernel::mono_ms() - 60_000), ..self }
    }

    /// It may run for a second and has run for a minute.
    pub fn overrun(self) -> Self {
        Self { max_runtime_ms: Some(1_000), ..self }
    }

    pub fn worker(self, pid: u32, fingerprint: Cell) -> Self {
        Self { pid: Some(i64::from(pid)), fingerprint, ..self }
    }

    /// A worker with its own, whole fingerprint.
    pub fn own(self, pid: u32) -> Self {
        self.worker(pid, Cell::Text(kernel::fingerprint(pid)))
    }
}

impl Board {
    pub fn open(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        Self { connection }
    }

    #[track_caller]
    pub fn execute(&self, sql: &str, parameters: impl Params) {
        self.connection.execute(sql, parameters).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// One value; nothing for SQL NULL or no row.
    #[track_caller]
    pub fn text(&self, sql: &str, parameters: impl Params) -> Option<String> {
        use rusqlite::types::Value;
        let value = self
            .connection
            .query_row(sql, parameters, |row| row.get::<_, Value>(0))
            .optional()
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        match value? {
            Value::Null => None,
            Value::Integer(number) => Some(number.to_string()),
            Value::Text(text) => Some(text),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[track_caller]
    pub fn number(&self, sql: &str, parameters: impl Params) -> Option<i64> {
        self.text(sql, parameters).map(|text| text.parse().unwrap())
    }

    pub fn status(&self, task: u64) -> String {
        self.text("SELECT status FROM tasks WHERE task = ?1", [task.cast_signed()]).expect("a task")
    }

    /// The run that a task says holds it.
    pub fn run_of(&self, task: u64) -> Option<i64> {
        self.number("SELECT run FROM tasks WHERE task = ?1", [task.cast_signed()])
    }

    /// The pid on the task's newest run.
    pub fn pid_of_newest_run(&self, task: u64) -> Option<i64> {
        self.number(
            "SELECT worker_pid FROM runs WHERE task = ?1 ORDER BY run DESC LIMIT 1",
            [task.cast_signed()],
        )
    }

    pub fn outcome(&self, run: u64) -> Option<String> {
        self.text("SELECT outcome FROM runs WHERE run = ?1", [run.cast_signed()])
    }

    /// How many events of this kind the task has.
    pub fn events(&self, task: u64, kind: &str) -> i64 {
        let sql = "SELECT count(*) FROM events WHERE task = ?1 AND kind = ?2";
        self.number(sql, rusqlite::params![task.cast_signed(), kind]).unwrap()
    }

    /// Every event of a task: its kind and its payload, in order.
    pub fn history(&self, task: u64) -> Vec<(String, String)> {
        let mut query = self
            .connection
            .prepare("SELECT kind, payload FROM events WHERE task = ?1 ORDER BY event")
            .unwrap();
        let rows = query.query_map([task.cast_signed()], |row| {
            Ok((row.get(0)?, row.get::<_, Option<String>>(1)?.unwrap_or_default()))
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Whole tables as text, for "nothing has changed".
    pub fn dump(&self, tables: &[&str]) -> String {
        let mut all = String::new();
        for table in tables {
            let mut query = self.connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).unwrap();
            let columns = query.column_count();
            let mut rows = query.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let values: Vec<_> = (0..columns)
                    .map(|column| row.get::<_, rusqlite::types::Value>(column).unwrap())
                    .collect();
                all.push_str(&format!("{table} {values:?}\n"));
            }
        }
        all
    }

    /// A task that says it is running, held by a run row that is written by hand; both numbers.
    pub fn running(&self, row: HandMade) -> (u64, u64) {
        self.execute(
            "INSERT INTO tasks(status, queue, title, run, failures, max_runtime_ms)
             VALUES ('running', 'default', 'by hand', NULL, 0, ?1)",
            [row.max_runtime_ms],
        );
        let task = self.connection.last_insert_rowid();
        let run = self.run(task.cast_unsigned(), row);
        self.execute("UPDATE tasks SET run = ?1 WHERE task = ?2", [run.cast_signed(), task]);
        (task.cast_unsigned(), run)
    }

    /// A run row of a task; the task is not told.
    pub fn run(&self, task: u64, row: HandMade) -> u64 {
        let fingerprint = match row.fingerprint {
            Cell::Null => rusqlite::types::Value::Null,
            Cell::Integer(number) => number.into(),
            Cell::Text(text) => text.into(),
        };
        self.execute(
            "INSERT INTO runs(task, claimant, lease_expires_ms, epoch, worker_pid, worker_fingerprint, stage,
                              started_ms, started_usec)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            rusqlite::params![
                task.cast_signed(),
                row.claimant,
                row.lease_expires_ms,
                row.epoch,
                row.pid,
                fingerprint,
                row.stage,
                row.started_ms,
                kernel::wall_usec(),
            ],
        );
        self.connection.last_insert_rowid().cast_unsigned()
    }

    /// A task without any run, in this status.
    pub fn task(&self, status: &str) -> u64 {
        self.execute(
            "INSERT INTO tasks(status, queue, title, failures) VALUES (?1, 'default', 'by hand', 0)",
            [status],
        );
        self.connection.last_insert_rowid().cast_unsigned()
    }
}
