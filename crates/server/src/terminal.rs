//! Terminal output that several commands share: tables, colours, times and widths.

pub(crate) mod compact_json;
pub(crate) mod moment;
pub(crate) mod problem;
pub(crate) mod progress;
pub(crate) mod spark;
pub mod style;
pub mod table;

use std::fmt::Write as _;
use std::io::{self, Write};

use anstream::adapter::strip_str;
use anyhow::Context;
use redrive_core::book::resolve::Resolved;
use redrive_lab::dapr::Remark;
use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::cli::Format;

/// Without a terminal.
const COLUMNS_DEFAULT: usize = 80;

pub(crate) fn columns() -> usize {
    terminal_columns().unwrap_or(COLUMNS_DEFAULT)
}

pub(crate) fn terminal_columns() -> Option<usize> {
    let terminal = terminal_size::terminal_size_of(io::stdout());
    terminal.map(|(width, _)| usize::from(width.0))
}

/// An untrusted text in one line, without terminal control characters.
pub(crate) fn plain(text: &str) -> String {
    text.replace(is_obeyed, " ")
}

/// Whether a terminal acts on the character instead of showing it: control characters, line ends and
/// direction changes, which could disguise text.
fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The system's message without its number.
pub(crate) fn io_words(error: &io::Error) -> String {
    let words = error.to_string();
    match (words.rfind(" (os error "), error.kind()) {
        (_, io::ErrorKind::PermissionDenied) => "permission denied".to_owned(),
        (_, io::ErrorKind::ReadOnlyFilesystem) => "read-only file system".to_owned(),
        (Some(number), _) => words[..number].to_owned(),
        (None, _) => words,
    }
}

pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let fits = |c: &char| {
        let taken = c.width().unwrap_or(0);
        let is_in = taken <= room;
        room = room.saturating_sub(taken);
        is_in
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// In units of 1024.
pub(crate) fn size(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1_024.0 {
            let digits = usize::from(unit != "B" && size < 100.0);
            return format!("{size:.digits$} {unit}");
        }
        size /= 1_024.0;
    }
    format!("{size:.1} TiB")
}

/// Next commands with their purpose; empty if there are none.
pub(crate) fn next_steps(steps: &[(String, &str)]) -> String {
    let mut out = String::new();
    for (index, (command, good_for)) in steps.iter().enumerate() {
        let title = if index == 0 { "\nNext:\n" } else { "" };
        let _ = writeln!(out, "{title}  {}\n      {}", style::bold(command), style::dim(good_for));
    }
    out
}

/// Quoted if a shell would interpret it.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) && !text.starts_with('-') {
        return text.to_owned();
    }
    format!("'{}'", plain(text).replace('\'', "'\\''"))
}

/// Breaks a paragraph into lines of at most `width` columns, colour codes not counted.
pub(crate) fn wrap(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut taken = 0;
    for word in text.split_whitespace() {
        let columns = strip_str(word).to_string().width();
        match lines.last_mut() {
            Some(line) if taken + 1 + columns <= width => {
                line.push(' ');
                line.push_str(word);
                taken += 1 + columns;
            }
            _ => {
                lines.push(word.to_owned());
                taken = columns;
            }
        }
    }
    lines.join("\n")
}

/// A paragraph behind a mark, further lines indented; one line without a terminal.
pub(crate) fn hanging(mark: &str, text: &str, columns: Option<usize>) -> String {
    let indent = strip_str(mark).to_string().width();
    let Some(columns) = columns else { return format!("{mark}{text}\n") };
    let lines = wrap(text, columns.saturating_sub(indent));
    format!("{mark}{}\n", lines.replace('\n', &format!("\n{}", " ".repeat(indent))))
}

/// An untrusted `service` or `service/channel`.
pub(crate) fn queue_name(service: &str, channel: Option<&str>) -> String {
    plain(&channel.map_or_else(|| service.to_owned(), |channel| format!("{service}/{channel}")))
}

pub(crate) fn name_of(rule: &Resolved<'_>) -> String {
    match rule.channel {
        Some(channel) => format!("{}/{}", rule.service.name, channel.name),
        None => rule.service.name.to_string(),
    }
}

/// A closed pipe is reported as its own kind of error.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("could not write the output")
}

pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&json_text(value)?)
}

pub(crate) fn print_as(
    format: Format,
    value: &impl Serialize,
    page: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    match format {
        Format::Json => print_json(value),
        Format::Text => print(&page()),
    }
}

