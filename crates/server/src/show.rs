//! How things look in a terminal: colour only there, and the same text everywhere else.

pub(crate) mod problem;
pub(crate) mod remarks;
pub(crate) mod rule;
pub(crate) mod sink;
pub(crate) mod style;
pub(crate) mod table;
pub(crate) mod timeline;

use redrive::core::book::resolve::Resolved;

/// The width of a page where no terminal tells another.
const COLUMNS_DEFAULT: usize = 80;

/// How many characters fit in a line.
pub(crate) fn columns() -> usize {
    let terminal = terminal_size::terminal_size_of(std::io::stdout());
    terminal.map_or(COLUMNS_DEFAULT, |(width, _)| usize::from(width.0))
}

/// Breaks a paragraph into lines of at most so many characters.
pub(crate) fn wrap(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// The service, or service/channel.
pub(crate) fn name_of(rule: &Resolved<'_>) -> String {
    match rule.channel {
        Some(channel) => format!("{}/{}", rule.service.name, channel.name),
        None => rule.service.name.to_string(),
    }
}
