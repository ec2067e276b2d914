//! `logs`: what workers wrote, byte by byte.

use clap::Args;

use crate::bus::proxy::{Options, Row};
use crate::cli::connect::Session;
use crate::cli::failure::{Failure, code};
use crate::cli::follow::Follower;
use crate::cli::output::Output;
use crate::cli::render::aside;
use crate::cli::row::Fields as _;
use crate::cli::verbs::attend::{Attendance, Interrupts, Stayed};
use crate::cli::verbs::{Ended, Tasks};

/// `logs`.
#[derive(Args, Clone, Debug)]
pub struct Logs {
    /// Which ones.
    #[command(flatten)]
    pub tasks: Tasks,
    /// Of this run [default: the last one]
    #[arg(long, value_name = "RUN", conflicts_with_all = ["all", "follow"])]
    pub run: Option<u64>,
    /// Of every run, from the first
    #[arg(long, short)]
    pub all: bool,
    /// Go on with what is written, also by further runs, until the task is settled
    #[arg(long, short)]
    pub follow: bool,
}

/// Shows output.
///
/// # Errors
/// Refusals, and where the daemon does not answer.
pub async fn run(session: &mut Session, logs: &Logs) -> Ended {
    if session.screen.json {
        let remedy = "Leave --json out; `tenurectl --json show TASK` says everything else about a task.";
        return Err(Failure::usage(
            "logs prints the bytes that workers wrote, and JSON has no form for them",
            remedy,
        ));
    }
    let several = logs.tasks.task.len() > 1;
    let mut follower = Follower::start(session).await?;
    let mut ended = 0;
    for task in &logs.tasks.task {
        if several {
            aside(&format!("task {task}:"));
        }
        let shown = if logs.follow {
            follow(&mut follower, *task, logs.all).await
        } else {
            show(&mut follower, *task, logs).await
        };
        match shown {
            Ok(()) => {}
            Err(failure @ Failure::Refused { .. }) if several => {
                failure.of(&format!("task {task}")).say();
                ended = code::REFUSED;
            }
            Err(failure) => return Err(failure.of(&format!("task {task}"))),
        }
    }
    Ok(ended)
}

async fn show(follower: &mut Follower<'_>, task: u64, logs: &Logs) -> Result<(), Failure> {
    let runs = match logs.run {
        Some(run) => vec![run],
        None => {
            let mut runs = runs_of(follower, task).await?;
            if !logs.all {
                runs = runs.split_off(runs.len().saturating_sub(1));
            }
            runs
        }
    };
    if runs.is_empty() {
        let program = follower.session().program();
        return Err(Failure::own(
            "it has not run yet",
            format!("`{program} logs -f {task}` waits until it does."),
        ));
    }
    for run in runs {
        Output::open(follower, run).await?.pump(follower, true).await?;
    }
    Ok(())
}

/// Numbers of a task's runs, the oldest first.
async fn runs_of(follower: &mut Follower<'_>, task: u64) -> Result<Vec<u64>, Failure> {
    let mut runs = Vec::new();
    loop {
        let after: u64 = runs.last().copied().unwrap_or(0);
        let options = Options::from([("After", after.into()), ("Limit", 1_000_u32.into())]);
        let page: Vec<Row> = follower.ask(async |manager| manager.list_runs(task, &options).await).await?;
        if page.is_empty() {
            return Ok(runs);
        }
        runs.extend(page.iter().map(|run| run.number("Run")));
    }
}

async fn follow(follower: &mut Follower<'_>, task: u64, all: bool) -> Result<(), Failure> {
    let runs = runs_of(follower, task).await?;
    let mut attendance = Attendance::new(task, false);
    if let (false, Some(before)) = (all, runs.iter().rev().nth(1)) {
        attendance = attendance.after(*before);
    }
    let mut interrupts = Interrupts::new()?;
    match attendance.stay(follower, &mut interrupts).await? {
        Stayed::Settled(_) => Ok(()),
        // The task is not ours to cancel: we only watched.
        Stayed::Interrupted(_) => Err(Failure::Interrupted),
    }
}
