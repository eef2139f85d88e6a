//! The keys of the book's edges: targets, sources and secrets.

use super::delivery::SOURCE_FACTS;
use super::{Named, Object, OneOf, Type, duration, key, text};
use crate::book::connectors::Edge;

/// Where a service is reached.
pub(super) static TARGET: Object = Object {
    name: "a target",
    about: "Where a service is reached.",
    fields: &[],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Target),
};

/// Where events come from.
pub(super) static SOURCE: Object = Object {
    name: "a source",
    about: "Where events come from, beside the events API.",
    fields: &[
        key(
            "type",
            Type::SourceTemplate,
            "The event type, or a template for it; a missing segment drops with its dot.",
        ),
        key("subject", Type::SourceTemplate, "A template for the subject."),
        key(
            "id",
            Type::SourceTemplate,
            "A template for the event's id, by which one that is sent again is known (default: what the scheme has).",
        ),
        key(
            "session",
            Type::SourceTemplate,
            "A template for the session key; with a missing part there is no session.",
        ),
        key(
            "depends_on",
            Type::Name(Named::Dependency),
            "With a broker's source: the broker as a dependency; not with `webhook` and `schedule`, which call none.",
        ),
        key("facts", Type::Object(&SOURCE_FACTS), "What is known of the source.").fact(),
    ],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Source),
};

/// Where a secret comes from.
pub(super) static SECRET: Object = Object {
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
pub(super) static ACCESS: Object = Object::of(
    "access",
    "Who may do what, beside those with a key of `redrive keys create`.",
    &[
        key("rate", Type::Rate, "How many requests one caller may make (default: as many as come)."),
        key("jwt", Type::Object(&JWT), "Bearer tokens of an issuer."),
    ],
);

/// Bearer tokens.
pub(super) static JWT: Object = Object {
    name: "a token issuer",
    about: "Whose bearer tokens (JWT) are believed.",
    fields: &[
        key("jwks", Type::Url, "Where the issuer's keys are: RS256 and ES256."),
        key("secret", Type::Name(Named::Secret), "What tokens are signed with: HS256."),
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
pub(super) static ARCHIVE: Object = Object {
    name: "an archive",
    about: "Where every payload is kept as it came, for audit; events never wait for it.",
    fields: &[
        duration(
            "timeout",
            "How long one write may take (default 5s); it is tried once more with twice the time.",
        ),
        key(
            "breaker",
            Type::Name(Named::Breaker),
            "When to stop trying for a while (default: that of the kind blob).",
        ),
        duration("retention", "For how long days are kept (default: for ever)."),
    ],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Archive),
};
