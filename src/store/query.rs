//! What callers are shown of tasks; the other lists are beside it.

use rusqlite::{Row, ToSql};

use crate::core::fault::Error;
use crate::core::fingerprint::{Cell, Stored};
use crate::core::ids::{RunId, TaskId, Uid};
use crate::core::limits;
use crate::core::row::RunStage;
use crate::core::spec::{Completion, TaskSpec};
use crate::core::state::Status;
use crate::core::view::{CurrentRun, TaskFilter, TaskView};
use crate::store::lists::page_rows;
use crate::store::sql::{Lax, LaxText};
use crate::store::{Snapshot, When, runs};

pub use crate::store::lists::{comments_of, events, queues, run, runs_of, stats};

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
