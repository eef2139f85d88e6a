//! How things look in a terminal: colour only there, and the same text everywhere else.

pub(crate) mod problem;
pub(crate) mod remarks;
pub(crate) mod style;

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
