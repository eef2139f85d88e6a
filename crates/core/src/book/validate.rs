//! Holds the nodes of a book against the schema and reports all that does not fit, at once.
//!
//! Invariant: a book that passes here can be lowered without meeting a wrong type or a bad text.

use std::collections::{BTreeMap, BTreeSet};

use super::address::{AddressFault, check_address};
use super::connectors::Connectors;
use super::connectors::email::Smtp;
use super::expression::{Condition, Hours, is_zone};
use super::pattern::EventPattern;
use super::problem::{Problems, Span, suggest};
use super::schema::{Field, Named, Need, Object, OneOf, Type};
use super::source_template::SourceTemplate;
use super::yaml::{Node, Quoted, Value};
use crate::event::copies::CopyKey;
use crate::ids::{Name, Service};
use crate::letters::name_template::NameTemplate;
use crate::limits;
use crate::policy::backoff::Jitter;
use crate::policy::category::Category;
use crate::policy::rule::StatusRange;
use crate::schedule::Cron;
use crate::text;

/// All names that a book may refer to: its own and the catalog's.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<Named, BTreeSet<String>>);

impl Names {
    /// Collects the names that a book defines and those that are always there.
    #[must_use]
    pub fn of(book: &Node) -> Self {
        let names = Named::ALL.map(|kind| {
            let own = book.get(kind.section()).map(Node::entries).unwrap_or_default();
            let own = own.iter().filter_map(|(key, _)| key.text());
            (kind, own.chain(kind.of_the_catalog()).map(str::to_owned).collect())
        });
        Self(names.into())
    }

    fn has(&self, kind: Named, name: &str) -> bool {
        self.0.get(&kind).is_some_and(|names| names.contains(name))
    }

    fn all(&self, kind: Named) -> impl Iterator<Item = &str> + Clone {
        self.0.get(&kind).into_iter().flatten().map(String::as_str)
    }
}

/// Reports everything in the node that does not fit the type.
pub fn validate(node: &Node, takes: &Type, names: &Names, connectors: &Connectors, problems: &mut Problems) {
    Validator { names, connectors, problems }.value(node, takes, node.span);
}

struct Validator<'a> {
    names: &'a Names,
    connectors: &'a Connectors,
    problems: &'a mut Problems,
}

