//! What the board wrote down, read back whole.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::bus::proxy::{ManagerProxy, Options, Row};
use crate::cli::demo::director::{Cast, Deeds, Director};
use crate::cli::failure::Failure;
use crate::cli::row::Fields as _;

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its number: the order in which things were committed.
    pub event: u64,
    /// Of which task.
    pub task: u64,
    /// Of which run.
    pub run: u64,
    /// What happened.
    pub kind: String,
    /// More about it.
    pub payload: Value,
    /// When, wall clock.
    pub at_usec: u64,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its number.
    pub run: u64,
    /// When it began, wall clock.
    pub started_usec: u64,
    /// When it ended, wall clock; 0 if it has not.
    pub ended_usec: u64,
    /// How.
    pub outcome: String,
}

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The tasks.
    pub cast: Cast,
    /// What was done to them.
    pub deeds: Deeds,
    /// In the order of the board.
    pub events: Vec<Event>,
    /// By task, the oldest first.
    pub runs: BTreeMap<u64, Vec<Run>>,
    /// By task.
    pub statuses: BTreeMap<u64, String>,
}

/// The interface's largest page.
const PAGE: u32 = 1_000;

impl Evidence {
    /// Reads it from the board.
    ///
    /// # Errors
    /// Where the daemon does not answer.
    pub async fn gather(manager: &ManagerProxy<'static>, director: Director) -> Result<Self, Failure> {
        let mut runs = BTreeMap::new();
        let mut statuses = BTreeMap::new();
        for task in manager.list_tasks(&Options::new()).await? {
            let number = task.number("Task");
            statuses.insert(number, task.text("Status").to_owned());
            let rows = manager.list_runs(number, &Options::from([("Limit", PAGE.into())])).await?;
            runs.insert(number, rows.iter().map(run_of).collect());
        }
        Ok(Self {
            cast: director.cast,
            deeds: director.deeds,
            events: events(manager).await?,
            runs,
            statuses,
        })
    }

    /// Events of a kind that concern a task, in order.
    pub fn of<'a>(&'a self, task: u64, kind: &'a str) -> impl Iterator<Item = &'a Event> {
        self.events.iter().filter(move |event| event.task == task && event.kind == kind)
    }

    /// Runs of a task.
    pub fn runs_of(&self, task: u64) -> &[Run] {
        self.runs.get(&task).map_or(&[], Vec::as_slice)
    }

    /// The status of a task.
    pub fn status(&self, task: u64) -> &str {
        self.statuses.get(&task).map_or("", String::as_str)
    }
}

async fn events(manager: &ManagerProxy<'static>) -> Result<Vec<Event>, Failure> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.event);
        let filter = Options::from([("AfterEvent", after.into()), ("Limit", PAGE.into())]);
        let page = manager.list_events(&filter).await?;
        if page.is_empty() {
            return Ok(events);
        }
        events.extend(page.iter().map(event_of));
    }
}

fn event_of(row: &Row) -> Event {
    Event {
        event: row.number("Event"),
        task: row.number("Task"),
        run: row.number("Run"),
        kind: row.text("Kind").to_owned(),
        payload: serde_json::from_str(row.text("Payload")).unwrap_or(Value::Null),
        at_usec: row.number("AtUsec"),
    }
}

fn run_of(row: &Row) -> Run {
    Run {
        run: row.number("Run"),
        started_usec: row.number("StartedUsec"),
        ended_usec: row.number("EndedUsec"),
        outcome: row.text("Outcome").to_owned(),
    }
}
