//! `claim`: takes a task for a worker that the daemon did not start.

use std::os::fd::OwnedFd;

use clap::Args;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::bus::proxy::Options;
use crate::cli::connect::Session;
use crate::cli::failure::Failure;
use crate::cli::json::object;
use crate::cli::render::line;
use crate::cli::row::Fields as _;
use crate::cli::span::{Span, human};
use crate::cli::verbs::{Ended, row_with, tell};

/// `claim`.
#[derive(Args, Clone, Debug)]
pub struct Claim {
    /// The queue to take from [default: any]
    pub queue: Option<String>,
    /// This task and no other
    #[arg(long, value_name = "TASK")]
    pub task: Option<u64>,
    /// The process that does the work, so that its death is seen at once [default: none, the lease alone holds]
    #[arg(long, value_name = "PID")]
    pub pid: Option<i32>,
    /// How long the claim holds without a heartbeat
    #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
    pub lease: Option<Span>,
    /// Who claims, for people
    #[arg(long, value_name = "NAME")]
    pub claimant: Option<String>,
    /// The same key gets the same claim again
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Wait for work this long
    #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
    pub wait: Option<Span>,
}

/// Holds the process, so that its number cannot come to name another before the daemon has looked.
fn hold(pid: i32) -> Result<OwnedFd, Failure> {
    let wrong = |why: String| Failure::usage(format!("--pid {pid}: {why}"), "Name a live process of yours.");
    let pid =
        Pid::from_raw(pid).filter(|_| pid > 1).ok_or_else(|| wrong("is no worker's process".to_owned()))?;
    pidfd_open(pid, PidfdFlags::empty()).map_err(|error| wrong(error.to_string()))
}

/// Claims a task.
///
/// # Errors
/// `NothingReady` where there is none; other refusals.
pub async fn run(session: &Session, claim: &Claim) -> Ended {
    let mut options = Options::new();
    if let Some(task) = claim.task {
        options.insert("Task", task.into());
    }
    if let Some(pid) = claim.pid {
        options.insert("PidFD", zbus::Fd::from(hold(pid)?).into());
    }
    if let Some(claimant) = &claim.claimant {
        options.insert("Claimant", claimant.as_str().into());
    }
    if let Some(key) = &claim.key {
        options.insert("ClaimKey", key.as_str().into());
    }
    for (key, span) in [("LeaseUsec", claim.lease), ("WaitUsec", claim.wait)] {
        if let Some(span) = span {
            options.insert(key, span.usec.into());
        }
    }
    let queue = claim.queue.as_deref().unwrap_or_default();
    let (task, run, row) = session.manager.claim_task(queue, &options).await?;
    let lease = row
        .number_if_any("LeaseRemainingUsec")
        .map_or(String::new(), |usec| format!(", lease {}", human(usec)));
    let words = format!("run {run} holds task {task}{lease}: {}", line(row.text("Title")));
    tell(session, &row_with(object(&row), &[("Task", task), ("Run", run)]), &words)?;
    Ok(0)
}
