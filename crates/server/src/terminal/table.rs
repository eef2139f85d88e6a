//! Aligned columns in a terminal; widths are display widths, without colour codes.

use redrive_core::text::{counted, show_count};
use unicode_width::UnicodeWidthStr;

use crate::terminal::{cut, plain, style};

const GAP: &str = "  ";

const TEXT_COLUMNS_MIN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellAlign {
    Left,
    /// Left-aligned and never cut, for copying.
    Whole,
    Right,
}

#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    paint: fn(String) -> String,
}

impl Cell {
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), paint: |text| text }
    }

    pub fn bold(text: impl Into<String>) -> Self {
        Self { text: text.into(), paint: |text| style::bold(text) }
    }

    /// A count of failures, highlighted unless zero.
    pub(crate) fn failures(count: u64) -> Self {
        let paint = |text| if text == "0" { text } else { style::error(text) };
        Self { text: show_count(count), paint }
    }

    pub fn painted(text: impl Into<String>, paint: fn(String) -> String) -> Self {
        Self { text: text.into(), paint }
    }

    pub fn dim(text: impl Into<String>) -> Self {
        Self { text: text.into(), paint: |text| style::dim(text) }
    }
}

#[derive(Debug)]
pub struct Table {
    sides: Vec<CellAlign>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    #[must_use]
    pub fn new(sides: &[CellAlign]) -> Self {
        Self { sides: sides.to_vec(), rows: Vec::new() }
    }

    pub fn head(&mut self, titles: &[&str]) {
        self.push(titles.iter().copied().map(Cell::dim).collect());
    }

    pub fn push(&mut self, row: Vec<Cell>) {
        assert!(row.len() <= self.sides.len(), "a row has no more cells than the table has columns");
        self.rows.push(row);
    }

    /// Cuts texts, the longest first, until the lines fit.
    #[must_use]
    pub fn within(mut self, columns: Option<usize>) -> Self {
        let Some(columns) = columns else { return self };
        let mut widths = self.widths();
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(columns);
        while excess > 0 {
            let texts = (0..widths.len()).filter(|column| self.sides[*column] == CellAlign::Left);
            let longest = texts
                .filter(|column| widths[*column] > TEXT_COLUMNS_MIN)
                .max_by_key(|column| widths[*column]);
            let Some(longest) = longest else { break };
            widths[longest] -= 1;
            excess -= 1;
        }
        for row in &mut self.rows {
            for (cell, width) in row.iter_mut().zip(&widths) {
                cell.text = cut(&cell.text, *width);
            }
        }
        self
    }

    fn widths(&self) -> Vec<usize> {
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        (0..self.sides.len()).map(|column| cells(column).map(width).max().unwrap_or(0)).collect()
    }

    pub(crate) fn has_rows(&self) -> bool {
        self.rows.len() > 1
    }

    #[must_use]
    pub fn text(self) -> String {
        self.lines().into_iter().map(|line| line + "\n").collect()
    }

    /// A line per row, without line ends and trailing blanks.
    #[must_use]
    pub fn lines(self) -> Vec<String> {
        let widths = self.widths();
        let line = |row: Vec<Cell>| {
            let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
            let mut line = String::new();
            for (column, cell) in row.into_iter().enumerate().take(last + 1) {
                let blanks = " ".repeat(widths[column] - width(&cell));
                let (before, after) = match self.sides[column] {
                    CellAlign::Left | CellAlign::Whole if column == last => (String::new(), String::new()),
                    CellAlign::Left | CellAlign::Whole => (String::new(), blanks),
                    CellAlign::Right => (blanks, String::new()),
                };
                if column > 0 {
                    line.push_str(GAP);
                }
                let painted = if cell.text.is_empty() { String::new() } else { (cell.paint)(cell.text) };
                line.push_str(&before);
                line.push_str(&painted);
                line.push_str(&after);
            }
            line
        };
        self.rows.into_iter().map(line).collect()
    }
}

/// Names and values below each other, each with an optional remark.
pub(crate) struct FactList(Table);

impl FactList {
    pub(crate) fn new() -> Self {
        Self(Table::new(&[CellAlign::Left; 3]))
    }

    pub(crate) fn push(&mut self, name: &str, value: Cell, remark: impl Into<String>) {
        self.0.push(vec![Cell::dim(format!("  {name}")), value, Cell::dim(remark)]);
    }

    /// An untrusted text, if there is one.
    pub(crate) fn text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.push(name, Cell::plain(plain(value)), "");
        }
    }

    pub(crate) fn count(&mut self, name: &str, count: u64) {
        self.push(name, Cell::plain(show_count(count)), "");
    }

    pub(crate) fn replays(&mut self, times: u32) {
        if times > 0 {
            self.push("replayed", Cell::plain(counted(u64::from(times), "time")), "");
        }
    }

    pub(crate) fn lines(self) -> String {
        self.0.text()
    }
}

fn width(cell: &Cell) -> usize {
    cell.text.width()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[CellAlign::Left, CellAlign::Right, CellAlign::Left]);
        for [first, second, third] in [["a", "1", "x"], ["日本", "100", ""], ["éé", "", "y"]] {
            table.push(vec![Cell::plain(first), Cell::plain(second), Cell::plain(third)]);
        }
        assert_eq!(table.lines(), ["a       1  x", "日本  100", "éé         y"]);
    }

    #[test]
    fn texts_make_room_until_lines_fit() {
        let table = || {
            let mut table = Table::new(&[CellAlign::Left, CellAlign::Right, CellAlign::Left]);
            table.push(vec![
                Cell::plain("a name"),
                Cell::plain("123456789"),
                Cell::plain("a text that is long"),
            ]);
            table
        };
        #[rustfmt::skip]
        let cases = [
            ("no terminal",          None,     "a name  123456789  a text that is long"),
            ("there is room",        Some(38), "a name  123456789  a text that is long"),
            ("the longest is cut",   Some(33), "a name  123456789  a text that i…"),
            ("down to what it needs", Some(9), "a name  123456789  a text …"),
        ];
        for (name, columns, expected) in cases {
            assert_eq!(table().within(columns).lines(), [expected], "{name}");
        }
    }
}
