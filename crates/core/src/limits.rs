//! Every bound of the core in one place, so that their relations can be seen and asserted.

use std::time::Duration;

use crate::text::Share;

/// A longer `Retry-After` is cut to this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);

/// How long a delivery waits for a secret that its call needs, before it asks again.
pub const SECRET_RETRY_AFTER: Duration = Duration::from_secs(30);

/// How long an open breaker or a `Retry-After` may hold a delivery, unless its rule says otherwise.
pub const HOLD_MAX_DEFAULT: Duration = Duration::from_hours(24);

/// For failures of category `unknown`, unless the book states a policy for them.
pub const UNKNOWN_RETRIES_MAX: u32 = 2;

/// For failures of category `internal`, unless the book states a policy for them.
pub const INTERNAL_ATTEMPTS_MAX: u32 = 3;

/// For one dependency.
pub const IN_FLIGHT_DEFAULT: u32 = 64;

pub const WAITING_EVENTS_DEFAULT: u64 = 20_000_000;

pub const WAITING_BYTES_DEFAULT: u64 = 64 << 30;

/// The most that a rule book may allow.
pub const WAITING_EVENTS_MAX: u64 = 1_000_000_000_000;

/// For a target that takes batches.
pub const BATCH_DELIVERIES_DEFAULT: u32 = 10;

/// For delivered and unrouted events.
pub const KEEP_DELIVERED_DEFAULT: Duration = Duration::from_hours(7 * 24);

/// For one write to the archive.
pub const ARCHIVE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// For how long a secret's value is fresh.
pub const SECRET_CACHED_DEFAULT: Duration = Duration::from_mins(5);
/// For how long after its last fetch a secret is used while its provider is unavailable.
pub const SECRET_KEPT_DEFAULT: Duration = Duration::from_mins(30);

/// The time over which a throttle measures the rate it will halve.
pub const RATE_MEASURED_OVER: Duration = Duration::from_secs(10);

/// A rate may run ahead of itself by the calls of this span, and always by one: timers are not exact.
pub const RATE_BURST: Duration = Duration::from_millis(100);

/// Growth a second of a rate that was cut, beyond what is known to work.
pub const RATE_GROWTH_DEFAULT: Share = Share::percent(4);

/// For how long a learnt rate limit is remembered.
pub const RATE_MEMORY_DEFAULT: Duration = Duration::from_mins(10);

/// The time over which a retry budget counts calls and retries.
pub const RETRY_BUDGET_OVER: Duration = Duration::from_secs(10);

/// A breaker's record is forgotten this long after its last use.
pub const BREAKER_RECORD_KEPT: Duration = Duration::from_hours(7 * 24);

/// A probe that has not returned by then is lost, unless the call's timeout is longer.
pub const PROBE_LEASE_MIN: Duration = Duration::from_secs(30);

/// A probe that used its whole timeout is settled a little later, and has its place until then.
pub const PROBE_LEASE_MARGIN: Duration = Duration::from_secs(1);

/// Of a `failures … within …` trip: their times are stored one by one.
pub const TRIP_FAILURES_MAX: u32 = 10_000;

pub const PROBES_MAX: u32 = 1_000;

pub const DURATION_MAX: Duration = Duration::from_hours(10 * 366 * 24);

pub const RETRIES_MAX: u32 = 100_000;

/// A delivery counts its retries for each.
pub const POLICIES_PER_RULE_MAX: usize = 16;

pub const TIMELINE_STEPS_MAX: u32 = 1_000;

pub const BOOK_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The format itself needs eight levels.
pub const BOOK_DEPTH_MAX: usize = 32;

pub const BOOK_NODES_MAX: usize = 1_000_000;

/// In one service or channel; each is compared with all others.
pub const WILDCARDS_MAX: usize = 500;

/// In a script of `redrive try`.
pub const SCRIPT_ANSWERS_MAX: usize = 10_000;

/// Length of a chain of `extends`.
pub const EXTENDS_MAX: usize = 16;

/// More than any machine has.
pub const CONTAINER_CPUS_MAX: f64 = 4_096.0;

/// The largest number of processes that Linux allows.
pub const CONTAINER_PROCESSES_MAX: u64 = 4_194_304;

/// Docker refuses less.
pub const CONTAINER_MEMORY_BYTES_MIN: u64 = 6 << 20;

pub const EVENT_TYPE_BYTES_MAX: usize = 256;

pub const BATCH_EVENTS_MAX: usize = 1_000;

/// It is part of a key that is kept for days.
pub const EVENT_ID_BYTES_MAX: usize = 512;

