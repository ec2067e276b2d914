//! What the use cases answer, as rows of the interface (`a{sv}`): exact names, signatures and units.
//!
//! Keys are sorted, because a row is a tree map. A property of a task that was not given is left out, so
//! that what its queue and the configuration fill in can be told from what was said; of the state, 0 and
//! the empty text mean none.

use std::collections::BTreeMap;

use zbus::Variant;
use zbus::wire::{LE, serialized::Context, serialized_size};

use crate::core::ids::TaskId;
use crate::core::limits;
use crate::core::signal;
use crate::core::spec::{Completion, Launch, Output, Program, TaskSpec};
use crate::core::state::Status;
use crate::core::time::ms_to_usec;
use crate::core::view::{
    CommentView, CurrentRun, EventView, QueueView, RunView, Stats, SweepReport, TaskView,
};

/// A row as it goes out.
pub type Row = BTreeMap<&'static str, Variant<'static>>;

/// A queue's name where none was given.
const DEFAULT_QUEUE: &str = "default";

/// Causes of a release that a report always names, also where nothing was released by them.
const CAUSES: [&str; 7] =
    ["reclaimed", "timed_out", "crashed", "lost", "stalled", "reconciled", "not_started"];

fn put(row: &mut Row, key: &'static str, value: impl Into<Variant<'static>>) {
    row.insert(key, value.into());
}

fn put_if<T: Into<Variant<'static>>>(row: &mut Row, key: &'static str, value: Option<T>) {
    if let Some(value) = value {
        row.insert(key, value.into());
    }
}

