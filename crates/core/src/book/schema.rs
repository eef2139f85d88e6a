//! The format of the rule book as data: every key with its type, its role and a sentence about it.
//!
//! One table serves four readers: the validator, the JSON Schema, the reference in the docs and the
//! test that no key is inert. Invariant: a key that is not in these tables is refused, and a key
//! that is in them changes behaviour or is a fact.

mod alerting;
mod delivery;
mod dependency;
mod edge;

pub use delivery::BOOK;

use super::connectors::{Connector, Connectors, Edge};
use super::keywords::Keyword;
use crate::policy::catalog;

/// The keys of one kind of map.
#[derive(Debug)]
pub struct ObjectSchema {
    /// What such a map is called in messages: "a retry policy".
    pub name: &'static str,
    /// One sentence about it.
    pub about: &'static str,
    /// Its own keys.
    pub fields: &'static [KeySchema],
    /// Further keys that it shares with others.
    pub includes: &'static [&'static ObjectSchema],
    /// Of which keys exactly one must be given.
    pub one_of: OneOf,
}

impl ObjectSchema {
    /// One that shares no keys with others, and of whose keys any may be given.
    #[must_use]
    pub const fn new(name: &'static str, about: &'static str, fields: &'static [KeySchema]) -> Self {
        Self { name, about, fields, includes: &[], one_of: OneOf::Nothing }
    }
}

/// Keys of which exactly one must be given.
#[derive(Clone, Copy, Debug)]
pub enum OneOf {
    /// There are none.
    Nothing,
    /// These.
    Keys(&'static [&'static str]),
    /// Those of the connectors of an edge, which the map takes beside its own, with the keys that belong to them.
    Kinds(Edge),
}

impl ObjectSchema {
    /// A map with these keys and no others.
    #[must_use]
    pub const fn of(name: &'static str, about: &'static str, fields: &'static [KeySchema]) -> Self {
        Self { name, about, fields, includes: &[], one_of: OneOf::Nothing }
    }

    /// Its keys: those of its connectors, its own, and those that it shares.
    pub fn all_fields(&self, connectors: &Connectors) -> impl Iterator<Item = &'static KeySchema> {
        self.kind_fields(connectors).into_iter().chain(self.common_fields())
    }

    /// The keys that it has whatever its connector.
    pub fn common_fields(&self) -> impl Iterator<Item = &'static KeySchema> {
        self.fields.iter().chain(self.includes.iter().flat_map(|object| object.fields))
    }

    /// The keys of its connectors.
    #[must_use]
    pub fn kind_fields(&self, connectors: &Connectors) -> Vec<&'static KeySchema> {
        match self.one_of {
            OneOf::Kinds(edge) => connectors.fields(edge),
            OneOf::Nothing | OneOf::Keys(_) => Vec::new(),
        }
    }

    /// The key of that name.
    #[must_use]
    pub fn field(&self, key: &str, connectors: &Connectors) -> Option<&'static KeySchema> {
        let own = self.common_fields().find(|field| field.key == key);
        own.or_else(|| self.kind_fields(connectors).into_iter().find(|field| field.key == key))
    }

    /// The keys of which exactly one must be given; empty if that is not so.
    #[must_use]
    pub fn one_of(&self, connectors: &Connectors) -> Vec<&'static str> {
        match self.one_of {
            OneOf::Nothing => Vec::new(),
            OneOf::Keys(keys) => keys.to_vec(),
            OneOf::Kinds(edge) => connectors.of(edge).map(Connector::key).collect(),
        }
    }
}

/// A key and what may stand there.
#[derive(Debug)]
pub struct KeySchema {
    /// The key.
    pub key: &'static str,
    /// What may stand there.
    pub takes: ValueType,
    /// What it is for.
    pub role: KeyRole,
    /// Whether it may be left out.
    pub need: KeyPresence,
    /// One sentence about it.
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

/// Whether a key may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPresence {
    /// It must be there.
    Required,
    /// It may be left out.
    Optional,
}

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRole {
    /// It changes what Redrive does or shows.
    Behaviour,
    /// It tells `check` about the world outside; Redrive itself does not act on it.
    Fact,
}

