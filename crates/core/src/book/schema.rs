//! The format of the rule book as data: every key with its type, role and description.
//!
//! One table serves the validator, the JSON Schema, the reference and the test that no key is inert. Invariant:
//! a key that is not in these tables is refused, and a key in them changes behaviour or is a fact.

mod alerting;
mod delivery;
mod dependency;
mod edge;

pub use delivery::BOOK;

use super::connectors::{Connector, Connectors, Edge};
use super::keywords::Keyword;
use crate::policy::catalog;

#[derive(Debug)]
pub struct ObjectSchema {
    /// The name in messages: "a retry policy".
    pub name: &'static str,
    pub about: &'static str,
    pub fields: &'static [KeySchema],
    /// Keys shared with other objects.
    pub includes: &'static [&'static ObjectSchema],
    pub one_of: OneOf,
}

impl ObjectSchema {
    /// Without shared or exclusive keys.
    #[must_use]
    pub const fn new(name: &'static str, about: &'static str, fields: &'static [KeySchema]) -> Self {
        Self { name, about, fields, includes: &[], one_of: OneOf::Nothing }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum OneOf {
    Nothing,
    Keys(&'static [&'static str]),
    /// The selecting keys of an edge's connectors; their further keys are allowed too.
    Kinds(Edge),
}

impl ObjectSchema {
    /// A map with exactly these keys.
    #[must_use]
    pub const fn of(name: &'static str, about: &'static str, fields: &'static [KeySchema]) -> Self {
        Self { name, about, fields, includes: &[], one_of: OneOf::Nothing }
    }

    /// Connector keys, own keys and shared keys.
    pub fn all_fields(&self, connectors: &Connectors) -> impl Iterator<Item = &'static KeySchema> {
        self.kind_fields(connectors).into_iter().chain(self.common_fields())
    }

    /// Keys independent of the connector.
    pub fn common_fields(&self) -> impl Iterator<Item = &'static KeySchema> {
        self.fields.iter().chain(self.includes.iter().flat_map(|object| object.fields))
    }

    #[must_use]
    pub fn kind_fields(&self, connectors: &Connectors) -> Vec<&'static KeySchema> {
        match self.one_of {
            OneOf::Kinds(edge) => connectors.fields(edge),
            OneOf::Nothing | OneOf::Keys(_) => Vec::new(),
        }
    }

    #[must_use]
    pub fn field(&self, key: &str, connectors: &Connectors) -> Option<&'static KeySchema> {
        let own = self.common_fields().find(|field| field.key == key);
        own.or_else(|| self.kind_fields(connectors).into_iter().find(|field| field.key == key))
    }

    /// Empty if no key is exclusive.
    #[must_use]
    pub fn one_of(&self, connectors: &Connectors) -> Vec<&'static str> {
        match self.one_of {
            OneOf::Nothing => Vec::new(),
            OneOf::Keys(keys) => keys.to_vec(),
            OneOf::Kinds(edge) => connectors.of(edge).map(Connector::key).collect(),
        }
    }
}

#[derive(Debug)]
pub struct KeySchema {
    pub key: &'static str,
    pub takes: ValueType,
    pub role: KeyRole,
    pub need: KeyPresence,
    pub about: &'static str,
}

impl KeySchema {
    const fn required(self) -> Self {
        Self { need: KeyPresence::Required, ..self }
    }

