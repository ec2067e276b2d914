//! One file for each group of verbs: what it takes, what it asks, how the answer is shown.

pub mod act;
pub mod add;
pub mod attend;
pub mod claim;
pub mod comment;
pub mod edit;
pub mod events;
pub mod host;
pub mod link;
pub mod list;
pub mod logs;
pub mod properties;
pub mod queue;
pub mod show;
pub mod sweep;
pub mod wait;
pub mod worker;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::connect::Session;
use crate::cli::failure::{Failure, code};

/// What a verb comes to: an exit code that is not a failure of ours, or a failure.
pub type Ended = Result<u8, Failure>;

/// One task or several.
#[derive(Args, Clone, Debug)]
pub struct Tasks {
    /// Numbers of tasks
    #[arg(value_name = "TASK", required = true, value_delimiter = ',')]
    pub task: Vec<u64>,
}

/// Does the same to each of several tasks: one that is refused does not keep the others from it.
///
/// # Errors
/// Only where going on makes no sense: the daemon or the reader has gone.
pub async fn each(tasks: &[u64], mut act: impl AsyncFnMut(u64) -> Result<(), Failure>) -> Ended {
    let mut ended = 0;
    for task in tasks {
        match act(*task).await {
            Ok(()) => {}
            Err(failure @ Failure::Refused { .. }) => {
                failure.of(&format!("task {task}")).say();
                ended = code::REFUSED;
            }
            Err(other) => return Err(other),
        }
    }
    Ok(ended)
}

/// Tells what became of a request: as JSON with what the bus returned, or in words.
///
/// # Errors
/// Where standard output cannot be written.
pub fn tell(session: &Session, returned: &Value, words: &str) -> Result<(), Failure> {
    if session.screen.json {
        session.screen.print(&returned.to_string())
    } else {
        session.screen.print(words)
    }
}

/// The answer of a method that returns an outcome word.
pub fn outcome_of(task: u64, word: &str) -> Value {
    json!({ "Task": task, "Outcome": word })
}

/// A row with the numbers that the method returned beside it.
pub fn row_with(row: Map<String, Value>, beside: &[(&str, u64)]) -> Value {
    let mut row = row;
    for (key, number) in beside {
        row.insert((*key).to_owned(), Value::from(*number));
    }
    Value::Object(row)
}
