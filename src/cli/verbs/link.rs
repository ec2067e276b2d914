//! `link` and `unlink`: which task waits for which.

use clap::Args;
use serde_json::json;

use crate::bus::proxy::Options;
use crate::cli::connect::Session;
use crate::cli::verbs::{Ended, each, tell};

/// `link` and `unlink`.
#[derive(Args, Clone, Debug)]
pub struct Link {
    /// The task to be done first
    pub parent: u64,
    /// Tasks that wait for it
    #[arg(value_name = "CHILD", required = true, value_delimiter = ',')]
    pub task: Vec<u64>,
}

/// Makes tasks wait for another one, or no longer.
///
/// # Errors
/// Refusals are told task by task; the rest ends the verb.
pub async fn run(session: &Session, link: &Link, linked: bool) -> Ended {
    let parent = link.parent;
    each(&link.task, async |child| {
        let options = Options::new();
        let word = if linked {
            session.manager.link_tasks(parent, child, &options).await?
        } else {
            session.manager.unlink_tasks(parent, child, &options).await?
        };
        let words = match (word.as_str(), linked) {
            ("unchanged", true) => format!("task {child} waited for task {parent} already"),
            ("unchanged", false) => format!("task {child} did not wait for task {parent}"),
            (_, true) => format!("task {child} waits for task {parent}"),
            (_, false) => format!("task {child} no longer waits for task {parent}"),
        };
        tell(session, &json!({ "Parent": parent, "Child": child, "Outcome": word }), &words)
    })
    .await
}
