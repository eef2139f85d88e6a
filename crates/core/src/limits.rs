//! Every bound of the core in one place, so that their relations can be seen and asserted.

use std::time::Duration;

use crate::text::Share;

/// The longest wait that a `Retry-After` may ask for; a longer one is cut to this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);

/// How long a delivery waits before it asks again for a secret that its call cannot be made without.
pub const SECRET_RETRY_AFTER: Duration = Duration::from_secs(30);

/// How long a delivery may be held by an open breaker or a `Retry-After`, unless its rule says otherwise.
pub const HOLD_MAX_DEFAULT: Duration = Duration::from_hours(24);

/// Retries that a failure of category `unknown` gets, unless the book states a policy for it.
pub const UNKNOWN_RETRIES_MAX: u32 = 2;

/// Attempts that a failure of category `internal` gets, unless the book states a policy for it.
pub const INTERNAL_ATTEMPTS_MAX: u32 = 3;

/// Calls in flight on one dependency, unless the rule book says otherwise.
pub const IN_FLIGHT_DEFAULT: u32 = 64;

/// Events that may wait for one service, unless the rule book says otherwise.
pub const WAITING_EVENTS_DEFAULT: u64 = 20_000_000;

/// Bytes of payload that may wait for one service, unless the rule book says otherwise.
pub const WAITING_BYTES_DEFAULT: u64 = 64 << 30;

/// The most events that a rule book may let wait for one service.
pub const WAITING_EVENTS_MAX: u64 = 1_000_000_000_000;

/// Deliveries in one call to a target that takes batches, unless the rule book says otherwise.
pub const BATCH_DELIVERIES_DEFAULT: u32 = 10;

/// How long delivered and unrouted events are kept, unless the rule book says otherwise.
pub const KEEP_DELIVERED_DEFAULT: Duration = Duration::from_hours(7 * 24);

/// How long one write to the archive may take, unless the rule book says otherwise.
pub const ARCHIVE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// For how long the value of a secret is fresh, unless the book says otherwise.
pub const SECRET_CACHED_DEFAULT: Duration = Duration::from_mins(5);
/// For how long after its last good fetch it serves while its provider is away, unless the book says otherwise.
pub const SECRET_KEPT_DEFAULT: Duration = Duration::from_mins(30);

/// The time over which a throttle measures the rate it will halve.
pub const RATE_MEASURED_OVER: Duration = Duration::from_secs(10);

/// A rate may run ahead of itself by the calls of this span, and always by one: timers are not exact.
pub const RATE_BURST: Duration = Duration::from_millis(100);

/// By how much a rate that was cut grows in a second beyond what is known to go well, unless the rule book says
/// otherwise.
pub const RATE_GROWTH_DEFAULT: Share = Share::percent(4);

/// For how long a limit that the other side made us learn is remembered, unless the rule book says otherwise.
pub const RATE_MEMORY_DEFAULT: Duration = Duration::from_mins(10);

/// The time over which a retry budget counts calls and retries.
pub const RETRY_BUDGET_OVER: Duration = Duration::from_secs(10);

/// A breaker's record is forgotten this long after its last use.
pub const BREAKER_RECORD_KEPT: Duration = Duration::from_hours(7 * 24);

/// A probe that has not come back by then is lost, and another may go, unless the call's timeout is longer.
pub const PROBE_LEASE_MIN: Duration = Duration::from_secs(30);

/// A probe that used up its whole timeout is settled a little after it, and has its place until then.
pub const PROBE_LEASE_MARGIN: Duration = Duration::from_secs(1);

/// The most failures a `failures … within …` trip may wait for: their times are remembered one by one.
pub const TRIP_FAILURES_MAX: u32 = 10_000;

/// The most probes a half-open breaker may have out at once.
pub const PROBES_MAX: u32 = 1_000;

/// The longest duration that a rule book may state.
pub const DURATION_MAX: Duration = Duration::from_hours(10 * 366 * 24);

/// The most retries a policy may ask for.
pub const RETRIES_MAX: u32 = 100_000;

/// The most policies that one rule may choose between: a delivery counts its retries for each.
pub const POLICIES_PER_RULE_MAX: usize = 16;

/// The most rows that a policy's timeline shows.
pub const TIMELINE_STEPS_MAX: u32 = 1_000;

/// The largest rule book read, in bytes.
pub const BOOK_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The deepest nesting of a rule book; the format itself needs eight levels.
pub const BOOK_DEPTH_MAX: usize = 32;

/// The most values in a rule book.
pub const BOOK_NODES_MAX: usize = 1_000_000;

/// The most patterns with wildcards in one service or channel; each is held against all others.
pub const WILDCARDS_MAX: usize = 500;

/// The most answers in a script that a delivery is tried with.
pub const SCRIPT_ANSWERS_MAX: usize = 10_000;

