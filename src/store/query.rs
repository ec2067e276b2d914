//! What callers are shown.

use rusqlite::{Row, ToSql, params};

use crate::core::fault::Error;
use crate::core::fingerprint::{Cell, Stored};
use crate::core::ids::{CommentId, EventId, RunId, TaskId, Uid};
use crate::core::limits;
use crate::core::row::RunStage;
use crate::core::spec::{Completion, TaskSpec};
use crate::core::state::Status;
use crate::core::view::{
    CommentView, CurrentRun, EventFilter, EventView, Page, QueueView, RunView, Stats, TaskFilter, TaskView,
};
use crate::store::sql::{Lax, LaxText};
use crate::store::{Snapshot, When, runs};

/// Entries of the log that one page looks at in search of the caller's own.
const EVENTS_VISITED: usize = 10_000;

/// Whose tasks somebody may see: all, or their own.
pub type Sight = Option<Uid>;

const TASK: &str = "SELECT t.task, t.status, t.title, t.body, t.queue, t.priority, t.not_before_usec,
        t.idempotency_key, t.program, t.max_runtime_ms, t.stall_ms, t.lease_ms, t.stop_grace_ms, t.failure_limit,
        t.backoff_ms, t.backoff_max_ms, t.completion, t.slots,
        (SELECT json_group_array(label) FROM (SELECT label FROM labels WHERE task = t.task AND typeof(label) = 'text' ORDER BY label)),
        (SELECT json_group_array(parent) FROM (SELECT parent FROM edges WHERE child = t.task ORDER BY parent)),
        t.block_code, t.block_reason, t.owner_uid, t.created_usec, t.attempts, t.failures, t.retry_at_ms,
        t.retry_epoch, t.last_error, t.result,
        (SELECT count(*) FROM runs s WHERE s.survivor = 1 AND s.task = t.task),
        r.run, r.claimant, r.lease_expires_ms, r.epoch, r.stage, r.stop_cause, r.worker_pid, r.worker_fingerprint,
        r.unit, r.held, r.launched = 1 OR r.nonce IS NOT NULL
    FROM tasks t LEFT JOIN runs r ON r.run = t.run
    WHERE t.task = ?1";

/// One task, with the run that holds it.
///
/// # Errors
/// A fault of the board.
pub fn task(snapshot: &Snapshot<'_>, task: TaskId, when: &When) -> Result<Option<TaskView>, Error> {
    snapshot.one("reading a task", TASK, [task], |row| read_task(row, when))
}

fn read_task(row: &Row<'_>, when: &When) -> rusqlite::Result<TaskView> {
    let text = |at| row.get::<_, LaxText>(at).map(|cell| cell.0);
    let lax = |at| row.get::<_, Lax>(at).map(|cell| cell.0);
    let epoch = when.epoch.to_string();
    let left = |until: Option<i64>, of: Option<String>| {
        until.filter(|_| of.as_deref() == Some(epoch.as_str())).map(|until| (until - when.now.mono.0).max(0))
    };
    Ok(TaskView {
        task: row.get(0)?,
        status: text(1)?.and_then(|word| Status::parse(&word)).unwrap_or(Status::Blocked),
        spec: read_spec(row)?,
        block_code: text(20)?,
        block_reason: text(21)?,
        owner_uid: uid(lax(22)?),
        created_usec: lax(23)?.unwrap_or(0),
        attempts: lax(24)?.unwrap_or(0),
        failures: lax(25)?.unwrap_or(0),
        retry_in_ms: left(lax(26)?, text(27)?),
        last_error: text(28)?,
        result: text(29)?,
        survivors: row.get(30)?,
        current: match row.get::<_, Option<RunId>>(31)? {
            None => None,
            Some(run) => Some(read_current(row, run, left(lax(33)?, text(34)?))?),
        },
    })
}

