//! The keys of the book itself, of services, channels and events, and of the rule they share.

use super::alerting::{ALERT, RECEIVER};
use super::dependency::{BREAKER, DEPENDENCY, POLICY, RETRY_BUDGET_KEY, THROTTLE, TIMEOUT};
use super::edge::{ACCESS, ARCHIVE, SECRET, SOURCE, TARGET};
use super::{NameKind, ObjectSchema, OneOf, ValueType, duration, key, text, word};
use crate::book::keywords::Keyword;
use crate::book::model::{
    ConsumerPattern, Criticality, DataLoss, DeliveryOrder, IdempotencyBy, LetterForm, QueueFullAction,
    Reprocess, ViolationAction,
};
use crate::limits;
use crate::policy::category::Category;
use crate::policy::rule::WhenOpen;

pub static BOOK: ObjectSchema = ObjectSchema::of(
    "a rule book",
    "How Redrive routes events and handles failures.",
    &[
        key("version", ValueType::Count { min: 1, max: 1 }, "The version of the format: 1.").required(),
        key("defaults", ValueType::Object(&DEFAULTS), "Defaults for everything below."),
        key(
            "retry_policies",
            ValueType::MapOf(&ValueType::Object(&POLICY)),
            "Retry policies beside those of the catalog.",
        ),
        key(
            "breakers",
            ValueType::MapOf(&ValueType::Object(&BREAKER)),
            "Breakers beside those of the catalog.",
        ),
        key(
            "timeouts",
            ValueType::MapOf(&ValueType::ShortOrLong(&ValueType::Duration, &TIMEOUT)),
            "Timeouts beside those of the catalog.",
        ),
        key("throttles", ValueType::MapOf(&ValueType::Object(&THROTTLE)), "Throttles by name."),
        key(
            "dependencies",
            ValueType::MapOf(&ValueType::Object(&DEPENDENCY)),
            "The systems that targets call.",
        ),
        key("secrets", ValueType::MapOf(&ValueType::Object(&SECRET)), "Where secrets come from."),
        key("sources", ValueType::MapOf(&ValueType::Object(&SOURCE)), "Where events come from."),
        key("access", ValueType::Object(&ACCESS), "Who may use the API."),
        key("archive", ValueType::Object(&ARCHIVE), "Where raw payloads are kept for audit."),
        key(
            "event_types",
            ValueType::MapOf(&ValueType::Object(&EVENT_TYPE)),
            "What the data of events must look like, by event type.",
        ),
        key(
            "services",
            ValueType::MapOf(&ValueType::Object(&SERVICE)),
            "The consumers of events, with their rules.",
        ),
        key(
            "alerts",
            ValueType::ListOf(&ValueType::Object(&ALERT)),
            "Alerts: conditions and who is notified.",
        ),
        key("receivers", ValueType::MapOf(&ValueType::Object(&RECEIVER)), "The receivers to notify."),
        key("dapr", ValueType::Object(&DAPR_FILE), "Names for an exported Dapr resiliency file."),
        key(
            "allow",
            ValueType::ListOf(&ValueType::Object(&ALLOW_ROW)),
            "Lints that are silenced in the whole book, with the reason.",
        ),
    ],
);

pub(super) static EVENT_TYPE: ObjectSchema = ObjectSchema::of(
    "an event type",
    "The schema of an event type, applied before an event is accepted.",
    &[
        key(
            "schema",
            ValueType::JsonSchema,
            "A JSON Schema of the data; references stay within it, as in `#/$defs/address`.",
        )
        .required(),
        word::<ViolationAction>(
            "on_violation",
            "What happens to an event that violates the schema: it is refused (400, or recorded as refused by a source), or accepted and a poison dead letter of each of its services (default refuse).",
        ),
    ],
);

pub(super) static DAPR_FILE: ObjectSchema = ObjectSchema::of(
    "names for Dapr",
    "The metadata of an exported Dapr resiliency file.",
    &[
        text("name", "The resource's name."),
        text("namespace", "The resource's namespace."),
        key("scopes", ValueType::ListOf(&ValueType::Text), "The app ids that the resource applies to."),
    ],
);

