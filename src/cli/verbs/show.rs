//! `show`: everything about a task on one page, and what to type next.

use std::fmt::Write as _;

use clap::Args;
use serde_json::Value;

use crate::bus::proxy::{Options, Row};
use crate::cli::connect::Session;
use crate::cli::failure::Failure;
use crate::cli::json::object;
use crate::cli::render::{Page, Paint, block, line, paint_of_outcome, paint_of_status, shell_words};
use crate::cli::row::{Fields as _, whole};
use crate::cli::span::{Calendar, human};
use crate::cli::table::{Cell, Kind, Table};
use crate::cli::verbs::{Ended, Tasks, each};

/// `show`.
#[derive(Args, Clone, Debug)]
pub struct Show {
    /// Which ones.
    #[command(flatten)]
    pub tasks: Tasks,
}

/// Rows of runs and comments on a page: the last so many.
const ROWS: usize = 20;

/// Shows tasks.
///
/// # Errors
/// Refusals are told task by task; the rest ends the verb.
pub async fn run(session: &Session, show: &Show) -> Ended {
    let mut shown = false;
    each(&show.tasks.task, async |task| {
        let row = session.manager.get_task(task).await?;
        if session.screen.json {
            return session.screen.print(&Value::Object(object(&row)).to_string());
        }
        let runs = last_rows("Run", async |page| session.manager.list_runs(task, page).await).await?;
        let comments =
            last_rows("Comment", async |page| session.manager.list_comments(task, page).await).await?;
        if std::mem::replace(&mut shown, true) {
            session.screen.print("\n")?;
        }
        let calendar = Calendar::here();
        session.screen.print(&page(session, &calendar, &row, &runs, &comments))
    })
    .await
}

/// The last rows of a list that comes in pages, the oldest first.
async fn last_rows(
    number: &str,
    ask: impl AsyncFn(&Options<'_>) -> zbus::Result<Vec<Row>>,
) -> Result<Vec<Row>, Failure> {
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let after = rows.last().map_or(0, |row| row.number(number));
        let page = ask(&Options::from([("After", after.into()), ("Limit", 1_000_u32.into())])).await?;
        if page.is_empty() {
            return Ok(rows);
        }
        rows.extend(page);
        rows.drain(..rows.len().saturating_sub(ROWS));
    }
}

fn page(session: &Session, calendar: &Calendar, task: &Row, runs: &[Row], comments: &[Row]) -> String {
    let screen = &session.screen;
    let mut page = Page::new(screen);
    page.heading(&format!("task {}: {}", task.number("Task"), task.text("Title")));
    standing(&mut page, calendar, task);
    asked_for(&mut page, calendar, task);
    limits(&mut page, task);
    claim(&mut page, task);
    page.field("result", task.text("Result"));
    page.painted_field("last error", task.text("LastError"), Paint::Red);
    if !runs.is_empty() {
        page.heading("runs");
        page.push(&table_of_runs(calendar, runs).render(screen, 2));
    }
    if !comments.is_empty() {
        page.heading("comments");
        for comment in comments {
            let head =
                format!("  {}, {}", calendar.date(comment.number("AtUsec")), line(comment.text("Author")));
            page.push(&screen.paint(&head, Paint::Dim));
            page.push(&block(comment.text("Text"), 4));
        }
    }
    let next = next(task);
    if !next.is_empty() {
        page.heading("next");
        let mut table = Table::new(&[("", Kind::Left), ("", Kind::Text)]);
        for (command, what) in next {
            table.row(vec![
                Cell::new(format!("{} {command}", session.program())),
                Cell::painted(what, Paint::Dim),
            ]);
        }
        page.push(&table.render(screen, 2));
    }
    page.into_text()
}

