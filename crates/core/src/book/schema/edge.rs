//! The keys of the book's edges: targets, sources and secrets.

use super::delivery::SOURCE_FACTS;
use super::{Field, Named, Need, Object, Role, Type, key, required};
use crate::limits;

/// Where a service is reached.
pub(super) static TARGET: Object = Object {
    name: "a target",
    about: "Where a service is reached.",
    fields: &[
        key("http", Type::Url, "The address that events are posted to."),
        key("ntfy", Type::Url, "The address of an ntfy topic. Not available in this version."),
        key("smtp", Type::Text, "The address that mail is sent to. Not available in this version."),
        key(
            "exec",
            Type::ListOf(&Type::Text),
            "A program and its arguments; the event comes on standard input.",
        ),
        key("kafka", Type::Text, "A Kafka topic. Not available in this version."),
        key("redis-stream", Type::Text, "A Redis stream. Not available in this version."),
        key("sqs", Type::Text, "The address of an SQS queue. Not available in this version."),
        key("service-bus", Type::Text, "A Service Bus queue or topic. Not available in this version."),
        key("log", Type::Word(&["stdout"]), "Prints each event; for first steps."),
        key(
            "format",
            Type::Word(&["binary", "batch", "data", "structured"]),
            "With `http`: the CloudEvents form (default binary). With `exec`: `structured` puts the whole event on standard input as JSON (the default), `data` its data alone.",
        ),
        key(
            "batch_max",
            Type::Count { min: 1, max: limits::BATCH_EVENTS_MAX as u64 },
            "With `format: batch`: the most deliveries in one call (default 10).",
        ),
        key("secret", Type::Name(Named::Secret), "With `http`: signs each call by Standard Webhooks."),
        key(
            "network",
            Type::Word(&["public", "private"]),
            "With `http`: `private` lets the name resolve to addresses of this machine and of private networks (default public); an address written as such needs no leave.",
        ),
        key(
            "time_limit",
            Type::Duration,
            "With `exec`: how long a run may take (default 30m); a `timeout` of the row wins, one of the defaults does not apply.",
        ),
        key("spawn_limit", Type::Duration, "With `exec`: how long starting may take (default 60s)."),
        key(
            "on_timeout",
            Type::ListOf(&Type::Text),
            "With `exec`: a command that cancels what runs elsewhere, or one address that is posted to.",
        ),
        key("output", Type::Text, "With `exec`: the event type of the results."),
        key(
            "grace",
            Type::Duration,
            "With `exec`: how long a run has to end by itself when it is asked to, before it is killed (default 10s).",
        ),
        key(
            "memory",
            Type::Size,
            "With `exec`: the memory that all processes of a run may have together (default: no limit).",
        ),
        key(
            "output_max",
            Type::Size,
            "With `exec`: how much is kept of what a run prints (default 64KiB); the middle of more is left out.",
        ),
        key("folder", Type::Text, "With `exec`: the folder to run in (default: the server's)."),
        key("env", Type::MapOf(&Type::Text), "With `exec`: variables of the program's environment."),
        key(
            "inherit",
            Type::ListOf(&Type::Text),
            "With `exec`: variables of the server's own environment that the program gets, beside PATH, HOME, LANG, TZ and the like.",
        ),
    ],
    includes: &[],
    one_of: &TARGET_KINDS,
};

/// The kinds of target.
pub(super) const TARGET_KINDS: [&str; 9] =
    ["http", "ntfy", "smtp", "exec", "kafka", "redis-stream", "sqs", "service-bus", "log"];

/// Where events come from.
pub(super) static SOURCE: Object = Object {
    name: "a source",
    about: "Where events come from, beside the events API.",
    fields: &[
        key("webhook", Type::Object(&WEBHOOK), "A signed webhook endpoint."),
        key("schedule", Type::Object(&SCHEDULE), "A clock."),
        key("kafka", Type::Object(&KAFKA_SOURCE), "Kafka topics. Not available in this version."),
        key("redis-stream", Type::Object(&REDIS_SOURCE), "A Redis stream. Not available in this version."),
        key("sqs", Type::Object(&SQS_SOURCE), "An SQS queue. Not available in this version."),
        key(
            "service-bus",
            Type::Object(&SERVICE_BUS_SOURCE),
            "A Service Bus queue. Not available in this version.",
        ),
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
        Field {
            key: "facts",
            takes: Type::Object(&SOURCE_FACTS),
            role: Role::Fact,
            need: Need::Optional,
            about: "What is known of the source.",
        },
    ],
    includes: &[],
    one_of: &SOURCE_KINDS,
};

/// The kinds of source.
pub(super) const SOURCE_KINDS: [&str; 6] =
    ["webhook", "schedule", "kafka", "redis-stream", "sqs", "service-bus"];

/// A signed webhook endpoint.
pub(super) static WEBHOOK: Object = Object {
    name: "a webhook source",
    about: "An endpoint for signed webhooks.",
    fields: &[
        required(
            "scheme",
            Type::Word(&["github", "standard-webhooks", "stripe", "slack", "hmac"]),
            "How calls are signed.",
        ),
        required(
            "secret",
            Type::Name(Named::Secret),
            "The secret they are signed with; of two, either is good.",
        ),
        key("body_max", Type::Size, "The largest body taken (default 1MiB, for `github` 25MiB)."),
        key("rate", Type::Rate, "How many calls are taken (default: as many as come)."),
        key(
            "tolerance",
            Type::Duration,
            "How far the time that is signed may be from ours (default 5m); not with `github` and `hmac`.",
        ),
        key("header", Type::Text, "With `hmac`: the header that holds the signature (default x-signature)."),
        key(
            "algorithm",
            Type::Word(&["sha256", "sha1", "sha512"]),
            "With `hmac`: the hash (default sha256).",
        ),
        key(
            "encoding",
            Type::Word(&["hex", "base64"]),
            "With `hmac`: how the signature is written (default hex).",
        ),
        key("prefix", Type::Text, "With `hmac`: what stands before the signature, such as `sha256=`."),
    ],
    includes: &[],
    one_of: &[],
};

