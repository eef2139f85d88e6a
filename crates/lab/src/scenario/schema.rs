//! The format of a scenario as data, in the same tables as the rule book's.

use redrive_core::book::schema::{Object, OneOf, Type, key, required};
use redrive_core::limits;

/// A whole scenario.
pub static SCENARIO: Object = Object::new(
    "a scenario",
    "What the world does to a rule book, and what is expected of the outcome.",
    &[
        required("version", Type::Count { min: 1, max: 1 }, "The version of the format: 1."),
        key("about", Type::Text, "What it is about, in a sentence."),
        required("duration", Type::Duration, "For how long events arrive, such as 30m."),
        key(
            "settle",
            Type::Duration,
            "For how long after that the run waits for everything to settle (default 1d).",
        ),
        key(
            "nodes",
            Type::Count { min: 1, max: limits::SIMULATION_NODES_MAX as u64 },
            "How many nodes share the work, each with breakers of its own (default 1).",
        ),
        key(
            "arrivals",
            Type::ListOf(&Type::Object(&ARRIVAL)),
            "What arrives (default: every row of the book with `facts: { rate }`, at that rate).",
        ),
        key(
            "dependencies",
            Type::MapOf(&Type::Object(&BEHAVIOUR)),
            "How dependencies of the book behave; `all` stands for those that are not named (default: always well).",
        ),
        key("faults", Type::ListOf(&Type::Object(&FAULT)), "What happens to Redrive itself."),
        key(
            "expect",
            Type::ListOf(&Type::Text),
            "What is expected of the outcome: METRIC [of NAME] OP VALUE, such as \"dead_letters == 0\".",
        ),
    ],
);

/// Events of one type.
static ARRIVAL: Object = Object {
    name: "an arrival",
    about: "Events of one type, and how they arrive.",
    fields: &[
        required(
            "type",
            Type::EventPattern,
            "The type. A `*` in it stands for one type that fits, alone for one of each row of the book.",
        ),
        key("rate", Type::Rate, "They arrive at that rate."),
        key("wave", Type::Object(&WAVE), "They arrive at a rate that rises and falls."),
        key("bursts", Type::Object(&BURSTS), "Many arrive at one moment."),
        key("trace", Type::Text, "They arrive as recorded in that file: one time in each line."),
        key(
            "spacing",
            Type::Word(&["random", "even"]),
            "`random` as those of many senders (default), or `even`; with `rate` and `wave`.",
        ),
        key(
            "sessions",
            Type::Count { min: 1, max: limits::SIMULATION_SESSIONS_MAX as u64 },
            "Over how many sessions they are spread (default: they have none).",
        ),
        key("poison", Type::Share, "The share of them that every target rejects with 422 (default 0%)."),
        key("from", Type::Duration, "When the first may arrive (default 0s)."),
        key("until", Type::Duration, "When no more arrive (default: the scenario's `duration`)."),
    ],
    includes: &[],
    one_of: OneOf::Keys(&["rate", "wave", "bursts", "trace"]),
};

static WAVE: Object = Object::new(
    "a wave",
    "A rate that rises evenly from `low` to `high` and falls back.",
    &[
        required("low", Type::Rate, "The rate at the beginning and the end of each wave."),
        required("high", Type::Rate, "The rate in the middle of it."),
        key("every", Type::Duration, "How long a wave is (default 1d)."),
    ],
);

static BURSTS: Object = Object::new(
    "bursts",
    "Many events at one moment.",
    &[
        required(
            "size",
            Type::Count { min: 1, max: limits::SIMULATION_BURST_MAX as u64 },
            "How many arrive together.",
        ),
        key("every", Type::Duration, "How often (default: once)."),
    ],
);

static BEHAVIOUR: Object = Object::new(
    "a dependency",
    "How a dependency behaves over time.",
    &[
        key(
            "latency",
            Type::ShortOrLong(&Type::Duration, &LATENCY),
            "How long a call takes while all is well (default: up to the book's fact `p99`, else 20ms and 200ms).",
        ),
        key("capacity", Type::Object(&CAPACITY), "How much it can take (default: everything)."),
        key("phases", Type::ListOf(&Type::Object(&PHASE)), "When it is not well; they do not overlap."),
        key(
            "calls",
            Type::MapOf(&Type::Object(&INNER_CALL)),
            "What it calls itself to answer, one after the other; the rule book need not know those.",
        ),
    ],
);

