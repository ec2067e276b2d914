//! What the end of a run does to its task.

use rusqlite::params;
use serde_json::json;

use crate::core::fault::Error;
use crate::core::ids::{EventId, RunId, TaskId};
use crate::core::retry::{self, Account, Exit, Outcome, Settlement};
use crate::core::row::ClaimRow;
use crate::core::state::{BlockCode, Status};
use crate::core::verdict::StopCause;
use crate::store::events::{self, Kind};
use crate::store::sweep::Ending;
use crate::store::{Snapshot, Tx, When, queues, runs, tasks};

/// What the failure accounting needs to know.
pub(super) fn account(
    snapshot: &Snapshot<'_>,
    row: &ClaimRow,
    ending: &Ending,
    final_failure: bool,
    when: &When,
) -> Result<Account, Error> {
    let task = row.task.as_ref().map_or(TaskId::new(0), |task| task.task);
    let spans = snapshot.one(
        "reading a task's back-off",
        "SELECT failures, failure_limit, backoff_ms, backoff_max_ms, queue FROM tasks WHERE task = ?1",
        [task],
        |row| {
            let lax = |at| row.get::<_, crate::store::sql::Lax>(at).map(|cell| cell.0);
            Ok((lax(0)?, lax(1)?, lax(2)?, lax(3)?, row.get::<_, crate::store::sql::LaxText>(4)?.0))
        },
    )?;
    let (failures, limit, base, most, queue) = spans.unwrap_or_default();
    let queue = queues::defaults(snapshot, queue.as_deref().unwrap_or_default())?;
    let policy = &when.policy;
    let limit = limit.or(queue.failure_limit.map(i64::from)).unwrap_or(i64::from(policy.failure_limit));
    Ok(Account {
        failures: failures.unwrap_or(0),
        failure_limit: limit,
        backoff_ms: base.or(queue.backoff_ms).unwrap_or(policy.backoff_ms),
        backoff_max_ms: most.or(queue.backoff_max_ms).unwrap_or(policy.backoff_max_ms),
        tempfail_cooldown_ms: policy.tempfail_cooldown_ms,
        lost_unclean: if ending.outcome == Outcome::Lost { lost_unclean(snapshot, task, when)? } else { 0 },
        cancel_asked: row.run.as_ref().is_some_and(|run| run.stop_cause == Some(StopCause::Cancelled)),
        final_failure,
        jitter_thousandths: when.jitter_thousandths(row.run.as_ref().map_or(RunId::new(0), |run| run.run)),
    })
}

/// Runs of this task that an unclean end of the host took within the window; the one that has just ended is
/// on the board already.
fn lost_unclean(snapshot: &Snapshot<'_>, task: TaskId, when: &When) -> Result<i64, Error> {
    let since = when.now.wall.0.saturating_sub(retry::HOST_WINDOW_MS.saturating_mul(1_000));
    snapshot.number(
        "counting lost runs",
        "SELECT count(*) FROM runs WHERE task = ?1 AND outcome = 'lost' AND unclean = 1 AND ended_usec > ?2",
        params![task, since],
    )
}

pub(super) struct End<'a> {
    pub(super) settlement: Settlement,
    pub(super) ending: &'a Ending,
    pub(super) error: Option<String>,
    pub(super) said: &'a runs::Said,
    pub(super) event: EventId,
}

/// Brings the task where its run's end leads.
pub(super) fn settle(tx: &mut Tx<'_>, task: TaskId, end: &End<'_>, when: &When) -> Result<(), Error> {
    let outcome = end.ending.outcome;
    let error = end.error.clone().or_else(|| describe(outcome, end.ending.exit));
    tx.execute(
        "settling a task",
        "UPDATE tasks SET failures = ?2, result = ifnull(?3, result),
             last_error = CASE WHEN ?4 THEN NULL ELSE ifnull(?5, last_error) END
         WHERE task = ?1",
        params![
            task,
            end.settlement.failures,
            end.said.result,
            outcome == Outcome::Completed,
            error.as_deref().filter(|_| is_error(outcome)),
        ],
    )?;
    let at = when.now.wall;
    match end.settlement.status {
        Status::Done => tasks::end(tx, task, Status::Done, when),
        Status::Cancelled => {
            if outcome != Outcome::Cancelled {
                events::write(tx, task, Kind::Cancelled, json!({ "after": outcome.word() }), at)?;
            }
            tasks::end(tx, task, Status::Cancelled, when)
        }
        Status::Blocked => {
            let code = end.settlement.block_code.unwrap_or(BlockCode::Operator);
            let reason = error.unwrap_or_else(|| outcome.word().to_owned());
            match code {
                // The worker's own event says it already.
                BlockCode::Worker => tasks::park_silently(tx, task, code, &reason),
                BlockCode::Failures => {
                    let payload = json!({ "failures": end.settlement.failures, "error": reason });
                    events::write(tx, task, Kind::GaveUp, payload, at)?;
                    tasks::park_silently(tx, task, code, &reason)
                }
                BlockCode::Operator
                | BlockCode::Parent
                | BlockCode::Config
                | BlockCode::Failed
                | BlockCode::Host => tasks::park(tx, task, code, &reason, when),
            }
        }
        Status::Ready | Status::Todo | Status::Running | Status::Archived => {
            let Some(state) = tasks::state(tx, task)? else { return Ok(()) };
            tasks::open(tx, &state, end.event, end.settlement.back_off_ms, when).map(|_| ())
        }
    }
}

/// Whether what was said is an error, and not the reason of something that was meant.
pub(super) const fn is_error(outcome: Outcome) -> bool {
    outcome.counts()
        || matches!(outcome, Outcome::Tempfail | Outcome::Misconfigured | Outcome::Lost | Outcome::NotStarted)
}

/// What to tell people where nobody said anything.
fn describe(outcome: Outcome, exit: Option<Exit>) -> Option<String> {
    let how = match exit {
        Some(Exit::Code(code)) => format!("exit code {code}"),
        Some(Exit::Signal(signal)) => format!("ended by signal {signal}"),
        None => "how it ended is not known".to_owned(),
    };
    match outcome {
        Outcome::Failed | Outcome::Crashed | Outcome::Tempfail | Outcome::Misconfigured => Some(how),
        Outcome::Oom => Some("the kernel killed it for memory".to_owned()),
        Outcome::TimedOut => Some("it ran longer than its max runtime".to_owned()),
        Outcome::Stalled => Some("it made no progress for its stall limit".to_owned()),
        Outcome::Reclaimed => Some("its lease ran out and no worker was there".to_owned()),
        Outcome::Lost => Some("the host went down with it".to_owned()),
        Outcome::NotStarted => Some("its command was not started".to_owned()),
        Outcome::Completed
        | Outcome::Released
        | Outcome::Reconciled
        | Outcome::Operator
        | Outcome::Cancelled
        | Outcome::Blocked => None,
    }
}
