//! The part of Jinja that templates have: values, filters, `if` and `for`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior, filters, tests};

use super::{InvalidTemplate, TemplatePlace};
use crate::limits;

/// The only template of an environment.
pub(super) const NAME: &str = "template";
/// Holds the value of a template that is one value.
pub(super) const VALUE: &str = "redrive_value";

/// What a template can name.
pub(super) const ROOTS: [&str; 11] = [
    "id",
    "source",
    "type",
    "subject",
    "session",
    "correlation_id",
    "time",
    "data",
    "extensions",
    "delivery",
    "attempt",
];

pub(super) const FILTERS: [&str; 14] = [
    "default", "first", "float", "int", "join", "last", "length", "lower", "round", "string", "tojson",
    "trim", "truncate", "upper",
];

pub(super) const TESTS: [&str; 4] = ["defined", "none", "number", "string"];

pub(super) fn environment(place: TemplatePlace) -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(limits::TEMPLATE_STEPS_MAX));
    environment.set_recursion_limit(limits::TEMPLATE_DEPTH_MAX);
    environment.set_formatter(match place {
        TemplatePlace::Text => as_text,
        TemplatePlace::Path => as_path_part,
        TemplatePlace::Html => as_html,
    });
    environment.add_filter("default", filters::default);
    environment.add_filter("first", filters::first);
    environment.add_filter("float", filters::float);
    environment.add_filter("int", filters::int);
    environment.add_filter("join", join);
    environment.add_filter("last", filters::last);
    environment.add_filter("length", filters::length);
    environment.add_filter("lower", filters::lower);
    environment.add_filter("round", filters::round);
    environment.add_filter("string", filters::string);
    environment.add_filter("tojson", to_json);
    environment.add_filter("trim", filters::trim);
    environment.add_filter("truncate", truncate);
    environment.add_filter("upper", filters::upper);
    environment.add_test("defined", tests::is_defined);
    environment.add_test("none", tests::is_none);
    environment.add_test("number", tests::is_number);
    environment.add_test("string", tests::is_string);
    environment
}

fn as_text(out: &mut Output, _: &mut State, value: &Value) -> Result<(), Error> {
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&text_of(value)),
    };
    written.map_err(Error::from)
}

fn as_html(out: &mut Output, _: &mut State, value: &Value) -> Result<(), Error> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    out.write_str(&escaped).map_err(Error::from)
}

/// Lists, objects and null as JSON.
pub(super) fn text_of(value: &Value) -> String {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::None => {
            serde_json::to_string(value).unwrap_or_else(|_| value.to_string())
        }
        _ => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    }
}

/// Percent-encoded, so that no value ends the segment it stands in; an empty one or dots would name another
/// resource.
fn as_path_part(out: &mut Output, _: &mut State, value: &Value) -> Result<(), Error> {
    let text = text_of(value);
    if text.is_empty() || text.bytes().all(|byte| byte == b'.') {
        return Err(Error::from(ErrorKind::BadEscape));
    }
    out.write_str(&percent_encoded(&text)).map_err(Error::from)
}

/// All but the characters that RFC 3986 calls unreserved.
#[must_use]
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
            encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    encoded
}

fn join(list: &Value, separator: Option<&str>) -> Result<String, Error> {
    if list.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let separator = separator.unwrap_or_default();
    let mut joined = String::new();
    for (place, item) in list.try_iter()?.enumerate() {
        if place > 0 {
            joined.push_str(separator);
        }
        match item.as_str() {
            Some(text) => joined.push_str(text),
            None => joined.push_str(&text_of(&item)),
        }
        if joined.len() > limits::TEMPLATE_OUTPUT_BYTES_MAX {
            return Err(Error::from(ErrorKind::WriteFailure));
        }
    }
    Ok(joined)
}

fn to_json(value: &Value) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    serde_json::to_string(value).map_err(|_| Error::from(ErrorKind::BadSerialization))
}

/// At most so many characters.
fn truncate(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}

/// Refuses tags that can keep or multiply what they are given, and nesting that would exhaust the stack of the
/// parser.
pub(super) fn check_tags(source: &str) -> Result<(), InvalidTemplate> {
    let mut open_blocks = 0_usize;
    let mut rest = source;
    while let Some(start) = rest.find("{{").into_iter().chain(rest.find("{%")).chain(rest.find("{#")).min() {
        let (kind, after) = rest[start + 1..].split_at(1);
        if kind == "#" {
            rest = after.split_once("#}").map_or("", |(_, behind)| behind);
            continue;
        }
        let (inside, behind) = tag_ends(after);
        rest = behind;
        if operators(inside) > limits::TEMPLATE_OPERATORS_MAX {
            return Err(InvalidTemplate::TooComplex);
        }
        check_names(inside)?;
        if kind == "%" {
            let inside = inside.trim_start_matches(['-', '+']).trim_start();
            let tag: String = inside.chars().take_while(char::is_ascii_alphabetic).collect();
            match tag.as_str() {
                "if" | "for" => open_blocks += 1,
                "endif" | "endfor" => open_blocks = open_blocks.saturating_sub(1),
                "elif" | "else" => {}
                _ => return Err(InvalidTemplate::UnknownTag { tag }),
            }
            if open_blocks > limits::TEMPLATE_BLOCKS_MAX {
                return Err(InvalidTemplate::TooComplex);
            }
        }
    }
    Ok(())
}

