//! What reaches the reader: safe text, colour where it is wanted, pages of labelled lines.
//!
//! Owns the rule that no control character of a title, a comment, an error or a path reaches a terminal
//! raw. A worker's output is the exception, and it does not pass here: it is the worker's own, byte by byte.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};

use unicode_width::UnicodeWidthChar as _;

use crate::cli::failure::Failure;

/// How a word is set off on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "colours")]
pub enum Paint {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Blue,
    Cyan,
    Magenta,
}

impl Paint {
    /// The sequence that turns it on. Source: ECMA-48, 8.3.117 (SGR).
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Red => "31",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Blue => "34",
            Self::Magenta => "35",
            Self::Cyan => "36",
        }
    }
}

/// The paint of a task's status.
pub fn paint_of_status(status: &str) -> Paint {
    match status {
        "running" => Paint::Cyan,
        "ready" => Paint::Blue,
        "done" => Paint::Green,
        "blocked" => Paint::Red,
        "todo" => Paint::Yellow,
        _ => Paint::Dim,
    }
}

/// The paint of a run's outcome.
pub fn paint_of_outcome(outcome: &str) -> Paint {
    match outcome {
        "" => Paint::Cyan,
        "completed" => Paint::Green,
        "failed" | "crashed" | "oom" | "timed_out" | "stalled" | "misconfigured" => Paint::Red,
        "lost" | "reclaimed" | "not_started" | "tempfail" | "reconciled" | "operator" => Paint::Yellow,
        _ => Paint::Dim,
    }
}

/// Where the output goes, and what that place can do.
#[derive(Clone, Debug)]
pub struct Screen {
    /// Columns; none where the output is no terminal.
    pub width: Option<usize>,
    /// Whether colour is wanted.
    pub colour: bool,
    /// Whether only what the bus returned may be printed.
    pub json: bool,
}

/// A terminal narrower than this is treated as if it were this wide.
const NARROWEST: usize = 40;

impl Screen {
    /// Standard output as it is.
    pub fn of_stdout(json: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        let columns = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
        Self {
            width: terminal.then(|| columns.filter(|columns| *columns > 0).unwrap_or(80).max(NARROWEST)),
            colour: terminal && wants_colour(),
            json,
        }
    }

    /// A pipe, for tests and for text that is kept.
    pub const fn plain() -> Self {
        Self { width: None, colour: false, json: false }
    }

    /// Sets off a word.
    pub fn paint(&self, text: &str, paint: Paint) -> String {
        if self.colour && paint != Paint::Plain && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", paint.code())
        } else {
            text.to_owned()
        }
    }

    /// Prints a text, which ends with a line break or gets one.
    ///
    /// # Errors
    /// Where standard output cannot be written.
    pub fn print(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.is_empty() && !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()?;
        Ok(())
    }

    /// Prints a text for people; under `--json` nothing.
    ///
    /// # Errors
    /// As [`Screen::print`].
    pub fn say(&self, text: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { self.print(text) }
    }
}

/// `NO_COLOR` (no-color.org) is obeyed, and a terminal that calls itself dumb gets none.
fn wants_colour() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Says something beside the output: on standard error, so that a pipe gets the output alone.
pub fn aside(text: &str) {
    // Whoever closed standard error does not want to know.
    let _ = writeln!(io::stderr().lock(), "tenurectl: {text}");
}

/// Whether a person reads standard error.
pub fn person_watches() -> bool {
    io::stderr().is_terminal()
}

/// Characters that would act on a terminal or hide what the text says: controls, line and paragraph
/// separators, direction overrides, invisible marks.
fn acts(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// One line of safe text: what would act is spelled out.
pub fn line(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => safe.push_str("\\n"),
            '\t' => safe.push_str("\\t"),
            '\r' => safe.push_str("\\r"),
            acting if acts(acting) => {
                let _ = write!(safe, "\\u{{{:x}}}", u32::from(acting));
            }
            other => safe.push(other),
        }
    }
    safe
}

/// Several lines of safe text, each indented, with a line break at the end.
pub fn block(text: &str, indent: usize) -> String {
    let mut safe = String::new();
    for one in text.trim_end_matches(['\n', '\r']).split('\n') {
        let one = one.strip_suffix('\r').unwrap_or(one).replace('\t', "    ");
        let shown = format!("{:indent$}{}", "", line(&one));
        safe.push_str(shown.trim_end());
        safe.push('\n');
    }
    safe
}