fn read_spec(row: &Row<'_>) -> rusqlite::Result<TaskSpec> {
    let text = |at| row.get::<_, LaxText>(at).map(|cell| cell.0);
    let lax = |at| row.get::<_, Lax>(at).map(|cell| cell.0);
    let failure_limit = lax(13)?.and_then(|limit| u32::try_from(limit).ok());
    Ok(TaskSpec {
        title: text(2)?.unwrap_or_default(),
        body: text(3)?.unwrap_or_default(),
        queue: text(4)?,
        priority: lax(5)?.and_then(|priority| i32::try_from(priority).ok()).unwrap_or(0),
        labels: json(text(18)?),
        parents: json(text(19)?),
        not_before_usec: lax(6)?,
        idempotency_key: text(7)?,
        program: json(text(8)?),
        max_runtime_ms: lax(9)?,
        stall_ms: lax(10)?,
        lease_ms: lax(11)?,
        stop_grace_ms: lax(12)?,
        failure_limit,
        backoff_ms: lax(14)?,
        backoff_max_ms: lax(15)?,
        completion: text(16)?.and_then(|word| Completion::parse(&word)),
        slots: json(text(17)?),
    })
}

/// What a hand edit made unreadable is as if it were not there.
fn json<T: Default + serde::de::DeserializeOwned>(text: Option<String>) -> T {
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn uid(number: Option<i64>) -> Uid {
    number.and_then(|number| Uid::try_from(number).ok()).unwrap_or(0)
}

fn read_current(row: &Row<'_>, run: RunId, lease_remaining_ms: Option<i64>) -> rusqlite::Result<CurrentRun> {
    let text = |at| row.get::<_, LaxText>(at).map(|cell| cell.0);
    let worker_pid = row.get::<_, Lax>(37)?.0;
    let stored = Stored::read(worker_pid.is_some(), &row.get::<_, Cell>(38)?);
    Ok(CurrentRun {
        run,
        claimant: text(32)?,
        lease_remaining_ms,
        stage: RunStage::read(text(35)?.as_deref()).word().to_owned(),
        stop_cause: text(36)?,
        worker_pid,
        worker_kind: runs::kind(row.get::<_, Option<bool>>(41)?.unwrap_or(false), worker_pid),
        fingerprint: text(38)?,
        fingerprint_kind: stored.kind(),
        unit: text(39)?,
        held: text(40)?,
    })
}

/// A page of tasks, in the order of their numbers.
///
/// # Errors
/// A fault of the board.
pub fn tasks(
    snapshot: &Snapshot<'_>,
    filter: &TaskFilter,
    sight: Sight,
    when: &When,
) -> Result<Vec<TaskView>, Error> {
    let limit = page_rows(filter.limit);
    let mut numbers: Vec<TaskId> = Vec::new();
    let owner = sight.or(filter.owner);
    if matches!((sight, filter.owner), (Some(own), Some(wanted)) if own != wanted) {
        return Ok(Vec::new());
    }
    // Status by status, each in the order of numbers along an index of its own: a board of a million ended
    // tasks costs nothing to those who ask for the open ones.
    let by_status = !filter.statuses.is_empty() || owner.is_some();
    let statuses: Vec<Option<Status>> = match (by_status, filter.statuses.is_empty()) {
        (false, _) => vec![None],
        (true, true) => Status::ALL.into_iter().map(Some).collect(),
        (true, false) => filter.statuses.iter().copied().map(Some).collect(),
    };
    for status in statuses {
        numbers.extend(numbers_of(snapshot, filter, owner, status, limit)?);
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers.truncate(limit);
    let mut page = Vec::with_capacity(numbers.len());
    let mut bytes = 0;
    for number in numbers {
        if let Some(view) = task(snapshot, number, when)? {
            bytes += weight(&view);
            if bytes > limits::PAGE_BYTES && !page.is_empty() {
                break;
            }
            page.push(view);
        }
    }
    Ok(page)
}

fn numbers_of(
    snapshot: &Snapshot<'_>,
    filter: &TaskFilter,
    owner: Option<Uid>,
    status: Option<Status>,
    limit: usize,
) -> Result<Vec<TaskId>, Error> {
    let mut sql = "SELECT t.task FROM tasks t WHERE t.task > ?".to_owned();
    let mut values: Vec<Box<dyn ToSql>> = vec![Box::new(filter.after.unwrap_or(TaskId::new(0)))];
    let mut narrow = |condition: &str, value: Box<dyn ToSql>| {
        sql.push_str(" AND ");
        sql.push_str(condition);
        values.push(value);
    };
    if let Some(owner) = owner {
        narrow("t.owner_uid = ?", Box::new(owner));
    }
    if let Some(status) = status {
        narrow("t.status = ?", Box::new(status.word()));
    }
    if let Some(queue) = &filter.queue {
        narrow("t.queue = ?", Box::new(queue.clone()));
    }
    if let Some(label) = &filter.label {
        narrow(
            "EXISTS (SELECT 1 FROM labels l WHERE l.task = t.task AND l.label = ?)",
            Box::new(label.clone()),
        );
    }
    if let Some(text) = &filter.text {
        narrow("instr(lower(t.title || char(10) || t.body), lower(?)) > 0", Box::new(text.clone()));
    }
    sql.push_str(" ORDER BY t.task LIMIT ");
    sql.push_str(&limit.to_string());
    let params = rusqlite::params_from_iter(values.iter().map(AsRef::as_ref));
    snapshot.all("looking for tasks", &sql, params, |row| row.get(0))
}

/// About what a task weighs in an answer, bytes.
fn weight(view: &TaskView) -> usize {
    let spec = &view.spec;
    let program = &spec.program;
    let texts = [&view.block_reason, &view.last_error, &view.result, &spec.idempotency_key];
    let lists = [&program.command, &program.environment, &spec.labels];
    512 + spec.title.len()
        + spec.body.len()
        + texts.into_iter().flatten().map(String::len).sum::<usize>()
        + lists.into_iter().flatten().map(|word| word.len() + 8).sum::<usize>()
        + spec.parents.len() * 8
}

fn page_rows(limit: Option<u32>) -> usize {
    let rows = limit.filter(|limit| *limit > 0).unwrap_or(limits::PAGE_ROWS).min(limits::PAGE_ROWS_MAX);
    usize::try_from(rows).unwrap_or(usize::MAX)
}

macro_rules! run_columns {
    () => {
        "SELECT run, task, attempt, claimant, ifnull(worker_pid, last_pid),
             launched = 1 OR nonce IS NOT NULL, last_kind, unit, stage, started_usec, ended_usec, outcome,
             exit_code, signal, error FROM runs "
    };
}

/// One run.
///
/// # Errors
/// A fault of the board.
pub fn run(snapshot: &Snapshot<'_>, run: RunId) -> Result<Option<RunView>, Error> {
    snapshot.one("reading a run", concat!(run_columns!(), "WHERE run = ?1"), [run], read_run)
}

/// A page of a task's runs.
///
/// # Errors
/// A fault of the board.
pub fn runs_of(snapshot: &Snapshot<'_>, task: TaskId, page: Page) -> Result<Vec<RunView>, Error> {
    let limit = page_rows(page.limit);
    let sql = concat!(run_columns!(), "WHERE task = ?1 AND run > ?2 ORDER BY run");
    light(snapshot, "reading runs", sql, params![task, page.after.unwrap_or(0)], limit, read_run, |view| {
        256 + view.error.as_ref().map_or(0, String::len)
    })
}

fn read_run(row: &Row<'_>) -> rusqlite::Result<RunView> {
    let text = |at| row.get::<_, LaxText>(at).map(|cell| cell.0);
    let lax = |at| row.get::<_, Lax>(at).map(|cell| cell.0);
    let small = |at| lax(at).map(|number| number.and_then(|number| i32::try_from(number).ok()));
    let worker_pid = lax(4)?;
    let kind = match text(6)?.as_deref() {
        Some("launched") => "launched",
        Some("registered") => "registered",
        Some("lease-only") => "lease-only",
        _ => runs::kind(row.get(5)?, worker_pid),
    };
    Ok(RunView {
        run: row.get(0)?,
        task: TaskId::new(lax(1)?.unwrap_or(0)),
        attempt: lax(2)?.unwrap_or(1),
        claimant: text(3)?,
        worker_pid,
        worker_kind: kind,
        unit: text(7)?,
        stage: RunStage::read(text(8)?.as_deref()).word().to_owned(),
        started_usec: lax(9)?.unwrap_or(0),
        ended_usec: lax(10)?,
        outcome: text(11)?,
        exit_code: small(12)?,
        signal: small(13)?,
        error: text(14)?,
    })
}

/// A page of comments.
///
/// # Errors
/// A fault of the board.
pub fn comments_of(snapshot: &Snapshot<'_>, task: TaskId, page: Page) -> Result<Vec<CommentView>, Error> {
    let limit = page_rows(page.limit);
    let sql = "SELECT comment, author, body, at_usec FROM comments WHERE task = ?1 AND comment > ?2 ORDER BY comment";
    let read = |row: &Row<'_>| {
        Ok(CommentView {
            comment: row.get::<_, CommentId>(0)?,
            author: row.get::<_, LaxText>(1)?.0.unwrap_or_default(),
            text: row.get::<_, LaxText>(2)?.0.unwrap_or_default(),
            at_usec: row.get::<_, Lax>(3)?.0.unwrap_or(0),
        })
    };
    let after = page.after.unwrap_or(0);
    light(snapshot, "reading comments", sql, params![task, after], limit, read, |view| 128 + view.text.len())
}

/// A page of events, oldest first.
///
/// # Errors
/// A fault of the board.
pub fn events(snapshot: &Snapshot<'_>, filter: &EventFilter, sight: Sight) -> Result<Vec<EventView>, Error> {
    let limit = page_rows(filter.limit);
    let after = filter.after.unwrap_or(EventId::new(0));
    let read = |row: &Row<'_>| {
        Ok(EventView {
            event: row.get(0)?,
            task: row.get::<_, Lax>(1)?.0.map(TaskId::new),
            run: row.get::<_, Lax>(2)?.0.map(RunId::new),
            kind: row.get::<_, LaxText>(3)?.0.unwrap_or_default(),
            payload: row.get::<_, LaxText>(4)?.0.unwrap_or_else(|| "{}".to_owned()),
            at_usec: row.get::<_, Lax>(5)?.0.unwrap_or(0),
        })
    };
    let weight = |view: &EventView| 128 + view.payload.len();
    match (filter.task, sight) {
        (Some(task), _) => {
            let sql = "SELECT event, task, run, kind, payload, at_usec FROM events
                 WHERE task = ?1 AND event > ?2 ORDER BY event";
            light(snapshot, "reading events", sql, params![task, after], limit, read, weight)
        }
        (None, None) => {
            let sql = "SELECT event, task, run, kind, payload, at_usec FROM events
                 WHERE event > ?1 ORDER BY event";
            light(snapshot, "reading events", sql, params![after], limit, read, weight)
        }
        (None, Some(own)) => own_events(snapshot, own, after, limit, read, weight),
    }
}