pub(crate) fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("could not write the output")
}

pub(crate) fn json_text(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

const WIDTH: usize = 96;

/// On standard error, so that the output can go into a file.
pub(crate) fn print_remarks(heading: &str, remarks: &[Remark]) {
    if !remarks.is_empty() {
        anstream::eprintln!("{}", render(heading, remarks));
    }
}

fn render(heading: &str, remarks: &[Remark]) -> String {
    let mut lines = vec![style::warning(heading)];
    for Remark { what, why } in remarks {
        let line = plain(&format!("{what}: {why}"));
        lines.push(format!("  - {}", wrap(&line, WIDTH).replace('\n', "\n    ")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_left_out() {
        #[rustfmt::skip]
        let cases = [
            ("a plain text",            "résumé 日本",         "résumé 日本"),
            ("a colour",                "\u{1b}[31mred",       " [31mred"),
            ("the short form",          "\u{9b}31mred",        " 31mred"),
            ("a title and a bell",      "\u{1b}]0;x\u{7}",     " ]0;x "),
            ("lines",                   "a\r\nb\u{2028}c",     "a  b c"),
            ("another direction",       "a\u{202e}gpj.exe",    "a gpj.exe"),
            ("one that is isolated",    "\u{2066}a\u{2069}",   " a "),
            ("joined letters",          "👩\u{200d}🔧",        "👩\u{200d}🔧"),
        ];
        for (name, text, expected) in cases {
            assert_eq!(plain(text), expected, "{name}");
        }
    }

    #[test]
    fn what_the_system_says_has_no_number() {
        use std::io::{Error, ErrorKind};
        #[rustfmt::skip]
        let cases = [
            ("a number",      Error::from_raw_os_error(2),              "No such file or directory"),
            ("no number",     Error::from(ErrorKind::UnexpectedEof),    "unexpected end of file"),
            ("no permission", Error::from_raw_os_error(13),             "permission denied"),
        ];
        for (name, error, expected) in cases {
            assert_eq!(io_words(&error), expected, "{name}");
        }
    }

    #[test]
    fn what_does_not_fit_is_cut() {
        #[rustfmt::skip]
        let cases = [
            ("all of it",       "abc",    3, "abc"),
            ("one too many",    "abcd",   3, "ab…"),
            ("wide letters",    "日本語", 5, "日本…"),
            ("between columns", "日本語", 4, "日…"),
            ("no room",         "abc",    0, "…"),
        ];
        for (name, text, width, expected) in cases {
            assert_eq!(cut(text, width), expected, "{name}");
        }
    }

    #[test]
    fn lines_are_as_long_as_they_look() {
        #[rustfmt::skip]
        let cases = [
            ("one line",          "a bc def",                    8,  "a bc def"),
            ("two",               "a bc def",                    7,  "a bc\ndef"),
            ("a word too long",   "a abcdefgh b",                4,  "a\nabcdefgh\nb"),
            ("wide letters",      "日本 日本",                   8,  "日本\n日本"),
            ("colours",           "\u{1b}[1mab\u{1b}[0m cd",     5,  "\u{1b}[1mab\u{1b}[0m cd"),
        ];
        for (name, text, width, expected) in cases {
            assert_eq!(wrap(text, width), expected, "{name}");
        }
        assert_eq!(hanging("✗ ", "a bc def", Some(6)), "✗ a bc\n  def\n");
        assert_eq!(hanging("✗ ", "a bc def", None), "✗ a bc def\n", "no width is known");
    }

    #[test]
    fn numbers_and_words_read_well() {
        use redrive_core::text::counted;
        assert_eq!(counted(1, "attempt"), "1 attempt");
        assert_eq!(counted(0, "attempt"), "0 attempts");
        assert_eq!(counted(1_234_567, "event"), "1,234,567 events");
        assert_eq!(counted(123, "event"), "123 events");
        assert_eq!(
            (counted(1, "delivery"), counted(2, "delivery")),
            ("1 delivery".into(), "2 deliveries".into())
        );
        assert_eq!(counted(2, "replay"), "2 replays");
        assert_eq!(size(1_023), "1023 B");
        assert_eq!(size(1_536), "1.5 KiB");
        assert_eq!(size(300 << 20), "300 MiB");
        assert_eq!(size(5 << 40), "5.0 TiB");
        assert_eq!(shell_word("orders.placed"), "orders.placed");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word("503*3"), "'503*3'");
        assert_eq!(shell_word("--help"), "'--help'");
    }
}