static INNER_CALL: Object = Object::new(
    "a call of a dependency",
    "How a dependency calls another, and how often it tries by itself: layers of retries multiply.",
    &[
        key(
            "attempts",
            Type::Count { min: 1, max: limits::SIMULATION_INNER_ATTEMPTS_MAX as u64 },
            "How often it tries at most until it is answered well (default 1).",
        ),
        key("wait", Type::Duration, "How long it waits before it tries again (default 0s)."),
        key("timeout", Type::Duration, "How long it waits for an answer (default 5s)."),
    ],
);

static LATENCY: Object = Object::new(
    "a latency",
    "How long calls take; a single duration stands for both.",
    &[
        required("p50", Type::Duration, "Half of the calls take no longer."),
        required("p99", Type::Duration, "99 of 100 calls take no longer."),
    ],
);

static CAPACITY: Object = Object::new(
    "a capacity",
    "What it cannot take at once waits inside it, whether or not its caller still waits too.",
    &[
        key("rate", Type::Rate, "Calls that it can begin in a time."),
        key(
            "concurrent",
            Type::Count { min: 1, max: limits::SIMULATION_CONCURRENT_MAX as u64 },
            "Calls that it can work on at once.",
        ),
        key(
            "queue",
            Type::Count { min: 0, max: limits::SIMULATION_INSIDE_MAX as u64 },
            "Calls that may wait inside it; one more is answered with 503 at once (default 10000).",
        ),
        key(
            "collapse",
            Type::Share,
            "By how much the work on a call grows for each hundred calls that wait inside it (default 0%).",
        ),
    ],
);

static PHASE: Object = Object {
    name: "a phase",
    about: "A time in which a dependency is not well.",
    fields: &[
        required("at", Type::Duration, "When it begins."),
        required("for", Type::Duration, "How long it lasts."),
        key(
            "is",
            Type::Word(&["down", "hanging"]),
            "`down`: nobody listens there. `hanging`: it takes calls and never answers.",
        ),
        key("slow", Type::ShortOrLong(&Type::Duration, &LATENCY), "How long calls take then."),
        key(
            "fails",
            Type::OneOrMany(&Type::ShortOrLong(&STATUS, &FAILS)),
            "The status that it answers with, and in which share of calls; a status alone is that of all calls.",
        ),
        key("throttled", Type::Object(&THROTTLED), "It takes few calls and answers the others with 429."),
    ],
    includes: &[],
    one_of: OneOf::Keys(&["is", "slow", "fails", "throttled"]),
};

const STATUS: Type = Type::Count { min: 300, max: 599 };

static FAILS: Object = Object::new(
    "a failure",
    "A status and the share of calls that get it.",
    &[
        required("status", STATUS, "The HTTP status."),
        key("share", Type::Share, "The share of calls that get it (default 100%)."),
    ],
);

static THROTTLED: Object = Object::new(
    "a throttling",
    "So many calls are taken in a time, and the others answered with 429.",
    &[
        required("rate", Type::Rate, "How many calls it takes."),
        key("retry_after", Type::Duration, "How long it asks the others to wait (default: it does not say)."),
    ],
);

static FAULT: Object = Object {
    name: "a fault",
    about: "Something that happens to Redrive itself.",
    fields: &[
        required("at", Type::Duration, "When it begins."),
        key("restart", Type::Duration, "It goes down without a word, for so long."),
        key("store_stall", Type::Duration, "Its store takes no writes, for so long."),
        key(
            "node",
            Type::Count { min: 1, max: limits::SIMULATION_NODES_MAX as u64 },
            "To which node, counted from 1 (default: all of them).",
        ),
    ],
    includes: &[],
    one_of: OneOf::Keys(&["restart", "store_stall"]),
};
