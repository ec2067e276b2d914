//! `run`: adds a task, follows its output through every attempt, and exits with its worker's code.
//!
//! Ctrl-C cancels the task; a second one lets it go and leaves us.

use std::pin::pin;

use clap::Args;
use serde_json::{Value, json};

use crate::bus::proxy::{Options, Row};
use crate::cli::connect::Session;
use crate::cli::failure::{Failure, code};
use crate::cli::follow::Follower;
use crate::cli::json::object;
use crate::cli::output::Output;
use crate::cli::render::{Screen, aside, line};
use crate::cli::row::Fields as _;
use crate::cli::span::{Calendar, human};
use crate::cli::verbs::Ended;
use crate::cli::verbs::add::NewTask;
use crate::cli::verbs::list::waits_for;
use crate::cli::verbs::show::how_it_ended;
use crate::cli::verbs::wait::{code_of, is_settled};

/// `run`.
#[derive(Args, Clone, Debug)]
pub struct Run {
    /// The task.
    #[command(flatten)]
    pub new: NewTask,
}

/// Adds a task and stays with it.
///
/// # Errors
/// As [`NewTask::create`]; and [`Failure::NoDaemon`] where the daemon stays away.
pub async fn run(session: &mut Session, run: &Run) -> Ended {
    if run.new.command.is_empty() {
        return Err(Failure::usage(
            "there is no command to run",
            "Give it after `--`: tenurectl run -- make test",
        ));
    }
    let mut interrupts = Interrupts::new()?;
    let mut follower = Follower::start(session).await?;
    let (task, created) = run.new.create_attended(follower.session()).await?;
    let program = follower.session().program();
    if follower.session().screen.json {
        follower.session().screen.print(&json!({ "Task": task, "Created": created }).to_string())?;
    }
    if !created {
        aside(&format!("task {task} has that key already: following it"));
    }
    if let Some(why) = why_not_yet(follower.session(), task).await? {
        aside(&format!("task {task} does not start yet: {why}"));
    }
    let mut attendance = Attendance::new(task, follower.session().screen.json);
    loop {
        let stayed = attendance.stay(&mut follower, &mut interrupts).await;
        if stayed.as_ref().is_err_and(|failure| *failure == Failure::BrokenPipe) {
            aside(&format!(
                "nobody reads the output; task {task} goes on (`{program} cancel {task}` ends it)"
            ));
        }
        match stayed? {
            Stayed::Settled(row) => return end(&program, &attendance, &row),
            Stayed::Interrupted(1) => {
                aside(&format!("cancelling task {task}; Ctrl-C again lets it go on its own way"));
                cancel(&mut follower, task).await?;
            }
            Stayed::Interrupted(_) => {
                aside(&format!(
                    "left task {task} to itself: come back with `{program} logs -f {task}` or `{program} wait {task}`"
                ));
                return Ok(code::INTERRUPTED);
            }
        }
    }
}

/// Why a new task is not started at once, where that can be told.
async fn why_not_yet(session: &Session, task: u64) -> Result<Option<String>, Failure> {
    let manager = &session.manager;
    let row = manager.get_task(task).await?;
    if row.text("Status") == "todo" {
        return Ok(Some(waits_for(&Calendar::here(), &row)));
    }
    if row.text("Status") != "ready" {
        return Ok(None);
    }
    if manager.draining().await? {
        return Ok(Some(format!("the daemon is draining (`{} drain --off` ends it)", session.program())));
    }
    let queue = row.text("Queue");
    let queues = manager.list_queues(&Options::new()).await?;
    let is_paused = queues.iter().any(|row| row.text("Queue") == queue && row.flag("Paused"));
    let resume =
        format!("its queue is paused (`{} queue resume {}` ends it)", session.program(), line(queue));
    Ok(is_paused.then_some(resume))
}

async fn cancel(follower: &mut Follower<'_>, task: u64) -> Result<(), Failure> {
    let options = Options::from([("Reason", "interrupted at the terminal".into())]);
    match follower.ask(async |manager| manager.cancel_task(task, &options).await).await {
        // It ended in the same moment: the loop will see how.
        Err(failure) if failure.is_named("InvalidTransition") => Ok(()),
        other => other.map(|_| ()),
    }
}

fn end(program: &str, attendance: &Attendance, row: &Row) -> Ended {
    let ended = code_of(row, attendance.last.as_ref());
    let status = row.text("Status");
    if attendance.json {
        Screen::of_stdout(true).print(&Value::Object(object(row)).to_string())?;
    }
    if status != "done" {
        let task = attendance.task;
        let reason = row.text_if_any("BlockReason").or(row.text_if_any("LastError")).unwrap_or_default();
        let colon = if reason.is_empty() { "" } else { ": " };
        aside(&format!("task {task} is {status}{colon}{} (`{program} show {task}`)", line(reason)));
    }
    Ok(if ended == 0 && status == "cancelled" { code::INTERRUPTED } else { ended })
}

/// Ctrl-C, counted. Before the first is waited for, the terminal's own way of ending us is off.
#[derive(Debug)]
pub struct Interrupts {
    signal: tokio::signal::unix::Signal,
    count: u32,
}