/// How many policies or breakers may extend each other, one after the other.
pub const EXTENDS_MAX: usize = 16;

/// The longest event type, in bytes.
pub const EVENT_TYPE_BYTES_MAX: usize = 256;

/// The most events in one batch.
pub const BATCH_EVENTS_MAX: usize = 1_000;

/// The longest id of an event, in bytes: it is part of a key that is kept for days.
pub const EVENT_ID_BYTES_MAX: usize = 512;

/// The longest source of an event, in bytes.
pub const EVENT_SOURCE_BYTES_MAX: usize = 2_048;

/// The longest subject of an event, in bytes.
pub const SUBJECT_BYTES_MAX: usize = 2_048;

/// The longest session key, in bytes.
pub const SESSION_KEY_BYTES_MAX: usize = 512;

/// The longest correlation id, in bytes.
pub const CORRELATION_ID_BYTES_MAX: usize = 512;

/// The longest `traceparent`, in bytes; today's have 55.
pub const TRACEPARENT_BYTES_MAX: usize = 256;

/// The longest content type, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;

/// The longest time of an event as it is written, in bytes.
pub const EVENT_TIME_BYTES_MAX: usize = 64;

/// The most attributes of an event beside those that Redrive knows.
pub const EXTENSIONS_MAX: usize = 64;

/// The most that those may take, names and values together, in bytes: targets get them as headers.
pub const EXTENSIONS_BYTES_MAX: usize = 16 * 1024;

/// The longest name of such an attribute, in bytes; CloudEvents advises 20.
pub const EXTENSION_NAME_BYTES_MAX: usize = 64;

/// How much of the words on unreadable JSON is said, in bytes: they may repeat what was sent.
pub const JSON_MESSAGE_BYTES_MAX: usize = 200;

/// How deep JSON data may be nested to stand as JSON within other JSON; many readers end at 128 levels.
pub const EMBEDDED_DEPTH_MAX: usize = 100;

/// The most sources in a rule book: lints hold each against every row.
pub const SOURCES_MAX: usize = 200;

/// The longest id of a notification that is kept; more of it is cut off.
pub const NOTIFICATION_ID_BYTES_MAX: usize = 200;
/// The longest key of a delivery that is stored as it is; a longer one is stored as its hash.
pub const COPY_KEY_BYTES_MAX: usize = 1_024;
/// The deepest path that a template of a source may follow into the data: each step reads what is below again.
pub const DATA_PATH_WORDS_MAX: usize = 16;

/// The most problems of one severity reported for a rule book; the rest are counted.
pub const PROBLEMS_MAX: usize = 100;

/// The longest regular expression of a `classify` row, in bytes, and the memory its automaton may take.
pub const PATTERN_BYTES_MAX: usize = 1_000;
/// The memory that one compiled regular expression may take, in bytes.
pub const PATTERN_MEMORY_MAX: usize = 256 * 1024;

/// The most regular expressions in a rule book: compiling one may take a millisecond.
pub const PATTERNS_MAX: usize = 200;

/// The most overrides of the classification at one level: every rule below it has them all.
pub const OVERRIDES_MAX: usize = 100;

/// The part of a failure's message that classification and fingerprints look at, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// The longest machine code that is taken from a target's answer, in bytes.
pub const REPORTED_CODE_BYTES_MAX: usize = 64;

/// Events that may wait behind a dead letter that holds their session, unless the book says otherwise.
pub const WAITING_PER_SESSION_DEFAULT: u64 = 10_000;

/// The most letters that one step of a replay sends: whoever writes waits for it.
pub const REPLAY_STEP_MAX: u32 = 256;
/// The most letters of one replay that may be on their way at once.
pub const REPLAY_CONCURRENCY_MAX: u32 = 100_000;
/// The same, unless the operator says otherwise.
pub const REPLAY_CONCURRENCY_DEFAULT: u32 = 1_000;
/// Letters that fail one after the other until the rest of a canary stops.
pub const REPLAY_FAILURES_IN_A_ROW: u32 = 10;

const _: () = assert!(REPLAY_CONCURRENCY_DEFAULT <= REPLAY_CONCURRENCY_MAX);
const _: () = assert!(WAITING_PER_SESSION_DEFAULT <= WAITING_EVENTS_MAX);
const _: () = assert!(WAITING_EVENTS_DEFAULT <= WAITING_EVENTS_MAX);
const _: () = assert!(BATCH_DELIVERIES_DEFAULT as usize <= BATCH_EVENTS_MAX);
const _: () = assert!(PROBE_LEASE_MIN.as_secs() < HOLD_MAX_DEFAULT.as_secs());
const _: () = assert!(PROBE_LEASE_MARGIN.as_secs() < PROBE_LEASE_MIN.as_secs());
const _: () = assert!(RETRY_AFTER_MAX.as_secs() <= HOLD_MAX_DEFAULT.as_secs());
const _: () = assert!(SECRET_CACHED_DEFAULT.as_secs() <= SECRET_KEPT_DEFAULT.as_secs());

