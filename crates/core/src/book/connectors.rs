//! Connectors: everything that can stand under `target`, `sources`, `secrets`, `archive` or `receivers`.
//!
//! A kind is one [`Connector`]: its key, the keys beside it, how its settings are read, and what the book, the
//! lints, the simulator and the masks ask about it. [`Connectors`] is the table of all kinds of a build, and an
//! argument wherever a book is read. Running it is the job of another crate.
//!
//! Invariant: no other code asks which kind it has before it; it asks the connector and its [`Profile`].

mod absent;
pub mod email;
pub mod exec;
pub mod folder;
pub mod http;
pub mod log;
pub mod notify;
mod reader;
pub mod schedule;
pub mod secrets;
pub mod webhook;

use std::any::Any;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::model::{At, Network, TargetEntry};
use super::problem::{Problem, Problems, ProblemSeverity, BookSpan};
use super::schema::{KeySchema, ValueType, key};
use super::yaml::YamlNode;
use crate::policy::catalog::Kind;

pub use absent::absent;
pub use reader::SettingsReader;

/// The places of a book where connectors stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    /// Where events go.
    Target,
    /// Where events come from.
    Source,
    /// Where a secret comes from.
    Secret,
    /// Where payloads are kept.
    Archive,
    /// Where notices of alerts go.
    Receiver,
}

impl Edge {
    /// Its name in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Source => "source",
            Self::Secret => "secret",
            Self::Archive => "archive",
            Self::Receiver => "receiver",
        }
    }
}

/// Whether a build has the code of a connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// It has.
    BuiltIn,
    /// A build with this feature has.
    Feature(&'static str),
    /// No build has yet.
    Planned,
}

/// How the other side answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallProtocol {
    /// Events are posted to an address; an answer has a status and begins with headers.
    Http,
    /// By the statuses of an API, through a client that keeps its connections to itself.
    HttpApi,
    /// As a broker or a store does.
    Broker,
    /// As a process does, which runs and exits.
    Process,
}

/// Whether knowing an address is enough to send there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressUse {
    /// It may be shown but for its credentials.
    Shown,
    /// It is a secret as a whole.
    Secret,
}

/// How much of what an alert is raised for a receiver gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeDetail {
    /// The worst of it, and the end of the whole: for people.
    Worst,
    /// Everything each time, and what of it has ended: for a receiver that keeps a record of each thing.
    Each,
}

/// What the settings of a connector are: a type of its own.
pub trait ConnectorSettings: Any + fmt::Debug + Send + Sync {
    /// Whether they are the same as others.
    fn equals(&self, other: &dyn ConnectorSettings) -> bool;
}

impl<T: Any + fmt::Debug + PartialEq + Send + Sync> ConnectorSettings for T {
    fn equals(&self, other: &dyn ConnectorSettings) -> bool {
        (other as &dyn Any).downcast_ref::<T>().is_some_and(|other| other == self)
    }
}

/// Reads the settings of a connector; none where what is wrong is reported.
pub type ReadSettings = fn(&mut SettingsReader<'_>) -> Option<(Arc<dyn ConnectorSettings>, Profile)>;

/// A kind of target, source, secret, archive or receiver.
pub struct Connector {
    /// Where it can stand.
    pub edge: Edge,
    /// The key that chooses it, and what may stand there.
    pub field: KeySchema,
    /// The keys beside it that belong to it.
    pub beside: &'static [KeySchema],
    /// Whether this build has it.
    pub presence: Availability,
    /// What it is as a dependency; none if it calls nothing that could fail.
    pub dependency: Option<Kind>,
    /// How it answers calls.
    pub speech: CallProtocol,
    /// Whether its address may be shown.
    pub address: AddressUse,
    /// How long a call may take, where that is not what calls of its edge usually may.
    pub timeout: Option<Duration>,
    /// Of a receiver: how much it gets.
    pub detail: NoticeDetail,
    /// How its settings are read.
    pub read: ReadSettings,
}

impl Connector {
    /// A connector that is there, calls nothing, and has no keys but its own.
    #[must_use]
    pub const fn new(edge: Edge, name: &'static str, takes: ValueType, about: &'static str, read: ReadSettings) -> Self {
        Self {
            edge,
            field: key(name, takes, about),
            beside: &[],
            presence: Availability::BuiltIn,
            dependency: None,
            speech: CallProtocol::Broker,
            address: AddressUse::Shown,
            timeout: None,
            detail: NoticeDetail::Worst,
            read,
        }
    }

    /// The key that chooses it.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        self.field.key
    }

    fn own_field(&'static self, key: &str) -> Option<&'static KeySchema> {
        std::iter::once(&self.field).chain(self.beside).find(|field| field.key == key)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.edge.as_str(), self.key())
    }
}

