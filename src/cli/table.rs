//! Tables that fit the terminal; on a pipe, whole and without colour.

use crate::cli::render::{Paint, Screen, columns, fit, line};

/// How a column behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers, to the right.
    Right,
    /// Words, to the left; never cut.
    Left,
    /// Text, to the left; cut where the terminal is too narrow.
    Text,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    text: String,
    paint: Paint,
}

impl Cell {
    /// A plain cell; what would act on a terminal is spelled out.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self::painted(text, Paint::Plain)
    }

    /// A cell with a paint.
    pub fn painted(text: impl AsRef<str>, paint: Paint) -> Self {
        Self { text: line(text.as_ref()), paint }
    }
}

/// A table. A column whose cells are all empty is left out.
#[derive(Debug)]
pub struct Table {
    heads: Vec<(&'static str, Kind)>,
    rows: Vec<Vec<Cell>>,
}

/// Between two columns.
const GAP: usize = 2;
/// A text column is not cut below this.
const NARROWEST_TEXT: usize = 8;

impl Table {
    /// An empty table.
    pub fn new(heads: &[(&'static str, Kind)]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, with as many cells as there are columns.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Whether there are no rows.
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, indented.
    pub fn render(&self, screen: &Screen, indent: usize) -> String {
        let used: Vec<usize> =
            (0..self.heads.len()).filter(|at| self.cells(*at).any(|cell| !cell.text.is_empty())).collect();
        let widths = self.widths(&used, screen.width.map(|width| width.saturating_sub(indent)));
        let heads: Vec<Cell> = self.heads.iter().map(|(name, _)| Cell::painted(name, Paint::Dim)).collect();
        let has_heads = heads.iter().any(|head| !head.text.is_empty());
        let mut text = String::new();
        for row in has_heads.then_some(&heads).into_iter().chain(&self.rows) {
            let cells: Vec<String> =
                used.iter().zip(&widths).map(|(at, width)| self.cell(row, *at, *width, screen)).collect();
            let written = format!("{:indent$}{}", "", cells.join(&" ".repeat(GAP)));
            text.push_str(written.trim_end());
            text.push('\n');
        }
        text
    }

    /// One cell, cut and padded to its column.
    fn cell(&self, row: &[Cell], at: usize, width: usize, screen: &Screen) -> String {
        let (Some(cell), Some((_, kind))) = (row.get(at), self.heads.get(at)) else { return String::new() };
        let shown = fit(&cell.text, width);
        let padding = " ".repeat(width.saturating_sub(columns(&shown)));
        let painted = screen.paint(&shown, cell.paint);
        match kind {
            Kind::Right => padding + &painted,
            Kind::Left | Kind::Text => painted + &padding,
        }
    }

    fn cells(&self, at: usize) -> impl Iterator<Item = &Cell> {
        self.rows.iter().filter_map(move |row| row.get(at))
    }

    /// The width of each column that is used: as wide as its widest cell, and text columns narrower,
    /// the widest first, until the whole fits.
    fn widths(&self, used: &[usize], room: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = used
            .iter()
            .map(|at| {
                let head = self.heads.get(*at).map_or(0, |(name, _)| columns(name));
                self.cells(*at).map(|cell| columns(&cell.text)).fold(head, usize::max)
            })
            .collect();
        let Some(room) = room else { return widths };
        loop {
            let taken: usize = widths.iter().sum::<usize>() + GAP * used.len().saturating_sub(1);
            if taken <= room {
                return widths;
            }
            let is_text = |at: &usize| self.heads.get(*at).is_some_and(|(_, kind)| *kind == Kind::Text);
            let widest = used
                .iter()
                .zip(widths.iter_mut())
                .filter(|(at, width)| is_text(at) && **width > NARROWEST_TEXT)
                .max_by_key(|(_, width)| **width);
            let Some((_, width)) = widest else { return widths };
            *width -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[
            ("TASK", Kind::Right),
            ("STATUS", Kind::Left),
            ("LABELS", Kind::Text),
            ("TITLE", Kind::Text),
        ]);
        let row = |task: &str, status: &str, title: &str| {
            vec![Cell::new(task), Cell::painted(status, Paint::Red), Cell::new(""), Cell::new(title)]
        };
        table.row(row("1", "done", "short"));
        table.row(row("12345", "running", "a title that is far too long for a narrow terminal\u{1b}[2J"));
        table
    }

    #[test]
    fn a_pipe_gets_everything_and_no_colour() {
        let text = table().render(&Screen::plain(), 0);
        assert_eq!(
            text,
            " TASK  STATUS   TITLE\n    1  done     short\n12345  running  a title that is far too long for a narrow \
             terminal\\u{1b}[2J\n"
        );
    }

    #[test]
    fn a_terminal_gets_lines_that_fit() {
        for width in [40, 60, 200] {
            let screen = Screen { width: Some(width), colour: false, json: false };
            let text = table().render(&screen, 2);
            for line in text.lines() {
                assert!(columns(line) <= width, "{width}: {line}");
            }
            assert_eq!(text.contains('…'), width < 80, "{width}: {text}");
        }
    }

    #[test]
    fn colour_does_not_move_columns() {
        let colourful = Screen { width: Some(60), colour: true, json: false };
        let text = table().render(&colourful, 0);
        assert!(text.contains("\u{1b}[31mdone\u{1b}[0m     short"), "{text:?}");
    }
}
