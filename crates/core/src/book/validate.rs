//! Checks the nodes of a book against the schema and reports every mismatch at once.
//!
//! Invariant: a book that passes can be parsed without meeting a wrong type or an invalid text.

use std::collections::{BTreeMap, BTreeSet};

use super::address::{AddressFault, check_address};
use super::connectors::Connectors;
use super::connectors::email::Smtp;
use super::event_condition;
use super::event_schema::EventSchema;
use super::expression::{Condition, Hours, is_zone};
use super::pattern::EventPattern;
use super::problem::{BookSpan, Problems, suggest};
use super::schema::{KeyPresence, KeySchema, NameKind, ObjectSchema, OneOf, ValueType};
use super::source_template::SourceTemplate;
use super::yaml::{Quoted, YamlNode, YamlValue};
use crate::event::copy_rule::CopyKey;
use crate::ids::{Name, ServiceMarker};
use crate::letters::name_template::NameTemplate;
use crate::limits;
use crate::policy::backoff::Jitter;
use crate::policy::category::Category;
use crate::policy::rule::StatusRange;
use crate::schedule::Cron;
use crate::text;

/// All names a book may refer to: its own and the catalog's.
#[derive(Debug, Default)]
pub struct DefinedNames(BTreeMap<NameKind, BTreeSet<String>>);

impl DefinedNames {
    #[must_use]
    pub fn of(book: &YamlNode) -> Self {
        let names = NameKind::ALL.map(|kind| {
            let own = book.get(kind.section()).map(YamlNode::entries).unwrap_or_default();
            let own = own.iter().filter_map(|(key, _)| key.text());
            (kind, own.chain(kind.of_the_catalog()).map(str::to_owned).collect())
        });
        Self(names.into())
    }

    fn has(&self, kind: NameKind, name: &str) -> bool {
        self.0.get(&kind).is_some_and(|names| names.contains(name))
    }

    fn all(&self, kind: NameKind) -> impl Iterator<Item = &str> + Clone {
        self.0.get(&kind).into_iter().flatten().map(String::as_str)
    }
}

pub fn validate(
    node: &YamlNode,
    takes: &ValueType,
    names: &DefinedNames,
    connectors: &Connectors,
    problems: &mut Problems,
) {
    Validator { names, connectors, problems }.value(node, takes, node.span);
}

struct Validator<'a> {
    names: &'a DefinedNames,
    connectors: &'a Connectors,
    problems: &'a mut Problems,
}