/// What is asked about the settings of a connector, whatever its kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Where it is, in one line for people, without credentials.
    pub shown: String,
    /// The addresses that it calls, as they are written.
    pub addresses: Vec<String>,
    /// What their names may resolve to, where the book says so.
    pub network: Option<Network>,
    /// The secrets of the book that it uses, by name.
    pub secrets: Vec<String>,
    /// Of a target: how many deliveries one call carries, if it may be several.
    pub batch: Option<BatchLimit>,
    /// Of a target: what runs, if it starts a program.
    pub run: Option<ProgramRun>,
}

/// Deliveries in one call.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchLimit {
    /// The most.
    pub max: u32,
    /// Where the book states it.
    pub stated_at: Option<BookSpan>,
}

/// A program that is run for each delivery.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramRun {
    /// How long a run may take.
    pub time_limit: Option<At<Duration>>,
    /// The event type of its results.
    pub output: Option<String>,
}

/// A connector with its settings, as a place of the book states it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The kind.
    pub connector: &'static Connector,
    /// What is asked about it.
    pub profile: Profile,
    settings: Arc<dyn ConnectorSettings>,
}

impl Endpoint {
    /// An endpoint that no book states.
    #[must_use]
    pub fn new(connector: &'static Connector, settings: Arc<dyn ConnectorSettings>, profile: Profile) -> Self {
        Self { connector, profile, settings }
    }

    /// The key of its kind.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        self.connector.key()
    }

    /// Its settings, if they are of that type.
    #[must_use]
    pub fn settings<T: 'static>(&self) -> Option<&T> {
        (&*self.settings as &dyn Any).downcast_ref()
    }

    /// The address that events are posted to over HTTP.
    #[must_use]
    pub fn http_address(&self) -> Option<&str> {
        self.profile.addresses.first().filter(|_| self.connector.speech == CallProtocol::Http).map(String::as_str)
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.connector, other.connector) && self.settings.equals(&*other.settings)
    }
}

impl TargetEntry {
    /// The target that prints events.
    #[must_use]
    pub fn stdout(span: BookSpan) -> Self {
        Self { span, endpoint: log::endpoint() }
    }
}

/// The connectors of a build.
#[derive(Clone, Debug, Default)]
pub struct Connectors(Arc<[&'static Connector]>);

impl Connectors {
    /// The table of these connectors, in the order in which they are listed for people.
    #[must_use]
    pub fn new(rows: impl IntoIterator<Item = &'static Connector>) -> Self {
        Self(rows.into_iter().collect())
    }

    /// These and more; a row of the same name is replaced.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = &'static Connector>) -> Self {
        let mut rows = self.0.to_vec();
        for one in more {
            match rows.iter_mut().find(|row| (row.edge, row.key()) == (one.edge, one.key())) {
                Some(row) => *row = one,
                None => rows.push(one),
            }
        }
        Self(rows.into())
    }

    /// The connectors of an edge.
    pub fn of(&self, edge: Edge) -> impl Iterator<Item = &'static Connector> {
        self.0.iter().copied().filter(move |connector| connector.edge == edge)
    }

    /// The keys that choose a connector at an edge, then those beside them; a key that means different things
    /// beside different connectors is there for each.
    #[must_use]
    pub fn fields(&self, edge: Edge) -> Vec<&'static KeySchema> {
        let mut fields: Vec<_> = self.of(edge).map(|connector| &connector.field).collect();
        for field in self.of(edge).flat_map(|connector| connector.beside) {
            if !fields.iter().any(|known| (known.key, known.about) == (field.key, field.about)) {
                fields.push(field);
            }
        }
        fields
    }

    /// The key beside a connector, or the names of the connectors that it belongs to instead.
    pub(super) fn field_beside(
        &self,
        connector: &'static Connector,
        key: &str,
    ) -> Result<&'static KeySchema, Vec<&'static str>> {
        let owners = || {
            let all = self.of(connector.edge);
            all.filter(|other| other.beside.iter().any(|field| field.key == key)).map(Connector::key)
        };
        connector.own_field(key).ok_or_else(|| owners().collect())
    }

    /// The connector whose key a map has, and no other's.
    pub(super) fn chosen(&self, edge: Edge, node: &YamlNode) -> Option<&'static Connector> {
        let mut given = self.of(edge).filter(|connector| node.get(connector.key()).is_some());
        given.next().filter(|_| given.next().is_none())
    }

    /// The connector of a map with its settings; none where what is wrong is reported.
    pub(super) fn read(
        &self,
        edge: Edge,
        node: &YamlNode,
        place: BookSpan,
        problems: &mut Problems,
    ) -> Option<Endpoint> {
        let connector = self.chosen(edge, node)?;
        let (settings, profile) = (connector.read)(&mut SettingsReader { connector, node, place, problems })?;
        Some(Endpoint { connector, profile, settings })
    }

    /// The error for a connector at that place, if this build does not have it.
    #[must_use]
    pub fn missing(&self, connector: &Connector, span: BookSpan) -> Option<Problem> {
        let (edge, key) = (connector.edge.as_str(), connector.key());
        let message = match connector.presence {
            Availability::BuiltIn => return None,
            Availability::Feature(feature) => {
                format!("{edge} kind `{key}` is not in this build; it needs the feature `{feature}`")
            }
            Availability::Planned => format!("{edge} kind `{key}` is not available in this version"),
        };
        let there = self.of(connector.edge).filter(|one| one.presence == Availability::BuiltIn);
        let mut available: Vec<String> = there.map(|one| format!("`{}`", one.key())).collect();
        available.sort_unstable();
        Some(Problem {
            severity: ProblemSeverity::Error,
            code: "not-built-in",
            span,
            message,
            help: format!("available {edge} kinds: {}", available.join(", ")),
        })
    }
}