/// Columns that a safe text takes.
pub fn columns(text: &str) -> usize {
    text.chars().map(|character| character.width().unwrap_or(0)).sum()
}

/// A safe text cut to a number of columns, with an ellipsis where something was cut.
pub fn fit(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut used = 0;
    for character in text.chars() {
        used += character.width().unwrap_or(0);
        if used + 1 > width {
            break;
        }
        cut.push(character);
    }
    cut.push('…');
    cut
}

/// A command as one would type it.
pub fn shell_words<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(shell_word).collect::<Vec<_>>().join(" ")
}

fn shell_word(word: &str) -> String {
    let bare = |c: char| c.is_alphanumeric() || "%+,-./:=@_^".contains(c);
    if !word.is_empty() && word.chars().all(bare) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A page of labelled lines under a heading.
#[derive(Debug)]
pub struct Page<'a> {
    screen: &'a Screen,
    text: String,
}

/// Labels are padded to this.
const LABEL: usize = 13;

impl<'a> Page<'a> {
    /// An empty page.
    pub const fn new(screen: &'a Screen) -> Self {
        Self { screen, text: String::new() }
    }

    /// A heading, set off by an empty line.
    pub fn heading(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&self.screen.paint(&line(text), Paint::Bold));
        self.text.push('\n');
    }

    /// A labelled line; nothing for an empty value. What follows in further lines is indented alike.
    pub fn field(&mut self, label: &str, value: &str) {
        self.painted_field(label, value, Paint::Plain);
    }

    /// A labelled line with a paint.
    pub fn painted_field(&mut self, label: &str, value: &str, paint: Paint) {
        if value.is_empty() {
            return;
        }
        let label = self.screen.paint(&format!("  {label:LABEL$}"), Paint::Dim);
        let indented = block(value, LABEL + 2);
        let mut lines = indented.trim_start().split_inclusive('\n');
        let first = lines.next().unwrap_or_default().trim_end();
        let _ = writeln!(self.text, "{label}{}", self.screen.paint(first, paint));
        self.text.extend(lines);
    }

    /// Text that is safe already.
    pub fn push(&mut self, safe: &str) {
        self.text.push_str(safe);
        if !safe.ends_with('\n') {
            self.text.push('\n');
        }
    }

    /// The page.
    pub fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NASTY: &str = "a\u{1b}[2J\u{9b}31m\r\nb\u{202e}c\u{7}\u{7f}\u{2066}\u{200b}";

    fn is_safe(text: &str) -> bool {
        text.chars().all(|character| character == '\n' || !acts(character))
    }

    #[test]
    fn nothing_that_acts_reaches_a_terminal() {
        assert_eq!(line("a\u{1b}[2J\nb\u{202e}"), r"a\u{1b}[2J\nb\u{202e}");
        assert!(is_safe(&line(NASTY)) && !line(NASTY).contains('\n'));
        assert!(is_safe(&block(NASTY, 2)));
        let screen = Screen::plain();
        let mut page = Page::new(&screen);
        page.heading(NASTY);
        page.field("comment", NASTY);
        assert!(is_safe(&page.into_text()));
    }

    #[test]
    fn a_block_keeps_its_lines_and_its_letters() {
        assert_eq!(block("eins\r\n\tzwei ü 界\n\n", 2), "  eins\n      zwei ü 界\n");
        assert_eq!(block("", 2), "\n");
    }

    #[test]
    fn a_text_is_cut_by_columns_not_by_bytes() {
        assert_eq!(fit("short", 5), "short");
        assert_eq!(fit("longer", 5), "long…");
        assert_eq!(fit("世界世界", 5), "世界…");
        assert_eq!(columns("世界"), 4);
    }

    #[test]
    fn a_command_reads_as_one_would_type_it() {
        assert_eq!(shell_words(["sh", "-c", "echo 'a' $b", ""]), r"sh -c 'echo '\''a'\'' $b' ''");
    }

    #[test]
    fn a_page_aligns_its_values() {
        let screen = Screen::plain();
        let mut page = Page::new(&screen);
        page.heading("task 1");
        page.field("status", "done");
        page.field("body", "one\ntwo");
        page.field("nothing", "");
        assert_eq!(page.into_text(), "task 1\n  status       done\n  body         one\n               two\n");
    }

    #[test]
    fn colour_is_for_those_who_want_it() {
        let wanted = Screen { width: Some(80), colour: true, json: false };
        assert_eq!(wanted.paint("x", Paint::Red), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(Screen::plain().paint("x", Paint::Red), "x");
    }
}
