//! The format of a scenario, in the same tables as that of the rule book.

use redrive_core::book::schema::{ObjectSchema, OneOf, ValueType, key, required};
use redrive_core::limits;

pub static SCENARIO: ObjectSchema = ObjectSchema::new(
    "a scenario",
    "Arrivals, failures of dependencies and faults of Redrive, with the expected outcome.",
    &[
        required("version", ValueType::Count { min: 1, max: 1 }, "The version of the format: 1."),
        key("about", ValueType::Text, "A description, in a sentence."),
        required("duration", ValueType::Duration, "How long events arrive, such as 30m."),
        key(
            "settle",
            ValueType::Duration,
            "How long the run continues after that to finish deliveries (default 1d).",
        ),
        key(
            "nodes",
            ValueType::Count { min: 1, max: limits::SIMULATION_NODES_MAX as u64 },
            "How many nodes share the work, each with its own breakers (default 1).",
        ),
        key(
            "arrivals",
            ValueType::ListOf(&ValueType::Object(&ARRIVAL)),
            "What arrives (default: every row of the book with `facts: { rate }`, at that rate).",
        ),
        key(
            "dependencies",
            ValueType::MapOf(&ValueType::Object(&BEHAVIOUR)),
            "How dependencies of the book behave; `all` is for those that are not named (default: always healthy).",
        ),
        key("faults", ValueType::ListOf(&ValueType::Object(&FAULT)), "Faults of Redrive itself."),
        key(
            "expect",
            ValueType::ListOf(&ValueType::Text),
            "The expected outcome: METRIC [of NAME] OP VALUE, such as \"dead_letters == 0\".",
        ),
    ],
);

static ARRIVAL: ObjectSchema = ObjectSchema {
    name: "an arrival",
    about: "Events of one type, and how they arrive.",
    fields: &[
        required(
            "type",
            ValueType::EventPattern,
            "The type. A `*` in it is replaced to give one matching type; alone, it gives one type for each row of the book.",
        ),
        key("rate", ValueType::Rate, "A constant rate."),
        key("wave", ValueType::Object(&WAVE), "A rate that rises and falls."),
        key("bursts", ValueType::Object(&BURSTS), "Many events at one moment."),
        key("trace", ValueType::Text, "A file of recorded arrivals, one time in each line."),
        key(
            "spacing",
            ValueType::Word(&["random", "even"]),
            "`random`, as from many senders (default), or `even`; for `rate` and `wave`.",
        ),
        key(
            "sessions",
            ValueType::Count { min: 1, max: limits::SIMULATION_SESSIONS_MAX as u64 },
            "The number of sessions that they belong to (default: none).",
        ),
        key("poison", ValueType::Share, "The share that every target rejects with 422 (default 0%)."),
        key("from", ValueType::Duration, "The start (default 0s)."),
        key("until", ValueType::Duration, "The end (default: the scenario's `duration`)."),
    ],
    includes: &[],
    one_of: OneOf::Keys(&["rate", "wave", "bursts", "trace"]),
};

static WAVE: ObjectSchema = ObjectSchema::new(
    "a wave",
    "A rate that rises evenly from `low` to `high` and falls back.",
    &[
        required("low", ValueType::Rate, "The rate at the start and the end of each wave."),
        required("high", ValueType::Rate, "The rate in the middle."),
        key("every", ValueType::Duration, "The length of a wave (default 1d)."),
    ],
);

static BURSTS: ObjectSchema = ObjectSchema::new(
    "bursts",
    "Many events at one moment.",
    &[
        required(
            "size",
            ValueType::Count { min: 1, max: limits::SIMULATION_BURST_MAX as u64 },
            "How many events arrive together.",
        ),
        key("every", ValueType::Duration, "The interval (default: one burst)."),
    ],
);

static BEHAVIOUR: ObjectSchema = ObjectSchema::new(
    "a dependency",
    "How a dependency behaves over time.",
    &[
        key(
            "latency",
            ValueType::ShortOrLong(&ValueType::Duration, &LATENCY),
            "How long a call takes while it is healthy (default: from the book's fact `p99`, else 20ms and 200ms).",
        ),
        key("capacity", ValueType::Object(&CAPACITY), "How many calls it can handle (default: unlimited)."),
        key(
            "phases",
            ValueType::ListOf(&ValueType::Object(&PHASE)),
            "When and how it fails; phases must not overlap.",
        ),
        key(
            "calls",
            ValueType::MapOf(&ValueType::Object(&INNER_CALL)),
            "The dependencies that it calls to answer, one after the other; the rule book need not know them.",
        ),
    ],
);