pub const EVENT_SOURCE_BYTES_MAX: usize = 2_048;

pub const SUBJECT_BYTES_MAX: usize = 2_048;

pub const SESSION_KEY_BYTES_MAX: usize = 512;

pub const CORRELATION_ID_BYTES_MAX: usize = 512;

/// Today's have 55.
pub const TRACEPARENT_BYTES_MAX: usize = 256;

pub const CONTENT_TYPE_BYTES_MAX: usize = 256;

pub const EVENT_TIME_BYTES_MAX: usize = 64;

/// Attributes beside those that Redrive knows.
pub const EXTENSIONS_MAX: usize = 64;

/// Names and values together: targets get them as headers.
pub const EXTENSIONS_BYTES_MAX: usize = 16 * 1024;

/// CloudEvents advises 20.
pub const EXTENSION_NAME_BYTES_MAX: usize = 64;

/// Of the parser's message on invalid JSON, which may repeat what was sent.
pub const JSON_MESSAGE_BYTES_MAX: usize = 200;

/// Depth of JSON data that is embedded in other JSON; many readers end at 128 levels.
pub const EMBEDDED_DEPTH_MAX: usize = 100;

/// Lints compare each with every row.
pub const SOURCES_MAX: usize = 200;

/// Of one mail, `cc` included; servers take at least 100.
pub const MAIL_RECIPIENTS_MAX: usize = 100;
/// Of a rendered address; longer ones are invalid anyway.
pub const MAIL_ADDRESS_BYTES_MAX: usize = 1_000;
/// Of a rendered line: a subject or title, a tag, an address to open.
pub const RENDERED_LINE_BYTES_MAX: usize = 8 * 1024;
/// In the book, of one notification.
pub const NTFY_TAGS_MAX: usize = 20;

/// The rest is cut off.
pub const NOTIFICATION_ID_BYTES_MAX: usize = 200;
/// A longer key is stored as its hash.
pub const COPY_KEY_BYTES_MAX: usize = 1_024;
/// Each step of a source template's path parses the data below it again.
pub const DATA_PATH_WORDS_MAX: usize = 16;

/// Of one severity; the rest are counted.
pub const PROBLEMS_MAX: usize = 100;

/// Of a regular expression in a `classify` row.
pub const PATTERN_BYTES_MAX: usize = 1_000;
/// Bytes of one compiled regular expression.
pub const PATTERN_MEMORY_MAX: usize = 256 * 1024;

/// Compiling one may take a millisecond.
pub const PATTERNS_MAX: usize = 200;

/// At one level: every rule below it has them all.
pub const OVERRIDES_MAX: usize = 100;

/// The JSON Schema of an event type.
pub const EVENT_SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// What is shown of a violation.
pub const EVENT_SCHEMA_REASON_BYTES_MAX: usize = 500;

/// A condition in CEL.
pub const CONDITION_BYTES_MAX: usize = 4 * 1024;
/// Operators, calls, brackets and dots of a condition.
pub const CONDITION_OPERATORS_MAX: usize = 100;
/// Brackets and choices inside one another.
pub const CONDITION_NESTING_MAX: usize = 12;
/// How much of an event one evaluation may read: lookups times the size of the event.
pub const CONDITION_BYTES_READ_MAX: usize = 256 * 1024 * 1024;
/// Lookups that are allowed for an event of any size.
pub const CONDITION_LOOKUPS_MIN: usize = 64;

/// A template of a request.
pub const TEMPLATE_BYTES_MAX: usize = 64 * 1024;
/// What a template may make: a body.
pub const TEMPLATE_OUTPUT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Instructions of one rendering.
pub const TEMPLATE_STEPS_MAX: u64 = 200_000;
/// Nested loops and calls of one rendering.
pub const TEMPLATE_DEPTH_MAX: usize = 64;
/// Operators, calls and brackets in one tag of a template.
pub const TEMPLATE_OPERATORS_MAX: usize = 100;
/// Nested `if` and `for` of a template.
pub const TEMPLATE_BLOCKS_MAX: usize = 16;

/// What templates add to the path and query of an address.
pub const REQUEST_TARGET_BYTES_MAX: usize = 16 * 1024;
/// A header's value.
pub const REQUEST_HEADER_BYTES_MAX: usize = 8 * 1024;
/// Of a response that `expect` examines.
pub const EXPECTED_BODY_BYTES_MAX: usize = 256 * 1024;
/// Texts in the path, query and body of a target.
pub const REQUEST_TEMPLATES_MAX: usize = 500;

/// The part of a failure's message that classification and fingerprints examine.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// Of a code in a target's answer.
pub const REPORTED_CODE_BYTES_MAX: usize = 64;

