//! Connectors: the kinds of `target`, `sources`, `secrets`, `archive` and `receivers`.
//!
//! A kind is one [`Connector`]: its key, the keys beside it, how its settings are read, and what the book, the
//! lints, the simulator and the masks ask about it. [`Connectors`] is the table of all kinds of a build, and an
//! argument wherever a book is read. Running a connector is the job of another crate.
//!
//! Invariant: other code never tests for a kind; it asks the connector and its [`Profile`].

mod absent;
pub mod container;
pub mod email;
pub mod exec;
pub mod folder;
pub mod http;
pub mod log;
pub mod notify;
pub mod ntfy;
mod reader;
pub mod schedule;
pub mod secrets;
pub mod smtp;
mod templated;
pub mod webhook;

use std::any::Any;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::model::{At, Network, TargetEntry};
use super::problem::{BookSpan, Problem, ProblemSeverity, Problems};
use super::schema::{KeySchema, ValueType, key};
use super::template::Template;
use super::yaml::YamlNode;
use crate::policy::catalog::DependencyKind;

pub use absent::absent;
pub use reader::SettingsReader;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edge {
    Target,
    Source,
    Secret,
    Archive,
    Receiver,
}

impl Edge {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    BuiltIn,
    /// Only in builds with this feature.
    Feature(&'static str),
    Planned,
}

/// How the remote side answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallProtocol {
    /// Posts to an address; answers have a status and headers.
    Http,
    /// Statuses of an API, through a client that manages its own connections.
    HttpApi,
    Broker,
    Process,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressUse {
    /// Shown without its credentials.
    Shown,
    Secret,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeDetail {
    /// The worst subjects, and the end of the alert: for people.
    Worst,
    /// Every subject each time, and which have ended: for receivers that track each one.
    Each,
}

pub trait ConnectorSettings: Any + fmt::Debug + Send + Sync {
    fn equals(&self, other: &dyn ConnectorSettings) -> bool;
}

impl<T: Any + fmt::Debug + PartialEq + Send + Sync> ConnectorSettings for T {
    fn equals(&self, other: &dyn ConnectorSettings) -> bool {
        (other as &dyn Any).downcast_ref::<T>().is_some_and(|other| other == self)
    }
}

/// Reads the settings of a connector; `None` if a problem was reported.
pub type ReadSettings = fn(&mut SettingsReader<'_>) -> Option<(Arc<dyn ConnectorSettings>, Profile)>;

pub struct Connector {
    pub edge: Edge,
    pub field: KeySchema,
    pub beside: &'static [KeySchema],
    pub presence: Availability,
    /// `None` if it calls nothing that could fail.
    pub dependency: Option<DependencyKind>,
    pub speech: CallProtocol,
    pub address: AddressUse,
    /// Overrides the built-in timeout of a call.
    pub timeout: Option<Duration>,
    /// For receivers.
    pub detail: NoticeDetail,
    pub read: ReadSettings,
}

impl Connector {
    /// A built-in connector without a dependency or further keys.
    #[must_use]
    pub const fn new(
        edge: Edge,
        name: &'static str,
        takes: ValueType,
        about: &'static str,
        read: ReadSettings,
    ) -> Self {
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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// One line for people, without credentials.
    pub shown: String,
    /// The addresses it calls, as written.
    pub addresses: Vec<String>,
    /// What their names may resolve to, if the book says so.
    pub network: Option<Network>,
    pub secrets: Vec<String>,
    /// In the order of the book's keys; for checks against the schemas of events, and to show what is sent.
    pub templates: Vec<TemplateUse>,
    /// For targets that take several deliveries per call.
    pub batch: Option<BatchLimit>,
    /// For targets that start a program.
    pub run: Option<ProgramRun>,
}

/// A template of a connector, which names fields of the event.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateUse {
    /// Such as `subject`, or `headers.x-tenant`.
    pub key: String,
    pub span: BookSpan,
    pub template: Template,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BatchLimit {
    pub max: u32,
    pub stated_at: Option<BookSpan>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramRun {
    pub time_limit: Option<At<Duration>>,
    pub output: Option<String>,
}

/// A connector with its settings at one place of the book.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub connector: &'static Connector,
    pub profile: Profile,
    settings: Arc<dyn ConnectorSettings>,
}

impl Endpoint {
    #[must_use]
    pub fn new(
        connector: &'static Connector,
        settings: Arc<dyn ConnectorSettings>,
        profile: Profile,
    ) -> Self {
        Self { connector, profile, settings }
    }

    #[must_use]
    pub const fn key(&self) -> &'static str {
        self.connector.key()
    }

    /// `None` if the settings are of another type.
    #[must_use]
    pub fn settings<T: 'static>(&self) -> Option<&T> {
        (&*self.settings as &dyn Any).downcast_ref()
    }

    #[must_use]
    pub fn http_address(&self) -> Option<&str> {
        self.profile
            .addresses
            .first()
            .filter(|_| self.connector.speech == CallProtocol::Http)
            .map(String::as_str)
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.connector, other.connector) && self.settings.equals(&*other.settings)
    }
}

impl TargetEntry {
    #[must_use]
    pub fn stdout(span: BookSpan) -> Self {
        Self { span, endpoint: log::endpoint() }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Connectors(Arc<[&'static Connector]>);

impl Connectors {
    /// In the order shown to people.
    #[must_use]
    pub fn new(rows: impl IntoIterator<Item = &'static Connector>) -> Self {
        Self(rows.into_iter().collect())
    }

    /// Replaces rows of the same name.
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

    pub fn of(&self, edge: Edge) -> impl Iterator<Item = &'static Connector> {
        self.0.iter().copied().filter(move |connector| connector.edge == edge)
    }

    /// Selecting keys first, then the keys beside them; a key with several meanings is listed once for each.
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

    /// The key beside a connector, or the connectors it belongs to instead.
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

    /// The connector whose key the map has, if it is the only one.
    pub(super) fn chosen(&self, edge: Edge, node: &YamlNode) -> Option<&'static Connector> {
        let mut given = self.of(edge).filter(|connector| node.get(connector.key()).is_some());
        given.next().filter(|_| given.next().is_none())
    }

    /// `None` if a problem was reported.
    pub(super) fn read(
        &self,
        edge: Edge,
        node: &YamlNode,
        place: BookSpan,
        problems: &mut Problems,
    ) -> Option<Endpoint> {
        let connector = self.chosen(edge, node)?;
        let mut templates = Vec::new();
        let mut reader = SettingsReader { connector, node, place, problems, templates: &mut templates };
        let (settings, profile) = (connector.read)(&mut reader)?;
        let profile = Profile { templates, ..profile };
        Some(Endpoint { connector, profile, settings })
    }

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

/// The connectors of every build, and the planned ones.
#[must_use]
pub fn built_in() -> &'static Connectors {
    static TABLE: LazyLock<Connectors> = LazyLock::new(|| {
        let rows = [
            &http::TARGET,
            &exec::TARGET,
            &container::TARGET,
            &smtp::TARGET,
            &ntfy::TARGET,
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
        assert_eq!(
            missing[0].help,
            "available target kinds: `container`, `exec`, `http`, `log`, `ntfy`, `smtp`"
        );
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
