//! The `http` target: posts events to an address.

use std::sync::Arc;

use super::reader::NETWORK;
use super::{Batch, Connector, Edge, Profile, Reader, Settings, Speech};
use crate::book::model::Network;
use crate::book::schema::{Field, Named, Type, key};
use crate::limits;
use crate::policy::catalog::Kind;
use crate::text::hide_passwords;

/// The connector.
pub static TARGET: Connector = Connector {
    beside: &[
        key(
            "format",
            Type::Word(&["binary", "batch", "structured"]),
            "With `http`: the CloudEvents form (default binary).",
        ),
        key(
            "batch_max",
            Type::Count { min: 1, max: limits::BATCH_EVENTS_MAX as u64 },
            "With `format: batch`: the most deliveries in one call (default 10).",
        ),
        key("secret", Type::Name(Named::Secret), "With `http`: signs each call by Standard Webhooks."),
        Field {
            about: "With `http`: `private` lets the name resolve to addresses of this machine and of private networks (default public); an address written as such needs no leave.",
            ..NETWORK
        },
    ],
    dependency: Some(Kind::Webhook),
    speech: Speech::Http,
    ..Connector::new(Edge::Target, "http", Type::Url, "The address that events are posted to.", read)
};

/// Its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// Where events are posted to.
    pub address: String,
    /// The form of calls.
    pub form: Form,
    /// The secret that calls are signed with.
    pub secret: Option<String>,
    /// What the name in the address may resolve to.
    pub network: Network,
}

/// The CloudEvents form of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Attributes in headers, data as the body.
    #[default]
    Binary,
    /// One event as JSON.
    Structured,
    /// Several events as a JSON list.
    Batch,
}

fn read(from: &mut Reader<'_>) -> Option<(Arc<dyn Settings>, Profile)> {
    let form = match from.text("format").as_deref() {
        Some("structured") => Form::Structured,
        Some("batch") => Form::Batch,
        _ => Form::Binary,
    };
    if form != Form::Batch {
        from.exclude(&["batch_max"], "it belongs to `format: batch`");
    }
    let address = from.own_text()?;
    let stated = from.count_at("batch_max");
    let batch = Batch {
        max: stated.as_ref().map_or(limits::BATCH_DELIVERIES_DEFAULT, |at| at.value),
        stated_at: stated.map(|at| at.span),
    };
    let (secret, network) = (from.text("secret"), from.network());
    let profile = Profile {
        shown: hide_passwords(&address).into_owned(),
        addresses: vec![address.clone()],
        network: Some(network),
        secrets: secret.iter().cloned().collect(),
        batch: (form == Form::Batch).then_some(batch),
        run: None,
    };
    Some((Arc::new(Http { address, form, secret, network }), profile))
}