/// What may stand in a place.
#[derive(Debug)]
pub enum ValueType {
    /// `30s`.
    Duration,
    /// `25MiB`.
    Size,
    /// `20/s`.
    Rate,
    /// `50%`.
    Share,
    /// `spread 25%`.
    Jitter,
    /// A regular expression.
    Pattern,
    /// An event type, possibly with wildcards.
    EventPattern,
    /// An event type without wildcards, or a template that makes one.
    Text,
    /// `http://…` or `https://…`.
    Url,
    /// A text with `{placeholders}` for headers and data.
    SourceTemplate,
    /// A value of an event, or a text with such values in braces.
    CopyKey,
    /// A text with `{placeholders}`, for names of dead-letter queues.
    LetterName,
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Count {
        /// At least.
        min: u64,
        /// At most.
        max: u64,
    },
    /// A whole number, or `unlimited`.
    CountOrUnlimited,
    /// A number.
    Number {
        /// At least.
        min: f64,
        /// At most.
        max: f64,
    },
    /// One of these words.
    Word(&'static [&'static str]),
    /// The name of something defined elsewhere in the book or in the catalog.
    Name(NameKind),
    /// What follows on a failure: the name of a policy, or an act.
    Reaction,
    /// An HTTP status, or a range such as `500-599`.
    Statuses,
    /// A category, a status or a range of statuses.
    FailureKind,
    /// Five fields of cron.
    Cron,
    /// A text that is JSON.
    Json,
    /// A time zone such as `Europe/Berlin`.
    Zone,
    /// `Mon-Fri 09:00-17:00 Europe/Berlin`.
    Hours,
    /// `METRIC OP VALUE [over D] [for D] [by WHAT]`.
    Condition,
    /// `ann@example.com`.
    MailAddress,
    /// `smtp://user@mail.example.com:587`.
    MailServer,
    /// The code of a lint.
    Lint,
    /// Whatever it is: only a connector that is not there knows.
    Any,
    /// A map with these keys.
    Object(&'static ObjectSchema),
    /// A map from names to such values.
    MapOf(&'static ValueType),
    /// A map from kinds of failure to such values.
    ByFailure(&'static ValueType),
    /// A list of such values.
    ListOf(&'static ValueType),
    /// One such value, or a list of them.
    OneOrMany(&'static ValueType),
    /// A single value of the first type, or a map of the second.
    ShortOrLong(&'static ValueType, &'static ObjectSchema),
}

/// The kinds of names a book refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    /// A retry policy.
    Policy,
    /// A breaker.
    Breaker,
    /// A timeout.
    Timeout,
    /// A throttle.
    Throttle,
    /// A dependency.
    Dependency,
    /// A secret.
    Secret,
    /// A receiver of alerts.
    Receiver,
}

impl NameKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Policy,
        Self::Breaker,
        Self::Timeout,
        Self::Throttle,
        Self::Dependency,
        Self::Secret,
        Self::Receiver,
    ];

    /// The names that are there without being defined.
    #[must_use]
    pub fn of_the_catalog(self) -> Vec<&'static str> {
        match self {
            Self::Policy => catalog::policies().iter().map(|policy| policy.name).collect(),
            Self::Breaker => catalog::BREAKERS.iter().map(|breaker| breaker.name).chain(["none"]).collect(),
            Self::Timeout => catalog::TIMEOUTS.iter().map(|timeout| timeout.name).collect(),
            Self::Throttle | Self::Dependency | Self::Secret | Self::Receiver => Vec::new(),
        }
    }

    /// What such a thing is called.
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

    /// The section of the book that defines it.
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

/// An optional key that changes behaviour.
#[must_use]
pub const fn key(key: &'static str, takes: ValueType, about: &'static str) -> KeySchema {
    KeySchema { key, takes, role: KeyRole::Behaviour, need: KeyPresence::Optional, about }
}

/// A key that must be there.
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