/// The connectors that every build has, and those that are planned.
#[must_use]
pub fn built_in() -> &'static Connectors {
    static TABLE: LazyLock<Connectors> = LazyLock::new(|| {
        let rows = [
            &http::TARGET,
            &exec::TARGET,
            &log::TARGET,
            &webhook::SOURCE,
            &schedule::SOURCE,
            &folder::SOURCE,
            &secrets::ENV,
            &secrets::FILE,
            &secrets::COMMAND,
            &folder::ARCHIVE,
            &notify::NTFY,
            &notify::WEBHOOK,
            &email::RECEIVER,
            &notify::SLACK,
            &notify::ALERTMANAGER,
        ];
        Connectors::new(rows.into_iter().chain(&absent::PLANNED))
    });
    &TABLE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::read;

    static MAIL: Connector = absent(Edge::Target, "mail", Availability::Feature("mail"), "Mail.");

    const BOOK: &str = r#"version: 1
secrets: { hooks: { key-vault: "https://vault.test/hooks" } }
sources:
  in: { kafka: { brokers: ["b:9092"], topics: [t] }, type: a.b }
services:
  shop:
    target: { http: "http://h.test/" }
    events: [a.b]
    channels:
      mail: { target: { mail: "a@example.test" }, events: [a.b] }
      same: { events: [a.b] }
"#;

    #[test]
    fn a_build_says_which_kinds_it_lacks_and_what_brings_them() {
        let table = built_in().with([&MAIL]);
        let missing = read(BOOK, &table).book.expect("a book").missing();
        let shown = |one: &Problem| format!("{} {} {}", one.span.position.line, one.code, one.message);
        assert_eq!(
            missing.iter().map(shown).collect::<Vec<_>>(),
            [
                "10 not-built-in target kind `mail` is not in this build; it needs the feature `mail`",
                "4 not-built-in source kind `kafka` is not available in this version",
                "2 not-built-in secret kind `key-vault` is not available in this version",
            ]
        );
        assert_eq!(missing[0].help, "available target kinds: `exec`, `http`, `log`");
    }

    #[test]
    fn a_kind_that_is_not_in_the_table_is_no_key() {
        let reading = read(BOOK, built_in());
        let codes: Vec<_> = reading.problems.into_sorted().iter().map(|problem| problem.code).collect();
        assert_eq!(codes, ["one-of", "unknown-key"]);
    }

    #[test]
    fn every_key_stands_once_in_the_table() {
        for edge in [Edge::Target, Edge::Source, Edge::Secret, Edge::Archive, Edge::Receiver] {
            let keys: Vec<&str> = built_in().of(edge).map(Connector::key).collect();
            let once: std::collections::BTreeSet<&str> = keys.iter().copied().collect();
            assert_eq!(once.len(), keys.len(), "{edge:?}");
            for connector in built_in().of(edge) {
                let planned = connector.field.about.ends_with("Not available in this version.");
                assert_eq!(planned, connector.presence == Availability::Planned, "{connector:?}");
            }
        }
    }
}