impl Validator<'_> {
    /// `place` is where to point for something that is not there: the key above the value.
    fn value(&mut self, node: &Node, takes: &Type, place: Span) {
        if matches!(node.value, Value::Refused) {
            return;
        }
        match takes {
            Type::Object(object) => self.object(node, object, place),
            Type::MapOf(value) => self.map(node, value),
            Type::ByFailure(value) => self.by_failure(node, value),
            Type::ListOf(item) => match &node.value {
                Value::List(items) => self.list(items, item),
                Value::Scalar { text, .. } => {
                    let message = format!("`{text}` stands here where a list belongs");
                    self.problems.error("wrong-type", node.span, message, format!("write [{text}]"));
                }
                _ => self.wrong_shape(node, &format!("a list of {}", plural(item))),
            },
            Type::OneOrMany(item) => match &node.value {
                Value::List(items) => self.list(items, item),
                _ => self.value(node, item, place),
            },
            Type::Any => {}
            Type::ShortOrLong(short, object) => match &node.value {
                Value::Map(_) => self.object(node, object, place),
                _ => self.value(node, short, place),
            },
            scalar => match &node.value {
                Value::Scalar { text, quoted } => self.scalar(node, text, *quoted, scalar),
                _ => self.wrong_shape(node, &describe(scalar)),
            },
        }
    }

    fn list(&mut self, items: &[Node], item: &Type) {
        for node in items {
            self.value(node, item, node.span);
        }
    }

    fn object(&mut self, node: &Node, object: &'static Object, place: Span) {
        let Value::Map(entries) = &node.value else {
            return self.wrong_shape(node, &format!("{} (a map of keys)", object.name));
        };
        let choices = object.one_of(self.connectors);
        for (key, value) in entries {
            // Keys that are no words were reported when the book was read.
            let Some(text) = key.text() else { continue };
            if let Some(field) = self.field(node, object, key, text) {
                self.value(value, &field.takes, key.span);
                let is_needed = field.need == Need::Required || choices.contains(&field.key);
                if is_needed && matches!(&value.value, Value::List(items) if items.is_empty()) {
                    let message = format!("`{text}` is an empty list");
                    self.problems.error("empty-list", value.span, message, "name at least one");
                }
            } else if self.problems.has_room() {
                let known = object.all_fields(self.connectors).map(|field| field.key).collect::<Vec<_>>();
                let message = format!("`{text}` is no key of {}", object.name);
                self.problems.error("unknown-key", key.span, message, suggest(text, known));
            }
        }
        let has = |wanted: &str| entries.iter().any(|(key, _)| key.text() == Some(wanted));
        for field in object.common_fields().filter(|field| field.need == Need::Required && !has(field.key)) {
            self.missing(place, object, field);
        }
        let given = choices.iter().filter(|key| has(key)).count();
        if !choices.is_empty() && given != 1 {
            let message = match given {
                0 => format!("{} needs one of its kinds", object.name),
                _ => format!("{} can be of one kind only", object.name),
            };
            let kinds = choices.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            self.problems.error("one-of", place, message, format!("give exactly one of {kinds}"));
        }
    }

    /// The key of that name in a map. One that belongs to another connector than the map's is reported.
    fn field(&mut self, map: &Node, object: &Object, key: &Node, text: &str) -> Option<&'static Field> {
        let usual = object.field(text, self.connectors);
        let OneOf::Kinds(edge) = object.one_of else { return usual };
        let Some(chosen) = self.connectors.chosen(edge, map) else { return usual };
        match self.connectors.field_beside(chosen, text) {
            Ok(field) => Some(field),
            Err(owners) => {
                if !owners.is_empty() {
                    let owners = owners.join("` and `");
                    let message = format!("`{text}` has no meaning here: it belongs to `{owners}`");
                    self.problems.error("excluded-key", key.span, message, format!("leave `{text}` out"));
                }
                usual
            }
        }
    }

    fn missing(&mut self, place: Span, object: &Object, field: &Field) {
        let message = format!("{} needs `{}`", object.name, field.key);
        let help = format!("`{}`: {}", field.key, field.about);
        self.problems.error("missing-key", place, message, help);
    }

    fn map(&mut self, node: &Node, value: &Type) {
        // An empty section (`services:` with nothing below) is no mistake.
        if matches!(node.value, Value::Null) {
            return;
        }
        let Value::Map(entries) = &node.value else {
            return self.wrong_shape(node, "names, each with a value");
        };
        for (key, node) in entries {
            if let Some(Err(error)) = key.text().map(Name::<Service>::new) {
                self.problems.error("bad-name", key.span, error.to_string(), "choose another name");
            }
            self.value(node, value, key.span);
        }
    }

    fn by_failure(&mut self, node: &Node, value: &Type) {
        let Value::Map(entries) = &node.value else {
            return self.wrong_shape(node, "kinds of failure, each with what follows");
        };
        for (key, node) in entries {
            // Keys that are no words were reported when the book was read.
            if key.text().is_some() {
                self.value(key, &Type::FailureKind, key.span);
            }
            self.value(node, value, key.span);
        }
    }

    fn wrong_shape(&mut self, node: &Node, expected: &str) {
        let mut help = format!("write {expected}");
        if let Value::Map(entries) = &node.value
            && let [(key, value)] = entries.as_slice()
            && matches!(value.value, Value::Null)
            && let Some(word) = key.text()
        {
            help = format!("a text with {{placeholders}} must stand in quotes: \"{{{word}}}…\"");
        }
        let message = format!("{} stands here where {expected} belongs", node.shape());
        self.problems.error("wrong-type", node.span, message, help);
    }

    fn scalar(&mut self, node: &Node, text: &str, quoted: Quoted, takes: &Type) {
        let wrong = match check_scalar(text, quoted, takes) {
            Ok(()) => self.name(text, takes),
            Err(wrong) => Err(wrong),
        };
        if let Err(Wrong { code, message, help }) = wrong {
            self.problems.error(code, node.span, message, help);
        }
    }

    fn name(&self, text: &str, takes: &Type) -> Result<(), Wrong> {
        let kind = match takes {
            Type::Name(kind) => *kind,
            Type::Reaction if ACTS.contains(&text) => return Ok(()),
            Type::Reaction => Named::Policy,
            _ => return Ok(()),
        };
        if self.names.has(kind, text) {
            return Ok(());
        }
        // Where a timeout belongs, a duration is one too.
        let is_span = text.starts_with(|c: char| c.is_ascii_digit()) || text::is_iso_duration(text);
        if kind == Named::Timeout && is_span {
            return text::parse_duration(text).map(|_| ()).map_err(|e| wrong("bad-duration", e, ""));
        }
        let acts = if matches!(takes, Type::Reaction) { &ACTS[..] } else { &[] };
        let known = self.names.all(kind).chain(acts.iter().copied());
        let message = format!("there is no {} `{text}`", kind.as_str());
        // Looking for a near name takes time, and is of use only where it is shown.
        let near = if self.problems.has_room() { suggest(text, known) } else { String::new() };
        let define = format!("define it under `{}`", kind.section());
        let help =
            if near.ends_with('?') { format!("{near} Or {define}") } else { format!("{near}; or {define}") };
        Err(Wrong { code: "undefined-name", message, help })
    }
}

