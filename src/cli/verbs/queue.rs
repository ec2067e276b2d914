//! `queue`: the lanes that tasks wait in.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use zbus::Variant;

use crate::bus::proxy::Options;
use crate::cli::connect::Session;
use crate::cli::failure::Failure;
use crate::cli::json::object;
use crate::cli::render::{Paint, line};
use crate::cli::row::Fields as _;
use crate::cli::table::{Cell, Kind, Table};
use crate::cli::verbs::properties::LaunchProperties;
use crate::cli::verbs::{Ended, tell};

/// `queue`.
#[derive(Args, Clone, Debug)]
pub struct Queue {
    /// What to do.
    #[command(subcommand)]
    pub what: Option<What>,
}

/// What to do with queues; listing them where nothing is said.
#[derive(Clone, Debug, Subcommand)]
pub enum What {
    /// List the queues
    List,
    /// Make a queue, or change one
    #[command(after_help = "Example:\n  tenurectl queue set builds --max-running 2 --max-runtime 1h")]
    Set(Box<Set>),
    /// Start nothing more from queues; what runs goes on
    Pause(Names),
    /// Start from queues again
    Resume(Names),
    /// Remove queues that have no open tasks
    Remove(Names),
}

/// `queue set`.
#[derive(Args, Clone, Debug)]
pub struct Set {
    /// Its name
    pub name: String,
    /// Tasks that may run at once; 0 for no limit
    #[arg(long, value_name = "N")]
    pub max_running: Option<u32>,
    /// Defaults for its tasks that say nothing themselves
    #[command(flatten)]
    pub defaults: LaunchProperties,
}

/// Names of queues.
#[derive(Args, Clone, Debug)]
pub struct Names {
    /// Names of queues
    #[arg(value_name = "NAME", required = true)]
    pub name: Vec<String>,
}

/// Does what is to be done with queues.
///
/// # Errors
/// Refusals, and where the daemon does not answer.
pub async fn run(session: &Session, queue: &Queue) -> Ended {
    match &queue.what {
        None | Some(What::List) => list(session).await,
        Some(What::Set(set)) => {
            let mut options = Options::new();
            if let Some(max_running) = set.max_running {
                options.insert("MaxRunning", max_running.into());
            }
            let defaults = set.defaults.on_bus()?;
            if !defaults.is_empty() {
                options.insert("LaunchDefaults", Variant::from(defaults));
            }
            change(session, &set.name, options).await
        }
        Some(What::Pause(names)) => pause(session, names, true).await,
        Some(What::Resume(names)) => pause(session, names, false).await,
        Some(What::Remove(names)) => {
            for name in &names.name {
                let word = session.manager.remove_queue(name, &Options::new()).await.map_err(Failure::from);
                said(session, name, &word?, "removed")?;
            }
            Ok(0)
        }
    }
}

async fn pause(session: &Session, names: &Names, paused: bool) -> Ended {
    for name in &names.name {
        change(session, name, Options::from([("Paused", paused.into())])).await?;
    }
    Ok(0)
}

async fn change(session: &Session, name: &str, options: Options<'_>) -> Ended {
    let words = match options.get("Paused") {
        Some(Variant::Bool(true)) => "paused",
        Some(Variant::Bool(false)) => "gives out tasks",
        _ => "set",
    };
    let word = session.manager.set_queue(name, &options).await?;
    said(session, name, &word, words)?;
    Ok(0)
}

fn said(session: &Session, name: &str, word: &str, done: &str) -> Result<(), Failure> {
    let words = if word == "unchanged" { "was so already" } else { done };
    tell(session, &json!({ "Queue": name, "Outcome": word }), &format!("queue {}: {words}", line(name)))
}

async fn list(session: &Session) -> Ended {
    let queues = session.manager.list_queues(&Options::new()).await?;
    if session.screen.json {
        for queue in &queues {
            session.screen.print(&Value::Object(object(queue)).to_string())?;
        }
        return Ok(0);
    }
    let mut table = Table::new(&[
        ("QUEUE", Kind::Text),
        ("READY", Kind::Right),
        ("RUNNING", Kind::Right),
        ("AT MOST", Kind::Right),
        ("STATE", Kind::Left),
    ]);
    for queue in &queues {
        let (state, paint) =
            if queue.flag("Paused") { ("paused", Paint::Yellow) } else { ("open", Paint::Plain) };
        let limit = queue.number_if_any("MaxRunning").map_or("-".to_owned(), |limit| limit.to_string());
        table.row(vec![
            Cell::new(queue.text("Queue")),
            Cell::new(queue.number("Ready").to_string()),
            Cell::new(queue.number("Running").to_string()),
            Cell::new(limit),
            Cell::painted(state, paint),
        ]);
    }
    session.screen.print(&table.render(&session.screen, 0))?;
    Ok(0)
}