/// A number of the board; hand-made rows may hold numbers that the bus cannot carry.
fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn small(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

/// A text of the board; a NUL, which only a hand-made row can hold, would break the message.
fn text(text: impl Into<String>) -> String {
    let text = text.into();
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

fn numbers(tasks: &[TaskId]) -> Vec<u64> {
    tasks.iter().map(|task| task.on_bus()).collect()
}

/// GetTask, ListTasks and the properties of a claimed task.
pub fn task(view: TaskView) -> Row {
    let mut row = Row::new();
    put(&mut row, "Task", view.task.on_bus());
    put(&mut row, "Status", view.status.word());
    put(&mut row, "BlockCode", text(view.block_code.unwrap_or_default()));
    put(&mut row, "BlockReason", text(view.block_reason.unwrap_or_default()));
    put(&mut row, "OwnerUid", view.owner_uid);
    put(&mut row, "CreatedUsec", natural(view.created_usec));
    put(&mut row, "Attempts", small(view.attempts));
    put(&mut row, "Failures", small(view.failures));
    put(&mut row, "RetryInUsec", view.retry_in_ms.map_or(0, ms_to_usec));
    put(&mut row, "LastError", text(view.last_error.unwrap_or_default()));
    put(&mut row, "Result", text(view.result.unwrap_or_default()));
    put(&mut row, "Survivors", small(view.survivors));
    put(&mut row, "Run", view.current.as_ref().map_or(0, |current| current.run.on_bus()));
    if let Some(current) = view.current {
        current_run(&mut row, current);
    }
    spec(&mut row, view.spec);
    row
}

fn current_run(row: &mut Row, current: CurrentRun) {
    put(row, "Claimant", text(current.claimant.unwrap_or_default()));
    put_if(row, "LeaseRemainingUsec", current.lease_remaining_ms.map(ms_to_usec));
    put(row, "Stage", text(current.stage));
    put(row, "StopCause", text(current.stop_cause.unwrap_or_default()));
    put(row, "WorkerPid", small(current.worker_pid.unwrap_or(0)));
    put(row, "WorkerKind", current.worker_kind);
    put(row, "Fingerprint", text(current.fingerprint.unwrap_or_default()));
    put(row, "FingerprintKind", current.fingerprint_kind);
    put(row, "Unit", text(current.unit.unwrap_or_default()));
    put(row, "Held", text(current.held.unwrap_or_default()));
}

fn spec(row: &mut Row, spec: TaskSpec) {
    put(row, "Title", text(spec.title));
    put(row, "Body", text(spec.body));
    put(row, "Queue", text(spec.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned())));
    put(row, "Priority", spec.priority);
    put(row, "Labels", spec.labels.into_iter().map(text).collect::<Vec<_>>());
    put(row, "Parents", numbers(&spec.parents));
    put_if(row, "NotBeforeUsec", spec.not_before_usec.map(natural));
    put_if(row, "IdempotencyKey", spec.idempotency_key.map(text));
    put(row, "Command", spec.program.command.iter().map(text).collect::<Vec<_>>());
    put(row, "Environment", spec.program.environment.iter().map(text).collect::<Vec<_>>());
    program(row, spec.program);
    put_if(row, "MaxRuntimeUsec", spec.max_runtime_ms.map(ms_to_usec));
    put_if(row, "StallUsec", spec.stall_ms.map(ms_to_usec));
    put_if(row, "LeaseUsec", spec.lease_ms.map(ms_to_usec));
    put_if(row, "StopGraceUsec", spec.stop_grace_ms.map(ms_to_usec));
    put_if(row, "FailureLimit", spec.failure_limit);
    put_if(row, "BackoffUsec", spec.backoff_ms.map(ms_to_usec));
    put_if(row, "BackoffMaxUsec", spec.backoff_max_ms.map(ms_to_usec));
    put_if(row, "Completion", spec.completion.map(Completion::word));
    put_if(row, "Slots", Some(spec.slots).filter(|slots| !slots.is_empty()));
}

fn program(row: &mut Row, program: Program) {
    put_if(row, "WorkingDirectory", program.working_directory.map(text));
    put_if(row, "User", program.user.map(text));
    put_if(row, "Group", program.group.map(text));
    put_if(row, "Launch", program.launch.map(Launch::word));
    put_if(row, "Stdin", program.stdin.map(text));
    put_if(row, "Output", program.output.map(Output::word));
    put_if(row, "StopSignal", program.stop_signal.map(signal::name));
    put_if(row, "Nice", program.nice);
    for (resource, value) in program.resources {
        put(row, resource.word(), value);
    }
}

/// GetRun and ListRuns.
pub fn run(view: RunView) -> Row {
    let mut row = Row::new();
    put(&mut row, "Run", view.run.on_bus());
    put(&mut row, "Task", view.task.on_bus());
    put(&mut row, "Attempt", small(view.attempt));
    put(&mut row, "Claimant", text(view.claimant.unwrap_or_default()));
    put(&mut row, "WorkerPid", small(view.worker_pid.unwrap_or(0)));
    put(&mut row, "WorkerKind", view.worker_kind);
    put(&mut row, "Unit", text(view.unit.unwrap_or_default()));
    put(&mut row, "Stage", text(view.stage));
    put(&mut row, "StartedUsec", natural(view.started_usec));
    put(&mut row, "EndedUsec", view.ended_usec.map_or(0, natural));
    put(&mut row, "Outcome", text(view.outcome.unwrap_or_default()));
    // Left out rather than 0: exit code 0 is a success, and a run that a signal ended has none.
    put_if(&mut row, "ExitCode", view.exit_code);
    put(&mut row, "Signal", view.signal.map_or(0, |signal| small(signal.into())));
    put(&mut row, "Error", text(view.error.unwrap_or_default()));
    row
}

/// ListEvents.
pub fn event(view: EventView) -> Row {
    let mut row = Row::new();
    put(&mut row, "Event", view.event.on_bus());
    put(&mut row, "Task", view.task.map_or(0, |task| task.on_bus()));
    put(&mut row, "Run", view.run.map_or(0, |run| run.on_bus()));
    put(&mut row, "Kind", text(view.kind));
    put(&mut row, "Payload", text(view.payload));
    put(&mut row, "AtUsec", natural(view.at_usec));
    row
}

/// ListComments.
pub fn comment(view: CommentView) -> Row {
    let mut row = Row::new();
    put(&mut row, "Comment", view.comment.on_bus());
    put(&mut row, "Author", text(view.author));
    put(&mut row, "Text", text(view.text));
    put(&mut row, "AtUsec", natural(view.at_usec));
    row
}

/// ListQueues.
pub fn queue(view: QueueView) -> Row {
    let mut row = Row::new();
    put(&mut row, "Queue", text(view.queue));
    put(&mut row, "MaxRunning", view.max_running);
    put(&mut row, "Paused", view.paused);
    put(&mut row, "Ready", view.ready);
    put(&mut row, "Running", view.running);
    row
}

/// GetStats: a key for each status, `OpenRuns`, `Held`.
pub fn stats(stats: &Stats) -> Row {
    let mut row = Row::new();
    for status in Status::ALL {
        put(&mut row, status_key(status), stats.tasks.get(&status).copied().unwrap_or(0));
    }
    put(&mut row, "OpenRuns", stats.open_runs);
    put(&mut row, "Held", stats.held);
    row
}

const fn status_key(status: Status) -> &'static str {
    match status {
        Status::Todo => "Todo",
        Status::Ready => "Ready",
        Status::Running => "Running",
        Status::Blocked => "Blocked",
        Status::Done => "Done",
        Status::Cancelled => "Cancelled",
        Status::Archived => "Archived",
    }
}

