//! Progress on standard error, only if that is a terminal.

use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

use redrive_core::text::{show_count, show_rounded};
use redrive_lab::simulate::{Go, SimulationProgress};
use unicode_width::UnicodeWidthStr;

use crate::terminal::{columns, cut, style};

pub(crate) struct ProgressLine {
    /// `None` without a terminal.
    columns: Option<usize>,
}

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self { columns: std::io::stderr().is_terminal().then(columns) }
    }

    pub(crate) const fn columns(&self) -> Option<usize> {
        self.columns
    }

    pub(crate) fn show(&self, text: &str) {
        if self.columns.is_some() {
            // A failed progress line does not matter.
            let _ = write!(anstream::stderr().lock(), "\r{text}\x1b[K");
        }
    }

    pub(crate) fn clear(&self) {
        self.show("");
    }
}

pub(crate) fn bar(done: u64, all: u64, columns: usize, words: &str) -> String {
    let share = |whole: u64| done.saturating_mul(whole).checked_div(all).unwrap_or(whole).min(whole);
    let filled = usize::try_from(share(columns as u64)).unwrap_or(columns);
    let bar = format!("{}{}", style::good("█".repeat(filled)), style::dim("░".repeat(columns - filled)));
    format!("{bar} {:3} %  {}", share(100), style::dim(words))
}

/// Faster work shows no progress.
const QUIET_FOR: Duration = Duration::from_millis(300);

const SHOWN_EVERY: Duration = Duration::from_millis(100);

const BAR_COLUMNS: usize = 30;

/// If the terminal does not report its width.
const COLUMNS_DEFAULT: usize = 80;

pub(crate) struct ProgressBar {
    is_terminal: bool,
    began: Instant,
    shown_at: Option<Instant>,
    /// Current length; the rest of a longer line is wiped with blanks, which works without escape codes.
    columns: usize,
}

impl ProgressBar {
    pub(crate) fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { is_terminal, began: Instant::now(), shown_at: None, columns: 0 }
    }

    pub(crate) fn show(&mut self, progress: &SimulationProgress) -> Go {
        if self.is_due() {
            let SimulationProgress { at, duration, ended, open, .. } = *progress;
            let words = if at < duration {
                format!("{} of {}", show_rounded(at), show_rounded(duration))
            } else {
                format!("{}, {} left", show_rounded(at), show_count(open))
            };
            let part = at.as_secs_f64() / duration.as_secs_f64().max(1e-9);
            self.write(part, &format!("{words}, {} deliveries", show_count(ended)));
        }
        Go::On
    }

    pub(crate) fn show_runs(&mut self, done: u32, runs: u32) {
        if self.is_due() {
            self.write(f64::from(done) / f64::from(runs), &format!("{done} of {runs} runs"));
        }
    }

    pub(crate) fn show_part(&mut self, part: f64, words: &str) {
        if self.is_due() {
            self.write(part, words);
        }
    }

    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.is_terminal
            && now.duration_since(self.began) > QUIET_FOR
            && self.shown_at.is_none_or(|at| now.duration_since(at) > SHOWN_EVERY);
        if is_due {
            self.shown_at = Some(now);
        }
        is_due
    }

    fn write(&mut self, part: f64, words: &str) {
        let terminal = terminal_size::terminal_size_of(std::io::stderr());
        // A line that reaches the edge would wrap, and nothing wipes it there.
        let room = terminal.map_or(COLUMNS_DEFAULT, |(width, _)| usize::from(width.0)).saturating_sub(1);
        let bar_columns = BAR_COLUMNS.min(room / 2);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few columns")]
        let full = (part * bar_columns as f64) as usize;
        let bar: String = (0..bar_columns).map(|column| if column < full { '█' } else { '░' }).collect();
        let words = cut(words, room.saturating_sub(bar_columns + 1));
        let columns = bar_columns + 1 + words.width();
        let blanks = " ".repeat(self.columns.saturating_sub(columns));
        self.columns = columns;
        // A failed progress line does not matter.
        let _ = write!(anstream::stderr().lock(), "\r{bar} {}{blanks}", style::dim(words));
    }

    pub(crate) fn clear(&self) {
        if self.shown_at.is_some() {
            let _ = write!(anstream::stderr().lock(), "\r{}\r", " ".repeat(self.columns));
        }
    }
}
