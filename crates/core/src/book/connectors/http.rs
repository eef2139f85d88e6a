//! The `http` target: sends events to an address.

mod auth;
pub mod expect;
pub(super) mod fixed;
mod headers;
pub mod request;
mod tls;

use std::sync::Arc;

use self::request::RequestTemplates;

use super::reader::NETWORK;
use super::{BatchLimit, CallProtocol, Connector, ConnectorSettings, Edge, Profile, SettingsReader};
use crate::book::cel::CelExpression;
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
            ValueType::Word(&["POST", "PUT", "PATCH", "DELETE", "GET"]),
            "With `http`: the method of the request (default POST). GET sends no body.",
        ),
        key(
            "path",
            ValueType::RequestTemplate,
            "With `http`: appended to the path of the address; a template of the event.",
        ),
        key(
            "secret_path",
            ValueType::Name(NameKind::Secret),
            "With `http`: a secret appended to the path of the address, for webhooks whose address is the credential.",
        ),
        key(
            "query",
            ValueType::TemplateFields,
            "With `http`: parameters appended to the address; values are templates of the event.",
        ),
        key(
            "headers",
            ValueType::MapOf(&ValueType::RequestTemplate),
            "With `http`: further headers; values are templates of the event. Credentials go into `auth`.",
        ),
        key(
            "body",
            ValueType::RequestBody,
            "With `http`: the body in place of the event: a text, or a map or list sent as JSON; texts in it are templates of the event.",
        ),
        key(
            "form",
            ValueType::TemplateFields,
            "With `http`: the body in place of the event, as a form; values are templates of the event.",
        ),
        key(
            "expect",
            ValueType::Cel,
            "With `http`: a condition in CEL on `status`, `headers` and `body`; a response of 2xx that does not meet it is a failure.",
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
    pub request: RequestTemplates,
    /// The secret that is appended to the address.
    pub secret_path: Option<String>,
    /// What a response of 2xx must meet to be a success.
    pub expect: Option<CelExpression>,
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
    Get,
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
        Some("GET") => HttpMethod::Get,
        _ => HttpMethod::Post,
    };
    let auth = auth::read(&address, from);
    let tls = tls::read(&address, from);
    let mut request = request::read(form, method, from);
    request.headers = headers::read(form, auth.as_ref(), from);
    let (secret, network) = (from.text("secret"), from.network());
    let expect = expect::read(form, from);
    let secret_path = from.text("secret_path");
    if secret_path.is_some() {
        from.exclude(&["path"], "`secret_path` sets the path");
    }
    let secrets = secret.iter().chain(&secret_path).cloned();
    let secrets = secrets.chain(auth.iter().map(|auth| auth.secret().to_owned()));
    let secrets = secrets.chain(tls.iter().flat_map(TlsClient::secrets).cloned()).collect();
    let profile = Profile {
        shown: hide_passwords(&address).into_owned(),
        addresses: std::iter::once(&address)
            .chain(auth.iter().filter_map(HttpAuth::issuer))
            .cloned()
            .collect(),
        network: Some(network),
        secrets,
        templates: Vec::new(),
        batch: (form == HttpFormat::Batch).then_some(batch),
        run: None,
    };
    let settings =
        HttpSettings { address, form, secret, method, request, secret_path, expect, auth, tls, network };
    Some((Arc::new(settings), profile))
}
