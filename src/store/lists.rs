//! Lists of runs, comments, events and queues, and the statistics.

use rusqlite::{Row, params};

use crate::core::fault::Error;
use crate::core::ids::{CommentId, EventId, RunId, TaskId, Uid};
use crate::core::limits;
use crate::core::row::RunStage;
use crate::core::state::Status;
use crate::core::view::{CommentView, EventFilter, EventView, Page, QueueView, RunView, Stats};
use crate::store::query::Sight;
use crate::store::sql::{Lax, LaxText};
use crate::store::{Snapshot, runs};

/// Entries of the log that one page looks at in search of the caller's own.
const EVENTS_VISITED: usize = 10_000;

pub(super) fn page_rows(limit: Option<u32>) -> usize {
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
