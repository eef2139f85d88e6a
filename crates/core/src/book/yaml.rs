//! Parses YAML into nodes with positions, and refuses its treacherous features. Used for rule books and
//! scenarios.
//!
//! Invariants: bounded in bytes, depth and nodes; no anchors, aliases, merge keys, tags or second documents; no
//! duplicate keys; any input gives nodes or problems, never a panic.

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, Tag, options};

use super::problem::{BookSpan, Problems};
use crate::book::problem::Position;
use crate::limits;

#[derive(Clone, Debug)]
pub struct YamlNode {
    pub span: BookSpan,
    pub value: YamlValue,
}

#[derive(Clone, Debug)]
pub enum YamlValue {
    /// Empty, `null` or `~`.
    Null,
    /// A word, number or text; its meaning depends on the key.
    Scalar {
        text: Box<str>,
        quoted: Quoted,
    },
    /// In book order, each key once.
    Map(Vec<(YamlNode, YamlNode)>),
    List(Vec<YamlNode>),
    /// Already reported; skip it.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoted {
    /// Quotes or a block scalar.
    Yes,
    No,
}

impl YamlNode {
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Scalar { text, .. } => Some(text),
            YamlValue::Null | YamlValue::Map(_) | YamlValue::List(_) | YamlValue::Refused => None,
        }
    }

    /// `None` if this is no map or lacks the key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value)
    }

    /// Empty if this is no map.
    #[must_use]
    pub fn entries(&self) -> &[(Self, Self)] {
        match &self.value {
            YamlValue::Map(entries) => entries,
            YamlValue::Null | YamlValue::Scalar { .. } | YamlValue::List(_) | YamlValue::Refused => &[],
        }
    }

    /// Empty if this is no list.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match &self.value {
            YamlValue::List(items) => items,
            YamlValue::Null | YamlValue::Scalar { .. } | YamlValue::Map(_) | YamlValue::Refused => &[],
        }
    }

    /// Unquoted numbers and words are what JSON takes them for. `None` if a part was refused.
    #[must_use]
    pub fn to_json(&self) -> Option<serde_json::Value> {
        Some(match &self.value {
            YamlValue::Refused => return None,
            YamlValue::Null => serde_json::Value::Null,
            YamlValue::Scalar { text, quoted } => {
                let plain = serde_json::from_str(text).ok();
                let is_scalar = |value: &serde_json::Value| value.is_number() || value.is_boolean();
                plain
                    .filter(|value| *quoted == Quoted::No && is_scalar(value))
                    .unwrap_or_else(|| (&**text).into())
            }
            YamlValue::List(items) => items.iter().map(Self::to_json).collect::<Option<Vec<_>>>()?.into(),
            YamlValue::Map(entries) => {
                let entries =
                    entries.iter().map(|(key, value)| Some((key.text()?.to_owned(), value.to_json()?)));
                entries.collect::<Option<serde_json::Map<_, _>>>()?.into()
            }
        })
    }

    #[must_use]
    pub const fn shape(&self) -> &'static str {
        match self.value {
            YamlValue::Null => "nothing",
            YamlValue::Scalar { .. } => "a single value",
            YamlValue::Map(_) => "a map",
            YamlValue::List(_) => "a list",
            YamlValue::Refused => "an unsupported value",
        }
    }
}

/// `None` if the text is not YAML; the problems say why.
#[must_use]
pub fn read(text: &str, problems: &mut Problems) -> Option<YamlNode> {
    let mut reader = YamlReader { problems, open: Vec::new(), root: None, nodes: 0, documents: 0 };
    let options = options! { disallow_directives: true, emit_unresolved_aliases: true };
    for next in Parser::new_from_str_with_options(text, options) {
        match next {
            Ok((event, span)) => {
                if reader.take(event, convert(&span)) == EventFlow::Stop {
                    return None;
                }
            }
            Err(error) => {
                let marker = error.marker();
                // The character there, unless the text ends before it.
                let start = text.floor_char_boundary(marker.byte_offset().unwrap_or(text.len()));
                let end = text.ceil_char_boundary(start + 1);
                let span = span_at(start, end, marker.line(), marker.col());
                if *error.kind() == ErrorKind::RecursionLimitExceeded {
                    reader.refuse_depth(span);
                } else if let Some(tab) = indenting_tab(text, marker.line()) {
                    let message = "this line is indented with a tab";
                    reader.problems.error("yaml-syntax", tab, message, TAB_HELP);
                } else {
                    let message = format!("invalid YAML: {}", error.info());
                    reader.problems.error("yaml-syntax", span, message, syntax_help(text, marker.line()));
                }
                return None;
            }
        }
    }
    reader.root
}

