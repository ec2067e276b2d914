//! `edit`: changes what tasks ask for.

use clap::Args;

use crate::bus::proxy::Options;
use crate::cli::connect::Session;
use crate::cli::failure::Failure;
use crate::cli::verbs::properties::Properties;
use crate::cli::verbs::{Ended, Tasks, each, outcome_of, tell};

/// `edit`.
#[derive(Args, Clone, Debug)]
pub struct Edit {
    /// Which ones.
    #[command(flatten)]
    pub tasks: Tasks,
    /// What it is, for people
    #[arg(long, short, value_name = "TEXT")]
    pub title: Option<String>,
    /// The lane it waits in
    #[arg(long, short, value_name = "NAME")]
    pub queue: Option<String>,
    /// Another command, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// What both have in common.
    #[command(flatten)]
    pub properties: Properties,
}

impl Edit {
    fn on_bus(&self) -> Result<Options<'_>, Failure> {
        let mut properties = self.properties.on_bus()?;
        if let Some(title) = &self.title {
            properties.insert("Title", title.as_str().into());
        }
        if let Some(queue) = &self.queue {
            properties.insert("Queue", queue.as_str().into());
        }
        if !self.command.is_empty() {
            properties.insert("Command", self.command.clone().into());
        }
        if properties.is_empty() {
            return Err(Failure::usage("nothing to change", "Say what: tenurectl edit 3 --priority 5"));
        }
        Ok(properties)
    }
}

/// Changes tasks.
///
/// # Errors
/// Refusals are told task by task; the rest ends the verb.
pub async fn run(session: &Session, edit: &Edit) -> Ended {
    let properties = edit.on_bus()?;
    each(&edit.tasks.task, async |task| {
        let word = session.manager.update_task(task, &properties).await?;
        let words = if word == "unchanged" { "was so already" } else { "changed" };
        tell(session, &outcome_of(task, &word), &format!("task {task}: {words}"))
    })
    .await
}
