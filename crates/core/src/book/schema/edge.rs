//! The keys of targets, sources, secrets, access and the archive.

use super::delivery::SOURCE_FACTS;
use super::{NameKind, ObjectSchema, OneOf, ValueType, duration, key, text};
use crate::book::connectors::Edge;

pub(super) static TARGET: ObjectSchema = ObjectSchema {
    name: "a target",
    about: "Where events of a service go.",
    fields: &[],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Target),
};

pub(super) static SOURCE: ObjectSchema = ObjectSchema {
    name: "a source",
    about: "Where events come from, beside the events API.",
    fields: &[
        key(
            "type",
            ValueType::SourceTemplate,
            "The event type, or a template for it; a missing segment drops with its dot.",
        ),
        key("subject", ValueType::SourceTemplate, "A template for the subject."),
        key(
            "id",
            ValueType::SourceTemplate,
            "A template for the event's id, which identifies duplicates (default: the id of the scheme).",
        ),
        key(
            "session",
            ValueType::SourceTemplate,
            "A template for the session key; with a missing part there is no session.",
        ),
        key(
            "depends_on",
            ValueType::Name(NameKind::Dependency),
            "With a broker's source: the broker as a dependency; not with `webhook` and `schedule`, which call none.",
        ),
        key("facts", ValueType::Object(&SOURCE_FACTS), "Facts about the source.").fact(),
    ],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Source),
};

pub(super) static SECRET: ObjectSchema = ObjectSchema {
    name: "a secret",
    about: "Where a secret comes from; the book never contains the secret itself.",
    fields: &[
        duration("cached", "How long a fetched value is fresh (default 5m)."),
        duration(
            "kept",
            "How long after the last successful fetch an expired value is still used (default 30m).",
        ),
    ],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Secret),
};

pub(super) static ACCESS: ObjectSchema = ObjectSchema::of(
    "access",
    "Access to the API, beside the keys of `redrive keys create`.",
    &[
        key("rate", ValueType::Rate, "The rate limit of one caller (default: none)."),
        key("jwt", ValueType::Object(&JWT), "Bearer tokens of an issuer."),
    ],
);

pub(super) static JWT: ObjectSchema = ObjectSchema {
    name: "a token issuer",
    about: "The issuer whose bearer tokens (JWT) are accepted.",
    fields: &[
        key("jwks", ValueType::Url, "Where the issuer's keys are: RS256 and ES256."),
        key("secret", ValueType::Name(NameKind::Secret), "What tokens are signed with: HS256."),
        text("issuer", "The required issuer of a token (`iss`).").required(),
        text("audience", "The required audience of a token (`aud`).").required(),
        text(
            "role_claim",
            "The claim that names the role, or several: viewer, operator, admin, ingest (default role).",
        ),
    ],
    includes: &[],
    one_of: OneOf::Keys(&["jwks", "secret"]),
};

pub(super) static ARCHIVE: ObjectSchema = ObjectSchema {
    name: "an archive",
    about: "Where every payload is kept unchanged, for audit; deliveries never wait for it.",
    fields: &[
        duration(
            "timeout",
            "How long one write may take (default 5s); it is tried once more with twice the time.",
        ),
        key(
            "breaker",
            ValueType::Name(NameKind::Breaker),
            "The breaker that stops writes after failures (default: that of the kind blob).",
        ),
        duration("retention", "How long days are kept (default: forever)."),
    ],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Archive),
};
