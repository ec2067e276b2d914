//! `list`: the board as a table that fits.

use clap::Args;
use serde_json::Value;

use crate::bus::proxy::{Options, Row};
use crate::cli::connect::Session;
use crate::cli::json::object;
use crate::cli::render::{Paint, aside, paint_of_status, person_watches};
use crate::cli::row::Fields as _;
use crate::cli::span::{Calendar, human, short};
use crate::cli::table::{Cell, Kind, Table};
use crate::cli::verbs::Ended;
use crate::cli::verbs::show::{block_in_words, hold_in_words};
use crate::core::state::Status;

/// `list`.
#[derive(Args, Clone, Debug, Default)]
pub struct List {
    /// Only these statuses: todo, ready, running, blocked, done, cancelled, archived, or open for the first four
    #[arg(long, short, value_name = "STATUS", value_delimiter = ',', value_parser = status)]
    pub status: Vec<Vec<Status>>,
    /// Only of this queue
    #[arg(long, short, value_name = "NAME")]
    pub queue: Option<String>,
    /// Only with this label
    #[arg(long, short, value_name = "WORD")]
    pub label: Option<String>,
    /// Only of this user, by number
    #[arg(long, value_name = "UID")]
    pub owner: Option<u32>,
    /// Only with this text in title or body
    #[arg(long, short, value_name = "TEXT")]
    pub text: Option<String>,
    /// Archived ones too
    #[arg(long, short)]
    pub all: bool,
    /// Only after this task
    #[arg(long, value_name = "TASK")]
    pub after: Option<u64>,
    /// At most so many
    #[arg(long, short = 'n', value_name = "N")]
    pub limit: Option<usize>,
}

/// The interface's largest page.
const PAGE: u32 = 1_000;

fn status(word: &str) -> Result<Vec<Status>, String> {
    if word == "open" {
        return Ok(Status::ALL.into_iter().filter(|status| status.is_open()).collect());
    }
    Status::parse(word).map(|status| vec![status]).ok_or_else(|| {
        let words = Status::ALL.map(Status::word).join(", ");
        format!("there are {words}, and open for the first four")
    })
}

impl List {
    fn filter(&self) -> Options<'_> {
        let mut filter = Options::from([("Limit", PAGE.into())]);
        let mut statuses: Vec<&str> = self.status.iter().flatten().map(|status| status.word()).collect();
        if statuses.is_empty() && !self.all {
            let shown = Status::ALL.into_iter().filter(|status| *status != Status::Archived);
            statuses.extend(shown.map(Status::word));
        }
        if !statuses.is_empty() {
            filter.insert("Status", statuses.into());
        }
        for (key, word) in [("Queue", &self.queue), ("Label", &self.label), ("Text", &self.text)] {
            if let Some(word) = word {
                filter.insert(key, word.as_str().into());
            }
        }
        if let Some(owner) = self.owner {
            filter.insert("Owner", owner.into());
        }
        filter
    }
}

/// Lists tasks.
///
/// # Errors
/// Refusals, and where the daemon does not answer.
pub async fn run(session: &Session, list: &List) -> Ended {
    let mut board = Board::new();
    let mut after = list.after.unwrap_or(0);
    let mut room = list.limit.unwrap_or(usize::MAX);
    while room > 0 {
        let mut filter = list.filter();
        filter.insert("AfterTask", after.into());
        let page = session.manager.list_tasks(&filter).await?;
        let Some(last) = page.last() else { break };
        after = last.number("Task");
        for task in page.iter().take(room) {
            if session.screen.json {
                session.screen.print(&Value::Object(object(task)).to_string())?;
            } else {
                board.add(task);
            }
        }
        room = room.saturating_sub(page.len());
    }
    if session.screen.json {
        return Ok(0);
    }
    if board.table.is_empty() {
        return nothing(session, list);
    }
    session.screen.print(&board.table.render(&session.screen, 0))?;
    Ok(0)
}

fn nothing(session: &Session, list: &List) -> Ended {
    if person_watches() {
        let program = session.program();
        let filtered = list.filter().len() > 2;
        aside(&if filtered {
            "no task is like that".to_owned()
        } else {
            format!("the board is empty; put something on it: {program} add -- echo hello")
        });
    }
    Ok(0)
}

/// The table of tasks; the demo shows it too.
#[derive(Debug)]
pub struct Board {
    calendar: Calendar,
    /// The table.
    pub table: Table,
}

impl Board {
    /// An empty one.
    pub fn new() -> Self {
        let table = Table::new(&[
            ("TASK", Kind::Right),
            ("STATUS", Kind::Left),
            ("QUEUE", Kind::Text),
            ("RUNS", Kind::Right),
            ("AGE", Kind::Right),
            ("TITLE", Kind::Text),
            ("", Kind::Text),
        ]);
        Self { calendar: Calendar::here(), table }
    }

