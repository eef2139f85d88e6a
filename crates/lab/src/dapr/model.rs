//! What a Dapr resiliency file holds, with every default applied: the common ground of both ways.

use std::time::Duration;

use redrive_core::book::model::DaprTarget;
use redrive_core::policy::rule::StatusRange;

/// One resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Resiliency {
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) scopes: Vec<String>,
    /// Limits of one attempt; zero is no limit.
    pub(super) timeouts: Vec<(String, Duration)>,
    pub(super) retries: Vec<(String, Retry)>,
    pub(super) breakers: Vec<(String, CircuitBreaker)>,
    pub(super) targets: Vec<(DaprTarget, TargetPolicies)>,
}

/// A retry policy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Retry {
    pub(super) pace: RetryPace,
    /// Retries after the first attempt; none is without end.
    pub(super) retries: Option<u32>,
    /// The HTTP failures that are retried, in order and apart; none is all of them.
    pub(super) statuses: Option<Vec<StatusRange>>,
}

/// How delays follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryPace {
    /// Always the same, without jitter.
    Constant(Duration),
    /// From [`INITIAL`], [`FACTOR`] times as long each time, up to `max`, spread by half.
    Exponential { max: Duration },
}

/// The first delay of Dapr's exponential policies, which no file can change.
pub(super) const INITIAL: Duration = Duration::from_millis(500);
/// By how much each of its delays exceeds the one before.
pub(super) const FACTOR: f64 = 1.5;
/// By which share its delays are spread.
pub(super) const SPREAD: f64 = 0.5;
/// After this long an exponential policy ends, whatever its retries.
pub(super) const ELAPSED_MAX: Duration = Duration::from_mins(15);
/// What a constant policy waits unless the file says otherwise.
pub(super) const CONSTANT_DEFAULT: Duration = Duration::from_secs(5);
/// The longest delay of an exponential policy unless the file says otherwise.
pub(super) const MAX_INTERVAL_DEFAULT: Duration = Duration::from_secs(60);
/// How long a breaker stays open unless the file says otherwise.
pub(super) const OPEN_DEFAULT: Duration = Duration::from_secs(60);

/// A circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CircuitBreaker {
    /// Calls in one half-open time, and successes that close it.
    pub(super) max_requests: u32,
    /// After each such time the counts start again; none is never.
    pub(super) interval: Option<Duration>,
    /// How long it stays open.
    pub(super) timeout: Duration,
    pub(super) trip: TripOn,
}

/// What opens a breaker, of all that an expression could say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TripOn {
    /// That many failures in a row.
    Consecutive(u32),
    /// That many failures within `interval`.
    Failures(u32),
    /// A share of the calls within `interval`, in thousandths of a percent.
    FailureRate { thousandths: u32, of_at_least: u32 },
}

/// What a target names; what it does not name, it does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TargetPolicies {
    pub(super) timeout: Option<String>,
    pub(super) retry: Option<String>,
    pub(super) breaker: Option<String>,
}

/// The timeout of a book that stands for none, if it is [`NO_LIMIT`] too.
pub(super) const UNLIMITED: &str = "unlimited";
/// In a book every call has a limit; under the name [`UNLIMITED`] this one stands for Dapr's having none.
pub(super) const NO_LIMIT: Duration = Duration::from_hours(24);

/// In a book failures are counted within a time; this one stands for Dapr's never forgetting them.
pub(super) const FOR_EVER: Duration = Duration::from_hours(3_650 * 24);
