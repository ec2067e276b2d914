//! The live view of the demo: a board that is drawn anew on a terminal, a line for each event on a pipe.

use std::collections::VecDeque;
use std::fmt::Write as _;

use crate::bus::proxy::{ManagerProxy, Options, Row};
use crate::cli::failure::Failure;
use crate::cli::render::{Paint, Screen, fit};
use crate::cli::row::Fields as _;
use crate::cli::span::{Calendar, human, now_usec};
use crate::cli::verbs::events::in_words;
use crate::cli::verbs::list::Board;

/// Events under the board.
const EVENTS: usize = 6;
/// The interface's largest page.
const PAGE: u32 = 1_000;

/// The view.
#[derive(Debug)]
pub struct Stage {
    screen: Screen,
    began_usec: u64,
    after_event: u64,
    lines: VecDeque<String>,
    drawn_lines: usize,
}

impl Stage {
    /// Opens it with a heading.
    ///
    /// # Errors
    /// Where standard output cannot be written.
    pub fn new(screen: Screen, began_usec: u64) -> Result<Self, Failure> {
        screen.say(&screen.paint("tenured: eight tasks on a board of its own", Paint::Bold))?;
        Ok(Self { screen, began_usec, after_event: 0, lines: VecDeque::new(), drawn_lines: 0 })
    }

    /// Shows what is new.
    ///
    /// # Errors
    /// Where the daemon does not answer or standard output cannot be written.
    pub async fn show(&mut self, manager: &ManagerProxy<'static>, tasks: &[Row]) -> Result<(), Failure> {
        loop {
            let filter = Options::from([("AfterEvent", self.after_event.into()), ("Limit", PAGE.into())]);
            let page = manager.list_events(&filter).await?;
            let Some(last) = page.last() else { break };
            self.after_event = last.number("Event");
            let calendar = Calendar::here();
            for event in page {
                match self.screen.width {
                    Some(_) => self.lines.push_back(in_words(&Screen::plain(), &calendar, &event)),
                    None => self.screen.say(&in_words(&self.screen, &calendar, &event))?,
                }
            }
            let surplus = self.lines.len().saturating_sub(EVENTS);
            self.lines.drain(..surplus);
        }
        self.redraw(tasks)
    }

    /// Tells what is done from outside, among the events.
    ///
    /// # Errors
    /// Where standard output cannot be written.
    pub fn note(&mut self, text: &str) -> Result<(), Failure> {
        if self.screen.width.is_none() {
            return self.screen.say(&format!("              {text}"));
        }
        self.lines.push_back(text.to_owned());
        Ok(())
    }

    /// Draws the board again, on a terminal.
    ///
    /// # Errors
    /// Where standard output cannot be written.
    pub fn redraw(&mut self, tasks: &[Row]) -> Result<(), Failure> {
        let Some(width) = self.screen.width else { return Ok(()) };
        let mut frame = String::new();
        if self.drawn_lines > 0 {
            // Up to where the frame began, and nothing below. Source: ECMA-48, CUU and ED.
            let _ = write!(frame, "\x1b[{}A\x1b[J", self.drawn_lines);
        }
        let picture = self.picture(tasks, width);
        self.drawn_lines = picture.lines().count();
        frame.push_str(&picture);
        self.screen.print(&frame)
    }

    /// The last picture; on a pipe the board as well, once.
    ///
    /// # Errors
    /// As [`Stage::show`].
    pub async fn end(&mut self, manager: &ManagerProxy<'static>, tasks: &[Row]) -> Result<(), Failure> {
        self.show(manager, tasks).await?;
        match self.screen.width {
            Some(_) => Ok(()),
            None => self.screen.say(&format!("\n{}", board(&self.screen, tasks))),
        }
    }

    fn picture(&self, tasks: &[Row], width: usize) -> String {
        let mut picture = board(&self.screen, tasks);
        picture.push('\n');
        for line in &self.lines {
            let _ = writeln!(picture, "{}", self.screen.paint(&fit(line, width), Paint::Dim));
        }
        let elapsed = human(now_usec().saturating_sub(self.began_usec) / 100_000 * 100_000);
        let _ = writeln!(picture, "{elapsed}");
        picture
    }
}

fn board(screen: &Screen, tasks: &[Row]) -> String {
    let mut board = Board::new();
    for task in tasks {
        board.add(task);
    }
    board.table.render(screen, 0)
}