/// The text between tags.
pub(super) fn literal_parts(source: &str) -> Vec<String> {
    let (mut parts, mut rest) = (Vec::new(), source);
    while let Some(start) = rest.find("{{").into_iter().chain(rest.find("{%")).chain(rest.find("{#")).min() {
        parts.push(rest[..start].to_owned());
        let (kind, after) = rest[start + 1..].split_at(1);
        rest = match kind {
            "#" => after.split_once("#}").map_or("", |(_, behind)| behind),
            _ => tag_ends(after).1,
        };
    }
    parts.push(rest.to_owned());
    parts
}

/// Splits behind the end of a tag, which may not stand in quotes.
fn tag_ends(text: &str) -> (&str, &str) {
    let bytes = text.as_bytes();
    let (mut quote, mut at) = (None, 0);
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, b'}' | b'%') if bytes.get(at + 1) == Some(&b'}') => {
                return (&text[..at], &text[at + 2..]);
            }
            _ => {}
        }
        at += 1;
    }
    (text, "")
}

/// Unknown filters and tests would only be found when they run.
fn check_names(expression: &str) -> Result<(), InvalidTemplate> {
    let outside_quotes = without_quotes(expression);
    let name_of = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    for after in outside_quotes.split('|').skip(1) {
        let name = name_of(after);
        if !FILTERS.contains(&name.as_str()) {
            return Err(InvalidTemplate::UnknownFilter { name });
        }
    }
    let words: Vec<&str> = outside_quotes.split_whitespace().collect();
    for (place, _) in words.iter().enumerate().filter(|(_, word)| **word == "is") {
        let at = place + if words.get(place + 1) == Some(&"not") { 2 } else { 1 };
        let name = name_of(words.get(at).copied().unwrap_or_default());
        if !TESTS.contains(&name.as_str()) {
            return Err(InvalidTemplate::UnknownTest { name });
        }
    }
    Ok(())
}

fn without_quotes(expression: &str) -> String {
    let (mut quote, mut is_escaped) = (None, false);
    let keep = |c: &char| match (quote, *c) {
        (Some(_), _) if is_escaped => {
            is_escaped = false;
            false
        }
        (Some(_), '\\') => {
            is_escaped = true;
            false
        }
        (Some(open), c) => {
            if c == open {
                quote = None;
            }
            false
        }
        (None, '"' | '\'') => {
            quote = Some(*c);
            false
        }
        (None, _) => true,
    };
    expression.chars().filter(keep).collect()
}

/// Everything that could nest, in quotes or not.
fn operators(expression: &str) -> usize {
    let signs = expression.bytes().filter(|byte| b"+-*/%~([{<>=!|.?:,".contains(byte)).count();
    let words = expression.split(|c: char| !c.is_ascii_alphabetic());
    signs + words.filter(|word| ["not", "and", "or", "if", "else", "in", "is"].contains(word)).count()
}

/// `{% set … %}` for a text that is `{{ … }}` and nothing else.
pub(super) fn one_value(source: &str) -> Option<String> {
    let inside = source.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let is_one = !["{{", "}}", "{%", "{#"].iter().any(|mark| inside.contains(mark));
    let inside = inside.trim_matches(['-', '+']);
    is_one.then(|| format!("{{% set {VALUE} = ({inside}) %}}"))
}

/// Writes `{data.a}` as `{{ data.a }}` in texts that have no Jinja of their own.
pub(super) fn long_form(text: &str) -> String {
    if text.contains("{{") || text.contains("{%") || text.contains("{#") {
        return text.to_owned();
    }
    let mut long = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        let (before, after) = rest.split_at(start);
        long.push_str(before);
        let placeholder =
            after[1..].split_once('}').and_then(|(inside, tail)| Some((expression(inside)?, tail)));
        if let Some((expression, tail)) = placeholder {
            long.push_str(&expression);
            rest = tail;
        } else {
            long.push('{');
            rest = &after[1..];
        }
    }
    long + rest
}

/// `None` if it is no placeholder, but a brace of the text.
fn expression(inside: &str) -> Option<String> {
    let mut words = inside.split('.');
    let root = words.next().filter(|root| ROOTS.contains(root))?;
    let mut path = root.to_owned();
    for word in words {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
        if word.is_empty() || !word.chars().all(is_name) {
            return None;
        }
        let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !word.starts_with(|c: char| c.is_ascii_digit());
        path += &if is_plain { format!(".{word}") } else { format!("[\"{word}\"]") };
    }
    Some(format!("{{{{ {path} }}}}"))
}
