//! The keys of the book's edges: targets, sources and secrets.

use super::delivery::SOURCE_FACTS;
use super::{NameKind, ObjectSchema, OneOf, ValueType, duration, key, text};
use crate::book::connectors::Edge;

/// Where a service is reached.
pub(super) static TARGET: ObjectSchema = ObjectSchema {
    name: "a target",
    about: "Where a service is reached.",
    fields: &[],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Target),
};

/// Where events come from.
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
            "A template for the event's id, by which one that is sent again is known (default: what the scheme has).",
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
        key("facts", ValueType::Object(&SOURCE_FACTS), "What is known of the source.").fact(),
    ],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Source),
};

/// Where a secret comes from.
pub(super) static SECRET: ObjectSchema = ObjectSchema {
    name: "a secret",
    about: "Where a secret comes from; it never stands in the book itself.",
    fields: &[
        duration("cached", "For how long a fetched value is fresh (default 5m)."),
        duration(
            "kept",
            "For how long after the last good fetch an expired value still serves (default 30m).",
        ),
    ],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Secret),
};

/// Who may do what.
pub(super) static ACCESS: ObjectSchema = ObjectSchema::of(
    "access",
    "Who may do what, beside those with a key of `redrive keys create`.",
    &[
        key("rate", ValueType::Rate, "How many requests one caller may make (default: as many as come)."),
        key("jwt", ValueType::Object(&JWT), "Bearer tokens of an issuer."),
    ],
);

/// Bearer tokens.
pub(super) static JWT: ObjectSchema = ObjectSchema {
    name: "a token issuer",
    about: "Whose bearer tokens (JWT) are believed.",
    fields: &[
        key("jwks", ValueType::Url, "Where the issuer's keys are: RS256 and ES256."),
        key("secret", ValueType::Name(NameKind::Secret), "What tokens are signed with: HS256."),
        text("issuer", "Who must have issued a token (`iss`).").required(),
        text("audience", "Whom a token must be meant for (`aud`).").required(),
        text(
            "role_claim",
            "The claim that names the role, or several: viewer, operator, admin, ingest (default role).",
        ),
    ],
    includes: &[],
    one_of: OneOf::Keys(&["jwks", "secret"]),
};

/// Where raw payloads are kept for audit.
pub(super) static ARCHIVE: ObjectSchema = ObjectSchema {
    name: "an archive",
    about: "Where every payload is kept as it came, for audit; events never wait for it.",
    fields: &[
        duration(
            "timeout",
            "How long one write may take (default 5s); it is tried once more with twice the time.",
        ),
        key(
            "breaker",
            ValueType::Name(NameKind::Breaker),
            "When to stop trying for a while (default: that of the kind blob).",
        ),
        duration("retention", "For how long days are kept (default: for ever)."),
    ],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Archive),
};
