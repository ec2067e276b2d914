//! What an operator does to tasks: `block`, `unblock`, `retry`, `cancel`, `reclaim`, `archive`.

use clap::Args;

use crate::bus::proxy::Options;
use crate::cli::connect::Session;
use crate::cli::failure::Failure;
use crate::cli::render::line;
use crate::cli::row::Fields as _;
use crate::cli::verbs::show::hold_in_words;
use crate::cli::verbs::worker::run_or_environment;
use crate::cli::verbs::{Ended, Tasks, each, outcome_of, tell};

/// `block`.
#[derive(Args, Clone, Debug)]
pub struct Block {
    /// Numbers of tasks
    #[arg(value_name = "TASK", value_delimiter = ',', required_unless_present = "run")]
    pub task: Vec<u64>,
    /// Why, for people
    #[arg(long, short, value_name = "TEXT")]
    pub reason: String,
    /// As the worker of this run, to park the task that it holds [default: $TENURED_RUN]
    #[arg(long, value_name = "RUN", num_args = 0..=1, conflicts_with = "task")]
    pub run: Option<Option<u64>>,
}

/// `cancel` and `reclaim`.
#[derive(Args, Clone, Debug)]
pub struct Stop {
    /// Which ones.
    #[command(flatten)]
    pub tasks: Tasks,
    /// Why, for people
    #[arg(long, short, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Do not wait for the grace: KILL at once
    #[arg(long, short)]
    pub kill: bool,
    /// Let the claim go at once, even if its worker may live on: the task may then run twice
    #[arg(long)]
    pub force: bool,
    /// Only if this run still holds the task
    #[arg(long, value_name = "RUN")]
    pub run: Option<u64>,
}

impl Stop {
    fn options(&self) -> Options<'_> {
        let mut options = Options::new();
        if let Some(reason) = &self.reason {
            options.insert("Reason", reason.as_str().into());
        }
        if self.kill {
            options.insert("Kill", true.into());
        }
        if self.force {
            options.insert("Force", true.into());
        }
        if let Some(run) = self.run {
            options.insert("Run", run.into());
        }
        options
    }
}

/// Parks tasks.
///
/// # Errors
/// Refusals are told task by task; the rest ends the verb.
pub async fn block(session: &Session, block: &Block) -> Ended {
    if let Some(run) = block.run {
        let run = run_or_environment(run)?;
        let word = session.manager.block_run(run, &block.reason, &Options::new()).await?;
        tell(
            session,
            &serde_json::json!({ "Run": run, "Outcome": word }),
            &format!("run {run}: {}", line(&word)),
        )?;
        return Ok(0);
    }
    each(&block.task, async |task| {
        let word = session.manager.block_task(task, &block.reason, &Options::new()).await?;
        said(session, task, &word, "blocked", "was blocked already").await
    })
    .await
}

/// Takes tasks out of the parking place.
///
/// # Errors
/// As [`block`].
pub async fn unblock(session: &Session, tasks: &Tasks) -> Ended {
    each(&tasks.task, async |task| {
        let word = session.manager.unblock_task(task, &Options::new()).await?;
        said(session, task, &word, "unblocked; its failures are forgotten", "was not blocked").await
    })
    .await
}

/// Once more.
///
/// # Errors
/// As [`block`].
pub async fn retry(session: &Session, tasks: &Tasks) -> Ended {
    each(&tasks.task, async |task| {
        let word = session.manager.retry_task(task, &Options::new()).await?;
        said(session, task, &word, "to be done again", "is to be done already").await
    })
    .await
}

/// Puts tasks away.
///
/// # Errors
/// As [`block`].
pub async fn archive(session: &Session, tasks: &Tasks) -> Ended {
    each(&tasks.task, async |task| {
        let word = session.manager.archive_task(task, &Options::new()).await?;
        said(session, task, &word, "archived", "was archived already").await
    })
    .await
}

/// Gives tasks up.
///
/// # Errors
/// As [`block`].
pub async fn cancel(session: &Session, stop: &Stop) -> Ended {
    each(&stop.tasks.task, async |task| {
        let word = session.manager.cancel_task(task, &stop.options()).await?;
        said(session, task, &word, "cancelled", "was cancelled already").await
    })
    .await
}

/// Takes claims back.
///
/// # Errors
/// As [`block`].
pub async fn reclaim(session: &Session, stop: &Stop) -> Ended {
    each(&stop.tasks.task, async |task| {
        let word = session.manager.reclaim_task(task, &stop.options()).await?;
        said(session, task, &word, "reclaimed", "is claimed by nobody").await
    })
    .await
}

/// Tells an outcome word in words.
async fn said(session: &Session, task: u64, word: &str, done: &str, unchanged: &str) -> Result<(), Failure> {
    let words = match word {
        "done" | "released" => done.to_owned(),
        "unchanged" => format!("{unchanged}; nothing was changed"),
        "stopping" => {
            format!("its worker is being stopped; `{} wait {task}` waits for it", session.program())
        }
        "held" if !session.screen.json => held(session, task).await?,
        other => line(other),
    };
    tell(session, &outcome_of(task, word), &format!("task {task}: {words}"))
}

/// Why a claim is held, and what would end it.
async fn held(session: &Session, task: u64) -> Result<String, Failure> {
    let row = session.manager.get_task(task).await?;
    let reason = hold_in_words(row.text("Held"));
    Ok(format!("held: {reason}. --force lets the claim go all the same"))
}