struct YamlReader<'a> {
    problems: &'a mut Problems,
    open: Vec<OpenNode>,
    root: Option<YamlNode>,
    nodes: usize,
    documents: usize,
}

struct OpenNode {
    span: BookSpan,
    inside: OpenContent,
}

enum OpenContent {
    Map { entries: Vec<(YamlNode, YamlNode)>, key: Option<YamlNode> },
    List(Vec<YamlNode>),
}

#[derive(PartialEq)]
enum EventFlow {
    Go,
    Stop,
}

impl YamlReader<'_> {
    fn take(&mut self, event: Event<'_>, span: BookSpan) -> EventFlow {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let help = "use one document per file, without `---` in the middle";
                    self.problems.error("second-document", span, "a second YAML document starts here", help);
                    return EventFlow::Stop;
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let value = if self.is_decorated(anchor, tag.as_deref(), span) {
                    YamlValue::Refused
                } else {
                    scalar(&text, style)
                };
                return self.put(YamlNode { span, value });
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                let help = "quote a pattern with `*`: \"*.created\"; write a repeated value out";
                self.problems.error("yaml-alias", span, "YAML aliases (`*name`) are not supported", help);
                return self.put(YamlNode { span, value: YamlValue::Refused });
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.is_decorated(anchor, tag.as_deref(), span);
                return self.enter(OpenNode { span, inside: OpenContent::List(Vec::new()) });
            }
            Event::MappingStart(_, anchor, tag) => {
                self.is_decorated(anchor, tag.as_deref(), span);
                return self
                    .enter(OpenNode { span, inside: OpenContent::Map { entries: Vec::new(), key: None } });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let closed = self.open.pop().expect("the parser closes only what it opened");
                let value = match closed.inside {
                    OpenContent::Map { entries, .. } => YamlValue::Map(entries),
                    OpenContent::List(items) => YamlValue::List(items),
                };
                return self.put(YamlNode { span: closed.span, value });
            }
            // Comments are switched off; the other events carry no value.
            _ => {}
        }
        EventFlow::Go
    }

    /// Reports anchors and tags; true if there was one.
    fn is_decorated(&mut self, anchor: usize, tag: Option<&Tag>, span: BookSpan) -> bool {
        if anchor != 0 {
            let help = "YAML anchors (`&name`) are not supported: write the value out";
            self.problems.error("yaml-anchor", span, "this value has an anchor", help);
        }
        if tag.is_some() {
            let help = "YAML tags (`!name`) are not supported: remove it";
            self.problems.error("yaml-tag", span, "this value has a tag", help);
        }
        anchor != 0 || tag.is_some()
    }

    fn enter(&mut self, open: OpenNode) -> EventFlow {
        if self.open.len() >= limits::BOOK_DEPTH_MAX {
            self.refuse_depth(open.span);
            return EventFlow::Stop;
        }
        self.open.push(open);
        EventFlow::Go
    }

    fn refuse_depth(&mut self, span: BookSpan) {
        let message = format!("nested more than {} levels deep", limits::BOOK_DEPTH_MAX);
        self.problems.error("too-deep", span, message, "no rule book needs more than eight levels");
    }

    fn put(&mut self, node: YamlNode) -> EventFlow {
        self.nodes += 1;
        if self.nodes > limits::BOOK_NODES_MAX {
            let message = format!("more than {} values", limits::BOOK_NODES_MAX);
            self.problems.error(
                "file-too-large",
                node.span,
                message,
                "split it into several files files files",
            );
            return EventFlow::Stop;
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return EventFlow::Go;
        };
        match &mut parent.inside {
            OpenContent::List(items) => items.push(node),
            OpenContent::Map { entries, key } => match key.take() {
                None => *key = Some(node),
                Some(key) => entries.push((key, node)),
            },
        }
        EventFlow::Go
    }
}