pub(super) static DEFAULTS: ObjectSchema = ObjectSchema {
    name: "defaults",
    about: "Defaults for everything below, and settings of the whole book.",
    fields: &[
        key(
            "waiting",
            ValueType::Object(&WAITING),
            "How much may wait for a service; what a service states of it wins, key by key.",
        ),
        duration(
            "keep_delivered",
            "How long an event is kept once all its deliveries are delivered, or if no service subscribes to it (default 7d).",
        ),
        RETRY_BUDGET_KEY,
    ],
    includes: &[&RULE],
    one_of: OneOf::Nothing,
};

pub(super) static WAITING: ObjectSchema = ObjectSchema::of(
    "a backlog limit",
    "How much may wait for one service over all its channels, so that one that is down cannot fill the disk.",
    &[
        key(
            "events",
            ValueType::Count { min: 1, max: limits::WAITING_EVENTS_MAX },
            "How many events may wait; one that two channels take counts twice (default 20000000).",
        ),
        key("size", ValueType::Size, "How much data may wait (default 64GiB)."),
        key(
            "per_session",
            ValueType::Count { min: 1, max: limits::WAITING_EVENTS_MAX },
            "How many events may wait behind a dead letter that holds their session; one more is a dead letter too (default 10000).",
        ),
        word::<QueueFullAction>(
            "when_full",
            "What happens to an event beyond the limit: it is refused for all services, or becomes a dead letter of this service (default refuse; dead-letter for webhooks, whose sender may not send again).",
        ),
    ],
);

/// Allowed at every level: row, channel, service, dependency, defaults.
pub(super) static RULE: ObjectSchema = ObjectSchema::of(
    "a rule",
    "What happens on a failure; each value falls from the row to the channel, the service, the dependency, its kind and the defaults.",
    &[
        key(
            "retry",
            ValueType::Name(NameKind::Policy),
            "The policy for transient failures; short for `on_failure: { transient: … }`.",
        ),
        key(
            "on_failure",
            ValueType::ByFailure(&ValueType::Reaction),
            "A policy or an act (dead-letter, pause) for a category, a status or a range of statuses.",
        ),
        key(
            "classify",
            ValueType::ListOf(&ValueType::Object(&CLASSIFY_ROW)),
            "Overrides of the classification; the first match wins.",
        ),
        key(
            "timeout",
            ValueType::ShortOrLong(&ValueType::Name(NameKind::Timeout), &TIMEOUT),
            "A duration, the name of a timeout, or its parts.",
        ),
        key("breaker", ValueType::Name(NameKind::Breaker), "The breaker by name, or `none`."),
        word::<WhenOpen>("when_open", "What an open breaker does to a delivery (default hold)."),
        duration("hold_max", "How long a delivery may be held in all (default 24h)."),
        duration("deadline", "No attempt starts later than this after the first."),
        duration(
            "fatal_after",
            "A connection that has failed for this long is a matter of configuration (default: never).",
        ),
        key("idempotency", ValueType::Object(&IDEMPOTENCY), "How duplicate events are recognised."),
        key(
            "dead_letter",
            ValueType::Object(&DEAD_LETTER),
            "What happens to deliveries that failed permanently.",
        ),
        word::<Criticality>("criticality", "How important it is; `check` compares the policies with it."),
        word::<DataLoss>("data_loss", "Whether an event may be lost; `check` compares the policies with it."),
        text("consumer_group", "The consumer group named in dead letters (default: the service)."),
        key("alerts", ValueType::ListOf(&ValueType::Object(&ALERT)), "Alerts for what this level covers."),
        key("facts", ValueType::Object(&FACTS), "Facts about the outside world; for `check`.").fact(),
        key(
            "allow",
            ValueType::ListOf(&ValueType::Object(&ALLOW_ROW)),
            "Lints that are silenced here, with the reason.",
        ),
    ],
);

pub(super) static CLASSIFY_ROW: ObjectSchema = ObjectSchema::of(
    "an override of the classification",
    "All given conditions must match; then the answer is classified as `as`.",
    &[
        key(
            "status",
            ValueType::OneOrMany(&ValueType::Statuses),
            "The HTTP status, a range such as `500-599`, or a list of them.",
        ),
        text("code", "The failure's code, such as `NETWORK_TIMEOUT`."),
        text("header", "A header that the answer has: `x-reason`, or with its value `x-reason: overloaded`."),
        key("message", ValueType::Pattern, "A regular expression that the message matches."),
        key(
            "as",
            ValueType::Word(&[
                "transient",
                "rate-limited",
                "permanent",
                "invalid",
                "fatal",
                "unknown",
                "internal",
                "delivered",
            ]),
            "The category of such an answer.",
        )
        .required(),
        text("give_code", "The code to give it."),
        text("because", "Why."),
    ],
);

