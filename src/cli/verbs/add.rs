//! `add`: puts a task on the board; and what `run` has in common with it.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::json;

use crate::bus::proxy::Options;
use crate::cli::connect::Session;
use crate::cli::failure::Failure;
use crate::cli::follow::Follower;
use crate::cli::render::{self, aside, person_watches};
use crate::cli::row::Fields as _;
use crate::cli::verbs::properties::{Properties, present_directory};
use crate::cli::verbs::{Ended, tell, wait};

/// A new task.
#[derive(Args, Clone, Debug)]
pub struct NewTask {
    /// What it is, for people [default: the command]
    pub title: Option<String>,
    /// The lane it waits in
    #[arg(long, short, value_name = "NAME")]
    pub queue: Option<String>,
    /// Tasks that must be done first
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    pub after: Vec<u64>,
    /// The same key names the same task: adding it again adds nothing
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// The command, after `--`; without one the task is for workers that claim it
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// What both have in common.
    #[command(flatten)]
    pub properties: Properties,
}

/// `add`.
#[derive(Args, Clone, Debug)]
pub struct Add {
    /// Wait until it is done, and exit with its worker's code
    #[arg(long, short)]
    pub wait: bool,
    /// The task.
    #[command(flatten)]
    pub new: NewTask,
}

/// A title is cut to this; the whole command is on the task.
const TITLE_COLUMNS: usize = 120;

impl NewTask {
    /// The title: as given, or the command as one would type it.
    fn title(&self) -> Result<String, Failure> {
        match &self.title {
            Some(title) => Ok(title.clone()),
            None if self.command.is_empty() => Err(Failure::usage(
                "say what is to be done: a title, a command after `--`, or both",
                "For example: tenurectl add 'nightly backup' -- backup.sh",
            )),
            None => {
                let words = render::shell_words(self.command.iter().map(String::as_str));
                Ok(render::fit(&render::line(&words), TITLE_COLUMNS))
            }
        }
    }

    /// Its properties as the bus takes them.
    fn on_bus(&self) -> Result<Options<'_>, Failure> {
        let mut properties = self.properties.on_bus()?;
        if let Some(queue) = &self.queue {
            properties.insert("Queue", queue.as_str().into());
        }
        if let Some(key) = &self.key {
            properties.insert("IdempotencyKey", key.as_str().into());
        }
        if !self.after.is_empty() {
            let parents: Vec<u64> = self.after.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
            properties.insert("Parents", parents.into());
        }
        if !self.command.is_empty() {
            properties.insert("Command", self.command.clone().into());
            if self.properties.launch.cwd.is_none() {
                properties.insert("WorkingDirectory", present_directory()?.into());
            }
        }
        Ok(properties)
    }

    /// Puts it on the board; says whether it is new there.
    ///
    /// # Errors
    /// Wrong usage, refusals, and where the daemon does not answer.
    pub async fn create(&self, session: &Session) -> Result<(u64, bool), Failure> {
        Ok(session.manager.create_task(&self.title()?, &self.on_bus()?).await?)
    }

    /// The same, for somebody who follows it: the output goes where it can be followed, and a failure is told
    /// at once, not tried again, unless something else was asked for.
    ///
    /// # Errors
    /// As [`NewTask::create`].
    pub async fn create_attended(&self, session: &Session) -> Result<(u64, bool), Failure> {
        let mut properties = self.on_bus()?;
        properties.entry("FailureLimit").or_insert_with(|| 1_u32.into());
        properties.entry("Output").or_insert_with(|| "file".into());
        Ok(session.manager.create_task(&self.title()?, &properties).await?)
    }
}

/// Puts a task on the board.
///
/// # Errors
/// As [`NewTask::create`].
pub async fn run(session: &mut Session, add: &Add) -> Ended {
    if add.wait {
        // The subscription comes before the task, so that its end cannot be missed.
        let mut follower = Follower::start(session).await?;
        let (task, created) = add.new.create(follower.session()).await?;
        tell(follower.session(), &json!({ "Task": task, "Created": created }), &task.to_string())?;
        return wait::until_settled(&mut follower, &[task]).await;
    }
    let (task, created) = add.new.create(session).await?;
    tell(session, &json!({ "Task": task, "Created": created }), &task.to_string())?;
    if person_watches() && !session.screen.json {
        hint(session, task, created).await?;
    }
    Ok(0)
}

/// What a person may want to know next.
async fn hint(session: &Session, task: u64, created: bool) -> Result<(), Failure> {
    let program = session.program();
    if !created {
        aside(&format!("task {task} has that key already; nothing was added (`{program} show {task}`)"));
        return Ok(());
    }
    let row = session.manager.get_task(task).await?;
    let next = match (row.text("Status"), row.texts("Command").is_empty()) {
        ("ready", true) => format!("ready to be claimed: `{program} claim --task {task}`"),
        ("ready", false) if session.is_embedded() => format!("it starts under `{program} wait {task}`"),
        ("todo", _) => format!("it waits: `{program} show {task}` says for what"),
        _ => format!("follow it with `{program} logs -f {task}`"),
    };
    aside(&format!("task {task} added; {next}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(title: Option<&str>, command: &[&str]) -> NewTask {
        NewTask {
            title: title.map(str::to_owned),
            queue: None,
            after: vec![4, 3, 4],
            key: None,
            properties: Properties::default(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    #[test]
    fn the_command_is_the_title_where_none_is_given() {
        assert_eq!(new(None, &["echo", "a b"]).title(), Ok("echo 'a b'".to_owned()));
        assert_eq!(new(Some("x"), &["echo"]).title(), Ok("x".to_owned()));
        assert_eq!(new(None, &[]).title().map_err(|failure| failure.code()), Err(2));
        let script = new(None, &["sh", "-c", &"echo\n".repeat(100)]).title().unwrap();
        assert!(!script.contains('\n') && render::columns(&script) == TITLE_COLUMNS, "{script}");
    }

    #[test]
    fn the_present_directory_goes_with_a_command_and_the_environment_does_not() {
        let with = new(None, &["true"]);
        let properties = with.on_bus().unwrap();
        assert!(properties.contains_key("WorkingDirectory") && !properties.contains_key("Environment"));
        let without = new(Some("for somebody"), &[]);
        let keys: Vec<_> = without.on_bus().unwrap().into_keys().collect();
        assert_eq!(keys, ["Parents"]);
    }
}