/// Walks the log for the events of one owner's tasks. Where there is nothing of theirs for long, goes on by
/// way of their tasks: the log of all the others must cost them, and those who wait behind them, little.
fn own_events(
    snapshot: &Snapshot<'_>,
    own: Uid,
    after: EventId,
    limit: usize,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<EventView>,
    weight: impl Fn(&EventView) -> usize,
) -> Result<Vec<EventView>, Error> {
    const DOING: &str = "reading events";
    let mut filling = Filling::new(limit);
    let (mut visited, mut last) = (0, after);
    let sql = "SELECT e.event, e.task, e.run, e.kind, e.payload, e.at_usec, t.owner_uid IS ?2 FROM events e
         LEFT JOIN tasks t ON t.task = e.task WHERE e.event > ?1 ORDER BY e.event";
    snapshot.each(DOING, sql, params![after, own], |row| {
        visited += 1;
        last = row.get(0)?;
        if row.get(6)? {
            let view = read(row)?;
            let bytes = weight(&view);
            return Ok(filling.take(view, bytes) && visited < EVENTS_VISITED);
        }
        Ok(visited < EVENTS_VISITED)
    })?;
    if visited < EVENTS_VISITED || !filling.rows.is_empty() {
        return Ok(filling.rows);
    }
    let sql = "SELECT e.event, e.task, e.run, e.kind, e.payload, e.at_usec FROM tasks t
         CROSS JOIN events e ON e.task = t.task
         WHERE t.owner_uid = ?2 AND e.event > ?1 ORDER BY e.event LIMIT ?3";
    let rows = i64::try_from(limit).unwrap_or(i64::MAX);
    light(snapshot, DOING, sql, params![last, own, rows], limit, read, weight)
}

