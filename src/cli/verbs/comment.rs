//! `comment`: a note on tasks, for people.

use std::io::Read as _;

use clap::Args;
use serde_json::json;

use crate::bus::proxy::Options;
use crate::cli::connect::Session;
use crate::cli::verbs::{Ended, each, tell};

/// `comment`.
#[derive(Args, Clone, Debug)]
pub struct Comment {
    /// Numbers of tasks
    #[arg(value_name = "TASK", required = true, value_delimiter = ',')]
    pub task: Vec<u64>,
    /// What to say; - reads it from standard input
    #[arg(required = true)]
    pub text: String,
}

/// More than the daemon takes by any configuration worth having.
const TEXT_BYTES: u64 = 16 * 1_024 * 1_024;

/// Adds a comment to each task.
///
/// # Errors
/// Refusals are told task by task; the rest ends the verb.
pub async fn run(session: &Session, comment: &Comment) -> Ended {
    let mut text = comment.text.clone();
    if text == "-" {
        text.clear();
        std::io::stdin().lock().take(TEXT_BYTES).read_to_string(&mut text)?;
    }
    each(&comment.task, async |task| {
        let number = session.manager.add_comment(task, &text, &Options::new()).await?;
        tell(
            session,
            &json!({ "Task": task, "Comment": number }),
            &format!("task {task}: comment {number} added"),
        )
    })
    .await
}