impl Validator<'_> {
    /// `place` is the span to report for missing keys: the key above the value.
    fn value(&mut self, node: &YamlNode, takes: &ValueType, place: BookSpan) {
        if matches!(node.value, YamlValue::Refused) {
            return;
        }
        match takes {
            ValueType::Object(object) => self.object(node, object, place),
            ValueType::MapOf(value) => self.map(node, value),
            ValueType::ByFailure(value) => self.by_failure(node, value),
            ValueType::ListOf(item) => match &node.value {
                YamlValue::List(items) => self.list(items, item),
                YamlValue::Scalar { text, .. } => {
                    let message = format!("expected a list, got `{text}`");
                    self.problems.error("wrong-type", node.span, message, format!("write [{text}]"));
                }
                _ => self.wrong_shape(node, &format!("a list of {}", plural(item))),
            },
            ValueType::OneOrMany(item) => match &node.value {
                YamlValue::List(items) => self.list(items, item),
                _ => self.value(node, item, place),
            },
            ValueType::Any => {}
            ValueType::JsonSchema => self.json_schema(node),
            ValueType::TemplateFields => match &node.value {
                YamlValue::Map(entries) => {
                    for (_, value) in entries {
                        self.value(value, &ValueType::RequestTemplate, value.span);
                    }
                }
                _ => self.wrong_shape(node, &describe(takes)),
            },
            ValueType::RequestBody => match &node.value {
                YamlValue::Null | YamlValue::Refused => self.wrong_shape(node, &describe(takes)),
                YamlValue::Scalar { .. } | YamlValue::Map(_) | YamlValue::List(_) => {}
            },
            ValueType::ShortOrLong(short, object) => match &node.value {
                YamlValue::Map(_) => self.object(node, object, place),
                _ => self.value(node, short, place),
            },
            scalar => match &node.value {
                YamlValue::Scalar { text, quoted } => self.scalar(node, text, *quoted, scalar),
                _ => self.wrong_shape(node, &describe(scalar)),
            },
        }
    }

    fn list(&mut self, items: &[YamlNode], item: &ValueType) {
        for node in items {
            self.value(node, item, node.span);
        }
    }

    fn object(&mut self, node: &YamlNode, object: &'static ObjectSchema, place: BookSpan) {
        let YamlValue::Map(entries) = &node.value else {
            return self.wrong_shape(node, &format!("{} (a map)", object.name));
        };
        let choices = object.one_of(self.connectors);
        for (key, value) in entries {
            // Other keys were reported by `yaml`.
            let Some(text) = key.text() else { continue };
            if let Some(field) = self.field(node, object, key, text) {
                self.value(value, &field.takes, key.span);
                let is_needed = field.need == KeyPresence::Required || choices.contains(&field.key);
                if is_needed && matches!(&value.value, YamlValue::List(items) if items.is_empty()) {
                    let message = format!("`{text}` is an empty list");
                    self.problems.error("empty-list", value.span, message, "name at least one");
                }
            } else if self.problems.has_room() {
                let known = object.all_fields(self.connectors).map(|field| field.key).collect::<Vec<_>>();
                let message = format!("unknown key `{text}` of {}", object.name);
                self.problems.error("unknown-key", key.span, message, suggest(text, known));
            }
        }
        let has = |wanted: &str| entries.iter().any(|(key, _)| key.text() == Some(wanted));
        for field in
            object.common_fields().filter(|field| field.need == KeyPresence::Required && !has(field.key))
        {
            self.missing(place, object, field);
        }
        let given = choices.iter().filter(|key| has(key)).count();
        if !choices.is_empty() && given != 1 {
            let message = match given {
                0 => format!("{} needs a kind", object.name),
                _ => format!("{} has more than one kind", object.name),
            };
            let kinds = choices.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            self.problems.error("one-of", place, message, format!("give exactly one of {kinds}"));
        }
    }

    /// Reports a key that belongs to another connector.
    fn field(
        &mut self,
        map: &YamlNode,
        object: &ObjectSchema,
        key: &YamlNode,
        text: &str,
    ) -> Option<&'static KeySchema> {
        let usual = object.field(text, self.connectors);
        let OneOf::Kinds(edge) = object.one_of else { return usual };
        let Some(chosen) = self.connectors.chosen(edge, map) else { return usual };
        match self.connectors.field_beside(chosen, text) {
            Ok(field) => Some(field),
            Err(owners) => {
                if !owners.is_empty() {
                    let owners = owners.join("` and `");
                    let message = format!("`{text}` is only allowed with `{owners}`");
                    self.problems.error("excluded-key", key.span, message, format!("remove `{text}`"));
                }
                usual
            }
        }
    }

    fn missing(&mut self, place: BookSpan, object: &ObjectSchema, field: &KeySchema) {
        let message = format!("{} needs `{}`", object.name, field.key);
        let help = format!("`{}`: {}", field.key, field.about);
        self.problems.error("missing-key", place, message, help);
    }

    fn map(&mut self, node: &YamlNode, value: &ValueType) {
        // An empty section (`services:` with nothing below) is allowed.
        if matches!(node.value, YamlValue::Null) {
            return;
        }
        let YamlValue::Map(entries) = &node.value else {
            return self.wrong_shape(node, "names, each with a value");
        };
        for (key, node) in entries {
            if let Some(Err(error)) = key.text().map(Name::<ServiceMarker>::new) {
                self.problems.error("bad-name", key.span, error.to_string(), "choose another name");
            }
            self.value(node, value, key.span);
        }
    }

    fn json_schema(&mut self, node: &YamlNode) {
        let YamlValue::Map(_) = node.value else {
            return self.wrong_shape(node, &describe(&ValueType::JsonSchema));
        };
        let Some(json) = node.to_json() else { return };
        if let Err(error) = EventSchema::parse(json) {
            let help = "such as { type: object, required: [total], properties: { total: { type: number } } }";
            self.problems.error("bad-schema", node.span, error.to_string(), help);
        }
    }

    fn by_failure(&mut self, node: &YamlNode, value: &ValueType) {
        let YamlValue::Map(entries) = &node.value else {
            return self.wrong_shape(node, "a map from failures to reactions");
        };
        for (key, node) in entries {
            // Other keys were reported by `yaml`.
            if key.text().is_some() {
                self.value(key, &ValueType::FailureKind, key.span);
            }
            self.value(node, value, key.span);
        }
    }

    fn wrong_shape(&mut self, node: &YamlNode, expected: &str) {
        let mut help = format!("write {expected}");
        if let YamlValue::Map(entries) = &node.value
            && let [(key, value)] = entries.as_slice()
            && matches!(value.value, YamlValue::Null)
            && let Some(word) = key.text()
        {
            help = format!("quote a text with {{placeholders}}: \"{{{word}}}…\"");
        }
        let message = format!("expected {expected}, got {}", node.shape());
        self.problems.error("wrong-type", node.span, message, help);
    }

    fn scalar(&mut self, node: &YamlNode, text: &str, quoted: Quoted, takes: &ValueType) {
        let wrong = match check_scalar(text, quoted, takes) {
            Ok(()) => self.name(text, takes),
            Err(wrong) => Err(wrong),
        };
        if let Err(ValueFault { code, message, help }) = wrong {
            self.problems.error(code, node.span, message, help);
        }
    }

    fn name(&self, text: &str, takes: &ValueType) -> Result<(), ValueFault> {
        let kind = match takes {
            ValueType::Name(kind) => *kind,
            ValueType::Reaction if ACTS.contains(&text) => return Ok(()),
            ValueType::Reaction => NameKind::Policy,
            _ => return Ok(()),
        };
        if self.names.has(kind, text) {
            return Ok(());
        }
        // A timeout may be a duration.
        let is_span = text.starts_with(|c: char| c.is_ascii_digit()) || text::is_iso_duration(text);
        if kind == NameKind::Timeout && is_span {
            return text::parse_duration(text).map(|_| ()).map_err(|e| wrong("bad-duration", e, ""));
        }
        let acts = if matches!(takes, ValueType::Reaction) { &ACTS[..] } else { &[] };
        let known = self.names.all(kind).chain(acts.iter().copied());
        let message = format!("unknown {} `{text}`", kind.as_str());
        // Searching for a near name is slow, so only when it will be shown.
        let near = if self.problems.has_room() { suggest(text, known) } else { String::new() };
        let define = format!("define it under `{}`", kind.section());
        let help =
            if near.ends_with('?') { format!("{near} Or {define}") } else { format!("{near}; or {define}") };
        Err(ValueFault { code: "undefined-name", message, help })
    }
}