/// What may stand in `on_failure` beside the names of policies.
pub const ACTS: [&str; 2] = ["dead-letter", "pause"];

struct Wrong {
    code: &'static str,
    message: String,
    help: String,
}

fn wrong(code: &'static str, message: impl std::fmt::Display, help: &str) -> Wrong {
    Wrong { code, message: message.to_string(), help: help.to_owned() }
}

fn check_scalar(text: &str, quoted: Quoted, takes: &Type) -> Result<(), Wrong> {
    let expected = || {
        let message = format!("`{text}` stands here where {} belongs", describe(takes));
        wrong("wrong-type", message, &format!("write {}", describe(takes)))
    };
    match takes {
        Type::Duration => text::parse_duration(text).map(drop).map_err(|e| wrong("bad-duration", e, "")),
        Type::Size => text::parse_size(text).map(drop).map_err(|e| wrong("bad-size", e, "")),
        Type::Rate => text::parse_rate(text).map(drop).map_err(|e| wrong("bad-rate", e, "")),
        Type::Share => text::parse_share(text).map(drop).map_err(|e| wrong("bad-share", e, "")),
        Type::Jitter => {
            Jitter::parse(text).map(drop).map_err(|e| wrong("bad-jitter", e.to_string(), &e.help()))
        }
        Type::Count { .. } | Type::CountOrUnlimited | Type::Number { .. }
            if is_quoted_number(text, quoted) =>
        {
            Err(quoted_number(text))
        }
        Type::Bool => match (text, quoted) {
            ("true" | "false", Quoted::No) => Ok(()),
            ("yes" | "no" | "on" | "off" | "True" | "False", _) => Err(no_bool(text)),
            _ => Err(expected()),
        },
        Type::Count { min, max } if min == max && text != min.to_string() => Err(wrong(
            "out-of-range",
            format!("only {min} can stand here, not `{text}`"),
            &format!("write {min}"),
        )),
        Type::Count { min, max } => whole_number(text, *min, *max),
        Type::CountOrUnlimited if text == "unlimited" => Ok(()),
        Type::CountOrUnlimited => whole_number(text, 0, u64::from(limits::RETRIES_MAX)),
        Type::Number { min, max } => match text.parse::<f64>() {
            Ok(number) if (*min..=*max).contains(&number) => Ok(()),
            Ok(_) => Err(wrong("out-of-range", format!("`{text}` lies outside {min} to {max}"), "")),
            Err(_) => Err(expected()),
        },
        Type::Word(words) if words.contains(&text) => Ok(()),
        Type::Word(words) => {
            let message = format!("`{text}` cannot stand here");
            Err(Wrong { code: "unknown-word", message, help: suggest(text, words.iter().copied()) })
        }
        Type::Url => check_address(text).map_err(|fault| match fault {
            AddressFault::Syntax => expected(),
            AddressFault::Port(_) => {
                wrong("out-of-range", fault, "leave the port out, or write one such as :8080")
            }
        }),
        Type::Text if text.is_empty() => Err(wrong("wrong-type", "an empty text stands here", "")),
        Type::EventPattern
        | Type::LetterName
        | Type::SourceTemplate
        | Type::CopyKey
        | Type::Statuses
        | Type::FailureKind
        | Type::Cron
        | Type::Json
        | Type::Zone
        | Type::Hours
        | Type::Condition
        | Type::MailAddress
        | Type::MailServer => check_expression(text, takes),
        // Lint codes are checked where the lints are known, names where the names are, and expressions
        // where they are compiled, which is dear enough to be done once.
        Type::Text | Type::Lint | Type::Name(_) | Type::Reaction | Type::Pattern => Ok(()),
        Type::Any
        | Type::Object(_)
        | Type::MapOf(_)
        | Type::ByFailure(_)
        | Type::ListOf(_)
        | Type::OneOrMany(_)
        | Type::ShortOrLong(..) => Err(expected()),
    }
}

