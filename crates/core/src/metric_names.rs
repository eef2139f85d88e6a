//! The names of all metrics: one table for the page that scrapers read, for exported alert rules and for the docs.
//!
//! Invariant: a name never changes its meaning, its kind or its labels once released.

/// A metric as Prometheus knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricName {
    /// Its name.
    pub name: &'static str,
    /// What kind of figure it is.
    pub kind: MetricKind,
    /// Its labels, in the order in which they are written.
    pub labels: &'static [&'static str],
    /// One sentence about it.
    pub help: &'static str,
}

/// What kind of figure a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts by range.
    Histogram,
}

impl MetricKind {
    /// The word in the text format.
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

/// Attempts by how they ended.
pub const ATTEMPTS: MetricName = counter(
    "redrive_attempts_total",
    &["service", "channel", "event_type", "outcome"],
    "Attempts that have ended, delivered or failed.",
);
/// Failed attempts by category.
pub const FAILURES: MetricName = counter(
    "redrive_failures_total",
    &["service", "channel", "event_type", "category"],
    "Attempts that failed, by category.",
);
/// Attempts of a queue by how they ended.
pub const SERVICE_ATTEMPTS: MetricName = counter(
    "redrive_service_attempts_total",
    &["service", "channel", "outcome"],
    "Attempts of all event types that have ended, delivered or failed.",
);
/// Failed attempts of a queue by category.
pub const SERVICE_FAILURES: MetricName = counter(
    "redrive_service_failures_total",
    &["service", "channel", "category"],
    "Attempts of all event types that failed, by category.",
);
/// Failed attempts by code.
pub const FAILURES_BY_CODE: MetricName = counter(
    "redrive_failures_by_code_total",
    &["service", "channel", "code"],
    "Attempts that failed, by code.",
);
/// Calls to a dependency by how they ended.
pub const DEPENDENCY_ATTEMPTS: MetricName = counter(
    "redrive_dependency_attempts_total",
    &["dependency", "outcome"],
    "Calls to a dependency that have ended, delivered or failed.",
);
/// Failed calls to a dependency by category.
pub const DEPENDENCY_FAILURES: MetricName = counter(
    "redrive_dependency_failures_total",
    &["dependency", "category"],
    "Calls to a dependency that failed, by category.",
);
/// Calls that were answered 503.
pub const UNAVAILABLE: MetricName =
    counter("redrive_unavailable_total", &["dependency"], "Calls to a dependency that were answered 503.");
/// Calls that say that our credentials are wrong.
pub const AUTH_FAILURES: MetricName = counter(
    "redrive_auth_failures_total",
    &["dependency"],
    "Calls to a dependency that rejected the credentials.",
);
/// Calls that say that something is configured wrongly.
pub const CONFIG_FAILURES: MetricName = counter(
    "redrive_config_failures_total",
    &["dependency"],
    "Calls to a dependency that failed because of wrong configuration, other than credentials.",
);
/// First attempts.
pub const FIRST_ATTEMPTS: MetricName = counter(
    "redrive_first_attempts_total",
    &["service", "channel"],
    "First attempts of deliveries that have ended.",
);
/// Deliveries that needed a retry.
pub const RETRIED: MetricName = counter(
    "redrive_deliveries_retried_total",
    &["service", "channel"],
    "Deliveries that were retried at least once.",
);
/// Deliveries by how they ended.
pub const DELIVERIES: MetricName = counter(
    "redrive_deliveries_total",
    &["service", "channel", "outcome"],
    "Deliveries that have ended, delivered or dead.",
);
/// Deliveries that ran out of retries.
pub const EXHAUSTED: MetricName = counter(
    "redrive_deliveries_exhausted_total",
    &["service", "channel"],
    "Deliveries that ran out of retries.",
);
/// How often a breaker has opened.
pub const BREAKER_TRIPS: MetricName =
    counter("redrive_breaker_trips_total", &["dependency"], "How often the breaker has opened from closed.");
/// The state of a breaker.
pub const BREAKER_STATE: MetricName = gauge(
    "redrive_breaker_state",
    &["dependency", "state"],
    "1 for the state that the breaker is in (closed, open or half-open), 0 for the others.",
);
/// Dead letters.
pub const DEAD_LETTERS: MetricName =
    gauge("redrive_dead_letters", &["service", "channel"], "Dead letters that are still open.");
/// The age of the oldest dead letter.
pub const DEAD_LETTER_AGE: MetricName = gauge(
    "redrive_dead_letter_oldest_age_seconds",
    &["service", "channel"],
    "Age of the oldest dead letter; 0 if there is none.",
);
/// Deliveries that wait.
pub const WAITING: MetricName =
    gauge("redrive_waiting", &["service", "channel"], "Deliveries that are not finished.");
/// The age of the oldest delivery that waits.
pub const OLDEST_WAITING: MetricName = gauge(
    "redrive_oldest_waiting_age_seconds",
    &["service", "channel"],
    "Age of the oldest unfinished delivery; 0 if there is none.",
);
/// What was refused at the doors.
pub const DOOR_REFUSALS: MetricName =
    counter("redrive_auth_rejected_total", &[], "Requests rejected for a bad key or signature.");
/// How long attempts took.
pub const ATTEMPT_DURATION: MetricName = histogram(
    "redrive_attempt_duration_seconds",
    &["service", "channel"],
    "Duration of attempts, in seconds.",
);
/// How long calls to a dependency took.
pub const DEPENDENCY_DURATION: MetricName = histogram(
    "redrive_dependency_duration_seconds",
    &["dependency"],
    "Duration of calls to a dependency, in seconds.",
);

/// Retries.
pub const RETRIES: MetricName =
    counter("redrive_retries_total", &["service", "channel"], "Attempts that were followed by a retry.");
/// Attempts of a delivery.
pub const ATTEMPTS_PER_DELIVERY: MetricName = histogram(
    "redrive_attempts_per_delivery",
    &["service", "channel"],
    "Attempts per finished delivery; the last range includes all above it.",
);
/// How long deliveries waited.
pub const WAITED: MetricName = histogram(
    "redrive_waited_seconds",
    &["service", "channel"],
    "How long deliveries waited for their first attempt, in seconds.",
);
/// Deliveries that were held.
pub const HELD: MetricName = counter(
    "redrive_held_total",
    &["service", "channel"],
    "How often deliveries were held without using a retry.",
);
/// Deliveries behind another of their session.
pub const BEHIND: MetricName = gauge(
    "redrive_behind",
    &["service", "channel"],
    "Deliveries blocked by an earlier one of their session; included in the waiting.",
);
/// Whether a service is paused.
pub const PAUSED: MetricName =
    gauge("redrive_paused", &["service", "channel"], "1 if the service is paused, else 0.");
/// Calls under way.
pub const IN_FLIGHT: MetricName = gauge("redrive_in_flight", &["dependency"], "Calls that are under way.");
/// How often a dependency asked to wait.
pub const DEPENDENCY_HOLDS: MetricName = counter(
    "redrive_dependency_holds_total",
    &["dependency"],
    "How often the dependency asked callers to slow down.",
);
/// Events that were taken.
pub const EVENTS_ACCEPTED: MetricName =
    counter("redrive_events_accepted_total", &[], "New events accepted.");
/// Duplicate events.
pub const EVENTS_DUPLICATES: MetricName =
    counter("redrive_events_duplicates_total", &[], "Duplicate events.");
/// Events that nobody wanted.
pub const EVENTS_UNROUTED: MetricName = counter(
    "redrive_events_unrouted_total",
    &[],
    "Accepted events that no service subscribed to.",
);
/// Submissions that were refused.
pub const EVENTS_REFUSED: MetricName =
    counter("redrive_events_refused_total", &[], "Submissions that were refused.");
/// How late duplicates came.
pub const REDELIVERED: MetricName = histogram(
    "redrive_redelivered_seconds",
    &[],
    "Time between an event and its duplicates, in seconds.",
);
/// Events in the store.
pub const EVENTS_STORED: MetricName = gauge("redrive_events_stored", &[], "Events in the store.");
/// Events without a service.
pub const UNROUTED: MetricName =
    gauge("redrive_unrouted", &[], "Events in the store that no service has subscribed to.");
/// What nobody would start.
pub const STRANDED: MetricName = gauge(
    "redrive_stranded",
    &[],
    "Deliveries in the store that the engine has lost track of; anything but 0 is a bug.",
);
/// Settlements that came too late.
pub const STALE_SETTLEMENTS: MetricName =
    counter("redrive_stale_settlements_total", &[], "Settlements that came too late and changed nothing.");
/// Replays under way.
pub const OPEN_REPLAYS: MetricName = gauge("redrive_open_replays", &[], "Replays in progress.");
/// How large the store is.
pub const STORE_BYTES: MetricName =
    gauge("redrive_store_bytes", &[], "Size of the store on disk, in bytes.");
/// What has happened.
pub const HAPPENINGS: MetricName = counter(
    "redrive_activity_total",
    &["what"],
    "Activity by kind, as `redrive tail` shows it.",
);
/// How webhooks were answered.
pub const HOOK_ANSWERS: MetricName = counter(
    "redrive_hook_answers_total",
    &["source", "answer"],
    "Calls to webhook sources by answer.",
);
/// How far behind sources are.
pub const SOURCE_LAG: MetricName = gauge(
    "redrive_source_lag",
    &["source"],
    "Messages of a source not yet acknowledged, as last reported.",
);
/// Whether sources are connected.
pub const SOURCE_UP: MetricName =
    gauge("redrive_source_up", &["source"], "Whether a source is connected: 1 if it is.");
/// What messages came to.
pub const SOURCE_MESSAGES: MetricName = counter(
    "redrive_source_messages_total",
    &["source", "verdict"],
    "Messages of sources by result: durable, duplicate or refused.",
);
/// Events in the archive.
pub const ARCHIVED: MetricName =
    counter("redrive_archived_total", &[], "Events that were written to the archive.");
/// Events that are not.
pub const ARCHIVE_LEFT_OUT: MetricName =
    counter("redrive_archive_left_out_total", &[], "Events missing from the archive.");
/// How far the archive is behind.
pub const ARCHIVE_BEHIND: MetricName = gauge(
    "redrive_archive_behind_seconds",
    &[],
    "Age of the oldest event not yet in the archive; 0 if all are.",
);
/// Spans that were sent.
pub const SPANS_SENT: MetricName =
    counter("redrive_spans_sent_total", &[], "Spans exported to the trace collector.");
/// Spans that nobody got.
pub const SPANS_DROPPED: MetricName =
    counter("redrive_spans_dropped_total", &[], "Spans dropped because the trace collector did not accept them.");
/// How old a part of the page is.
pub const METRICS_AGE: MetricName = gauge(
    "redrive_metrics_age_seconds",
    &["part"],
    "Age of the figures of each part of this page; a missing part has no series.",
);
/// Which release it is.
pub const BUILD_INFO: MetricName =
    gauge("redrive_build_info", &["version"], "1, with the release as a label.");
/// When it started.
pub const START_TIME: MetricName =
    gauge("redrive_start_time_seconds", &[], "When the server started, in seconds since 1970.");

/// Every metric there is.
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
    DOOR_REFUSALS,
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
    HAPPENINGS,
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