/// Reactions in `on_failure` beside policy names.
pub const ACTS: [&str; 2] = ["dead-letter", "pause"];

struct ValueFault {
    code: &'static str,
    message: String,
    help: String,
}

fn wrong(code: &'static str, message: impl std::fmt::Display, help: &str) -> ValueFault {
    ValueFault { code, message: message.to_string(), help: help.to_owned() }
}

fn check_scalar(text: &str, quoted: Quoted, takes: &ValueType) -> Result<(), ValueFault> {
    let expected = || {
        let message = format!("expected {}, got `{text}`", describe(takes));
        wrong("wrong-type", message, &format!("write {}", describe(takes)))
    };
    match takes {
        ValueType::Duration => text::parse_duration(text).map(drop).map_err(|e| wrong("bad-duration", e, "")),
        ValueType::Size => text::parse_size(text).map(drop).map_err(|e| wrong("bad-size", e, "")),
        ValueType::Rate => text::parse_rate(text).map(drop).map_err(|e| wrong("bad-rate", e, "")),
        ValueType::Share => text::parse_share(text).map(drop).map_err(|e| wrong("bad-share", e, "")),
        ValueType::Jitter => {
            Jitter::parse(text).map(drop).map_err(|e| wrong("bad-jitter", e.to_string(), &e.help()))
        }
        ValueType::Count { .. } | ValueType::CountOrUnlimited | ValueType::Number { .. }
            if is_quoted_number(text, quoted) =>
        {
            Err(quoted_number(text))
        }
        ValueType::Bool => match (text, quoted) {
            ("true" | "false", Quoted::No) => Ok(()),
            ("yes" | "no" | "on" | "off" | "True" | "False", _) => Err(no_bool(text)),
            _ => Err(expected()),
        },
        ValueType::Count { min, max } if min == max && text != min.to_string() => {
            Err(wrong("out-of-range", format!("must be {min}, got `{text}`"), &format!("write {min}")))
        }
        ValueType::Count { min, max } => whole_number(text, *min, *max),
        ValueType::CountOrUnlimited if text == "unlimited" => Ok(()),
        ValueType::CountOrUnlimited => whole_number(text, 0, u64::from(limits::RETRIES_MAX)),
        ValueType::Number { min, max } => match text.parse::<f64>() {
            Ok(number) if (*min..=*max).contains(&number) => Ok(()),
            Ok(_) => Err(wrong("out-of-range", format!("`{text}` is out of range: {min} to {max}"), "")),
            Err(_) => Err(expected()),
        },
        ValueType::Word(words) if words.contains(&text) => Ok(()),
        ValueType::Word(words) => {
            let message = format!("`{text}` is not allowed here");
            Err(ValueFault { code: "unknown-word", message, help: suggest(text, words.iter().copied()) })
        }
        ValueType::Url => check_address(text).map_err(|fault| match fault {
            AddressFault::Syntax => expected(),
            AddressFault::Port(_) => {
                wrong("out-of-range", fault, "remove the port, or write one such as :8080")
            }
        }),
        ValueType::Text if text.is_empty() => Err(wrong("wrong-type", "the text is empty", "")),
        ValueType::EventPattern
        | ValueType::LetterName
        | ValueType::MailAddressTemplate
        | ValueType::SourceTemplate
        | ValueType::CopyKey
        | ValueType::Statuses
        | ValueType::FailureKind
        | ValueType::Cron
        | ValueType::Json
        | ValueType::Zone
        | ValueType::Hours
        | ValueType::Condition
        | ValueType::EventCondition
        | ValueType::MailAddress
        | ValueType::MailServer => check_expression(text, takes),
        // Templates, conditions and regular expressions are checked where they are compiled, once; lint codes and names
        // elsewhere.
        ValueType::Text
        | ValueType::RequestTemplate
        | ValueType::Cel
        | ValueType::Lint
        | ValueType::Name(_)
        | ValueType::Reaction
        | ValueType::Pattern => Ok(()),
        ValueType::Any
        | ValueType::JsonSchema
        | ValueType::TemplateFields
        | ValueType::RequestBody
        | ValueType::Object(_)
        | ValueType::MapOf(_)
        | ValueType::ByFailure(_)
        | ValueType::ListOf(_)
        | ValueType::OneOrMany(_)
        | ValueType::ShortOrLong(..) => Err(expected()),
    }
}

