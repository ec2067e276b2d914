//! `events`: what has happened, oldest first, and what happens.

use std::collections::VecDeque;

use clap::Args;
use serde_json::Value;

use crate::bus::proxy::{Options, Row};
use crate::cli::connect::Session;
use crate::cli::failure::Failure;
use crate::cli::follow::Follower;
use crate::cli::json::object;
use crate::cli::render::{Paint, Screen, line, paint_of_outcome};
use crate::cli::row::Fields as _;
use crate::cli::span::Calendar;
use crate::cli::verbs::Ended;

/// `events`.
#[derive(Args, Clone, Debug)]
pub struct Events {
    /// Of this task alone
    #[arg(value_name = "TASK")]
    pub task: Option<u64>,
    /// Go on with what happens from now on; without --after, begin with the last ten
    #[arg(long, short)]
    pub follow: bool,
    /// Only events after this one
    #[arg(long, value_name = "EVENT")]
    pub after: Option<u64>,
    /// Only the last so many
    #[arg(long, short = 'n', value_name = "N")]
    pub last: Option<usize>,
}

/// Events shown before the following begins.
const TAIL: usize = 10;
/// The interface's largest page.
const PAGE: u32 = 1_000;

/// Shows events.
///
/// # Errors
/// Refusals, and where the daemon does not answer.
pub async fn run(session: &mut Session, events: &Events) -> Ended {
    let mut follower = Follower::start(session).await?;
    let mut reader = Reader { task: events.task, after: events.after.unwrap_or(0) };
    let tail = events.last.or_else(|| (events.follow && events.after.is_none()).then_some(TAIL));
    match tail {
        Some(tail) => reader.show_last(&mut follower, tail).await?,
        None => reader.show_new(&mut follower).await?,
    }
    if !events.follow {
        return Ok(0);
    }
    loop {
        let hint = follower.hint().await?;
        if events.task.is_none_or(|task| hint.concerns(task)) {
            reader.show_new(&mut follower).await?;
        }
    }
}

struct Reader {
    task: Option<u64>,
    after: u64,
}

impl Reader {
    async fn page(&mut self, follower: &mut Follower<'_>) -> Result<Vec<Row>, Failure> {
        let mut filter = Options::from([("AfterEvent", self.after.into()), ("Limit", PAGE.into())]);
        if let Some(task) = self.task {
            filter.insert("Task", task.into());
        }
        let page = follower.ask(async |manager| manager.list_events(&filter).await).await?;
        if let Some(last) = page.last() {
            self.after = last.number("Event");
        }
        Ok(page)
    }

    async fn show_new(&mut self, follower: &mut Follower<'_>) -> Result<(), Failure> {
        loop {
            let page = self.page(follower).await?;
            if page.is_empty() {
                return Ok(());
            }
            show(&follower.session().screen, page.iter())?;
        }
    }

    async fn show_last(&mut self, follower: &mut Follower<'_>, tail: usize) -> Result<(), Failure> {
        let mut kept = VecDeque::new();
        loop {
            let page = self.page(follower).await?;
            if page.is_empty() {
                break;
            }
            kept.extend(page);
            let surplus = kept.len().saturating_sub(tail);
            kept.drain(..surplus);
        }
        show(&follower.session().screen, kept.iter())
    }
}

fn show<'a>(screen: &Screen, events: impl Iterator<Item = &'a Row>) -> Result<(), Failure> {
    let calendar = Calendar::here();
    let mut text = String::new();
    for event in events {
        if screen.json {
            text.push_str(&Value::Object(object(event)).to_string());
        } else {
            text.push_str(&in_words(screen, &calendar, event));
        }
        text.push('\n');
    }
    screen.print(&text)
}

/// One event on one line.
pub fn in_words(screen: &Screen, calendar: &Calendar, event: &Row) -> String {
    let number = |key: &str, label: &str| {
        event.number_if_any(key).map_or(String::new(), |number| format!("{label} {number}"))
    };
    let subject = [number("Task", "task"), number("Run", "run")].join(" ");
    let kind = event.text("Kind");
    let time = screen.paint(&calendar.clock(event.number("AtUsec")), Paint::Dim);
    let padded = format!("{:<17}", line(kind));
    let line = format!(
        "{time}  {:<16}  {}  {}",
        subject.trim(),
        screen.paint(&padded, paint_of_kind(kind)),
        payload_in_words(event.text("Payload"))
    );
    line.trim_end().to_owned()
}

/// The paint of a kind of event.
pub fn paint_of_kind(kind: &str) -> Paint {
    match kind {
        "started" | "claimed" | "worker_registered" => Paint::Cyan,
        "signalled" | "stop_asked" | "held" | "blocked" | "cancelled" | "released" => Paint::Yellow,
        "gave_up" | "survivor" | "forced" => Paint::Red,
        other => paint_of_outcome(other),
    }
}

/// What a run used is for programs: words leave it out.
const USAGE: [&str; 3] = ["max_rss_kib", "system_usec", "user_usec"];

/// A payload as `key=value` pairs; what is nested stays JSON.
pub fn payload_in_words(payload: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(payload) else { return line(payload) };
    let word = |value: &Value| match value {
        Value::String(text) if text.contains(' ') || text.is_empty() => format!("{text:?}"),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let pairs = fields.iter().filter(|(key, value)| !value.is_null() && !USAGE.contains(&key.as_str()));
    line(&pairs.map(|(key, value)| format!("{key}={}", word(value))).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;
    use crate::cli::row::row_of;

    #[test]
    fn an_event_is_one_line_that_cannot_act() {
        let event = row_of([
            ("Event", 5_u64.into()),
            ("Task", 3_u64.into()),
            ("Run", 7_u64.into()),
            ("Kind", "crashed".into()),
            ("Payload", "{\"signal\":9,\"error\":\"a \\u001b[2Jb\\n\",\"none\":null}".into()),
            ("AtUsec", 43_200_000_000_u64.into()),
        ]);
        let calendar = Calendar::at("1970-01-01T13:00:00Z".parse().unwrap(), TimeZone::UTC);
        let text = in_words(&Screen::plain(), &calendar, &event);
        assert!(text.starts_with("12:00:00.000  task 3 run 7      crashed            "), "{text}");
        assert!(text.contains("signal=9") && !text.contains("none"), "{text}");
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }

    #[test]
    fn a_payload_that_is_no_object_is_shown_as_it_is() {
        assert_eq!(payload_in_words("[1]"), "[1]");
        assert_eq!(payload_in_words("{}"), "");
        assert_eq!(payload_in_words("torn\u{7}"), r"torn\u{7}");
    }
}
