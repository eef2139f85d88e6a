//! The connectors that this crate runs: the pure row of each, and how it is made.
//!
//! [`Driver`] ties the two together, and [`Drivers`] is the table of a build. Another crate adds its own drivers
//! with [`Drivers::with`]: the table that a book is read with, [`Drivers::connectors`], comes from the same list.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use redrive_core::book::connectors::{self, Connector, Connectors, Endpoint};
use redrive_core::book::model::Sections;

use crate::archive::{Archive, ArchiveFailure, folder};
use crate::receiver;
use crate::secret::{self, SecretError, SecretSource, SecretValues, Secrets};
use crate::source::{self, Source};
use crate::target::http::{Pool, Signing, check_secret};
use crate::target::{Target, exec, http, log};
use redrive::process::Supervisor;

/// What the methods of a connector return that take their time.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a connector cannot be made of its settings.
pub type MakeError = Box<dyn Error + Send + Sync>;

/// Makes a target, or a receiver of alerts.
pub type MakeTarget = fn(&Endpoint, &Site<'_>) -> Result<Arc<dyn Target>, MakeError>;

/// Makes a source.
pub type MakeSource = fn(&Endpoint, &SourceSite<'_>) -> Result<Arc<dyn Source>, MakeError>;

/// How a connector is made.
#[derive(Clone, Copy)]
pub enum Make {
    /// A target, or a receiver of alerts.
    Target(MakeTarget),
    /// A place where secrets are kept.
    Secret(fn(&Endpoint) -> Arc<dyn SecretSource>),
    /// A place that messages are read from.
    Source(MakeSource),
    /// A place for payloads.
    Archive(fn(&Endpoint) -> Result<Arc<dyn Archive>, ArchiveFailure>),
    /// Nothing is made: the API serves webhooks, and the node's clock fires schedules.
    Served,
}

/// A connector and how it is made.
#[derive(Clone, Copy)]
pub struct Driver {
    /// What it is.
    pub connector: &'static Connector,
    /// How it is made.
    pub make: Make,
}

/// What a target is made with, beside its settings.
pub struct Site<'a> {
    /// The drivers of the build.
    pub drivers: &'a Drivers,
    /// The book that it stands in.
    pub sections: &'a Sections,
    /// The secrets of the book, whose values are asked for with each call.
    pub secrets: &'a Secrets,
    /// The connections of all HTTP calls.
    pub pool: &'a Arc<Pool>,
    /// Starts programs.
    pub supervisor: &'a Supervisor,
    /// Calls that may be under way at once.
    pub permits: u32,
    /// Whose target it is and on which line, for messages.
    pub place: String,
}

/// What a source is made with, beside its settings.
pub struct SourceSite<'a> {
    /// Its name in the book.
    pub name: &'a str,
    /// The secrets of the book, whose values are asked for with each connection.
    pub secrets: &'a Secrets,
}

impl Site<'_> {
    /// How calls are signed with a secret of the book. A value that can be read now must be one that can sign.
    pub fn signing(&self, secret: Option<&String>) -> Result<Option<Signing>, MakeError> {
        let Some(name) = secret else { return Ok(None) };
        let at = self.sections.secrets.get(name);
        if let Some(Ok(values)) = at.and_then(|at| self.drivers.read_now(&at.value.endpoint)) {
            check_secret(&values)?;
        }
        Ok(Some(Signing::new(self.secrets.clone(), name)))
    }
}

/// The drivers of a build; clones are the same.
#[derive(Clone)]
pub struct Drivers {
    rows: Arc<[Driver]>,
    connectors: Connectors,
}