fn is_quoted_number(text: &str, quoted: Quoted) -> bool {
    quoted == Quoted::Yes && text.parse::<f64>().is_ok()
}

fn quoted_number(text: &str) -> ValueFault {
    let message = format!("expected a number, got the text `\"{text}\"`");
    wrong("wrong-type", message, &format!("write {text} without quotes"))
}

fn no_bool(text: &str) -> ValueFault {
    wrong("wrong-type", format!("`{text}` is a text in YAML 1.2"), "write true or false")
}

fn check_expression(text: &str, takes: &ValueType) -> Result<(), ValueFault> {
    let expected = || {
        let message = format!("expected {}, got `{text}`", describe(takes));
        wrong("wrong-type", message, &format!("write {}", describe(takes)))
    };
    match takes {
        ValueType::EventPattern => EventPattern::parse(text)
            .map(drop)
            .map_err(|e| wrong("bad-event-pattern", e, "such as todo.task.created or todo.task.*")),
        ValueType::SourceTemplate => SourceTemplate::parse(text)
            .map(drop)
            .map_err(|e| wrong("bad-template", e, "see the section on sources in docs/rule-book.md")),
        ValueType::CopyKey => CopyKey::parse(text)
            .map(drop)
            .map_err(|e| wrong("bad-template", e, "such as data.order or \"{type}/{data.order}\"")),
        ValueType::LetterName => {
            NameTemplate::parse(text).map(drop).map_err(|e| wrong("bad-template", e, ""))
        }
        ValueType::Statuses => parse_statuses(text).map(drop).ok_or_else(expected),
        ValueType::FailureKind => parse_failure_kind(text).map(drop).ok_or_else(|| ValueFault {
            code: "unknown-word",
            message: format!("`{text}` is neither a category nor an HTTP status"),
            help: {
                let hint = suggest(text, Category::ALL.map(Category::as_str));
                let or = if hint.ends_with('?') { " Or" } else { "; or" };
                format!("{hint}{or} write a status such as 503 or 500-599")
            },
        }),
        ValueType::Cron => check_cron(text),
        ValueType::Json => serde_json::from_str::<serde::de::IgnoredAny>(text).map(drop).map_err(|e| {
            wrong("bad-json", format!("invalid JSON: {e}"), "such as '{\"report\": \"daily\"}'")
        }),
        ValueType::Zone if is_zone(text) => Ok(()),
        ValueType::Zone => {
            Err(wrong("bad-zone", format!("unknown time zone `{text}`"), "such as UTC or Europe/Berlin"))
        }
        ValueType::Hours => Hours::parse(text).map(drop).map_err(|e| wrong("bad-hours", e, "")),
        ValueType::Condition => Condition::parse(text).map(drop).map_err(|e| ValueFault {
            code: "bad-condition",
            message: e.to_string(),
            help: e.help(),
        }),
        ValueType::EventCondition => event_condition::parse(text).map(drop).map_err(|error| ValueFault {
            code: "bad-where",
            message: error.to_string(),
            help: error.help().to_owned(),
        }),
        ValueType::MailAddress if is_mail_address(text) => Ok(()),
        ValueType::MailAddress => Err(wrong(
            "bad-mail-address",
            format!("invalid mail address `{text}`"),
            "such as ann@example.com",
        )),
        ValueType::MailServer => {
            let help = "such as smtp://user@mail.example.com:587 or smtps://mail.example.com";
            Smtp::parse(text).map(drop).map_err(|e| wrong("bad-smtp", e, help))
        }
        _ => Ok(()),
    }
}