/// A page that fills up: bounded in rows and in bytes.
struct Filling<T> {
    rows: Vec<T>,
    bytes: usize,
    limit: usize,
}

impl<T> Filling<T> {
    const fn new(limit: usize) -> Self {
        Self { rows: Vec::new(), bytes: 0, limit }
    }

    /// Takes a row if it still fits; says whether another one may.
    fn take(&mut self, row: T, bytes: usize) -> bool {
        self.bytes += bytes;
        if self.bytes > limits::PAGE_BYTES && !self.rows.is_empty() {
            return false;
        }
        self.rows.push(row);
        self.rows.len() < self.limit
    }
}

/// A page that is bounded in rows and in bytes.
fn light<T>(
    snapshot: &Snapshot<'_>,
    doing: &'static str,
    sql: &str,
    params: impl rusqlite::Params,
    limit: usize,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    weight: impl Fn(&T) -> usize,
) -> Result<Vec<T>, Error> {
    let mut filling = Filling::new(limit);
    snapshot.each(doing, sql, params, |row| {
        let view = read(row)?;
        let bytes = weight(&view);
        Ok(filling.take(view, bytes))
    })?;
    Ok(filling.rows)
}

/// Every queue, with what the caller may see of it.
///
/// # Errors
/// A fault of the board.
pub fn queues(snapshot: &Snapshot<'_>, sight: Sight) -> Result<Vec<QueueView>, Error> {
    let small = |number: i64| u32::try_from(number.max(0)).unwrap_or(u32::MAX);
    snapshot.all(
        "reading queues",
        "SELECT q.queue, CAST(q.max_running AS INTEGER), CAST(q.paused AS INTEGER), c.ready, c.running FROM queues q
         LEFT JOIN (SELECT queue, sum(iif(status = 'ready', tasks, 0)) AS ready,
                        sum(iif(status = 'running', tasks, 0)) AS running
                    FROM tallies WHERE ?1 IS NULL OR owner_uid = ?1 GROUP BY queue) c ON c.queue = q.queue
         ORDER BY q.queue",
        [sight],
        |row| {
            Ok(QueueView {
                queue: row.get(0)?,
                max_running: small(row.get(1)?),
                paused: row.get::<_, i64>(2)? != 0,
                ready: small(row.get::<_, Option<i64>>(3)?.unwrap_or(0)),
                running: small(row.get::<_, Option<i64>>(4)?.unwrap_or(0)),
            })
        },
    )
}

