//! The `webhook` source: an endpoint for signed calls.

use std::sync::Arc;
use std::time::Duration;

use super::{Connector, ConnectorSettings, Edge, Profile, SettingsReader};
use crate::book::schema::{NameKind, ObjectSchema, OneOf, ValueType, key, required};
use crate::text::Rate;

pub static SOURCE: Connector =
    Connector::new(Edge::Source, "webhook", ValueType::Object(&WEBHOOK), "A signed webhook endpoint.", read);

static WEBHOOK: ObjectSchema = ObjectSchema {
    name: "a webhook source",
    about: "An endpoint for signed webhooks.",
    fields: &[
        required(
            "scheme",
            ValueType::Word(&["github", "standard-webhooks", "stripe", "slack", "hmac"]),
            "How calls are signed.",
        ),
        required(
            "secret",
            ValueType::Name(NameKind::Secret),
            "The signing secret; with two, either is accepted.",
        ),
        key("body_max", ValueType::Size, "The largest body taken (default 1MiB, for `github` 25MiB)."),
        key("rate", ValueType::Rate, "The rate limit of calls (default: none)."),
        key(
            "tolerance",
            ValueType::Duration,
            "How far the signed timestamp may be from the server's clock (default 5m); not with `github` and `hmac`.",
        ),
        key(
            "header",
            ValueType::Text,
            "With `hmac`: the header that holds the signature (default x-signature).",
        ),
        key(
            "algorithm",
            ValueType::Word(&["sha256", "sha1", "sha512"]),
            "With `hmac`: the hash (default sha256).",
        ),
        key(
            "encoding",
            ValueType::Word(&["hex", "base64"]),
            "With `hmac`: how the signature is written (default hex).",
        ),
        key("prefix", ValueType::Text, "With `hmac`: the prefix of the signature, such as `sha256=`."),
    ],
    includes: &[],
    one_of: OneOf::Nothing,
};

#[derive(Clone, Debug, PartialEq)]
pub struct WebhookSettings {
    pub scheme: SignatureScheme,
    pub secret: String,
    pub body_max: Option<u64>,
    pub rate: Option<Rate>,
    /// Maximum clock difference of the signed timestamp.
    pub tolerance: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignatureScheme {
    Github,
    /// `webhook-signature` over id, time and body.
    StandardWebhooks,
    /// `Stripe-Signature` over time and body.
    Stripe,
    /// `X-Slack-Signature` over version, time and body.
    Slack,
    Hmac(Hmac),
}

impl SignatureScheme {
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::StandardWebhooks => "standard-webhooks",
            Self::Stripe => "stripe",
            Self::Slack => "slack",
            Self::Hmac(_) => "hmac",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hmac {
    /// Lower case.
    pub header: String,
    pub algorithm: HmacAlgorithm,
    pub encoding: Encoding,
    pub prefix: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HmacAlgorithm {
    #[default]
    Sha256,
    /// For old senders only.
    Sha1,
    Sha512,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Hex,
    Base64,
}

fn read(from: &mut SettingsReader<'_>) -> Option<(Arc<dyn ConnectorSettings>, Profile)> {
    from.needs_type();
    let mut inner = from.inner()?;
    let scheme = inner.text("scheme")?;
    if scheme != "hmac" {
        inner.exclude(&["header", "algorithm", "encoding", "prefix"], "it needs `scheme: hmac`");
    }
    if matches!(scheme.as_str(), "hmac" | "github") {
        inner.exclude(&["tolerance"], "this scheme does not sign a timestamp");
    }
    let secret = inner.text("secret")?;
    let settings = WebhookSettings {
        scheme: read_scheme(&scheme, &inner)?,
        secret: secret.clone(),
        body_max: inner.size("body_max"),
        rate: inner.rate("rate"),
        tolerance: inner.duration("tolerance"),
    };
    Some((Arc::new(settings), Profile { secrets: vec![secret], ..Profile::default() }))
}

fn read_scheme(scheme: &str, from: &SettingsReader<'_>) -> Option<SignatureScheme> {
    Some(match scheme {
        "github" => SignatureScheme::Github,
        "standard-webhooks" => SignatureScheme::StandardWebhooks,
        "stripe" => SignatureScheme::Stripe,
        "slack" => SignatureScheme::Slack,
        "hmac" => SignatureScheme::Hmac(Hmac {
            header: from.text("header").unwrap_or_else(|| "x-signature".to_owned()).to_ascii_lowercase(),
            algorithm: match from.text("algorithm").as_deref() {
                Some("sha1") => HmacAlgorithm::Sha1,
                Some("sha512") => HmacAlgorithm::Sha512,
                _ => HmacAlgorithm::Sha256,
            },
            encoding: if from.says("encoding", "base64") { Encoding::Base64 } else { Encoding::Hex },
            prefix: from.text("prefix").unwrap_or_default(),
        }),
        _ => return None,
    })
}
