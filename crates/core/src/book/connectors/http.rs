//! The `http` target: sends events to an address.

mod auth;
pub(super) mod fixed;
mod headers;
mod tls;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::reader::NETWORK;
use super::{BatchLimit, CallProtocol, Connector, ConnectorSettings, Edge, Profile, SettingsReader};
use crate::book::model::Network;
use crate::book::schema::{KeySchema, NameKind, ValueType, key};
use crate::limits;
use crate::policy::catalog::DependencyKind;
use crate::text::hide_passwords;

pub use auth::{ClientProof, HttpAuth, OAuthClient};
pub use fixed::{CallHeaders, FixedCall};
pub use tls::{TlsClient, TlsIdentity};

pub static TARGET: Connector = Connector {
    beside: &[
        key(
            "format",
            ValueType::Word(&["binary", "batch", "structured"]),
            "With `http`: the CloudEvents form (default binary).",
        ),
        key(
            "batch_max",
            ValueType::Count { min: 1, max: limits::BATCH_EVENTS_MAX as u64 },
            "With `format: batch`: the most deliveries in one call (default 10).",
        ),
        key(
            "secret",
            ValueType::Name(NameKind::Secret),
            "With `http`: signs each call by Standard Webhooks.",
        ),
        key(
            "method",
            ValueType::Word(&["POST", "PUT", "PATCH", "DELETE"]),
            "With `http`: the method of the request (default POST).",
        ),
        key(
            "headers",
            ValueType::MapOf(&ValueType::Text),
            "With `http`: further headers of every call. Credentials go into `auth`.",
        ),
        auth::FIELD,
        tls::FIELD,
        KeySchema {
            about: "With `http`: `private` lets the name resolve to addresses of this machine and of private networks (default public); a literal address needs no permission.",
            ..NETWORK
        },
    ],
    dependency: Some(DependencyKind::Webhook),
    speech: CallProtocol::Http,
    ..Connector::new(Edge::Target, "http", ValueType::Url, "The address that events are sent to.", read)
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    pub address: String,
    pub form: HttpFormat,
    pub secret: Option<String>,
    pub method: HttpMethod,
    /// Names in lower case; names and values fit into a header.
    pub headers: BTreeMap<String, String>,
    pub auth: Option<HttpAuth>,
    pub tls: Option<TlsClient>,
    pub network: Network,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpMethod {
    #[default]
    Post,
    Put,
    Patch,
    Delete,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpFormat {
    #[default]
    Binary,
    Structured,
    Batch,
}

fn read(from: &mut SettingsReader<'_>) -> Option<(Arc<dyn ConnectorSettings>, Profile)> {
    let form = match from.text("format").as_deref() {
        Some("structured") => HttpFormat::Structured,
        Some("batch") => HttpFormat::Batch,
        _ => HttpFormat::Binary,
    };
    if form != HttpFormat::Batch {
        from.exclude(&["batch_max"], "it needs `format: batch`");
    }
    let address = from.own_text()?;
    let stated = from.count_at("batch_max");
    let batch = BatchLimit {
        max: stated.as_ref().map_or(limits::BATCH_DELIVERIES_DEFAULT, |at| at.value),
        stated_at: stated.map(|at| at.span),
    };
    let method = match from.text("method").as_deref() {
        Some("PUT") => HttpMethod::Put,
        Some("PATCH") => HttpMethod::Patch,
        Some("DELETE") => HttpMethod::Delete,
        _ => HttpMethod::Post,
    };
    let auth = auth::read(&address, from);
    let tls = tls::read(&address, from);
    let headers = headers::read(form, auth.as_ref(), from);
    let (secret, network) = (from.text("secret"), from.network());
    let secrets = secret.iter().cloned().chain(auth.iter().map(|auth| auth.secret().to_owned()));
    let secrets = secrets.chain(tls.iter().flat_map(TlsClient::secrets).cloned()).collect();
    let profile = Profile {
        shown: hide_passwords(&address).into_owned(),
        addresses: std::iter::once(&address)
            .chain(auth.iter().filter_map(HttpAuth::issuer))
            .cloned()
            .collect(),
        network: Some(network),
        secrets,
        batch: (form == HttpFormat::Batch).then_some(batch),
        run: None,
    };
    Some((Arc::new(HttpSettings { address, form, secret, method, headers, auth, tls, network }), profile))
}