impl Interrupts {
    /// From now on, Ctrl-C is ours to hear.
    ///
    /// # Errors
    /// Where the kernel does not let us.
    pub fn new() -> Result<Self, Failure> {
        let signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
        Ok(Self { signal, count: 0 })
    }

    /// The how manieth it is.
    async fn next(&mut self) -> u32 {
        self.signal.recv().await;
        self.count += 1;
        self.count
    }
}

/// Why [`Attendance::stay`] came back.
#[derive(Debug)]
pub enum Stayed {
    /// The task is settled; this is its row.
    Settled(Row),
    /// Ctrl-C, the how manieth.
    Interrupted(u32),
}

/// Staying with a task: the output of each of its runs, one after the other.
#[derive(Debug)]
pub struct Attendance {
    task: u64,
    /// Standard output is for what the bus returned: the workers' output is not shown.
    json: bool,
    /// The last run that has ended and was shown.
    last: Option<Row>,
    /// Runs up to this one are over with.
    shown: u64,
    /// The run whose output is being followed.
    output: Option<(u64, Output)>,
}

impl Attendance {
    /// With a task, from its first run.
    pub const fn new(task: u64, json: bool) -> Self {
        Self { task, json, last: None, shown: 0, output: None }
    }

    /// With a task, from the run after this one.
    #[must_use]
    pub const fn after(mut self, run: u64) -> Self {
        self.shown = run;
        self
    }

    /// Shows the output until the task is settled or somebody interrupts.
    ///
    /// # Errors
    /// Refusals, and where the daemon stays away.
    pub async fn stay(
        &mut self,
        follower: &mut Follower<'_>,
        interrupts: &mut Interrupts,
    ) -> Result<Stayed, Failure> {
        // The future of an interrupt must live on while we ask, or one that comes then is lost.
        let mut interrupt = pin!(interrupts.next());
        loop {
            let settled = tokio::select! {
                settled = self.catch_up(follower) => settled?,
                count = &mut interrupt => return Ok(Stayed::Interrupted(count)),
            };
            if let Some(row) = settled {
                return Ok(Stayed::Settled(row));
            }
            tokio::select! {
                waited = self.wait(follower) => waited?,
                count = &mut interrupt => return Ok(Stayed::Interrupted(count)),
            }
        }
    }

    /// Shows all that there is; the task's row once it is settled.
    async fn catch_up(&mut self, follower: &mut Follower<'_>) -> Result<Option<Row>, Failure> {
        let task = self.task;
        // The task before its runs: a run that begins in between is followed, not missed.
        let row = follower.ask(async |manager| manager.get_task(task).await).await?;
        loop {
            let options = Options::from([("After", self.shown.into())]);
            let runs = follower.ask(async |manager| manager.list_runs(task, &options).await).await?;
            if runs.is_empty() {
                break;
            }
            for run in runs {
                if !self.show(follower, &run).await? {
                    return Ok(None);
                }
                self.shown = run.number("Run");
                self.tell_end(&row, &run);
                self.last = Some(run);
            }
        }
        Ok(is_settled(row.text("Status")).then_some(row))
    }

    /// Shows what there is of a run; says whether it is over.
    async fn show(&mut self, follower: &mut Follower<'_>, run: &Row) -> Result<bool, Failure> {
        let number = run.number("Run");
        let ended = run.number("EndedUsec") != 0;
        if !self.json && self.output.as_ref().is_none_or(|(shown, _)| *shown != number) {
            self.output = match Output::open(follower, number).await {
                Ok(output) => Some((number, output)),
                // A run that wrote nothing, or whose output is elsewhere.
                Err(Failure::Refused { .. }) => None,
                Err(other) => return Err(other),
            };
        }
        if let Some((_, output)) = &mut self.output {
            output.pump(follower, ended).await?;
        }
        if ended {
            self.output = None;
        }
        Ok(ended)
    }

    fn tell_end(&self, task: &Row, run: &Row) {
        if is_settled(task.text("Status")) {
            return;
        }
        let again = match task.number("RetryInUsec") {
            0 => String::new(),
            usec => format!("; again in {}", human(usec)),
        };
        let why = match (run.text("Outcome"), run.text_if_any("Error")) {
            ("not_started" | "lost", Some(error)) => format!(": {}", line(error)),
            _ => String::new(),
        };
        aside(&format!("run {} of task {} {}{why}{again}", run.number("Run"), self.task, how_it_ended(run)));
    }

    /// Waits for more output, or for news of the task.
    async fn wait(&mut self, follower: &mut Follower<'_>) -> Result<(), Failure> {
        loop {
            let grown = async {
                match &self.output {
                    Some((_, output)) => output.grown().await,
                    None => std::future::pending().await,
                }
            };
            let news = tokio::select! {
                news = follower.news() => Some(news),
                () = grown => None,
            };
            if let Some(news) = news {
                if follower.mended(news).await?.concerns(self.task) {
                    return Ok(());
                }
                continue;
            }
            if let Some((_, output)) = &mut self.output {
                output.pump(follower, false).await?;
            }
        }
    }
}
