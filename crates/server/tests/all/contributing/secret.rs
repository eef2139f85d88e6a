//! `secrets: { s: { keyring: NAME } }`: a secret of this process.

use std::sync::Arc;

use redrive_core::book::connectors::{Connector, Edge, Profile};
use redrive_core::book::schema::ValueType;
use redrive_node::connectors::{ConnectorFuture, Driver, Make};
use redrive_node::secret::{SecretError, SecretSource, SecretValues};

pub(super) const DRIVER: Driver = Driver {
    connector: &CONNECTOR,
    make: Make::Secret(|endpoint| {
        Arc::new(Keyring(endpoint.settings::<String>().cloned().unwrap_or_default()))
    }),
};

static CONNECTOR: Connector =
    Connector::new(Edge::Secret, "keyring", ValueType::Text, "A name in the keyring.", |from| {
        Some((Arc::new(from.own_text()?), Profile::default()))
    });

struct Keyring(String);

impl SecretSource for Keyring {
    // The runtime adds caching, staleness and alerts.
    fn fetch(&self) -> ConnectorFuture<'_, Result<SecretValues, SecretError>> {
        let value = format!("the value of {}", self.0);
        Box::pin(async move { SecretValues::from_lines(value.as_bytes(), "keyring") })
    }
}
