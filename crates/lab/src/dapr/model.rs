//! The content of a Dapr resiliency file, with every default applied.

use std::time::Duration;

use redrive_core::book::model::DaprTarget;
use redrive_core::policy::rule::StatusRange;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Resiliency {
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) scopes: Vec<String>,
    pub(super) timeouts: Vec<(String, Duration)>,
    pub(super) retries: Vec<(String, Retry)>,
    pub(super) breakers: Vec<(String, CircuitBreaker)>,
    pub(super) targets: Vec<(DaprTarget, TargetPolicies)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Retry {
    pub(super) pace: RetryPace,
    /// `None` is unlimited.
    pub(super) retries: Option<u32>,
    /// Sorted and disjoint; `None` is all.
    pub(super) statuses: Option<Vec<StatusRange>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryPace {
    Constant(Duration),
    /// From [`INITIAL`], times [`FACTOR`], up to `max`, with jitter of [`SPREAD`].
    Exponential {
        max: Duration,
    },
}

/// Fixed in Dapr.
pub(super) const INITIAL: Duration = Duration::from_millis(500);
pub(super) const FACTOR: f64 = 1.5;
pub(super) const SPREAD: f64 = 0.5;
/// Fixed in Dapr: an exponential policy ends after this time.
pub(super) const ELAPSED_MAX: Duration = Duration::from_mins(15);
pub(super) const CONSTANT_DEFAULT: Duration = Duration::from_secs(5);
pub(super) const MAX_INTERVAL_DEFAULT: Duration = Duration::from_secs(60);
pub(super) const OPEN_DEFAULT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CircuitBreaker {
    /// Probes, and successes that close it.
    pub(super) max_requests: u32,
    /// Counts are reset after each interval; `None` is never.
    pub(super) interval: Option<Duration>,
    pub(super) timeout: Duration,
    pub(super) trip: TripOn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TripOn {
    Consecutive(u32),
    Failures(u32),
    /// `thousandths` of a percent.
    FailureRate {
        thousandths: u32,
        of_at_least: u32,
    },
}

/// What is `None` does not apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TargetPolicies {
    pub(super) timeout: Option<String>,
    pub(super) retry: Option<String>,
    pub(super) breaker: Option<String>,
}

pub(super) const UNLIMITED: &str = "unlimited";
/// Every call in a book has a limit; with the name [`UNLIMITED`] this one means none.
pub(super) const NO_LIMIT: Duration = Duration::from_hours(24);

/// A book counts failures within a time; this one means forever.
pub(super) const FOR_EVER: Duration = Duration::from_hours(3_650 * 24);
