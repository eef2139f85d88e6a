//! The `auth` of calls: schema and reading.

use super::{SettingsReader, headers};
use crate::book::parse;
use crate::book::schema::{KeySchema, NameKind, ObjectSchema, OneOf, ValueType, key, required};
use crate::book::yaml::YamlNode;

pub(super) const FIELD: KeySchema =
    key("auth", ValueType::Object(&AUTH), "With `http`: how calls authenticate.");

static AUTH: ObjectSchema = ObjectSchema {
    one_of: OneOf::Keys(&["bearer", "basic", "api_key", "oauth2"]),
    ..ObjectSchema::new(
        "an authentication",
        "How calls authenticate; the values come from secrets.",
        &[
            key("bearer", ValueType::Name(NameKind::Secret), "The secret sent as `Authorization: Bearer …`."),
            key("basic", ValueType::Object(&BASIC), "A user and a password, as `Authorization: Basic …`."),
            key("api_key", ValueType::Object(&API_KEY), "A secret in a header of its own."),
            key(
                "oauth2",
                ValueType::Object(&OAUTH2),
                "A token that an OAuth 2 issuer gives for client credentials.",
            ),
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

static OAUTH2: ObjectSchema = ObjectSchema::new(
    "an OAuth 2 client",
    "Gets tokens by the client credentials grant; a token is kept and renewed before it expires.",
    &[
        required("token_url", ValueType::Url, "The address of the issuer's token endpoint."),
        required("client_id", ValueType::Text, "The name of the client."),
        required(
            "client_secret",
            ValueType::Name(NameKind::Secret),
            "The secret that holds the client's secret.",
        ),
        key("scope", ValueType::Text, "The scopes asked for, separated by spaces (default: the issuer's)."),
        key("audience", ValueType::Text, "The API that the token is for, where the issuer wants one."),
        key(
            "client_auth",
            ValueType::Word(&["basic", "body"]),
            "How the client authenticates to the issuer: by a header or in the body (default basic).",
        ),
    ],
);

/// Secrets by their names in the book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpAuth {
    Bearer { secret: String },
    Basic { user: String, password: String },
    ApiKey { header: String, secret: String },
    OAuth2(OAuthClient),
}

/// A client of an issuer of tokens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OAuthClient {
    pub token_url: String,
    pub id: String,
    pub secret: String,
    pub scope: Option<String>,
    pub audience: Option<String>,
    pub proof: ClientProof,
}

/// How a client authenticates to its issuer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientProof {
    #[default]
    Basic,
    Body,
}

impl HttpAuth {
    #[must_use]
    pub fn secret(&self) -> &str {
        match self {
            Self::Bearer { secret } | Self::ApiKey { secret, .. } => secret,
            Self::Basic { password, .. } => password,
            Self::OAuth2(client) => &client.secret,
        }
    }

    /// The address that tokens come from.
    #[must_use]
    pub fn issuer(&self) -> Option<&String> {
        match self {
            Self::OAuth2(client) => Some(&client.token_url),
            Self::Bearer { .. } | Self::Basic { .. } | Self::ApiKey { .. } => None,
        }
    }

    /// The header that carries the credentials.
    #[must_use]
    pub fn header(&self) -> &str {
        match self {
            Self::Bearer { .. } | Self::Basic { .. } | Self::OAuth2(_) => "authorization",
            Self::ApiKey { header, .. } => header,
        }
    }
}

/// Reports credentials that are given twice.
pub(super) fn read(address: &str, from: &mut SettingsReader<'_>) -> Option<HttpAuth> {
    let auth = from.node("auth").and_then(|node| read_auth(node, from));
    if has_user(address) && auth.as_ref().is_some_and(|auth| auth.header() == "authorization") {
        let message = "credentials are in the address and in `auth`";
        from.error("auth", "conflicting-keys", message, "remove them from the address");
    }
    auth
}

