//! The `auth` of calls: schema and reading.

use super::{SettingsReader, headers};
use crate::book::schema::{KeySchema, NameKind, ObjectSchema, OneOf, ValueType, key, required};
use crate::book::yaml::YamlNode;

pub(super) const FIELD: KeySchema =
    key("auth", ValueType::Object(&AUTH), "With `http`: how calls authenticate.");

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

/// Reports credentials that are given twice.
pub(super) fn read(address: &str, from: &mut SettingsReader<'_>) -> Option<HttpAuth> {
    let auth = from.node("auth").and_then(|node| parse(node, from));
    if has_user(address) && auth.as_ref().is_some_and(|auth| auth.header() == "authorization") {
        let message = "credentials are in the address and in `auth`";
        from.error("auth", "conflicting-keys", message, "remove them from the address");
    }
    auth
}

fn parse(node: &YamlNode, from: &mut SettingsReader<'_>) -> Option<HttpAuth> {
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
