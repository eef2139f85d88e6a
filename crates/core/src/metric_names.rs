//! All metric names, for the metrics page, exported alert rules and the reference.
//!
//! Invariant: a name never changes its meaning, kind or labels once released.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricName {
    pub name: &'static str,
    pub kind: MetricKind,
    /// In writing order.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> MetricName {
    MetricName { name, kind: MetricKind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> MetricName {
    MetricName { name, kind: MetricKind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> MetricName {
    MetricName { name, kind: MetricKind::Histogram, labels, help }
}

pub const ATTEMPTS: MetricName = counter(
    "redrive_attempts_total",
    &["service", "channel", "event_type", "outcome"],
    "Attempts that have ended, delivered or failed.",
);
pub const FAILURES: MetricName = counter(
    "redrive_failures_total",
    &["service", "channel", "event_type", "category"],
    "Attempts that failed, by category.",
);
pub const SERVICE_ATTEMPTS: MetricName = counter(
    "redrive_service_attempts_total",
    &["service", "channel", "outcome"],
    "Attempts of all event types that have ended, delivered or failed.",
);
pub const SERVICE_FAILURES: MetricName = counter(
    "redrive_service_failures_total",
    &["service", "channel", "category"],
    "Attempts of all event types that failed, by category.",
);
pub const FAILURES_BY_CODE: MetricName = counter(
    "redrive_failures_by_code_total",
    &["service", "channel", "code"],
    "Attempts that failed, by code.",
);
pub const DEPENDENCY_ATTEMPTS: MetricName = counter(
    "redrive_dependency_attempts_total",
    &["dependency", "outcome"],
    "Calls to a dependency that have ended, delivered or failed.",
);
pub const DEPENDENCY_FAILURES: MetricName = counter(
    "redrive_dependency_failures_total",
    &["dependency", "category"],
    "Calls to a dependency that failed, by category.",
);
pub const UNAVAILABLE: MetricName =
    counter("redrive_unavailable_total", &["dependency"], "Calls to a dependency that were answered 503.");
pub const AUTH_FAILURES: MetricName = counter(
    "redrive_auth_failures_total",
    &["dependency"],
    "Calls to a dependency that rejected the credentials.",
);
pub const CONFIG_FAILURES: MetricName = counter(
    "redrive_config_failures_total",
    &["dependency"],
    "Calls to a dependency that failed because of wrong configuration, other than credentials.",
);
pub const FIRST_ATTEMPTS: MetricName = counter(
    "redrive_first_attempts_total",
    &["service", "channel"],
    "First attempts of deliveries that have ended.",
);
pub const RETRIED: MetricName = counter(
    "redrive_deliveries_retried_total",
    &["service", "channel"],
    "Deliveries that were retried at least once.",
);
pub const DELIVERIES: MetricName = counter(
    "redrive_deliveries_total",
    &["service", "channel", "outcome"],
    "Deliveries that have ended, delivered or dead.",
);
pub const EXHAUSTED: MetricName = counter(
    "redrive_deliveries_exhausted_total",
    &["service", "channel"],
    "Deliveries that ran out of retries.",
);
pub const BREAKER_TRIPS: MetricName =
    counter("redrive_breaker_trips_total", &["dependency"], "How often the breaker has opened from closed.");
pub const BREAKER_STATE: MetricName = gauge(
    "redrive_breaker_state",
    &["dependency", "state"],
    "1 for the state that the breaker is in (closed, open or half-open), 0 for the others.",
);
pub const DEAD_LETTERS: MetricName =
    gauge("redrive_dead_letters", &["service", "channel"], "Dead letters that are still open.");
pub const DEAD_LETTER_AGE: MetricName = gauge(
    "redrive_dead_letter_oldest_age_seconds",
    &["service", "channel"],
    "Age of the oldest dead letter; 0 if there is none.",
);
pub const WAITING: MetricName =
    gauge("redrive_waiting", &["service", "channel"], "Deliveries that are not finished.");
pub const OLDEST_WAITING: MetricName = gauge(
    "redrive_oldest_waiting_age_seconds",
    &["service", "channel"],
    "Age of the oldest unfinished delivery; 0 if there is none.",
);
pub const AUTH_REJECTED: MetricName =
    counter("redrive_auth_rejected_total", &[], "Requests rejected for a bad key or signature.");
pub const ATTEMPT_DURATION: MetricName = histogram(
    "redrive_attempt_duration_seconds",
    &["service", "channel"],
    "Duration of attempts, in seconds.",
);
pub const DEPENDENCY_DURATION: MetricName = histogram(
    "redrive_dependency_duration_seconds",
    &["dependency"],
    "Duration of calls to a dependency, in seconds.",
);

pub const RETRIES: MetricName =
    counter("redrive_retries_total", &["service", "channel"], "Attempts that were followed by a retry.");
pub const ATTEMPTS_PER_DELIVERY: MetricName = histogram(
    "redrive_attempts_per_delivery",
    &["service", "channel"],
    "Attempts per finished delivery; the last range includes all above it.",
);
pub const WAITED: MetricName = histogram(
    "redrive_waited_seconds",
    &["service", "channel"],
    "How long deliveries waited for their first attempt, in seconds.",
);
pub const HELD: MetricName = counter(
    "redrive_held_total",
    &["service", "channel"],
    "How often deliveries were held without using a retry.",
);
pub const BEHIND: MetricName = gauge(
    "redrive_behind",
    &["service", "channel"],
    "Deliveries blocked by an earlier one of their session; included in the waiting.",
);
pub const PAUSED: MetricName =
    gauge("redrive_paused", &["service", "channel"], "1 if the service is paused, else 0.");
pub const IN_FLIGHT: MetricName = gauge("redrive_in_flight", &["dependency"], "Calls that are under way.");
pub const DEPENDENCY_HOLDS: MetricName = counter(
    "redrive_dependency_holds_total",
    &["dependency"],
    "How often the dependency asked callers to slow down.",
);
pub const EVENTS_ACCEPTED: MetricName = counter("redrive_events_accepted_total", &[], "New events accepted.");
pub const EVENTS_DUPLICATES: MetricName =
    counter("redrive_events_duplicates_total", &[], "Duplicate events.");
pub const EVENTS_UNROUTED: MetricName =
    counter("redrive_events_unrouted_total", &[], "Accepted events that no service subscribed to.");
pub const EVENTS_REFUSED: MetricName =
    counter("redrive_events_refused_total", &[], "Submissions that were refused.");
pub const REDELIVERED: MetricName =
    histogram("redrive_redelivered_seconds", &[], "Time between an event and its duplicates, in seconds.");
pub const EVENTS_STORED: MetricName = gauge("redrive_events_stored", &[], "Events in the store.");
pub const UNROUTED: MetricName =
    gauge("redrive_unrouted", &[], "Events in the store that no service has subscribed to.");
pub const STRANDED: MetricName = gauge(
    "redrive_stranded",
    &[],
    "Deliveries in the store that the engine has lost track of; anything but 0 is a bug.",
);
pub const STALE_SETTLEMENTS: MetricName =
    counter("redrive_stale_settlements_total", &[], "Settlements that came too late and changed nothing.");
pub const OPEN_REPLAYS: MetricName = gauge("redrive_open_replays", &[], "Replays in progress.");
pub const STORE_BYTES: MetricName = gauge("redrive_store_bytes", &[], "Size of the store on disk, in bytes.");
pub const ACTIVITY: MetricName =
    counter("redrive_activity_total", &["what"], "Activity by kind, as `redrive tail` shows it.");
pub const HOOK_ANSWERS: MetricName =
    counter("redrive_hook_answers_total", &["source", "answer"], "Calls to webhook sources by answer.");
pub const SOURCE_LAG: MetricName =
    gauge("redrive_source_lag", &["source"], "Messages of a source not yet acknowledged, as last reported.");
pub const SOURCE_UP: MetricName =
    gauge("redrive_source_up", &["source"], "Whether a source is connected: 1 if it is.");
pub const SOURCE_MESSAGES: MetricName = counter(
    "redrive_source_messages_total",
    &["source", "verdict"],
    "Messages of sources by result: durable, duplicate or refused.",
);
pub const ARCHIVED: MetricName =
    counter("redrive_archived_total", &[], "Events that were written to the archive.");
pub const ARCHIVE_LEFT_OUT: MetricName =
    counter("redrive_archive_left_out_total", &[], "Events missing from the archive.");
pub const ARCHIVE_BEHIND: MetricName = gauge(
    "redrive_archive_behind_seconds",
    &[],
    "Age of the oldest event not yet in the archive; 0 if all are.",
);
pub const SPANS_SENT: MetricName =
    counter("redrive_spans_sent_total", &[], "Spans exported to the trace collector.");
pub const SPANS_DROPPED: MetricName = counter(
    "redrive_spans_dropped_total",
    &[],
    "Spans dropped because the trace collector did not accept them.",
);
pub const METRICS_AGE: MetricName = gauge(
    "redrive_metrics_age_seconds",
    &["part"],
    "Age of the figures of each part of this page; a missing part has no series.",
);
pub const BUILD_INFO: MetricName =
    gauge("redrive_build_info", &["version"], "1, with the release as a label.");
pub const START_TIME: MetricName =
    gauge("redrive_start_time_seconds", &[], "When the server started, in seconds since 1970.");

pub const ALL: &[MetricName] = &[
    ATTEMPTS,
    FAILURES,
    SERVICE_ATTEMPTS,
    SERVICE_FAILURES,
    FAILURES_BY_CODE,
    DEPENDENCY_ATTEMPTS,
    DEPENDENCY_FAILURES,
    UNAVAILABLE,
    AUTH_FAILURES,
    CONFIG_FAILURES,
    FIRST_ATTEMPTS,
    RETRIED,
    DELIVERIES,
    EXHAUSTED,
    BREAKER_TRIPS,
    BREAKER_STATE,
    DEAD_LETTERS,
    DEAD_LETTER_AGE,
    WAITING,
    OLDEST_WAITING,
    AUTH_REJECTED,
    ATTEMPT_DURATION,
    DEPENDENCY_DURATION,
    RETRIES,
    ATTEMPTS_PER_DELIVERY,
    WAITED,
    HELD,
    BEHIND,
    PAUSED,
    IN_FLIGHT,
    DEPENDENCY_HOLDS,
    EVENTS_ACCEPTED,
    EVENTS_DUPLICATES,
    EVENTS_UNROUTED,
    EVENTS_REFUSED,
    REDELIVERED,
    EVENTS_STORED,
    UNROUTED,
    STRANDED,
    STALE_SETTLEMENTS,
    OPEN_REPLAYS,
    STORE_BYTES,
    ACTIVITY,
    HOOK_ANSWERS,
    SOURCE_LAG,
    SOURCE_UP,
    SOURCE_MESSAGES,
    ARCHIVED,
    ARCHIVE_LEFT_OUT,
    ARCHIVE_BEHIND,
    SPANS_SENT,
    SPANS_DROPPED,
    METRICS_AGE,
    BUILD_INFO,
    START_TIME,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_say_what_kind_they_are_and_stand_once() {
        let mut seen = BTreeSet::new();
        for metric in ALL {
            let name = metric.name;
            assert!(seen.insert(name), "{name} stands twice");
            assert!(name.starts_with("redrive_"), "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind == MetricKind::Counter, "{name}");
            let is_time = metric.kind == MetricKind::Histogram && metric != &ATTEMPTS_PER_DELIVERY;
            assert!(!is_time || name.ends_with("_seconds"), "{name}");
            assert!(metric.help.ends_with('.'), "{name}: a sentence, please");
        }
    }
}