fn is_quoted_number(text: &str, quoted: Quoted) -> bool {
    quoted == Quoted::Yes && text.parse::<f64>().is_ok()
}

fn quoted_number(text: &str) -> Wrong {
    let message = format!("`\"{text}\"` is a text, and a number belongs here");
    wrong("wrong-type", message, &format!("write {text} without quotes"))
}

fn no_bool(text: &str) -> Wrong {
    wrong("wrong-type", format!("`{text}` is a text in YAML 1.2"), "write true or false")
}

/// Texts with a grammar of their own.
fn check_expression(text: &str, takes: &Type) -> Result<(), Wrong> {
    let expected = || {
        let message = format!("`{text}` stands here where {} belongs", describe(takes));
        wrong("wrong-type", message, &format!("write {}", describe(takes)))
    };
    match takes {
        Type::EventPattern => EventPattern::parse(text)
            .map(drop)
            .map_err(|e| wrong("bad-event-pattern", e, "such as todo.task.created or todo.task.*")),
        Type::SourceTemplate => SourceTemplate::parse(text)
            .map(drop)
            .map_err(|e| wrong("bad-template", e, "see the section on sources in docs/rule-book.md")),
        Type::CopyKey => CopyKey::parse(text)
            .map(drop)
            .map_err(|e| wrong("bad-template", e, "such as data.order or \"{type}/{data.order}\"")),
        Type::LetterName => NameTemplate::parse(text).map(drop).map_err(|e| wrong("bad-template", e, "")),
        Type::Statuses => parse_statuses(text).map(drop).ok_or_else(expected),
        Type::FailureKind => parse_failure_kind(text).map(drop).ok_or_else(|| Wrong {
            code: "unknown-word",
            message: format!("`{text}` is no category and no HTTP status"),
            help: {
                let hint = suggest(text, Category::ALL.map(Category::as_str));
                let or = if hint.ends_with('?') { " Or" } else { "; or" };
                format!("{hint}{or} write a status such as 503 or 500-599")
            },
        }),
        Type::Cron => check_cron(text),
        Type::Json => serde_json::from_str::<serde::de::IgnoredAny>(text).map(drop).map_err(|e| {
            wrong("bad-json", format!("this is no JSON: {e}"), "such as '{\"report\": \"daily\"}'")
        }),
        Type::Zone if is_zone(text) => Ok(()),
        Type::Zone => {
            Err(wrong("bad-zone", format!("there is no time zone `{text}`"), "such as UTC or Europe/Berlin"))
        }
        Type::Hours => Hours::parse(text).map(drop).map_err(|e| wrong("bad-hours", e, "")),
        Type::Condition => Condition::parse(text).map(drop).map_err(|e| Wrong {
            code: "bad-condition",
            message: e.to_string(),
            help: e.help(),
        }),
        Type::MailAddress if is_mail_address(text) => Ok(()),
        Type::MailAddress => {
            Err(wrong("bad-mail-address", format!("`{text}` is no mail address"), "such as ann@example.com"))
        }
        Type::MailServer => {
            let help = "such as smtp://user@mail.example.com:587 or smtps://mail.example.com";
            Smtp::parse(text).map(drop).map_err(|e| wrong("bad-smtp", e, help))
        }
        _ => Ok(()),
    }
}

/// Whether a text may be an address; only its server knows whether it is one.
fn is_mail_address(text: &str) -> bool {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | ',');
    let parts = text.rsplit_once('@');
    !text.contains(is_odd) && parts.is_some_and(|(name, host)| !name.is_empty() && !host.is_empty())
}

/// Five fields; the zone stands beside them in a key of its own.
fn check_cron(text: &str) -> Result<(), Wrong> {
    let help = "write five fields: minute hour day month weekday";
    let refused = |reason| wrong("bad-cron", format!("`{text}` is no cron expression: {reason}"), help);
    Cron::parse(text).map(drop).map_err(refused)
}