fn standing(page: &mut Page<'_>, calendar: &Calendar, task: &Row) {
    let status = task.text("Status");
    let more = match status {
        "blocked" => block_in_words(task),
        "todo" => match task.number_if_any("NotBeforeUsec") {
            Some(usec) if calendar.since(usec) == 0 => format!("begins {}", calendar.date_and_distance(usec)),
            _ => "waits for what must be done first".to_owned(),
        },
        "ready" => task
            .number_if_any("RetryInUsec")
            .map_or(String::new(), |usec| format!("again in {}", human(usec))),
        _ => String::new(),
    };
    let colon = if more.is_empty() { "" } else { ": " };
    page.painted_field("status", &format!("{status}{colon}{more}"), paint_of_status(status));
    if let Some(held) = task.text_if_any("Held") {
        page.painted_field("held", &format!("{} ({held})", hold_in_words(held)), Paint::Yellow);
    }
    if let Some(cause) = task.text_if_any("StopCause") {
        page.painted_field("stopping", &cause.replace('_', " "), Paint::Yellow);
    }
    if let Some(survivors) = task.number_if_any("Survivors") {
        page.painted_field(
            "survivors",
            &format!("{survivors} workers of ended runs may still live"),
            Paint::Yellow,
        );
    }
    page.field(
        "failures",
        &task.number_if_any("Failures").map_or(String::new(), |failures| failures.to_string()),
    );
}

fn asked_for(page: &mut Page<'_>, calendar: &Calendar, task: &Row) {
    page.field("queue", task.text("Queue"));
    let priority = task.signed("Priority");
    if priority != 0 {
        page.field("priority", &priority.to_string());
    }
    page.field("labels", &task.texts("Labels").join(", "));
    page.field(
        "after",
        &task.numbers("Parents").iter().map(|parent| format!("task {parent}")).collect::<Vec<_>>().join(", "),
    );
    page.field("owner", &format!("uid {}", task.number("OwnerUid")));
    page.field("created", &calendar.date_and_distance(task.number("CreatedUsec")));
    page.field("key", task.text("IdempotencyKey"));
    page.field("body", task.text("Body"));
    page.field("command", &shell_words(task.texts("Command")));
    page.field("directory", task.text("WorkingDirectory"));
    page.field("environment", &task.texts("Environment").join("\n"));
    page.field("user", task.text("User"));
    page.field("group", task.text("Group"));
    page.field("stdin", task.text("Stdin"));
    page.field("output", task.text("Output"));
    page.field("launch", task.text("Launch"));
    let slots: Vec<String> =
        task.counts("Slots").iter().map(|(name, units)| format!("{name}:{units}")).collect();
    page.field("slots", &slots.join(", "));
}

fn limits(page: &mut Page<'_>, task: &Row) {
    let spans = [
        ("MaxRuntimeUsec", "max runtime"),
        ("StallUsec", "stall"),
        ("LeaseUsec", "lease"),
        ("StopGraceUsec", "stop grace"),
        ("BackoffUsec", "backoff"),
        ("BackoffMaxUsec", "backoff max"),
    ];
    for (key, label) in spans {
        page.field(label, &task.number_if_any(key).map_or(String::new(), human));
    }
    page.field("stop signal", task.text("StopSignal"));
    if let Some(limit) = task.number_if_any("FailureLimit") {
        page.field("gives up", &format!("after {limit} failures"));
    }
    if task.text("Completion") == "explicit" {
        page.field("completion", "by `tenurectl complete` alone");
    }
    for key in ["MemoryMax", "MemoryHigh", "CPUQuotaPerSecUSec", "TasksMax", "IOWeight", "CPUWeight", "Nice"]
    {
        let number = task.field(key).and_then(whole).filter(|number| *number != 0);
        page.field(key, &number.map_or(String::new(), |number| number.to_string()));
    }
}

