//! Templates that make an event's type, subject or session out of what came in, such as
//! `github.{header.x-github-event}.{data.action}`.
//!
//! A placeholder names a header (`{header.x-name}`) or a field of the JSON data (`{data.a.b}`), or
//! several with `|` between them, of which the first that has a value counts.

use std::fmt;

/// A template, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTemplate {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// The first of these that has a value.
    FirstOf(Vec<From>),
}

/// Where a placeholder's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum From {
    Header(String),
    Data(Vec<String>),
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSourceTemplate {
    /// Nothing there.
    #[error("a template cannot be empty")]
    Empty,
    /// A brace without its partner.
    #[error("a `{{` or `}}` stands alone in `{text}`")]
    Unpaired {
        /// The template.
        text: String,
    },
    /// A placeholder that leads nowhere.
    #[error(
        "`{{{placeholder}}}` leads nowhere: write {{header.x-name}} or {{data.field}}, or several with | between them"
    )]
    Unknown {
        /// What stands between the braces.
        placeholder: String,
    },
}

impl SourceTemplate {
    /// Reads a template.
    pub fn parse(text: &str) -> Result<Self, InvalidSourceTemplate> {
        if text.is_empty() {
            return Err(InvalidSourceTemplate::Empty);
        }
        let unpaired = || InvalidSourceTemplate::Unpaired { text: text.to_owned() };
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(brace) = rest.find(['{', '}']) {
            let (before, after) = rest.split_at(brace);
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            let after = after.strip_prefix('{').ok_or_else(unpaired)?;
            let (inside, tail) = after.split_once('}').ok_or_else(unpaired)?;
            let unknown = || InvalidSourceTemplate::Unknown { placeholder: inside.to_owned() };
            let froms = inside.split('|').map(|from| From::parse(from.trim())).collect::<Option<Vec<_>>>();
            pieces.push(Piece::FirstOf(froms.ok_or_else(unknown)?));
            rest = tail;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Self { pieces })
    }

    /// The texts between the placeholders.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::FirstOf(_) => None,
        })
    }

    /// The text, if there is nothing to fill in.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }
}

impl From {
    fn parse(text: &str) -> Option<Self> {
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
        };
        if let Some(name) = text.strip_prefix("header.") {
            return is_word(name).then(|| Self::Header(name.to_ascii_lowercase()));
        }
        let path: Vec<String> = text.strip_prefix("data.")?.split('.').map(str::to_owned).collect();
        path.iter().all(|word| is_word(word)).then_some(Self::Data(path))
    }
}

impl fmt::Display for SourceTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => f.write_str(text)?,
                Piece::FirstOf(froms) => {
                    let shown = froms.iter().map(|from| match from {
                        From::Header(name) => format!("header.{name}"),
                        From::Data(path) => format!("data.{}", path.join(".")),
                    });
                    write!(f, "{{{}}}", shown.collect::<Vec<_>>().join("|"))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_read_and_shown() {
        for text in [
            "report.daily",
            "github.{header.x-github-event}.{data.action}",
            "{data.repository.full_name}#{data.pull_request.number|data.issue.number}",
        ] {
            assert_eq!(SourceTemplate::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(SourceTemplate::parse("report.daily").unwrap().literal(), Some("report.daily"));
        assert_eq!(SourceTemplate::parse("a.{data.b}").unwrap().literal(), None);
    }

    #[test]
    fn what_leads_nowhere_is_refused() {
        for text in [
            "github.{",
            "github.}",
            "{}",
            "{event}",
            "{foo.bar}",
            "{data.}",
            "{data.a..b}",
            "{header.}",
            "{data.a|}",
            "{{data.a}}",
        ] {
            assert!(SourceTemplate::parse(text).is_err(), "{text}");
        }
    }
}