fn whole_number(text: &str, min: u64, max: u64) -> Result<(), Wrong> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if is_number && text.len() > 1 && text.starts_with('0') {
        return Err(wrong("wrong-type", format!("`{text}` has a leading zero"), "write it without"));
    }
    if !is_number {
        let message = format!("`{text}` stands here where a whole number belongs");
        return Err(wrong("wrong-type", message, "write a number such as 5"));
    }
    match text.parse::<u64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(()),
        _ => Err(wrong("out-of-range", format!("`{text}` lies outside {min} to {max}"), "")),
    }
}

/// Reads `503` or `500-599`.
#[must_use]
pub fn parse_statuses(text: &str) -> Option<StatusRange> {
    let status = |text: &str| {
        let text = text.trim();
        let status: u16 = text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))?;
        (100..=599).contains(&status).then_some(status)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (status(first)?, status(last)?);
    (first <= last).then_some(StatusRange { first, last })
}

/// Reads a category, a status or a range of statuses.
#[must_use]
pub fn parse_failure_kind(text: &str) -> Option<crate::policy::rule::FailureMatch> {
    use crate::policy::rule::FailureMatch;
    let category = Category::from_word(text).map(FailureMatch::Category);
    category.or_else(|| parse_statuses(text).map(FailureMatch::Status))
}

/// Several of what belongs in a place, in words.
fn plural(takes: &Type) -> String {
    let one = describe(takes);
    match takes {
        Type::Text => "texts".to_owned(),
        Type::Duration => "durations such as 30s".to_owned(),
        Type::Name(kind) => format!("names of {}", kind.section().replace('_', " ")),
        Type::Object(object) => format!("maps, each {}", object.name),
        _ => format!("values, each {one}"),
    }
}

/// What belongs in a place, in words.
#[must_use]
pub fn describe(takes: &Type) -> String {
    match takes {
        Type::Duration => "a duration such as 30s".to_owned(),
        Type::Size => "a size such as 25MiB".to_owned(),
        Type::Rate => "a rate such as 20/s".to_owned(),
        Type::Share => "a share such as 50%".to_owned(),
        Type::Jitter => "a jitter such as `equal` or `spread 25%`".to_owned(),
        Type::Pattern => "a regular expression".to_owned(),
        Type::EventPattern => "an event type such as todo.task.created".to_owned(),
        Type::Text => "a text".to_owned(),
        Type::Url => "an address such as http://127.0.0.1:9000/events".to_owned(),
        Type::SourceTemplate => "a text or a template in quotes such as \"github.{data.action}\"".to_owned(),
        Type::CopyKey => {
            "a field such as data.order, or a template in quotes such as \"{type}/{data.order}\"".to_owned()
        }
        Type::LetterName => "a name in quotes such as \"_{service}.deadletter\"".to_owned(),
        Type::Bool => "true or false".to_owned(),
        Type::Count { .. } => "a whole number".to_owned(),
        Type::CountOrUnlimited => "a whole number or `unlimited`".to_owned(),
        Type::Number { .. } => "a number".to_owned(),
        Type::Word(words) => format!("one of {}", words.join(", ")),
        Type::Name(Named::Timeout) => "a duration such as 30s or the name of a timeout".to_owned(),
        Type::Name(kind) => format!("the name of a {}", kind.as_str()),
        Type::Reaction => "the name of a retry policy, `dead-letter` or `pause`".to_owned(),
        Type::Statuses => "an HTTP status such as 503 or a range such as 500-599".to_owned(),
        Type::FailureKind => "a category, an HTTP status or a range of them".to_owned(),
        Type::Json => "JSON in quotes".to_owned(),
        Type::Cron => "a cron expression in quotes".to_owned(),
        Type::Zone => "a time zone such as Europe/Berlin".to_owned(),
        Type::Hours => "hours such as \"Mon-Fri 09:00-17:00 Europe/Berlin\"".to_owned(),
        Type::Condition => "a condition such as \"dead_letters > 100\"".to_owned(),
        Type::MailAddress => "a mail address".to_owned(),
        Type::MailServer => "a mail server such as smtp://mail.example.com".to_owned(),
        Type::Lint => "the code of a lint".to_owned(),
        Type::Any => "its settings".to_owned(),
        Type::Object(object) => object.name.to_owned(),
        Type::MapOf(_) => "names, each with a value".to_owned(),
        Type::ByFailure(_) => "kinds of failure, each with what follows".to_owned(),
        Type::ListOf(item) => format!("a list of {}", plural(item)),
        Type::OneOrMany(item) => format!("{} or a list of them", describe(item)),
        Type::ShortOrLong(short, object) => format!("{} or {}", describe(short), object.name),
    }
}
