//! Progress on standard error: a line that is written over, where that is a terminal.

use std::io::{IsTerminal, Write as _};

use crate::terminal::{columns, style};

/// A line that is written over.
pub(crate) struct ProgressLine {
    /// None where nobody watches.
    columns: Option<usize>,
}

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self { columns: std::io::stderr().is_terminal().then(columns) }
    }

    /// How many characters fit in it, if it is seen at all.
    pub(crate) const fn columns(&self) -> Option<usize> {
        self.columns
    }

    pub(crate) fn show(&self, text: &str) {
        if self.columns.is_some() {
            // A line that cannot be shown is no reason to stop.
            let _ = write!(anstream::stderr().lock(), "\r{text}\x1b[K");
        }
    }

    pub(crate) fn clear(&self) {
        self.show("");
    }
}

/// A bar of so many columns, the share in percent, and what else there is to say.
pub(crate) fn bar(done: u64, all: u64, columns: usize, words: &str) -> String {
    // Nothing to do is all done.
    let share = |whole: u64| done.saturating_mul(whole).checked_div(all).unwrap_or(whole).min(whole);
    let filled = usize::try_from(share(columns as u64)).unwrap_or(columns);
    let bar = format!("{}{}", style::good("█".repeat(filled)), style::dim("░".repeat(columns - filled)));
    format!("{bar} {:3} %  {}", share(100), style::dim(words))
}