fn claim(page: &mut Page<'_>, task: &Row) {
    let Some(run) = task.number_if_any("Run") else { return };
    let claimant =
        task.text_if_any("Claimant").map_or(String::new(), |claimant| format!(", claimed by {claimant}"));
    page.field("run", &format!("{run}, {}{claimant}", task.text("Stage")));
    if let Some(pid) = task.number_if_any("WorkerPid") {
        let proof = match task.text("FingerprintKind") {
            "proven" => "proven by its fingerprint".to_owned(),
            "" => String::new(),
            other => format!("its identity is {}", other.replace('_', " ")),
        };
        page.field("worker", &format!("pid {pid}, {}, {proof}", task.text("WorkerKind")));
    } else {
        page.field("worker", task.text("WorkerKind"));
    }
    page.field("unit", task.text("Unit"));
    page.field(
        "lease",
        &task
            .number_if_any("LeaseRemainingUsec")
            .map_or(String::new(), |usec| format!("{} left", human(usec))),
    );
}

fn table_of_runs(calendar: &Calendar, runs: &[Row]) -> Table {
    let mut table = Table::new(&[
        ("RUN", Kind::Right),
        ("STARTED", Kind::Left),
        ("TOOK", Kind::Right),
        ("ENDED", Kind::Left),
        ("WORKER", Kind::Left),
        ("ERROR", Kind::Text),
    ]);
    for run in runs {
        let started = run.number("StartedUsec");
        let took = match run.number("EndedUsec") {
            0 => calendar.since(started),
            ended => ended.saturating_sub(started),
        };
        let worker = run
            .number_if_any("WorkerPid")
            .map_or(run.text("WorkerKind").to_owned(), |pid| format!("pid {pid}"));
        table.row(vec![
            Cell::new(run.number("Run").to_string()),
            Cell::new(calendar.date(started)),
            Cell::new(human(took)),
            Cell::painted(how_it_ended(run), paint_of_outcome(run.text("Outcome"))),
            Cell::new(worker),
            Cell::new(run.text("Error")),
        ]);
    }
    table
}

/// How a run ended, in words: `failed (exit 3)`, `crashed (KILL)`; or how far it is.
pub fn how_it_ended(run: &Row) -> String {
    let mut words = match run.text("Outcome") {
        "" if run.number("EndedUsec") == 0 => return line(run.text_if_any("Stage").unwrap_or("running")),
        "" => "ended".to_owned(),
        outcome => line(&outcome.replace('_', " ")),
    };
    if let Some(signal) = run.number_if_any("Signal") {
        let _ = write!(words, " ({})", signal_name(signal));
    } else if run.signed("ExitCode") > 0 {
        let _ = write!(words, " (exit {})", run.signed("ExitCode"));
    }
    words
}

/// The name of a signal, without its prefix. Source: signal(7).
pub fn signal_name(number: u64) -> String {
    let signal =
        i32::try_from(number).ok().and_then(|number| nix::sys::signal::Signal::try_from(number).ok());
    signal.map_or_else(
        || format!("signal {number}"),
        |signal| signal.as_str().trim_start_matches("SIG").to_owned(),
    )
}

/// Why a task is blocked.
pub fn block_in_words(task: &Row) -> String {
    let why = match task.text("BlockCode") {
        "operator" => "by an operator",
        "worker" => "by its worker",
        "parent" => "a task it waits for was cancelled",
        "failures" => "gave up after its last failure",
        "config" => "it cannot run as it is set up",
        "failed" => "its worker says that trying again is no use",
        "host" => "it went down with its host too often",
        other => other,
    };
    match task.text_if_any("BlockReason").or(task.text_if_any("LastError")) {
        Some(reason) if task.text("BlockCode") == "parent" => reason.to_owned(),
        Some(reason) => format!("{why}: {reason}"),
        None => why.to_owned(),
    }
}

/// Why a claim is left alone.
pub fn hold_in_words(reason: &str) -> String {
    match reason {
        "worker_alive" => "the claim is broken, and its worker lives".to_owned(),
        "unkillable" => "KILL did not end its worker".to_owned(),
        "named" => "its worker is known by a bare number only, so it is not signalled".to_owned(),
        "not_yours" => "its worker's process does not belong to the one who registered it".to_owned(),
        "shared" => "its worker's process holds another claim too".to_owned(),
        "unproven" => "a process is there, and nothing proves that it is the worker".to_owned(),
        "unknown" => "its worker could not be looked at".to_owned(),
        "bus_lost" => "the bus has gone; it starts when the bus is back".to_owned(),
        other => line(other),
    }
}