impl Drivers {
    /// The drivers of this crate.
    #[must_use]
    pub fn built_in() -> &'static Self {
        static TABLE: LazyLock<Drivers> =
            LazyLock::new(|| Drivers { rows: BUILT_IN.into(), connectors: connectors::built_in().clone() });
        &TABLE
    }

    /// These and more; a row of the same name, such as one of a kind that was absent, is replaced.
    #[must_use]
    pub fn with(&self, more: &[Driver]) -> Self {
        let rows: Arc<[Driver]> = self.rows.iter().chain(more).copied().collect();
        let connectors = self.connectors.with(more.iter().map(|driver| driver.connector));
        Self { rows, connectors }
    }

    /// The table that books are read with.
    #[must_use]
    pub const fn connectors(&self) -> &Connectors {
        &self.connectors
    }

    fn make(&self, endpoint: &Endpoint) -> Option<Make> {
        let row = self.rows.iter().find(|driver| std::ptr::eq(driver.connector, endpoint.connector));
        row.map(|driver| driver.make)
    }

    /// Makes a target; none if this build cannot.
    pub(crate) fn target(
        &self,
        endpoint: &Endpoint,
        site: &Site<'_>,
    ) -> Option<Result<Arc<dyn Target>, MakeError>> {
        match self.make(endpoint)? {
            Make::Target(make) => Some(make(endpoint, site)),
            Make::Source(_) | Make::Secret(_) | Make::Archive(_) | Make::Served => None,
        }
    }

    /// Makes a source; none if it is served elsewhere.
    pub(crate) fn source(
        &self,
        endpoint: &Endpoint,
        site: &SourceSite<'_>,
    ) -> Option<Result<Arc<dyn Source>, MakeError>> {
        match self.make(endpoint)? {
            Make::Source(make) => Some(make(endpoint, site)),
            Make::Target(_) | Make::Secret(_) | Make::Archive(_) | Make::Served => None,
        }
    }

    /// Makes the place where a secret is kept; one that fails if this build cannot.
    #[must_use]
    pub fn secret(&self, endpoint: &Endpoint) -> Arc<dyn SecretSource> {
        match self.make(endpoint) {
            Some(Make::Secret(make)) => make(endpoint),
            _ => Arc::new(secret::Absent(endpoint.key())),
        }
    }

    /// The values of a secret that can be read without waiting.
    pub(crate) fn read_now(&self, endpoint: &Endpoint) -> Option<Result<SecretValues, SecretError>> {
        self.secret(endpoint).read_now()
    }

    /// Makes an archive.
    pub fn archive(&self, endpoint: &Endpoint) -> Result<Arc<dyn Archive>, ArchiveFailure> {
        match self.make(endpoint) {
            Some(Make::Archive(make)) => make(endpoint),
            _ => Err(ArchiveFailure::Other {
                reason: format!("no archive `{}` in this build", endpoint.key()),
            }),
        }
    }
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rows.iter().map(|driver| driver.connector)).finish()
    }
}

/// The settings of an endpoint, which its own connector has read.
pub(crate) fn settings<T: 'static>(endpoint: &Endpoint) -> &T {
    endpoint.settings().expect("a driver is asked for endpoints of its own connector")
}

const BUILT_IN: [Driver; 15] = [
    http::DRIVER,
    exec::DRIVER,
    log::DRIVER,
    Driver { connector: &connectors::webhook::SOURCE, make: Make::Served },
    Driver { connector: &connectors::schedule::SOURCE, make: Make::Served },
    source::folder::DRIVER,
    secret::ENV,
    secret::FILE,
    secret::COMMAND,
    folder::DRIVER,
    receiver::NTFY,
    receiver::WEBHOOK,
    receiver::EMAIL,
    receiver::SLACK,
    receiver::ALERTMANAGER,
];

#[cfg(test)]
mod tests {
    use redrive_core::book::connectors::{Edge, Presence};
    use redrive_core::book::problem::Severity;
    use redrive_lab::lint::{all, check_for};

    use super::*;

    #[test]
    fn a_row_is_there_if_and_only_if_it_can_be_made() {
        let drivers = Drivers::built_in();
        for edge in [Edge::Target, Edge::Source, Edge::Secret, Edge::Archive, Edge::Receiver] {
            for connector in drivers.connectors().of(edge) {
                let is_driven = drivers.rows.iter().any(|driver| std::ptr::eq(driver.connector, connector));
                assert_eq!(is_driven, connector.presence == Presence::BuiltIn, "{connector:?}");
            }
        }
    }

    #[test]
    fn the_advice_of_every_lint_is_a_book_that_can_be_served() {
        for lint in all() {
            let mut problems = check_for(lint.mended().as_bytes(), Drivers::built_in().connectors()).problems;
            problems.retain(|problem| problem.severity == Severity::Error);
            assert!(problems.is_empty(), "{}: {problems:?}", lint.code);
        }
    }
}