/// Tasks by status, and open runs, as far as the caller may see them.
///
/// # Errors
/// A fault of the board.
pub fn stats(snapshot: &Snapshot<'_>, sight: Sight) -> Result<Stats, Error> {
    let counts = snapshot.all(
        "counting tasks",
        "SELECT status, sum(tasks) FROM tallies WHERE ?1 IS NULL OR owner_uid = ?1 GROUP BY status",
        [sight],
        |row| Ok((row.get::<_, LaxText>(0)?.0.unwrap_or_default(), row.get::<_, i64>(1)?)),
    )?;
    let (open, held) = snapshot
        .one(
            "counting open runs",
            "SELECT count(*), count(r.held) FROM runs r LEFT JOIN tasks t ON t.task = r.task
             WHERE r.ended_usec IS NULL AND (?1 IS NULL OR t.owner_uid = ?1)",
            [sight],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
        )?
        .unwrap_or_default();
    let number = |number: i64| u64::try_from(number).unwrap_or(0);
    let tasks = Status::ALL.into_iter().map(|status| {
        let count = counts.iter().find(|(word, _)| word == status.word()).map_or(0, |(_, count)| *count);
        (status, number(count))
    });
    Ok(Stats { tasks: tasks.collect(), open_runs: number(open), held: number(held) })
}