/// Sweep and LastSweep.
pub fn report(report: &SweepReport) -> Row {
    let mut row = Row::new();
    for cause in CAUSES {
        put(&mut row, cause, Vec::<u64>::new());
    }
    for (cause, tasks) in &report.released {
        put(&mut row, cause, numbers(tasks));
    }
    put(&mut row, "extended", numbers(&report.extended));
    put(&mut row, "promoted", numbers(&report.promoted));
    put(&mut row, "started", numbers(&report.started));
    let signalled = report.signalled.iter().map(|(task, signal)| (task.on_bus(), *signal));
    put(&mut row, "signalled", signalled.collect::<Vec<(u64, i32)>>());
    let held = report.held.iter().map(|(task, reason)| (task.on_bus(), (*reason).to_owned()));
    put(&mut row, "held", held.collect::<Vec<(u64, String)>>());
    put(&mut row, "rows", report.rows);
    put(&mut row, "took_usec", report.took_usec);
    row
}

/// The first rows of a page that stay below [`limits::PAGE_BYTES`], but one at least: the caller asks for
/// more after the last one it got, and an empty page is the end.
pub fn page(rows: impl IntoIterator<Item = Row>) -> Vec<Row> {
    let mut page = Vec::new();
    let mut bytes = 0;
    for row in rows {
        bytes += size(&row);
        if bytes > limits::PAGE_BYTES && !page.is_empty() {
            break;
        }
        page.push(row);
    }
    page
}

/// Bytes of a row in a message, with the padding before it.
fn size(row: &Row) -> usize {
    const PADDING_BYTES: usize = 8;
    serialized_size(Context::new(LE, 0), row).map_or(0, |size| *size) + PADDING_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::{CommentId, RunId};

    fn comment_of(bytes: usize) -> Row {
        comment(CommentView {
            comment: CommentId::new(1),
            author: "uid:0".into(),
            text: "x".repeat(bytes),
            at_usec: 1,
        })
    }

    #[test]
    fn a_page_stays_below_its_size_but_is_never_empty_while_there_is_more() {
        let rows = page((0..100).map(|_| comment_of(60_000)));
        let bytes: usize = rows.iter().map(size).sum();
        assert!(rows.len() > 10 && bytes <= limits::PAGE_BYTES, "{} rows, {bytes} bytes", rows.len());
        assert!(bytes + 70_000 > limits::PAGE_BYTES);
        assert_eq!(page([comment_of(2 * limits::PAGE_BYTES)]).len(), 1);
        assert_eq!(page([]).len(), 0);
        assert_eq!(page((0..50).map(|_| comment_of(5))).len(), 50);
    }

    #[test]
    fn the_size_of_a_page_is_that_of_its_message() {
        let rows = page((0..20).map(comment_of));
        let message = zbus::Message::signal("/o", "a.b", "M").build(&rows).unwrap().body().len();
        let counted: usize = rows.iter().map(size).sum();
        assert!(message >= counted / 2 && message <= counted + 64, "{message} bytes, counted {counted}");
    }

    #[test]
    fn what_hand_made_rows_hold_does_not_break_a_message() {
        let row = run(RunView {
            run: RunId::new(-4),
            task: TaskId::new(i64::MIN),
            attempt: -1,
            claimant: Some("a\0b".into()),
            worker_pid: Some(i64::MAX),
            worker_kind: "registered",
            unit: None,
            stage: "running".into(),
            started_usec: -5,
            ended_usec: None,
            outcome: None,
            exit_code: None,
            signal: Some(-2),
            error: None,
        });
        assert_eq!(row["Claimant"], Variant::from("a\u{fffd}b"));
        assert_eq!(row["WorkerPid"], Variant::from(u32::MAX));
        assert_eq!((&row["Attempt"], &row["Signal"]), (&Variant::from(0_u32), &Variant::from(0_u32)));
        assert!(!row.contains_key("ExitCode"));
    }

    #[test]
    fn a_report_names_every_cause() {
        let mut told = SweepReport { rows: 3, ..SweepReport::default() };
        told.released.insert("completed", vec![TaskId::new(4)]);
        told.held.push((TaskId::new(5), "unknown"));
        told.signalled.push((TaskId::new(6), 15));
        let row = report(&told);
        for cause in CAUSES {
            assert_eq!(row[cause], Variant::from(Vec::<u64>::new()), "{cause}");
        }
        assert_eq!(row["completed"], Variant::from(vec![4_u64]));
        assert_eq!(row["held"].value_signature().to_string(), "a(ts)");
        assert_eq!(row["signalled"].value_signature().to_string(), "a(ti)");
        assert_eq!(row["held"], Variant::from(vec![(5_u64, "unknown".to_owned())]));
    }

    #[test]
    fn stats_name_every_status() {
        let row = stats(&Stats::default());
        let expected =
            ["Archived", "Blocked", "Cancelled", "Done", "Held", "OpenRuns", "Ready", "Running", "Todo"];
        assert_eq!(row.keys().copied().collect::<Vec<_>>(), expected);
    }
}