    const fn fact(self) -> Self {
        Self { role: KeyRole::Fact, ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPresence {
    Required,
    Optional,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRole {
    /// Changes what Redrive does or shows.
    Behaviour,
    /// Informs `check` about the outside world; Redrive does not act on it.
    Fact,
}

#[derive(Debug)]
pub enum ValueType {
    Duration,
    Size,
    Rate,
    Share,
    Jitter,
    Pattern,
    /// May contain wildcards.
    EventPattern,
    /// An event type without wildcards, or a template for one.
    Text,
    Url,
    /// With `{placeholders}` for headers and data.
    SourceTemplate,
    /// Part of a request, with `{{ values }}` of the event.
    RequestTemplate,
    /// A condition in CEL.
    Cel,
    /// A map from any names to such templates.
    TemplateFields,
    /// Such a template, or a map or list with templates as its texts.
    RequestBody,
    /// A field of an event, or a text with fields in braces.
    CopyKey,
    /// A dead-letter queue name with `{placeholders}`.
    LetterName,
    Bool,
    Count {
        min: u64,
        max: u64,
    },
    CountOrUnlimited,
    Number {
        min: f64,
        max: f64,
    },
    Word(&'static [&'static str]),
    /// A name defined in the book or the catalog.
    Name(NameKind),
    /// A policy name or an action.
    Reaction,
    Statuses,
    FailureKind,
    Cron,
    Json,
    Zone,
    Hours,
    /// `METRIC OP VALUE [over D] [for D] [by WHAT]`.
    Condition,
    /// A condition on an event, in CEL.
    EventCondition,
    /// A map that is a JSON Schema.
    JsonSchema,
    MailAddress,
    /// With values of the event.
    MailAddressTemplate,
    MailServer,
    Lint,
    /// For connectors that are not in this build.
    Any,
    Object(&'static ObjectSchema),
    MapOf(&'static ValueType),
    /// A map from failures to such values.
    ByFailure(&'static ValueType),
    ListOf(&'static ValueType),
    OneOrMany(&'static ValueType),
    /// A single value of the first type, or a map of the second.
    ShortOrLong(&'static ValueType, &'static ObjectSchema),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    Policy,
    Breaker,
    Timeout,
    Throttle,
    Dependency,
    Secret,
    Receiver,
}

impl NameKind {
    pub const ALL: [Self; 7] = [
        Self::Policy,
        Self::Breaker,
        Self::Timeout,
        Self::Throttle,
        Self::Dependency,
        Self::Secret,
        Self::Receiver,
    ];

    /// Names that exist without being defined.
    #[must_use]
    pub fn of_the_catalog(self) -> Vec<&'static str> {
        match self {
            Self::Policy => catalog::policies().iter().map(|policy| policy.name).collect(),
            Self::Breaker => catalog::BREAKERS.iter().map(|breaker| breaker.name).chain(["none"]).collect(),
            Self::Timeout => catalog::TIMEOUTS.iter().map(|timeout| timeout.name).collect(),
            Self::Throttle | Self::Dependency | Self::Secret | Self::Receiver => Vec::new(),
        }
    }

    /// Its name in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "retry policy",
            Self::Breaker => "breaker",
            Self::Timeout => "timeout",
            Self::Throttle => "throttle",
            Self::Dependency => "dependency",
            Self::Secret => "secret",
            Self::Receiver => "receiver",
        }
    }

    #[must_use]
    pub const fn section(self) -> &'static str {
        match self {
            Self::Policy => "retry_policies",
            Self::Breaker => "breakers",
            Self::Timeout => "timeouts",
            Self::Throttle => "throttles",
            Self::Dependency => "dependencies",
            Self::Secret => "secrets",
            Self::Receiver => "receivers",
        }
    }
}

#[must_use]
pub const fn key(key: &'static str, takes: ValueType, about: &'static str) -> KeySchema {
    KeySchema { key, takes, role: KeyRole::Behaviour, need: KeyPresence::Optional, about }
}

#[must_use]
pub const fn required(name: &'static str, takes: ValueType, about: &'static str) -> KeySchema {
    key(name, takes, about).required()
}

const fn duration(name: &'static str, about: &'static str) -> KeySchema {
    key(name, ValueType::Duration, about)
}

const fn text(name: &'static str, about: &'static str) -> KeySchema {
    key(name, ValueType::Text, about)
}

const fn word<T: Keyword>(name: &'static str, about: &'static str) -> KeySchema {
    key(name, ValueType::Word(T::WORDS), about)
}