/// Behind a dead letter that holds the session.
pub const WAITING_PER_SESSION_DEFAULT: u64 = 10_000;

/// Letters of one step: the writer waits for it.
pub const REPLAY_STEP_MAX: u32 = 256;
/// Letters in flight of one replay.
pub const REPLAY_CONCURRENCY_MAX: u32 = 100_000;
pub const REPLAY_CONCURRENCY_DEFAULT: u32 = 1_000;
/// Consecutive failures that stop the rest of a canary.
pub const REPLAY_FAILURES_IN_A_ROW: u32 = 10;

const _: () = assert!(REPLAY_CONCURRENCY_DEFAULT <= REPLAY_CONCURRENCY_MAX);
const _: () = assert!(WAITING_PER_SESSION_DEFAULT <= WAITING_EVENTS_MAX);
const _: () = assert!(WAITING_EVENTS_DEFAULT <= WAITING_EVENTS_MAX);
const _: () = assert!(BATCH_DELIVERIES_DEFAULT as usize <= BATCH_EVENTS_MAX);
const _: () = assert!(PROBE_LEASE_MIN.as_secs() < HOLD_MAX_DEFAULT.as_secs());
const _: () = assert!(PROBE_LEASE_MARGIN.as_secs() < PROBE_LEASE_MIN.as_secs());
const _: () = assert!(RETRY_AFTER_MAX.as_secs() <= HOLD_MAX_DEFAULT.as_secs());
const _: () = assert!(SECRET_CACHED_DEFAULT.as_secs() <= SECRET_KEPT_DEFAULT.as_secs());

/// Absences that are kept separately.
pub const ABSENCES_MAX: usize = 64;

/// Calls in flight at first; each success allows one more, so that a backlog does not overload a recovering
/// dependency.
pub const RAMP_START: u32 = 4;
/// After this time twice the usual rate is allowed: scaling up or filling caches takes tens of seconds.
pub const RAMP_DEFAULT: Duration = Duration::from_secs(10);
/// Long enough that the first seconds of an outage, in which calls hang, do not hide the usual rate.
pub const RAMP_MEASURED_OVER: Duration = Duration::from_mins(1);
/// Calls a second that any dependency can bear.
pub const RAMP_RATE_MIN: f64 = 10.0;
/// A pace unused for so long has ended. A short stall of the store or the machine must not end it.
pub const RAMP_UNUSED_FOR: Duration = Duration::from_secs(10);

/// Crashes within [`CRASHES_WITHIN`] after which waiting deliveries are started alone.
pub const CRASHES_MAX: usize = 3;
/// Also how long that care lasts.
pub const CRASHES_WITHIN: Duration = Duration::from_mins(1);

/// Pauses of a service that are remembered, to exclude them from windows.
pub const PAUSES_MAX: usize = 16;

/// Earlier rule books whose retry counts are understood.
pub const OLDER_BOOKS_MAX: usize = 8;

/// Deliveries per page, beside those in memory already: the writer waits for it.
pub const LOAD_ROWS_MAX: u32 = 64;

/// A schedule's run within this time is on time: timers are late, and a store may be slow.
pub const FIRE_ON_TIME: Duration = Duration::from_mins(2);
/// Age of a missed run that is caught up.
pub const FIRES_CAUGHT_UP_WITHIN: Duration = Duration::from_hours(24);
/// Missed runs of one schedule that are caught up at once; older ones are lost.
pub const FIRES_CAUGHT_UP_MAX: usize = 1_000;
pub const FIRES_COUNTED_MAX: usize = 10_000;

const _: () = assert!(FIRE_ON_TIME.as_secs() < FIRES_CAUGHT_UP_WITHIN.as_secs());

/// After this time a critical alert is repeated and escalated: sooner would be noise, later too late.
pub const RESPONSE_TIME_CRITICAL: Duration = Duration::from_mins(15);
pub const RESPONSE_TIME_HIGH: Duration = Duration::from_hours(1);
pub const RESPONSE_TIME_MEDIUM: Duration = Duration::from_hours(4);
/// A warning waits for business hours: once a day is enough.
pub const RESPONSE_TIME_WARNING: Duration = Duration::from_hours(24);