static INNER_CALL: ObjectSchema = ObjectSchema::new(
    "a call of a dependency",
    "How a dependency calls another, with retries of its own: retries of nested layers multiply.",
    &[
        key(
            "attempts",
            ValueType::Count { min: 1, max: limits::SIMULATION_INNER_ATTEMPTS_MAX as u64 },
            "The most attempts until one succeeds (default 1).",
        ),
        key("wait", ValueType::Duration, "The delay between attempts (default 0s)."),
        key("timeout", ValueType::Duration, "The timeout of an attempt (default 5s)."),
    ],
);

static LATENCY: ObjectSchema = ObjectSchema::new(
    "a latency",
    "How long calls take; a single duration sets both.",
    &[
        required("p50", ValueType::Duration, "Half of the calls take no longer."),
        required("p99", ValueType::Duration, "99 of 100 calls take no longer."),
    ],
);

static CAPACITY: ObjectSchema = ObjectSchema::new(
    "a capacity",
    "Further calls queue inside the dependency, whether or not their caller still waits.",
    &[
        key("rate", ValueType::Rate, "Calls that it can start."),
        key(
            "concurrent",
            ValueType::Count { min: 1, max: limits::SIMULATION_CONCURRENT_MAX as u64 },
            "Calls that it can handle at once.",
        ),
        key(
            "queue",
            ValueType::Count { min: 0, max: limits::SIMULATION_INSIDE_MAX as u64 },
            "Calls in its queue; further ones are answered with 503 (default 10000).",
        ),
        key(
            "collapse",
            ValueType::Share,
            "How much longer a call takes for each hundred calls in the queue (default 0%).",
        ),
    ],
);

static PHASE: ObjectSchema = ObjectSchema {
    name: "a phase",
    about: "A time in which a dependency fails.",
    fields: &[
        required("at", ValueType::Duration, "The start."),
        required("for", ValueType::Duration, "The duration."),
        key(
            "is",
            ValueType::Word(&["down", "hanging"]),
            "`down`: connections are refused. `hanging`: calls are accepted and never answered.",
        ),
        key("slow", ValueType::ShortOrLong(&ValueType::Duration, &LATENCY), "How long calls take meanwhile."),
        key(
            "fails",
            ValueType::OneOrMany(&ValueType::ShortOrLong(&STATUS, &FAILS)),
            "The status of its answers and the share of calls; a status alone applies to all calls.",
        ),
        key("throttled", ValueType::Object(&THROTTLED), "Calls above a rate are answered with 429."),
    ],
    includes: &[],
    one_of: OneOf::Keys(&["is", "slow", "fails", "throttled"]),
};

const STATUS: ValueType = ValueType::Count { min: 300, max: 599 };

static FAILS: ObjectSchema = ObjectSchema::new(
    "a failure",
    "A status and the share of calls that get it.",
    &[
        required("status", STATUS, "The HTTP status."),
        key("share", ValueType::Share, "The share of calls that get it (default 100%)."),
    ],
);

static THROTTLED: ObjectSchema = ObjectSchema::new(
    "a throttling",
    "Calls above the rate are answered with 429.",
    &[
        required("rate", ValueType::Rate, "The rate of calls that it accepts."),
        key("retry_after", ValueType::Duration, "The `Retry-After` of the other answers (default: none)."),
    ],
);

static FAULT: ObjectSchema = ObjectSchema {
    name: "a fault",
    about: "A fault of Redrive itself.",
    fields: &[
        required("at", ValueType::Duration, "The start."),
        key("restart", ValueType::Duration, "It crashes and restarts after that time."),
        key("store_stall", ValueType::Duration, "Its store accepts no writes for that time."),
        key(
            "node",
            ValueType::Count { min: 1, max: limits::SIMULATION_NODES_MAX as u64 },
            "The node, counted from 1 (default: all).",
        ),
    ],
    includes: &[],
    one_of: OneOf::Keys(&["restart", "store_stall"]),
};
