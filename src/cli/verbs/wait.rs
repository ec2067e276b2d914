//! `wait`: until tasks are settled; the exit code is their workers'.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::bus::proxy::{Options, Row};
use crate::cli::connect::Session;
use crate::cli::failure::{Failure, code};
use crate::cli::follow::Follower;
use crate::cli::json::object;
use crate::cli::row::Fields as _;
use crate::cli::span::{Span, human};
use crate::cli::verbs::show::how_it_ended;
use crate::cli::verbs::{Ended, Tasks, tell};

/// `wait`.
#[derive(Args, Clone, Debug)]
pub struct Wait {
    /// Which ones.
    #[command(flatten)]
    pub tasks: Tasks,
    /// Until one of them is settled, not all
    #[arg(long)]
    pub any: bool,
    /// Give up after this; the tasks go on
    #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
    pub timeout: Option<Span>,
}

/// Whether nothing more happens to a task by itself.
pub fn is_settled(status: &str) -> bool {
    matches!(status, "done" | "blocked" | "cancelled" | "archived")
}

/// The exit code of a settled task: 0 if it is done, else its last worker's own, else 1.
pub fn code_of(task: &Row, last_run: Option<&Row>) -> u8 {
    if task.text("Status") == "done" {
        return 0;
    }
    let run = last_run.map_or((0, 0), |run| (run.number("Signal"), run.signed("ExitCode")));
    let of_worker = match run {
        (0, exit) => exit,
        (signal, _) => i64::try_from(signal).unwrap_or(0).saturating_add(128),
    };
    u8::try_from(of_worker).ok().filter(|code| *code != 0).unwrap_or(code::REFUSED)
}

/// Waits for tasks.
///
/// # Errors
/// Refusals, and where the daemon stays away.
pub async fn run(session: &mut Session, wait: &Wait) -> Ended {
    let mut follower = Follower::start(session).await?;
    let tasks = &wait.tasks.task;
    let waiting = async {
        if wait.any {
            until_any_settled(&mut follower, tasks).await
        } else {
            until_settled(&mut follower, tasks).await
        }
    };
    let Some(limit) = wait.timeout else { return waiting.await };
    match tokio::time::timeout(Duration::from_micros(limit.usec), waiting).await {
        Ok(ended) => ended,
        Err(_) => Err(Failure::own(
            format!("not settled after {}", human(limit.usec)),
            "The tasks go on; wait again to go on waiting.",
        )),
    }
}

/// Until all of them are settled; the code of the first, in the order given, that is not done.
///
/// # Errors
/// As [`run`].
pub async fn until_settled(follower: &mut Follower<'_>, tasks: &[u64]) -> Ended {
    let mut codes = vec![None; tasks.len()];
    let mut asked: Vec<bool> = vec![true; tasks.len()];
    loop {
        for ((task, ended), asked) in tasks.iter().zip(&mut codes).zip(&asked) {
            if ended.is_none() && *asked {
                *ended = settled(follower, *task).await?;
            }
        }
        if codes.iter().all(Option::is_some) {
            return Ok(codes.into_iter().flatten().find(|code| *code != 0).unwrap_or(0));
        }
        let hint = follower.hint().await?;
        asked = tasks.iter().map(|task| hint.concerns(*task)).collect();
    }
}

async fn until_any_settled(follower: &mut Follower<'_>, tasks: &[u64]) -> Ended {
    loop {
        for task in tasks {
            if let Some(code) = settled(follower, *task).await? {
                return Ok(code);
            }
        }
        while {
            let hint = follower.hint().await?;
            !tasks.iter().any(|task| hint.concerns(*task))
        } {}
    }
}

/// The code of a task that is settled, told once.
async fn settled(follower: &mut Follower<'_>, task: u64) -> Result<Option<u8>, Failure> {
    let row = follower.ask(async |manager| manager.get_task(task).await).await?;
    let status = row.text("Status");
    if !is_settled(status) {
        return Ok(None);
    }
    let last = last_run(follower, task).await?;
    let how = last
        .as_ref()
        .map_or(String::new(), |run| format!(": run {} {}", run.number("Run"), how_it_ended(run)));
    let words = format!("task {task} is {status}{how}");
    tell(follower.session(), &Value::Object(object(&row)), &words)?;
    Ok(Some(code_of(&row, last.as_ref())))
}

/// The last run of a task.
async fn last_run(follower: &mut Follower<'_>, task: u64) -> Result<Option<Row>, Failure> {
    let mut last: Option<Row> = None;
    loop {
        let after = last.as_ref().map_or(0, |run| run.number("Run"));
        let options = Options::from([("After", after.into()), ("Limit", 1_000_u32.into())]);
        let page = follower.ask(async |manager| manager.list_runs(task, &options).await).await?;
        match page.into_iter().next_back() {
            Some(run) => last = Some(run),
            None => return Ok(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::row::row_of;

    #[test]
    fn the_exit_code_is_the_workers_own() {
        let task = |status: &'static str| row_of([("Status", status.into())]);
        let run = |exit: i32, signal: u32| row_of([("ExitCode", exit.into()), ("Signal", signal.into())]);
        assert_eq!(code_of(&task("done"), Some(&run(0, 0))), 0);
        assert_eq!(code_of(&task("blocked"), Some(&run(7, 0))), 7);
        assert_eq!(code_of(&task("blocked"), Some(&run(0, 9))), 137);
        assert_eq!(code_of(&task("cancelled"), Some(&run(0, 15))), 143);
        assert_eq!(code_of(&task("blocked"), Some(&run(0, 0))), 1);
        assert_eq!(code_of(&task("cancelled"), None), 1);
        assert_eq!(code_of(&task("blocked"), Some(&run(-1, 0))), 1);
    }
}