/// Only the mail server knows whether the address exists.
fn is_mail_address(text: &str) -> bool {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | ',');
    let parts = text.rsplit_once('@');
    !text.contains(is_odd) && parts.is_some_and(|(name, host)| !name.is_empty() && !host.is_empty())
}

/// Five fields; the zone has its own key.
fn check_cron(text: &str) -> Result<(), ValueFault> {
    let help = "write five fields: minute hour day month weekday";
    let refused = |reason| wrong("bad-cron", format!("invalid cron expression `{text}`: {reason}"), help);
    Cron::parse(text).map(drop).map_err(refused)
}

fn whole_number(text: &str, min: u64, max: u64) -> Result<(), ValueFault> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if is_number && text.len() > 1 && text.starts_with('0') {
        return Err(wrong("wrong-type", format!("`{text}` has a leading zero"), "remove the zero"));
    }
    if !is_number {
        let message = format!("expected a whole number, got `{text}`");
        return Err(wrong("wrong-type", message, "write a number such as 5"));
    }
    match text.parse::<u64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(()),
        _ => Err(wrong("out-of-range", format!("`{text}` is out of range: {min} to {max}"), "")),
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

/// Describes several such values.
fn plural(takes: &ValueType) -> String {
    let one = describe(takes);
    match takes {
        ValueType::Text => "texts".to_owned(),
        ValueType::Duration => "durations such as 30s".to_owned(),
        ValueType::Name(kind) => format!("names of {}", kind.section().replace('_', " ")),
        ValueType::Object(object) => format!("maps, each {}", object.name),
        _ => format!("values, each {one}"),
    }
}