pub(super) static IDEMPOTENCY: ObjectSchema = ObjectSchema::of(
    "an idempotency rule",
    "How Redrive recognises duplicates; what the consumer does itself is the fact `idempotent_by`.",
    &[
        word::<IdempotencyBy>(
            "by",
            "What identifies a duplicate (default event-id). notification-id: the same, and a delivery whose target has returned a notification id is not sent again. none: each copy is delivered.",
        ),
        key(
            "store",
            ValueType::Word(&["embedded", "postgres", "redis", "memory"]),
            "Where it is stored: embedded, the data folder. The others are not built in.",
        ),
        key(
            "key",
            ValueType::CopyKey,
            "What else identifies a duplicate within the row: a field such as `data.order`, or a text with fields in braces.",
        ),
        duration("ttl", "How long it is remembered (default 7d), and for as long as the event is kept."),
    ],
);

pub(super) static DEAD_LETTER: ObjectSchema = ObjectSchema::of(
    "a dead-letter rule",
    "Where permanently failed deliveries are kept, for how long, and how they are replayed.",
    &[
        key(
            "name",
            ValueType::LetterName,
            "The name of the dead-letter queue, which is shown with each letter and chooses letters (`redrive dlq list --name`): `_{service}.deadletter[.{channel}]`, `{queue}:dlq` or `{queue}-dlq-{stage}`, in quotes.",
        ),
        text("queue", "The value of `{queue}` in the name."),
        text("stage", "The value of `{stage}` in the name."),
        word::<LetterForm>(
            "form",
            "The form in which `redrive dlq show --format json`, `redrive dlq export` and the API write letters unless another is asked for (default envelope).",
        ),
        duration("retention", "How long a dead letter is kept (default 30d)."),
        key(
            "alert",
            ValueType::Rate,
            "Dead letters arriving faster than this raise an alert of severity high, sent to every receiver.",
        ),
        word::<Reprocess>("reprocess", "How dead letters are replayed (default manual)."),
        key(
            "reprocess_categories",
            ValueType::ListOf(&ValueType::Word(&Category::WORDS)),
            "With `filtered`: the categories that are replayed automatically.",
        ),
        key(
            "reprocess_max",
            ValueType::Count { min: 1, max: 100 },
            "How often one dead letter is replayed automatically before it counts as poison (default 3).",
        ),
        key(
            "reprocess_cron",
            ValueType::Cron,
            "With `automatic` and `filtered`: dead letters are also replayed at these times, in UTC (default: only when a breaker closes).",
        ),
    ],
);

pub(super) static FACTS: ObjectSchema = ObjectSchema {
    name: "facts",
    about: "Facts about the outside world. Redrive does not act on them; a lint that lacks its fact reports that.",
    fields: &[
        key("rate", ValueType::Rate, "How many events or calls there are.").fact(),
        duration("p99", "The 99th percentile of call latency.").fact(),
        duration("sla", "The deadline for a delivery.").fact(),
        key(
            "instances",
            ValueType::Count { min: 1, max: 1_000_000 },
            "How many processes call the dependency.",
        )
        .fact(),
        duration("rate_limit_window", "The time over which the other side counts its rate limit.").fact(),
        key(
            "uses",
            ValueType::ListOf(&ValueType::Name(NameKind::Dependency)),
            "Further dependencies that the consumer itself calls.",
        )
        .fact(),
        key(
            "idempotent_by",
            ValueType::ShortOrLong(&ValueType::Word(ConsumerPattern::WORDS), &IDEMPOTENT_BY),
            "How the consumer handles duplicates.",
        )
        .fact(),
    ],
    includes: &[&SOURCE_FACTS],
    one_of: OneOf::Nothing,
};