fn scalar(text: &str, style: ScalarStyle) -> YamlValue {
    match style {
        ScalarStyle::Plain if matches!(text, "" | "~" | "null" | "Null" | "NULL") => YamlValue::Null,
        ScalarStyle::Plain => YamlValue::Scalar { text: text.into(), quoted: Quoted::No },
        ScalarStyle::SingleQuoted
        | ScalarStyle::DoubleQuoted
        | ScalarStyle::Literal
        | ScalarStyle::Folded => YamlValue::Scalar { text: text.into(), quoted: Quoted::Yes },
    }
}

fn convert(span: &granit_parser::Span) -> BookSpan {
    let start = span.start.byte_offset().unwrap_or(0);
    let end = span.end.byte_offset().unwrap_or(start);
    span_at(start, end, span.start.line(), span.start.col())
}

fn span_at(start: usize, end: usize, line: usize, column_from_0: usize) -> BookSpan {
    // The size limit keeps all of these far below 2^32.
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    BookSpan {
        start: small(start),
        end: small(end),
        position: Position { line: small(line), column: small(column_from_0).saturating_add(1) },
    }
}

const TAB_HELP: &str = "indent with spaces; YAML does not allow tabs here";

/// The first tab that indents the line of an error or the next line with text: a parser that takes a tab for
/// the continuation of a value reports the line before.
fn indenting_tab(text: &str, line: usize) -> Option<BookSpan> {
    let mut start = 0;
    let mut lines = text.split_inclusive('\n').enumerate().map(|(n, line)| {
        let at = (n + 1, start, line);
        start += line.len();
        at
    });
    let mut left = 2;
    while let Some((number, start, line)) =
        lines.find(|(number, _, line_text)| *number >= line && !line_text.trim().is_empty())
    {
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(column) = line[..indent].find('\t') {
            return Some(span_at(start + column, start + column + 1, number, column));
        }
        left -= 1;
        if left == 0 {
            break;
        }
    }
    None
}

fn syntax_help(text: &str, line: usize) -> &'static str {
    let line = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let before_comment = line.split(" #").next().unwrap_or_default();
    if has_bare_placeholder(before_comment) {
        "quote a text with {placeholders}: \"_{service}.deadletter\""
    } else if before_comment.contains('*') && !before_comment.contains('"') {
        "a pattern with `*` must be quoted: \"*.created\""
    } else if line.starts_with('%') {
        "YAML directives are not supported: remove the line"
    } else {
        "check the indentation, quotes and brackets of this line and the one before"
    }
}

/// Whether `{word}` is on the line outside quotes.
fn has_bare_placeholder(line: &str) -> bool {
    let mut pieces = line.split('{').skip(1).filter_map(|piece| piece.split_once('}'));
    let is_word = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '|'))
    };
    !line.contains('"') && pieces.any(|(inside, _)| is_word(inside))
}

/// Reports keys that are not words, merge keys, duplicate keys and control characters.
pub fn check_keys(node: &YamlNode, problems: &mut Problems) {
    check_text(node, problems);
    // Depth is bounded, so the recursion is too.
    for item in node.items() {
        check_keys(item, problems);
    }
    let mut seen: Vec<(&str, BookSpan)> = Vec::with_capacity(node.entries().len());
    for (key, value) in node.entries() {
        match key.text() {
            None if matches!(key.value, YamlValue::Refused) => {}
            None => {
                let help = "quote a name such as null, and a text that begins with `{` or `[`";
                problems.error(
                    "yaml-key",
                    key.span,
                    format!("a key must be a word, not {}", key.shape()),
                    help,
                );
            }
            // Quoted, it is a normal name.
            Some("<<") if matches!(key.value, YamlValue::Scalar { quoted: Quoted::No, .. }) => {
                let help = "YAML merge keys are not supported; use `from:` in policies and breakers";
                problems.error("yaml-merge-key", key.span, "unsupported merge key `<<`", help);
            }
            Some(text) => seen.push((text, key.span)),
        }
        check_text(key, problems);
        check_keys(value, problems);
    }
    seen.sort_unstable();
    for pair in seen.windows(2) {
        let [(first, first_at), (second, second_at)] = pair else { continue };
        if first == second {
            let message =
                format!("duplicate key `{second}`, first defined on line {}", first_at.position.line);
            problems.error("duplicate-key", *second_at, message, "keep one of them");
        }
    }
}

