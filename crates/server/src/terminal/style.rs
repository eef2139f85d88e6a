//! The colours in use. Streams that are not terminals strip them.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

pub fn error(text: impl Display) -> String {
    paint(AnsiColor::Red.on_default().bold(), text)
}

pub fn warning(text: impl Display) -> String {
    paint(AnsiColor::Yellow.on_default().bold(), text)
}

pub fn info(text: impl Display) -> String {
    paint(AnsiColor::Cyan.on_default().bold(), text)
}

pub fn good(text: impl Display) -> String {
    paint(AnsiColor::Green.on_default().bold(), text)
}

pub fn bold(text: impl Display) -> String {
    paint(Style::new().bold(), text)
}

pub fn dim(text: impl Display) -> String {
    paint(Style::new().dimmed(), text)
}