pub const ALERT_OVER_DEFAULT: Duration = Duration::from_mins(5);
/// How long a breaker counts as having just opened.
pub const BREAKER_OPENED_WITHIN: Duration = Duration::from_mins(1);
/// A window moves in steps: it is at most that part longer than stated.
pub const ALERT_WINDOW_STEPS: u32 = 30;
/// Groups of one alert; the rest are counted together.
pub const ALERT_GROUPS_MAX: usize = 200;
/// A share of fewer than these is ignored: one of twenty is 5 %, which the catalog calls critical.
pub const ALERT_SHARE_OF_MIN: u64 = 20;
/// So many failures count, however few calls there were.
pub const ALERT_SHARE_COUNT_MIN: u64 = 5;
/// How long an alert must be quiet to resolve, unless its window is shorter: flapping is one incident.
pub const ALERT_QUIET_FOR: Duration = Duration::from_mins(1);
/// How long a firing alert stays when its figure has no data because nothing is tried: silence is no
/// recovery. Behind a breaker that is not closed it stays longer.
pub const ALERT_SILENT_FOR: Duration = Duration::from_mins(15);
/// Fewer attempts raise no latency alert: a single probe is not representative.
pub const ALERT_TIMES_OF_MIN: u64 = 5;
/// How long a momentary problem, such as a refused credential, lasts: less than the shortest repeat interval,
/// so that it is notified once.
pub const TROUBLE_LASTS: Duration = Duration::from_mins(10);
pub const TROUBLES_MAX: usize = 1_000;
pub const TROUBLE_WHY_CHARS_MAX: usize = 300;
/// The rest is counted.
pub const ALERT_SUBJECTS_SHOWN_MAX: usize = 20;
/// Further subjects of an active alert are notified together, at most this often.
pub const ALERT_FURTHER_EVERY: Duration = Duration::from_mins(1);
/// Per receiver within [`ALERT_NOTICES_WITHIN`]; further ones wait, most urgent first.
pub const ALERT_NOTICES_MAX: usize = 10;
pub const ALERT_NOTICES_WITHIN: Duration = Duration::from_mins(1);

/// Attempts of one simulated dependency at another; with layers they multiply.
pub const SIMULATION_INNER_ATTEMPTS_MAX: u32 = 10;
/// Depth of simulated dependencies that call each other.
pub const SIMULATION_LAYERS_MAX: usize = 5;
/// Calls from one simulated dependency to another, in total.
pub const SIMULATION_INNER_CALLS_MAX: usize = 1_000;
/// Timeout of such a call.
pub const SIMULATION_INNER_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
pub const SIMULATION_NODES_MAX: u32 = 16;
pub const SIMULATION_SESSIONS_MAX: u32 = 1_000_000;
pub const SIMULATION_BURST_MAX: u32 = 1_000_000;
pub const SIMULATION_CONCURRENT_MAX: u32 = 100_000;
pub const SIMULATION_INSIDE_MAX: u32 = 1_000_000;
pub const SIMULATION_INSIDE_DEFAULT: u32 = 10_000;
pub const SIMULATION_SETTLE_DEFAULT: Duration = Duration::from_hours(24);
pub const SIMULATION_EVENTS_MAX: u64 = 100_000_000;
pub const SIMULATION_TRACE_MAX: usize = 5_000_000;
pub const SIMULATION_SWEEP_MAX: usize = 64;
/// Time buckets of a report; when they are full, two become one.
pub const SIMULATION_STEPS_MAX: usize = 240;
/// The rest is counted.
pub const SIMULATION_TRANSITIONS_MAX: usize = 200;
pub const SIMULATION_CALM_SECONDS: usize = 60;

/// Time buckets of a dependency's history; when they are full, two become one.
pub const BACKTEST_STEPS_MAX: usize = 16_384;
pub const BACKTEST_STEP_MIN: Duration = Duration::from_secs(1);
/// A known answer at most so long before or after is used for an unknown one.
pub const BACKTEST_NEAR: Duration = Duration::from_mins(1);
/// The same if the answers before and after agree, and no more time lies between them.
pub const BACKTEST_BETWEEN: Duration = Duration::from_mins(10);
/// Per change.
pub const BACKTEST_EXAMPLES_MAX: usize = 3;
/// The rest is counted.
pub const BACKTEST_ROWS_MAX: usize = 50;
/// Of others, only the recorded verdicts are known.
pub const BACKTEST_BOOKS_MAX: usize = 256;
pub const BACKTEST_TYPES_MAX: usize = 10_000;
/// Simulated calls of one delivery.
pub const BACKTEST_CALLS_MAX: u32 = 10_000;

const _: () = assert!(TROUBLE_LASTS.as_secs() < RESPONSE_TIME_CRITICAL.as_secs());
const _: () = assert!(ALERT_SHARE_COUNT_MIN < ALERT_SHARE_OF_MIN);
const _: () = assert!(ALERT_SUBJECTS_SHOWN_MAX < ALERT_GROUPS_MAX);
