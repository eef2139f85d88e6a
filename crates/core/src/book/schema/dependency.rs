//! The keys of retry policies, breakers, timeouts, throttles and dependencies.

use super::delivery::RULE;
use super::{KeySchema, NameKind, ObjectSchema, OneOf, ValueType, duration, key, text, word};
use crate::book::model::Direction;
use crate::limits;
use crate::policy::breaker::CountingUnit;
use crate::policy::catalog::DependencyKind;

pub(super) static POLICY: ObjectSchema = ObjectSchema::of(
    "a retry policy",
    "How often, how far apart and for how long a failed attempt is retried.",
    &[
        key(
            "from",
            ValueType::Name(NameKind::Policy),
            "The policy to extend; keys not set here are taken from it.",
        ),
        duration("initial", "The delay before the first retry, before jitter."),
        key(
            "factor",
            ValueType::Number { min: 1.0, max: 100.0 },
            "By how much each delay exceeds the one before (default 2).",
        ),
        duration("max", "No delay is longer than this before jitter."),
        key(
            "delays",
            ValueType::ListOf(&ValueType::Duration),
            "A list of delays instead of `initial`, `factor` and `max`; the last repeats.",
        ),
        key("retries", ValueType::CountOrUnlimited, "How many retries follow the first attempt."),
        duration(
            "window",
            "A retry that would start this long after the first failure is not made; time held does not count.",
        ),
        key(
            "jitter",
            ValueType::Jitter,
            "How delays are spread: none, full, equal, `plus 500ms`, `spread 25%`, `spread 100ms` or decorrelated (default equal).",
        ),
        key(
            "alert_when_exhausted",
            ValueType::Bool,
            "Whether running out of retries raises an alert at once (default false).",
        ),
    ],
);

pub(super) static TRIP: ObjectSchema = ObjectSchema {
    name: "a trip condition",
    about: "What opens a breaker: failures in a row, failures within a time, or a share of the calls.",
    fields: &[
        key(
            "consecutive",
            ValueType::Count { min: 1, max: 1_000_000 },
            "Opens on the N-th failure in a row.",
        ),
        key(
            "failures",
            ValueType::Count { min: 1, max: limits::TRIP_FAILURES_MAX as u64 },
            "Opens on the N-th failure `within` the sliding time; successes between do not reset it.",
        ),
        key(
            "failure_rate",
            ValueType::Share,
            "Opens when this share of the calls `within` the sliding time failed.",
        ),
        key(
            "of_at_least",
            ValueType::Count { min: 1, max: 1_000_000 },
            "With `failure_rate`: the share is judged only from this many calls on.",
        ),
        duration("within", "With `failures` and `failure_rate`: the sliding time."),
    ],
    includes: &[],
    one_of: OneOf::Keys(&["consecutive", "failures", "failure_rate"]),
};

pub(super) static BREAKER: ObjectSchema = ObjectSchema::of(
    "a breaker",
    "When calls to a dependency stop, for how long, and what resumes them.",
    &[
        key(
            "from",
            ValueType::Name(NameKind::Breaker),
            "The breaker that this one extends; under its own name, the catalog's.",
        ),
        key("trip", ValueType::Object(&TRIP), "What opens it."),
        duration("open", "How long it stays open before probes may go."),
        key(
            "probes",
            ValueType::Count { min: 1, max: limits::PROBES_MAX as u64 },
            "How many calls at once may probe when it is half-open (default 1).",
        ),
        key(
            "close_after",
            ValueType::Count { min: 1, max: 1_000 },
            "How many successes in a row close it (default: as many as `probes`).",
        ),
        duration("reset", "Without a failure for this long, the failures counted so far are forgotten."),
        word::<CountingUnit>(
            "count",
            "Whether every attempt counts, or a whole retried call once (default attempt).",
        ),
        key(
            "ignores",
            ValueType::ListOf(&ValueType::FailureKind),
            "Categories and statuses that are ignored.",
        ),
        key(
            "counts",
            ValueType::ListOf(&ValueType::FailureKind),
            "Categories and statuses that count as failures though they usually do not.",
        ),
    ],
);