pub(super) static SOURCE_FACTS: ObjectSchema = ObjectSchema::of(
    "facts of a source",
    "Facts about the broker or sender behind a source. Redrive does not act on them.",
    &[
        duration("lease", "How long the broker hides a message from others (visibility timeout, lock).")
            .fact(),
        duration("heartbeat", "How often the consumer renews that lease.").fact(),
        duration("redelivery", "How long after the first time the broker or sender may deliver again.")
            .fact(),
        duration(
            "poll_limit",
            "How long a consumer may take before the broker considers it dead (Kafka: max.poll.interval).",
        )
        .fact(),
        key(
            "callers",
            ValueType::Count { min: 1, max: 1_000_000 },
            "How many attempts the layers above make for one request, multiplied.",
        )
        .fact(),
        duration("caller_timeout", "How long the caller waits.").fact(),
        key(
            "broker_attempts",
            ValueType::Count { min: 1, max: 1_000_000 },
            "How often the broker itself delivers a message before it gives up.",
        )
        .fact(),
    ],
);

pub(super) static IDEMPOTENT_BY: ObjectSchema = ObjectSchema::of(
    "a consumer's idempotency",
    "How the consumer handles duplicates.",
    &[
        key(
            "pattern",
            ValueType::Word(ConsumerPattern::WORDS),
            "event-id (it remembers ids), upsert, state-check, outbox, or nothing.",
        )
        .fact()
        .required(),
        text("store", "Where it keeps the state for that.").fact(),
    ],
);

pub(super) static ALLOW_ROW: ObjectSchema = ObjectSchema::of(
    "a silenced lint",
    "A lint that is silenced here, with the reason.",
    &[
        key("lint", ValueType::Lint, "The lint's code.").required(),
        text("because", "Why it does not apply.").required(),
    ],
);

pub(super) static EVENT_ROW: ObjectSchema = ObjectSchema {
    name: "an event row",
    about: "A subscription to an event type or pattern, with its own rules; the most specific row wins.",
    fields: &[
        key(
            "type",
            ValueType::EventPattern,
            "The event type; `*` stands for one segment, at the end for one or more.",
        )
        .required(),
        text("title", "The row's name in tables (default: its type)."),
        text("subscription", "The id of the subscription (default: service/pattern)."),
        key(
            "where",
            ValueType::EventCondition,
            "A condition in CEL on attributes and data, such as `data.total > 100`; events that do not meet it are not delivered here, and no wider row takes them.",
        ),
        key(
            "depends_on",
            ValueType::Name(NameKind::Dependency),
            "The dependency of these events, if it is not the service's.",
        ),
    ],
    includes: &[&RULE],
    one_of: OneOf::Nothing,
};

pub(super) static CHANNEL: ObjectSchema = ObjectSchema {
    name: "a channel",
    about: "A part of a service with its own target, dead-letter queue and rules, such as e-mail.",
    fields: &[
        text("title", "The channel's name in tables (default: its key)."),
        key("target", ValueType::Object(&TARGET), "Where events go (default: the service's target)."),
        key(
            "depends_on",
            ValueType::Name(NameKind::Dependency),
            "The dependency behind it (default: its own, of the target's kind).",
        ),
        key(
            "events",
            ValueType::ListOf(&ValueType::ShortOrLong(&ValueType::EventPattern, &EVENT_ROW)),
            "The events it subscribes to.",
        )
        .required(),
    ],
    includes: &[&RULE],
    one_of: OneOf::Nothing,
};

pub(super) static SERVICE: ObjectSchema = ObjectSchema {
    name: "a service",
    about: "A consumer with a target, rules per event type and, if it has them, channels.",
    fields: &[
        text("title", "The service's name in tables (default: its key)."),
        key("target", ValueType::Object(&TARGET), "Where events go.").required(),
        key(
            "depends_on",
            ValueType::Name(NameKind::Dependency),
            "The dependency behind it (default: its own, of the target's kind).",
        ),
        word::<DeliveryOrder>(
            "order",
            "Whether deliveries of one session keep their order; strict: a dead letter blocks its session (default none).",
        ),
        key("waiting", ValueType::Object(&WAITING), "How much may wait for it, over all its channels."),
        key(
            "events",
            ValueType::ListOf(&ValueType::ShortOrLong(&ValueType::EventPattern, &EVENT_ROW)),
            "The events it subscribes to, one row each.",
        ),
        key(
            "channels",
            ValueType::MapOf(&ValueType::Object(&CHANNEL)),
            "Parts with their own target and rules.",
        ),
    ],
    includes: &[&RULE],
    one_of: OneOf::Nothing,
};
