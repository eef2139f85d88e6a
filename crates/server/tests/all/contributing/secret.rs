//! `secrets: { s: { keyring: NAME } }`: a secret that the process keeps.

use std::sync::Arc;

use redrive_core::book::connectors::{Connector, Edge, Profile};
use redrive_core::book::schema::Type;
use redrive_node::connectors::{Doing, Driver, Make};
use redrive_node::secret::{SecretError, SecretSource, SecretValues};

pub(super) const DRIVER: Driver = Driver {
    connector: &CONNECTOR,
    make: Make::Secret(|endpoint| {
        Arc::new(Keyring(endpoint.settings::<String>().cloned().unwrap_or_default()))
    }),
};

static CONNECTOR: Connector =
    Connector::new(Edge::Secret, "keyring", Type::Text, "A name in the keyring.", |from| {
        Some((Arc::new(from.own_text()?), Profile::default()))
    });

struct Keyring(String);

impl SecretSource for Keyring {
    // Caching, staleness and alerts come with the trait.
    fn fetch(&self) -> Doing<'_, Result<SecretValues, SecretError>> {
        let value = format!("the value of {}", self.0);
        Box::pin(async move { SecretValues::from_lines(value.as_bytes(), "keyring") })
    }
}
