//! The connectors that this crate runs: the description of each, and its factory.
//!
//! [`Driver`] joins the two and [`Drivers`] is the table of a build. Another crate adds its drivers with
//! [`Drivers::with`]; books are read with [`Drivers::connectors`], which comes from the same list.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use redrive_core::book::connectors::http::{HttpAuth, TlsClient};
use redrive_core::book::connectors::{self, Connector, Connectors, Endpoint};
use redrive_core::book::model::{Network, Sections};

use crate::archive::{Archive, ArchiveFailure, folder};
use crate::receiver;
use crate::secret::{self, SecretError, SecretSource, SecretValues, Secrets};
use crate::source::{self, Source};
use crate::target::http::{Auth, ClientTls, Pool, Signing, check_secret};
use crate::target::{Target, container, exec, http, log, ntfy, smtp};
use crate::tls::{ClientPem, ClientPemPart, Roots, client_config_of};
use redrive::process::Supervisor;
use zeroize::Zeroizing;

pub type ConnectorFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub type MakeError = Box<dyn Error + Send + Sync>;

pub type MakeTarget = fn(&Endpoint, &Site<'_>) -> Result<Arc<dyn Target>, MakeError>;

pub type MakeSource = fn(&Endpoint, &SourceSite<'_>) -> Result<Arc<dyn Source>, MakeError>;

#[derive(Clone, Copy)]
pub enum Make {
    Target(MakeTarget),
    Secret(fn(&Endpoint) -> Arc<dyn SecretSource>),
    Source(MakeSource),
    Archive(fn(&Endpoint) -> Result<Arc<dyn Archive>, ArchiveFailure>),
    /// Nothing is made: the API serves webhooks, and the node's clock fires schedules.
    Served,
}

#[derive(Clone, Copy)]
pub struct Driver {
    pub connector: &'static Connector,
    pub make: Make,
}

/// What a target is made with, besides its settings.
pub struct Site<'a> {
    pub drivers: &'a Drivers,
    pub sections: &'a Sections,
    /// Values are fetched with each call.
    pub secrets: &'a Secrets,
    pub pool: &'a Arc<Pool>,
    pub supervisor: &'a Supervisor,
    pub permits: u32,
    /// Owner and line, for messages.
    pub place: String,
}

/// What a source is made with, besides its settings.
pub struct SourceSite<'a> {
    pub name: &'a str,
    pub secrets: &'a Secrets,
}

impl Site<'_> {
    /// Signs calls with a secret of the book. A value that can be read now must be able to sign.
    pub fn signing(&self, secret: Option<&String>) -> Result<Option<Signing>, MakeError> {
        let Some(name) = secret else { return Ok(None) };
        let at = self.sections.secrets.get(name);
        if let Some(Ok(values)) = at.and_then(|at| self.drivers.read_now(&at.value.endpoint)) {
            check_secret(&values)?;
        }
        Ok(Some(Signing::new(self.secrets.clone(), name)))
    }

    /// Values that can be read now must be usable.
    pub(crate) fn tls(&self, client: Option<&TlsClient>) -> Result<Option<ClientTls>, MakeError> {
        let Some(client) = client else { return Ok(None) };
        let read = |name: &String| {
            let at = self.sections.secrets.get(name)?;
            self.drivers.read_now(&at.value.endpoint)?.ok()
        };
        let identity = client.identity.as_ref().map(|one| (read(&one.certificate), read(&one.key)));
        let ca = client.ca.as_ref().map(read);
        let is_known = !matches!(identity, Some((None, _) | (_, None))) && !matches!(ca, Some(None));
        if is_known {
            let first = |values: &'_ Option<SecretValues>| {
                values.as_ref().and_then(|values| values.iter().next()).unwrap_or_default().to_vec()
            };
            let identity =
                identity.map(|(certificate, key)| (first(&certificate), Zeroizing::new(first(&key))));
            let ca = ca.map(|ca| first(&ca));
            let pem = ClientPem {
                identity: identity
                    .as_ref()
                    .map(|(certificate, key)| (certificate.as_slice(), key.as_slice())),
                ca: ca.as_deref(),
            };
            client_config_of(&Roots::Only(Vec::new()), &pem).map_err(|invalid| {
                let identity = client.identity.as_ref();
                let name = match invalid.part {
                    ClientPemPart::Certificate => identity.map(|one| &one.certificate),
                    ClientPemPart::Key => identity.map(|one| &one.key),
                    ClientPemPart::Ca => client.ca.as_ref(),
                };
                format!("secret `{}` {invalid}", name.expect("what is wrong is there"))
            })?;
        }
        Ok(Some(ClientTls::new(client, self.secrets)))
    }

    pub(crate) fn auth(&self, auth: Option<&HttpAuth>, network: Network) -> Result<Option<Auth>, MakeError> {
        Ok(auth.map(|auth| Auth::new(auth, self.secrets, self.pool, network)).transpose()?)
    }
}

/// Clones share one table.
#[derive(Clone)]
pub struct Drivers {
    rows: Arc<[Driver]>,
    connectors: Connectors,
}

impl Drivers {
    #[must_use]
    pub fn built_in() -> &'static Self {
        static TABLE: LazyLock<Drivers> =
            LazyLock::new(|| Drivers { rows: BUILT_IN.into(), connectors: connectors::built_in().clone() });
        &TABLE
    }

    /// Adds drivers; a row of the same name, such as one that was absent, is replaced.
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

    /// If this build lacks the provider, the result fails on use.
    #[must_use]
    pub fn secret(&self, endpoint: &Endpoint) -> Arc<dyn SecretSource> {
        match self.make(endpoint) {
            Some(Make::Secret(make)) => make(endpoint),
            _ => Arc::new(secret::MissingProvider(endpoint.key())),
        }
    }

    pub(crate) fn read_now(&self, endpoint: &Endpoint) -> Option<Result<SecretValues, SecretError>> {
        self.secret(endpoint).read_now()
    }

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

/// Settings that the endpoint's own connector has read.
pub(crate) fn settings<T: 'static>(endpoint: &Endpoint) -> &T {
    endpoint.settings().expect("a driver is asked for endpoints of its own connector")
}

const BUILT_IN: [Driver; 18] = [
    http::DRIVER,
    exec::DRIVER,
    container::DRIVER,
    smtp::DRIVER,
    ntfy::DRIVER,
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
    use redrive_core::book::connectors::{Availability, Edge};
    use redrive_core::book::problem::ProblemSeverity;
    use redrive_lab::lint::{all, check_for};

    use super::*;

    #[test]
    fn a_row_is_there_if_and_only_if_it_can_be_made() {
        let drivers = Drivers::built_in();
        for edge in [Edge::Target, Edge::Source, Edge::Secret, Edge::Archive, Edge::Receiver] {
            for connector in drivers.connectors().of(edge) {
                let is_driven = drivers.rows.iter().any(|driver| std::ptr::eq(driver.connector, connector));
                assert_eq!(is_driven, connector.presence == Availability::BuiltIn, "{connector:?}");
            }
        }
    }

    #[test]
    fn the_advice_of_every_lint_is_a_book_that_can_be_served() {
        for lint in all() {
            let mut problems =
                check_for(lint.fixed_book().as_bytes(), Drivers::built_in().connectors()).problems;
            problems.retain(|problem| problem.severity == ProblemSeverity::Error);
            assert!(problems.is_empty(), "{}: {problems:?}", lint.code);
        }
    }
}