fn check_text(node: &YamlNode, problems: &mut Problems) {
    let hidden = |c: &char| c.is_control() && !matches!(c, '\n' | '\t');
    if let Some(character) = node.text().and_then(|text| text.chars().find(hidden)) {
        let message = format!("text contains a control character ({})", character.escape_unicode());
        problems.error(
            "control-character",
            node.span,
            message,
            "remove it: it would reach terminals and logs",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(text: &str) -> Vec<(&'static str, u32, u32)> {
        let mut problems = Problems::default();
        if let Some(node) = read(text, &mut problems) {
            check_keys(&node, &mut problems);
        }
        let sorted = problems.into_sorted();
        sorted.into_iter().map(|p| (p.code, p.span.position.line, p.span.position.column)).collect()
    }

    #[test]
    fn traps_of_yaml_are_named() {
        #[rustfmt::skip]
        let cases = [
            ("a plain map is fine",     "a: 1\nb: [x, y]\n",              vec![]),
            ("an anchor",               "a: &x 1\n",                      vec![("yaml-anchor", 1, 7)]),
            ("an alias",                "a: &x 1\nb: *x\n",               vec![("yaml-anchor", 1, 7), ("yaml-alias", 2, 4)]),
            ("an alias to nothing",     "b: *x\n",                        vec![("yaml-alias", 1, 4)]),
            ("a merge key",             "a:\n  <<: {b: 1}\n",             vec![("yaml-merge-key", 2, 3)]),
            ("a name in quotes",        "a:\n  \"<<\": {b: 1}\n",         vec![]),
            ("a tag",                   "a: !!int 1\n",                   vec![("yaml-tag", 1, 10)]),
            ("a second document",       "a: 1\n---\nb: 1\n",              vec![("second-document", 2, 1)]),
            ("a directive",             "%YAML 1.2\n---\na: 1\n",         vec![("yaml-syntax", 1, 1)]),
            ("a key that stands twice", "a: 1\nb: 2\na: 3\n",             vec![("duplicate-key", 3, 1)]),
            ("a key that is a map",     "{a: 1}: 2\n",                    vec![("yaml-key", 1, 1)]),
            ("a tab",                   "a:\n\tb: 1\n",                   vec![("yaml-syntax", 2, 1)]),
            ("a tab behind a value",    "a:\n  b: 1\n\tc: 2\n",           vec![("yaml-syntax", 3, 1)]),
            ("a tab behind spaces",     "a:\n  b: 1\n\n  \tc: 2\n",       vec![("yaml-syntax", 4, 3)]),
            ("a bracket left open",     "a: [1, 2\n",                     vec![("yaml-syntax", 1, 4)]),
            ("two problems at once",    "a: &x 1\nb: !t 2\n",             vec![("yaml-anchor", 1, 7), ("yaml-tag", 2, 7)]),
        ];
        for (name, text, expected) in cases {
            assert_eq!(codes(text), expected, "{name}");
        }
    }

    #[test]
    fn hostile_texts_are_refused_quickly() {
        let deep = "[".repeat(100_000);
        assert_eq!(codes(&deep).first().map(|c| c.0), Some("too-deep"));
        let deep_map = (0..200).map(|level| " ".repeat(level) + "a:\n").collect::<String>();
        assert_eq!(codes(&deep_map).first().map(|c| c.0), Some("too-deep"));
        let many = format!("[{}]", "1,".repeat(limits::BOOK_NODES_MAX + 10));
        assert_eq!(codes(&many).first().map(|c| c.0), Some("file-too-large"));
        assert_eq!(codes("\0").len(), 1);
    }
}