/// The most times of our own absence that are told apart.
pub const ABSENCES_MAX: usize = 64;

/// Calls that may be in flight on a dependency that has just come back; each success allows one more, so
/// that a backlog does not knock it over again.
pub const RAMP_START: u32 = 4;
/// How long after it is back twice as many calls may start as usual, unless the rule book says otherwise: one
/// that has to scale up or to fill its caches does so within tens of seconds.
pub const RAMP_DEFAULT: Duration = Duration::from_secs(10);
/// The time over which it is learnt how many calls are usual: long enough that the first seconds of an outage, in
/// which calls hang, do not hide it.
pub const RAMP_MEASURED_OVER: Duration = Duration::from_mins(1);
/// Calls in a second that are nothing to anybody, however few are usual.
pub const RAMP_RATE_MIN: f64 = 10.0;
/// A pace that was not needed for so long is needed no more. A store or a machine that stands still for a moment
/// must not end it.
pub const RAMP_UNUSED_FOR: Duration = Duration::from_secs(10);

/// Crashes within [`CRASHES_WITHIN`] after which what was waiting is started alone.
pub const CRASHES_MAX: usize = 3;
/// The time within which they are counted, and for how long the care lasts.
pub const CRASHES_WITHIN: Duration = Duration::from_mins(1);

/// Pauses of a service that are remembered, so that they use up nobody's window.
pub const PAUSES_MAX: usize = 16;

/// Earlier rule books whose counts of retries are understood.
pub const OLDER_BOOKS_MAX: usize = 8;

/// Deliveries that are loaded at once, beside those that are in memory already: whoever writes waits for it.
pub const LOAD_ROWS_MAX: u32 = 64;

/// A fire of a schedule that is no longer ago than this is on time: nobody wakes to the second, and a store
/// may take its time.
pub const FIRE_ON_TIME: Duration = Duration::from_mins(2);
/// How long ago a missed fire may be to be caught up, unless the rule book says otherwise.
pub const FIRES_CAUGHT_UP_WITHIN: Duration = Duration::from_hours(24);
/// The most missed fires of one schedule that are caught up at once; older ones are lost.
pub const FIRES_CAUGHT_UP_MAX: usize = 1_000;
/// Lost fires that are counted; that there are more says enough.
pub const FIRES_COUNTED_MAX: usize = 10_000;

const _: () = assert!(FIRE_ON_TIME.as_secs() < FIRES_CAUGHT_UP_WITHIN.as_secs());

/// Within which time somebody is to see to a critical alert. By then it is said again, and whoever is next is
/// told: sooner would be noise to those who are at it, later would be too late.
pub const RESPONSE_TIME_CRITICAL: Duration = Duration::from_mins(15);
/// The same for a high one.
pub const RESPONSE_TIME_HIGH: Duration = Duration::from_hours(1);
/// The same for a medium one.
pub const RESPONSE_TIME_MEDIUM: Duration = Duration::from_hours(4);
/// The same for a warning, which waits for business hours: once a day is often enough.
pub const RESPONSE_TIME_WARNING: Duration = Duration::from_hours(24);

/// The time that an alert looks back over where the book does not say.
pub const ALERT_OVER_DEFAULT: Duration = Duration::from_mins(5);
/// For how long a breaker that has opened counts as having just opened.
pub const BREAKER_OPENED_WITHIN: Duration = Duration::from_mins(1);
/// The steps in which a window moves on: it is at most that part longer than it says.
pub const ALERT_WINDOW_STEPS: u32 = 30;
/// Things that one alert tells apart; what finds no place among them is counted together.
pub const ALERT_GROUPS_MAX: usize = 200;
/// A share of fewer than these says nothing: one of twenty is 5 %, which the catalog calls critical.
pub const ALERT_SHARE_OF_MIN: u64 = 20;
/// So many of a kind say something however few there were in all: that is no accident.
pub const ALERT_SHARE_COUNT_MIN: u64 = 5;
/// For how long an alert must have been quiet to be over, unless it looks back over less: what comes and goes is
/// one trouble.
pub const ALERT_QUIET_FOR: Duration = Duration::from_mins(1);
/// For how long an alert that fires stays when its figure says nothing any more, because nothing is tried: that
/// nothing was heard of a trouble is no sign that it is over. Behind a breaker that is not closed it stays longer.
pub const ALERT_SILENT_FOR: Duration = Duration::from_mins(15);
/// Of fewer attempts than these a long time raises no alert: a single probe says little.
pub const ALERT_TIMES_OF_MIN: u64 = 5;
/// How long after the last time a trouble lasts that is a moment, such as a refused credential: less than the time
/// after which the most urgent alert is said again, so that what happened once is said once.
pub const TROUBLE_LASTS: Duration = Duration::from_mins(10);
/// Troubles that are known at a time.
pub const TROUBLES_MAX: usize = 1_000;
/// Letters of the reason of a trouble.
pub const TROUBLE_WHY_CHARS_MAX: usize = 300;
/// Things that a message names; it counts the rest.
pub const ALERT_SUBJECTS_SHOWN_MAX: usize = 20;
/// While an alert lasts, what it is raised for beside is told together, once in this time at most.
pub const ALERT_FURTHER_EVERY: Duration = Duration::from_mins(1);
/// Messages to one receiver within [`ALERT_NOTICES_WITHIN`]; further ones wait, the most urgent first.
pub const ALERT_NOTICES_MAX: usize = 10;
/// The time within which they are counted.
pub const ALERT_NOTICES_WITHIN: Duration = Duration::from_mins(1);