pub(super) static TIMEOUT: ObjectSchema = ObjectSchema::of(
    "a timeout",
    "Limits on the phases of one call; the total may grow with each attempt.",
    &[
        duration("connect", "Making the connection (default 5s)."),
        duration("tls", "The TLS handshake (default 5s)."),
        duration(
            "headers",
            "Until the answer's headers are there (default 5s, or the whole where that is stated).",
        ),
        duration("whole", "The whole call (default 10s)."),
        duration("first", "In place of `whole`: the limit of the first attempt."),
        key(
            "factor",
            ValueType::Number { min: 1.0, max: 100.0 },
            "With `first`: by how much the limit grows from attempt to attempt (default 2).",
        ),
        duration("max", "With `first`: the longest limit."),
        key(
            "as",
            ValueType::Word(&["transient", "permanent", "unknown"]),
            "The category of a timeout (default transient; for a process permanent).",
        ),
    ],
);

const PERMITS: [KeySchema; 5] = [
    key(
        "in_flight",
        ValueType::Count { min: 1, max: 100_000 },
        "How many calls may be under way at once (default 64).",
    ),
    key(
        "rate",
        ValueType::Rate,
        "How many calls may start per time; halved when the dependency throttles, then raised again to what it allows.",
    ),
    key(
        "rate_growth",
        ValueType::Share,
        "By how much the rate grows per second after throttling, once above the last rate known to work (default 4%; `0%`: never).",
    ),
    duration(
        "rate_memory",
        "How long the rate at which the dependency throttled is remembered: within this time higher rates are tried, after it the limit is dropped if no call had to wait (default 10m).",
    ),
    duration(
        "ramp",
        "Ramp-up after an outage or pause: calls start at the usual rate, after this time at twice the rate, after twice this time at three times (default 10s; `0s`: no ramp-up).",
    ),
];

pub(super) static RETRY_BUDGET: ObjectSchema = ObjectSchema::of(
    "a retry budget",
    "The share of calls to a dependency that may be retries, over ten seconds and all callers.",
    &[
        key("share", ValueType::Share, "Retries per call: 20% is one retry for five calls.").required(),
        key("at_least", ValueType::Rate, "Retries always allowed, however few the calls (default 1/s)."),
    ],
);

pub(super) const RETRY_BUDGET_KEY: KeySchema = key(
    "retry_budget",
    ValueType::ShortOrLong(&ValueType::Share, &RETRY_BUDGET),
    "How many of the calls may be retries: a delivery beyond it waits, a program's own call ends (default: no limit for deliveries, 20% and at least 10/s for the calls of a program).",
);

pub(super) static THROTTLE: ObjectSchema =
    ObjectSchema::of("a throttle", "How many calls may be under way, and how fast they may start.", &PERMITS);

pub(super) static DAPR_TARGET: ObjectSchema = ObjectSchema {
    name: "a Dapr target",
    about: "The component or app that this dependency is in an exported Dapr resiliency file.",
    fields: &[
        text("component", "The component's name."),
        word::<Direction>("direction", "The component's direction (default outbound)."),
        text("app", "The app's id."),
        text("actor", "The actor's type."),
    ],
    includes: &[],
    one_of: OneOf::Keys(&["component", "app", "actor"]),
};

pub(super) static DEPENDENCY: ObjectSchema = ObjectSchema {
    name: "a dependency",
    about: "A system that can fail: one breaker, one throttle and one set of timeouts, shared by all its callers.",
    fields: &[
        key(
            "kind",
            ValueType::Word(&DependencyKind::WORDS),
            "The kind of system; each kind has its own default breaker.",
        )
        .required(),
        key("throttle", ValueType::Name(NameKind::Throttle), "The throttle, by name."),
        RETRY_BUDGET_KEY,
        key("dapr", ValueType::Object(&DAPR_TARGET), "What it is in an exported Dapr resiliency file."),
    ],
    includes: &[&THROTTLE, &RULE],
    one_of: OneOf::Nothing,
};