fn read_auth(node: &YamlNode, from: &mut SettingsReader<'_>) -> Option<HttpAuth> {
    let text = parse::text_of;
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
    if let Some(oauth2) = node.get("oauth2") {
        return oauth_client(oauth2, from).map(HttpAuth::OAuth2);
    }
    let api_key = node.get("api_key")?;
    let (header, secret) = (text(api_key, "header")?, text(api_key, "secret")?);
    let header = headers::name(&header, api_key.get("header")?.span, from)?;
    Some(HttpAuth::ApiKey { header, secret })
}

fn oauth_client(node: &YamlNode, from: &mut SettingsReader<'_>) -> Option<OAuthClient> {
    let text = |key: &str| parse::text_of(node, key);
    let client = OAuthClient {
        token_url: text("token_url")?,
        id: text("client_id")?,
        secret: text("client_secret")?,
        scope: text("scope"),
        audience: text("audience"),
        proof: if text("client_auth").as_deref() == Some("body") {
            ClientProof::Body
        } else {
            ClientProof::Basic
        },
    };
    if has_user(&client.token_url) {
        let message = "the address of the issuer contains credentials";
        let span = parse::key_span(node, "token_url");
        from.problem("conflicting-keys", span, message, "write `client_id` and `client_secret` instead");
        return None;
    }
    Some(client)
}

fn has_user(address: &str) -> bool {
    let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
    authority.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::connectors::built_in;
    use crate::book::connectors::http::HttpSettings;
    use crate::book::read;

    fn target(line: &str) -> Result<HttpSettings, Vec<String>> {
        let book = format!(
            "version: 1\nsecrets: {{ s: {{ env: S }}, t: {{ env: T }} }}\nservices:\n  a:\n    target: {{ http: \"https://h/\", {line} }}\n    events: [a.b]\n"
        );
        let reading = read(&book, built_in());
        let problems = reading.problems.into_sorted();
        let Some(book) = reading.book else {
            return Err(problems.iter().map(|one| format!("{}: {}", one.code, one.message)).collect());
        };
        let settings = book.sections().services[0].target.endpoint.settings::<HttpSettings>();
        Ok(settings.expect("an http target").clone())
    }

    fn oauth2(more: &str) -> String {
        format!(
            "auth: {{ oauth2: {{ token_url: \"https://i.test/token\", client_id: me, client_secret: s{more} }} }}"
        )
    }

    #[test]
    fn a_client_of_an_issuer_is_read() {
        let client = OAuthClient {
            token_url: "https://i.test/token".to_owned(),
            id: "me".to_owned(),
            secret: "s".to_owned(),
            scope: None,
            audience: None,
            proof: ClientProof::Basic,
        };
        let full = OAuthClient {
            scope: Some("a b".to_owned()),
            audience: Some("x".to_owned()),
            proof: ClientProof::Body,
            ..client.clone()
        };
        let cases = [("", client), (", scope: \"a b\", audience: x, client_auth: body", full)];
        for (more, expected) in cases {
            let auth = target(&oauth2(more)).expect("a book").auth;
            assert_eq!(auth, Some(HttpAuth::OAuth2(expected)), "{more}");
        }
    }

    #[test]
    fn a_client_that_cannot_get_a_token_is_refused() {
        #[rustfmt::skip]
        let cases = [
            ("auth: { oauth2: { token_url: \"https://a:b@i.test/\", client_id: me, client_secret: s } }", "conflicting-keys: the address of the issuer contains credentials"),
            ("auth: { oauth2: { token_url: \"i.test\", client_id: me, client_secret: s } }", "wrong-type: expected an address such as http://127.0.0.1:9000/events, got `i.test`"),
            ("auth: { oauth2: { token_url: \"https://i.test\", client_id: me } }", "missing-key: an OAuth 2 client needs `client_secret`"),
        ];
        for (line, problem) in cases {
            let problems = target(line).expect_err(line);
            assert_eq!(problems.last().map(String::as_str), Some(problem), "{line}");
        }
    }
}