    /// Adds a task.
    pub fn add(&mut self, task: &Row) {
        let status = task.text("Status");
        let runs = task.number_if_any("Attempts").map_or("-".to_owned(), |runs| runs.to_string());
        self.table.row(vec![
            Cell::new(task.number("Task").to_string()),
            Cell::painted(status, paint_of_status(status)),
            Cell::new(Some(task.text("Queue")).filter(|queue| *queue != "default").unwrap_or_default()),
            Cell::new(runs),
            Cell::new(short(self.calendar.since(task.number("CreatedUsec")))),
            Cell::new(task.text("Title")),
            Cell::painted(detail(&self.calendar, task), Paint::Dim),
        ]);
    }
}

impl Default for Board {
    fn default() -> Self {
        Self::new()
    }
}

/// What one wants to know of a task in this status, in a few words.
fn detail(calendar: &Calendar, task: &Row) -> String {
    let last_error = || task.text_if_any("LastError").map_or(String::new(), |error| format!(": {error}"));
    match task.text("Status") {
        "running" => match (task.text_if_any("Held"), task.text_if_any("StopCause")) {
            (Some(held), _) => format!("held: {}", hold_in_words(held)),
            (None, Some(cause)) => format!("is being stopped: {cause}"),
            (None, None) => running(task),
        },
        "ready" => match task.number_if_any("RetryInUsec") {
            Some(usec) => format!("again in {}{}", human(usec), last_error()),
            None => String::new(),
        },
        "todo" => waits_for(calendar, task),
        "blocked" => block_in_words(task),
        _ => String::new(),
    }
}

fn running(task: &Row) -> String {
    match (task.number_if_any("WorkerPid"), task.text("Stage")) {
        (Some(pid), "running") => format!("pid {pid}"),
        (None, "running") => format!("claimed by {}", task.text_if_any("Claimant").unwrap_or("somebody")),
        (_, stage) => stage.to_owned(),
    }
}

/// What a task that is `todo` waits for.
pub fn waits_for(calendar: &Calendar, task: &Row) -> String {
    if let Some(usec) = task.number_if_any("NotBeforeUsec").filter(|usec| calendar.since(*usec) == 0) {
        return format!("begins {}", calendar.distance(usec));
    }
    let parents: Vec<String> = task.numbers("Parents").iter().map(u64::to_string).collect();
    if parents.is_empty() { String::new() } else { format!("after {}", parents.join(", ")) }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;
    use crate::cli::render::Screen;
    use crate::cli::row::row_of;

    fn calendar() -> Calendar {
        Calendar::at("1970-01-01T01:00:00Z".parse().unwrap(), TimeZone::UTC)
    }

    #[test]
    fn each_status_says_what_one_wants_to_know_of_it() {
        let task = |fields: [(&str, zbus::Variant<'static>); 2]| detail(&calendar(), &row_of(fields));
        assert_eq!(
            task([("Status", "running".into()), ("Held", "unkillable".into())]),
            "held: KILL did not end its worker"
        );
        assert_eq!(task([("Status", "ready".into()), ("RetryInUsec", 8_000_000_u64.into())]), "again in 8 s");
        assert_eq!(task([("Status", "todo".into()), ("Parents", vec![1_u64, 2].into())]), "after 1, 2");
        assert_eq!(
            task([("Status", "todo".into()), ("NotBeforeUsec", 3_660_000_000_u64.into())]),
            "begins in 1 min"
        );
        assert_eq!(task([("Status", "running".into()), ("Stage", "starting".into())]), "starting");
    }

    #[test]
    fn without_a_filter_all_but_the_archived_are_shown() {
        let list = List::default();
        let filter = list.filter();
        let zbus::Variant::Array(statuses) = &filter["Status"] else { panic!("{filter:?}") };
        assert_eq!(statuses.len(), 6);
        let all = List { all: true, ..List::default() };
        assert!(!all.filter().contains_key("Status"));
        assert_eq!(status("open").map(|statuses| statuses.len()), Ok(4));
        assert!(status("Running").is_err());
    }

    #[test]
    fn a_board_fits_the_terminal() {
        let mut board = Board { calendar: calendar(), ..Board::new() };
        board.add(&row_of([
            ("Task", 1_u64.into()),
            ("Status", "blocked".into()),
            ("Queue", "default".into()),
            ("Title", "a long title that says a lot about very little".into()),
            ("BlockCode", "failures".into()),
            ("BlockReason", "3 failures; the last: exit 1".into()),
        ]));
        let screen = Screen { width: Some(70), colour: false, json: false };
        let text = board.table.render(&screen, 0);
        assert!(text.lines().all(|line| line.chars().count() <= 70), "{text}");
    }
}