/// A clock.
pub(super) static SCHEDULE: Object = Object {
    name: "a schedule",
    about: "Emits an event at times.",
    fields: &[
        required("cron", Type::Cron, "When: five fields of cron."),
        key("zone", Type::Zone, "In which time zone (default UTC)."),
        key(
            "missed",
            Type::Word(&["one", "none", "all"]),
            "What becomes of fires that were missed while Redrive was down: the latest, none, or all (default one).",
        ),
        key(
            "missed_within",
            Type::Duration,
            "How long ago a missed fire may be to be caught up (default 24h).",
        ),
        key(
            "data",
            Type::Json,
            "The event's data, as JSON in quotes (default: the schedule and the fire time).",
        ),
    ],
    includes: &[],
    one_of: &[],
};

/// Kafka topics.
pub(super) static KAFKA_SOURCE: Object = Object {
    name: "a Kafka source",
    about: "Reads Kafka topics as a consumer group.",
    fields: &[
        required("brokers", Type::ListOf(&Type::Text), "Addresses of brokers."),
        required("topics", Type::ListOf(&Type::Text), "The topics."),
        key("group", Type::Text, "The consumer group (default: redrive)."),
    ],
    includes: &[],
    one_of: &[],
};

/// A Redis stream.
pub(super) static REDIS_SOURCE: Object = Object {
    name: "a Redis stream source",
    about: "Reads a Redis stream as a consumer group.",
    fields: &[
        required("url", Type::Text, "The server's address."),
        required("stream", Type::Text, "The stream's name."),
        key("group", Type::Text, "The consumer group (default: redrive)."),
    ],
    includes: &[],
    one_of: &[],
};

/// An SQS queue.
pub(super) static SQS_SOURCE: Object = Object {
    name: "an SQS source",
    about: "Reads an SQS queue.",
    fields: &[required("queue", Type::Text, "The queue's address.")],
    includes: &[],
    one_of: &[],
};

/// A Service Bus queue.
pub(super) static SERVICE_BUS_SOURCE: Object = Object {
    name: "a Service Bus source",
    about: "Reads a Service Bus queue.",
    fields: &[
        required("namespace", Type::Text, "The namespace's address."),
        required("queue", Type::Text, "The queue's name."),
    ],
    includes: &[],
    one_of: &[],
};

/// Where a secret comes from.
pub(super) static SECRET: Object = Object {
    name: "a secret",
    about: "Where a secret comes from; it never stands in the book itself.",
    fields: &[
        key("env", Type::Text, "A variable of the environment."),
        key("file", Type::Text, "A file."),
        key("command", Type::ListOf(&Type::Text), "A command that prints it."),
        key("key-vault", Type::Text, "The address of a secret in Key Vault. Not available in this version."),
        key("cached", Type::Duration, "For how long a fetched value is fresh (default 5m)."),
        key(
            "kept",
            Type::Duration,
            "For how long after the last good fetch an expired value still serves (default 30m).",
        ),
    ],
    includes: &[],
    one_of: &["env", "file", "command", "key-vault"],
};

/// Who may do what.
pub(super) static ACCESS: Object = Object {
    name: "access",
    about: "Who may do what, beside those with a key of `redrive keys create`.",
    fields: &[
        key("rate", Type::Rate, "How many requests one caller may make (default: as many as come)."),
        key("jwt", Type::Object(&JWT), "Bearer tokens of an issuer."),
    ],
    includes: &[],
    one_of: &[],
};

/// Bearer tokens.
pub(super) static JWT: Object = Object {
    name: "a token issuer",
    about: "Whose bearer tokens (JWT) are believed.",
    fields: &[
        key("jwks", Type::Url, "Where the issuer's keys are: RS256 and ES256."),
        key("secret", Type::Name(Named::Secret), "What tokens are signed with: HS256."),
        required("issuer", Type::Text, "Who must have issued a token (`iss`)."),
        required("audience", Type::Text, "Whom a token must be meant for (`aud`)."),
        key(
            "role_claim",
            Type::Text,
            "The claim that names the role, or several: viewer, operator, admin, ingest (default role).",
        ),
    ],
    includes: &[],
    one_of: &["jwks", "secret"],
};

/// Where raw payloads are kept for audit.
pub(super) static ARCHIVE: Object = Object {
    name: "an archive",
    about: "Where every payload is kept as it came, for audit; events never wait for it.",
    fields: &[
        required("folder", Type::Text, "A folder; each day has one of its own."),
        key(
            "timeout",
            Type::Duration,
            "How long one write may take (default 5s); it is tried once more with twice the time.",
        ),
        key(
            "breaker",
            Type::Name(Named::Breaker),
            "When to stop trying for a while (default: that of the kind blob).",
        ),
        key("retention", Type::Duration, "For how long days are kept (default: for ever)."),
    ],
    includes: &[],
    one_of: &[],
};
