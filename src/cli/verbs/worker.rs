//! What a worker says of its run: `heartbeat`, `complete`, `fail`, `release`.
//!
//! Inside a worker, the run is that of `$TENURED_RUN` where none is named.

#![expect(clippy::disallowed_methods, reason = "an adapter: the run of a worker is in its environment")]

use clap::Args;
use serde_json::json;

use crate::bus::proxy::Options;
use crate::cli::connect::Session;
use crate::cli::failure::Failure;
use crate::cli::render::line;
use crate::cli::span::human;
use crate::cli::verbs::{Ended, tell};

/// `heartbeat`.
#[derive(Args, Clone, Debug)]
pub struct Heartbeat {
    /// The run [default: $TENURED_RUN]
    pub run: Option<u64>,
    /// How far it is, for people
    #[arg(long, short, value_name = "TEXT")]
    pub note: Option<String>,
}

/// `complete`.
#[derive(Args, Clone, Debug)]
pub struct Complete {
    /// The run [default: $TENURED_RUN]
    pub run: Option<u64>,
    /// What came of it, for people
    #[arg(long, short, value_name = "TEXT")]
    pub summary: Option<String>,
    /// What came of it, for programs
    #[arg(long, value_name = "JSON")]
    pub result: Option<String>,
}

/// `fail`.
#[derive(Args, Clone, Debug)]
pub struct Fail {
    /// The run [default: $TENURED_RUN]
    pub run: Option<u64>,
    /// What went wrong
    #[arg(required = true)]
    pub error: String,
    /// Block the task instead of trying again
    #[arg(long)]
    pub no_retry: bool,
}

/// `release`.
#[derive(Args, Clone, Debug)]
pub struct Release {
    /// The run [default: $TENURED_RUN]
    pub run: Option<u64>,
    /// Why
    #[arg(required = true)]
    pub reason: String,
}

/// The run that is meant: the one named, or the one whose worker we are part of.
///
/// # Errors
/// [`Failure::Usage`] where there is neither.
pub fn run_or_environment(named: Option<u64>) -> Result<u64, Failure> {
    if let Some(run) = named {
        return Ok(run);
    }
    let value = std::env::var("TENURED_RUN").unwrap_or_default();
    value.parse().map_err(|_| {
        Failure::usage(
            "which run? None is named, and TENURED_RUN is not set here",
            "Name the run that `tenurectl claim` gave you; `tenurectl show TASK` lists a task's runs.",
        )
    })
}

fn said(session: &Session, run: u64, word: &str) -> Ended {
    let words = match word {
        "done" => "ended".to_owned(),
        "ending" => "understood; it ends when its processes have".to_owned(),
        "unchanged" => "was said already".to_owned(),
        other => line(other),
    };
    tell(session, &json!({ "Run": run, "Outcome": word }), &format!("run {run}: {words}"))?;
    Ok(0)
}

/// Extends the lease and marks progress.
///
/// # Errors
/// Refusals: above all `StaleRun`, when the claim is over.
pub async fn heartbeat(session: &Session, heartbeat: &Heartbeat) -> Ended {
    let run = run_or_environment(heartbeat.run)?;
    let mut options = Options::new();
    if let Some(note) = &heartbeat.note {
        options.insert("Note", note.as_str().into());
    }
    let usec = session.manager.heartbeat(run, &options).await?;
    let returned = json!({ "Run": run, "LeaseRemainingUsec": usec });
    tell(session, &returned, &format!("run {run}: the lease holds for {}", human(usec)))?;
    Ok(0)
}

/// Says that the run has done its task.
///
/// # Errors
/// As [`heartbeat`].
pub async fn complete(session: &Session, complete: &Complete) -> Ended {
    let run = run_or_environment(complete.run)?;
    let mut options = Options::new();
    if let Some(summary) = &complete.summary {
        options.insert("Summary", summary.as_str().into());
    }
    if let Some(result) = &complete.result {
        options.insert("Result", result.as_str().into());
    }
    let word = session.manager.complete_run(run, &options).await?;
    said(session, run, &word)
}

/// Says that the run has failed.
///
/// # Errors
/// As [`heartbeat`].
pub async fn fail(session: &Session, fail: &Fail) -> Ended {
    let run = run_or_environment(fail.run)?;
    let mut options = Options::new();
    if fail.no_retry {
        options.insert("Retry", false.into());
    }
    let word = session.manager.fail_run(run, &fail.error, &options).await?;
    said(session, run, &word)
}

/// Gives the claim back.
///
/// # Errors
/// As [`heartbeat`].
pub async fn release(session: &Session, release: &Release) -> Ended {
    let run = run_or_environment(release.run)?;
    let word = session.manager.release_run(run, &release.reason, &Options::new()).await?;
    said(session, run, &word)
}