/// The most attempts that a dependency of a scenario makes at another; with layers they multiply.
pub const SIMULATION_INNER_ATTEMPTS_MAX: u32 = 10;
/// The most dependencies of a scenario that stand before each other.
pub const SIMULATION_LAYERS_MAX: usize = 5;
/// The most calls from one dependency of a scenario to another, all of them together.
pub const SIMULATION_INNER_CALLS_MAX: usize = 1_000;
/// How long a dependency of a scenario waits for another, unless the scenario says otherwise.
pub const SIMULATION_INNER_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Nodes of a simulated cluster.
pub const SIMULATION_NODES_MAX: u32 = 16;
/// Sessions over which simulated events of one type are spread.
pub const SIMULATION_SESSIONS_MAX: u32 = 1_000_000;
/// Events of one simulated burst.
pub const SIMULATION_BURST_MAX: u32 = 1_000_000;
/// Calls that a simulated dependency works on at once.
pub const SIMULATION_CONCURRENT_MAX: u32 = 100_000;
/// Calls that may wait inside a simulated dependency.
pub const SIMULATION_INSIDE_MAX: u32 = 1_000_000;
/// The same, unless the scenario says otherwise.
pub const SIMULATION_INSIDE_DEFAULT: u32 = 10_000;
/// How long a simulation waits for everything to settle, unless the scenario says otherwise.
pub const SIMULATION_SETTLE_DEFAULT: Duration = Duration::from_hours(24);
/// Events of one simulation; a scenario that would bring more is refused.
pub const SIMULATION_EVENTS_MAX: u64 = 100_000_000;
/// Arrivals that a recorded trace may hold.
pub const SIMULATION_TRACE_MAX: usize = 5_000_000;
/// Rule books that one sweep plays.
pub const SIMULATION_SWEEP_MAX: usize = 64;
/// Steps over time that a simulation's report has at most; when they are full, two become one.
pub const SIMULATION_STEPS_MAX: usize = 240;
/// Transitions of breakers that a report lists; it counts the rest.
pub const SIMULATION_TRANSITIONS_MAX: usize = 200;
/// A dependency is as it was before once no more waits than did within this time before its trouble.
pub const SIMULATION_CALM_SECONDS: usize = 60;

/// Steps in which a backtest knows how a dependency was over time; when they are full, two become one.
pub const BACKTEST_STEPS_MAX: usize = 16_384;
/// How long such a step is at first.
pub const BACKTEST_STEP_MIN: Duration = Duration::from_secs(1);
/// What a dependency answered at most so long before or after is taken for what it would have answered.
pub const BACKTEST_NEAR: Duration = Duration::from_mins(1);
/// The same if it answered alike before and after, and no more time lies between the two.
pub const BACKTEST_BETWEEN: Duration = Duration::from_mins(10);
/// Deliveries that are named for each change.
pub const BACKTEST_EXAMPLES_MAX: usize = 3;
/// Rows of changes that a backtest tells; it counts the rest.
pub const BACKTEST_ROWS_MAX: usize = 50;
/// Rule books that a backtest remembers; what was judged by others is known as it was judged.
pub const BACKTEST_BOOKS_MAX: usize = 256;
/// Types of events that a backtest counts apart, to tell who would have got them too.
pub const BACKTEST_TYPES_MAX: usize = 10_000;
/// Calls of one delivery that a backtest thinks up.
pub const BACKTEST_CALLS_MAX: u32 = 10_000;

const _: () = assert!(TROUBLE_LASTS.as_secs() < RESPONSE_TIME_CRITICAL.as_secs());
const _: () = assert!(ALERT_SHARE_COUNT_MIN < ALERT_SHARE_OF_MIN);
const _: () = assert!(ALERT_SUBJECTS_SHOWN_MAX < ALERT_GROUPS_MAX);
