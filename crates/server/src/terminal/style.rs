//! The few colours there are. Streams that are no terminal strip them again.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Something is wrong.
pub fn error(text: impl Display) -> String {
    paint(AnsiColor::Red.on_default().bold(), text)
}

/// Something may go wrong.
pub fn warning(text: impl Display) -> String {
    paint(AnsiColor::Yellow.on_default().bold(), text)
}

/// Worth knowing.
pub fn info(text: impl Display) -> String {
    paint(AnsiColor::Cyan.on_default().bold(), text)
}

/// All is well.
pub fn good(text: impl Display) -> String {
    paint(AnsiColor::Green.on_default().bold(), text)
}

/// What the eye should find first.
pub fn bold(text: impl Display) -> String {
    paint(Style::new().bold(), text)
}

/// What the eye may skip.
pub fn dim(text: impl Display) -> String {
    paint(Style::new().dimmed(), text)
}