#[must_use]
pub fn describe(takes: &ValueType) -> String {
    match takes {
        ValueType::Duration => "a duration such as 30s".to_owned(),
        ValueType::Size => "a size such as 25MiB".to_owned(),
        ValueType::Rate => "a rate such as 20/s".to_owned(),
        ValueType::Share => "a share such as 50%".to_owned(),
        ValueType::Jitter => "a jitter such as `equal` or `spread 25%`".to_owned(),
        ValueType::Pattern => "a regular expression".to_owned(),
        ValueType::EventPattern => "an event type such as todo.task.created".to_owned(),
        ValueType::Text => "a text".to_owned(),
        ValueType::Url => "an address such as http://127.0.0.1:9000/events".to_owned(),
        ValueType::SourceTemplate => {
            "a text or a template in quotes such as \"github.{data.action}\"".to_owned()
        }
        ValueType::CopyKey => {
            "a field such as data.order, or a template in quotes such as \"{type}/{data.order}\"".to_owned()
        }
        ValueType::RequestTemplate => "a text, with values such as \"{{ data.id }}\" in quotes".to_owned(),
        ValueType::Cel => "a condition such as \"status == 200\"".to_owned(),
        ValueType::TemplateFields => "names, each with a text".to_owned(),
        ValueType::RequestBody => "a text, a map or a list".to_owned(),
        ValueType::LetterName => "a name in quotes such as \"_{service}.deadletter\"".to_owned(),
        ValueType::Bool => "true or false".to_owned(),
        ValueType::Count { .. } => "a whole number".to_owned(),
        ValueType::CountOrUnlimited => "a whole number or `unlimited`".to_owned(),
        ValueType::Number { .. } => "a number".to_owned(),
        ValueType::Word(words) => format!("one of {}", words.join(", ")),
        ValueType::Name(NameKind::Timeout) => "a duration such as 30s or the name of a timeout".to_owned(),
        ValueType::Name(kind) => format!("the name of a {}", kind.as_str()),
        ValueType::Reaction => "the name of a retry policy, `dead-letter` or `pause`".to_owned(),
        ValueType::Statuses => "an HTTP status such as 503 or a range such as 500-599".to_owned(),
        ValueType::FailureKind => "a category, an HTTP status or a range of them".to_owned(),
        ValueType::Json => "JSON in quotes".to_owned(),
        ValueType::Cron => "a cron expression in quotes".to_owned(),
        ValueType::Zone => "a time zone such as Europe/Berlin".to_owned(),
        ValueType::Hours => "hours such as \"Mon-Fri 09:00-17:00 Europe/Berlin\"".to_owned(),
        ValueType::Condition => "a condition such as \"dead_letters > 100\"".to_owned(),
        ValueType::EventCondition => "a condition in quotes such as \"data.total > 100\"".to_owned(),
        ValueType::JsonSchema => "a JSON Schema (a map)".to_owned(),
        ValueType::MailAddress => "a mail address".to_owned(),
        ValueType::MailAddressTemplate => "a mail address with values of the event".to_owned(),
        ValueType::MailServer => "a mail server such as smtp://mail.example.com".to_owned(),
        ValueType::Lint => "the code of a lint".to_owned(),
        ValueType::Any => "its settings".to_owned(),
        ValueType::Object(object) => object.name.to_owned(),
        ValueType::MapOf(_) => "names, each with a value".to_owned(),
        ValueType::ByFailure(_) => "a map from failures to reactions".to_owned(),
        ValueType::ListOf(item) => format!("a list of {}", plural(item)),
        ValueType::OneOrMany(item) => format!("{} or a list of them", describe(item)),
        ValueType::ShortOrLong(short, object) => format!("{} or {}", describe(short), object.name),
    }
}