/// What can be done next.
fn next(task: &Row) -> Vec<(String, &'static str)> {
    let number = task.number("Task");
    let has_run = task.number("Attempts") > 0;
    let launched = !task.texts("Command").is_empty();
    let mut next = Vec::new();
    let mut add = |command: &str, what| next.push((command.replace("{}", &number.to_string()), what));
    match task.text("Status") {
        "running" => {
            if launched {
                add("logs -f {}", "follow what it writes");
            }
            if task.text("WorkerKind") != "launched"
                && let Some(run) = task.number_if_any("Run")
            {
                add(&format!("heartbeat {run}"), "as its worker: keep the claim");
                add(&format!("complete {run}"), "as its worker: it is done");
            }
            add("cancel {}", "stop it for good");
            if task.text_if_any("Held").is_some() {
                add("reclaim {} --force", "let the claim go although its worker may live");
            } else {
                add("reclaim {}", "stop it and do it again");
            }
        }
        "ready" if task.number("RetryInUsec") > 0 => add("retry {}", "do it again now"),
        "ready" if launched => add("logs -f {}", "follow what it writes when it starts"),
        "ready" => add("claim --task {}", "take it"),
        "todo" => add("cancel {}", "give it up"),
        "blocked" => {
            if has_run && launched {
                add("logs {}", "what its last run wrote");
            }
            add("unblock {}", "try again, with its failures forgotten");
            add("cancel {}", "give it up");
        }
        "done" | "cancelled" => {
            if has_run && launched {
                add("logs {}", "what its last run wrote");
            }
            add("retry {}", "do it again");
            add("archive {}", "put it away");
        }
        _ => {}
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::row::row_of;
    use crate::core::state::{BlockCode, Status};

    #[test]
    fn an_end_is_told_in_words() {
        let run = |outcome: &'static str, exit: i32, signal: u32| {
            how_it_ended(&row_of([
                ("Outcome", outcome.into()),
                ("ExitCode", exit.into()),
                ("Signal", signal.into()),
                ("EndedUsec", u64::from(!outcome.is_empty()).into()),
            ]))
        };
        assert_eq!(run("completed", 0, 0), "completed");
        assert_eq!(run("failed", 3, 0), "failed (exit 3)");
        assert_eq!(run("crashed", 0, 9), "crashed (KILL)");
        assert_eq!(run("timed_out", 0, 15), "timed out (TERM)");
        assert_eq!(run("", 0, 0), "running");
        assert_eq!(signal_name(40), "signal 40");
    }

    #[test]
    fn every_block_and_every_hold_has_words() {
        for code in BlockCode::ALL {
            let task = row_of([("BlockCode", code.word().into())]);
            assert_ne!(block_in_words(&task), code.word());
        }
        for word in ["worker_alive", "unkillable", "named", "not_yours", "shared", "unproven", "unknown"] {
            assert_ne!(hold_in_words(word), word);
        }
        assert_eq!(hold_in_words("new\u{7}"), r"new\u{7}");
    }

    #[test]
    fn every_status_but_the_last_says_what_to_type_next() {
        for status in Status::ALL {
            let task = row_of([
                ("Status", status.word().into()),
                ("Task", 3_u64.into()),
                ("Attempts", 1_u64.into()),
            ]);
            let next = next(&task);
            assert_eq!(next.is_empty(), status == Status::Archived, "{status}: {next:?}");
            assert!(next.iter().all(|(command, _)| command.contains('3')), "{next:?}");
        }
    }

    #[test]
    fn whatever_a_row_holds_a_value_is_shown_without_acting() {
        let row = row_of([("Held", "x\u{1b}[2J".into())]);
        assert!(!hold_in_words(row.text("Held")).contains('\u{1b}'));
    }
}
