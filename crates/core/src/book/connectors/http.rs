//! The `http` target: sends events to an address.

pub mod expect;
mod headers;
pub mod request;

use std::sync::Arc;

use self::request::RequestTemplates;

use super::reader::NETWORK;
use super::{BatchLimit, CallProtocol, Connector, ConnectorSettings, Edge, Profile, SettingsReader};
use crate::book::cel::CelExpression;
use crate::book::model::Network;
use crate::book::schema::{KeySchema, NameKind, ObjectSchema, OneOf, ValueType, key, required};
use crate::book::yaml::YamlNode;
use crate::limits;
use crate::policy::catalog::DependencyKind;
use crate::text::hide_passwords;

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
        key("auth", ValueType::Object(&AUTH), "With `http`: how calls authenticate."),
        KeySchema {
            about: "With `http`: `private` lets the name resolve to addresses of this machine and of private networks (default public); a literal address needs no permission.",
            ..NETWORK
        },
    ],
    dependency: Some(DependencyKind::Webhook),
    speech: CallProtocol::Http,
    ..Connector::new(Edge::Target, "http", ValueType::Url, "The address that events are sent to.", read)
};

static AUTH: ObjectSchema = ObjectSchema {
    one_of: OneOf::Keys(&["bearer", "basic", "api_key"]),
    ..ObjectSchema::new(
        "an authentication",
        "How calls authenticate; the values come from secrets.",
        &[
            key("bearer", ValueType::Name(NameKind::Secret), "The secret sent as `Authorization: Bearer …`."),
            key("basic", ValueType::Object(&BASIC), "A user and a password, as `Authorization: Basic …`."),
            key("api_key", ValueType::Object(&API_KEY), "A secret in a header of its own."),
        ],
    )
};

static BASIC: ObjectSchema = ObjectSchema::new(
    "a basic authentication",
    "HTTP basic authentication.",
    &[
        required("user", ValueType::Text, "The user name."),
        required("password", ValueType::Name(NameKind::Secret), "The secret that holds the password."),
    ],
);

static API_KEY: ObjectSchema = ObjectSchema::new(
    "an API key",
    "A secret in a header.",
    &[
        required("header", ValueType::Text, "The name of the header, such as `x-api-key`."),
        required("secret", ValueType::Name(NameKind::Secret), "The secret that holds the key."),
    ],
);

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

/// Secrets by their names in the book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpAuth {
    Bearer { secret: String },
    Basic { user: String, password: String },
    ApiKey { header: String, secret: String },
}

impl HttpAuth {
    #[must_use]
    pub fn secret(&self) -> &str {
        match self {
            Self::Bearer { secret } | Self::ApiKey { secret, .. } => secret,
            Self::Basic { password, .. } => password,
        }
    }

    /// The header that carries the credentials.
    #[must_use]
    pub fn header(&self) -> &str {
        match self {
            Self::Bearer { .. } | Self::Basic { .. } => "authorization",
            Self::ApiKey { header, .. } => header,
        }
    }
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
    let auth = from.node("auth").and_then(|node| auth(node, from));
    if has_user(&address) && auth.as_ref().is_some_and(|auth| auth.header() == "authorization") {
        let message = "credentials are in the address and in `auth`";
        from.error("auth", "conflicting-keys", message, "remove them from the address");
    }
    let mut request = request::read(form, method, from);
    request.headers = headers::read(form, auth.as_ref(), from);
    let (secret, network) = (from.text("secret"), from.network());
    let expect = expect::read(form, from);
    let secret_path = from.text("secret_path");
    if secret_path.is_some() {
        from.exclude(&["path"], "`secret_path` sets the path");
    }
    let secrets = secret.iter().chain(&secret_path).cloned();
    let secrets = secrets.chain(auth.iter().map(|auth| auth.secret().to_owned())).collect();
    let profile = Profile {
        shown: hide_passwords(&address).into_owned(),
        addresses: vec![address.clone()],
        network: Some(network),
        secrets,
        field_uses: Vec::new(),
        batch: (form == HttpFormat::Batch).then_some(batch),
        run: None,
    };
    Some((
        Arc::new(HttpSettings { address, form, secret, method, request, secret_path, expect, auth, network }),
        profile,
    ))
}

fn auth(node: &YamlNode, from: &mut SettingsReader<'_>) -> Option<HttpAuth> {
    let text = |node: &YamlNode, key: &str| node.get(key).and_then(YamlNode::text).map(str::to_owned);
    if let Some(secret) = text(node, "bearer") {
        return Some(HttpAuth::Bearer { secret });
    }
    if let Some(basic) = node.get("basic") {
        let (user, password) = (text(basic, "user")?, text(basic, "password")?);
        if user.contains(':') || user.chars().any(char::is_control) {
            let message = "a user name cannot contain a colon or a control character";
            from.problem("bad-header", basic.get("user")?.span, message, "");
            return None;
        }
        return Some(HttpAuth::Basic { user, password });
    }
    let api_key = node.get("api_key")?;
    let (header, secret) = (text(api_key, "header")?, text(api_key, "secret")?);
    let header = headers::name(&header, api_key.get("header")?.span, from)?;
    Some(HttpAuth::ApiKey { header, secret })
}

fn has_user(address: &str) -> bool {
    let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
    authority.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}
