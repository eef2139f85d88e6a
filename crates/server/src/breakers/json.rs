//! Dependencies and their breakers as JSON.

use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All dependencies.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DependenciesResponse {
    /// When the server started: earlier breaker activity is known from `history` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    pub dependencies: Vec<DependencyJson>,
}

/// A dependency and its circuit breaker.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DependencyJson {
    pub name: String,
    pub kind: String,
    /// State of its breaker.
    pub state: BreakerState,
    /// Last change of the breaker, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Earliest first probe, while open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens_until: Option<Timestamp>,
    /// Failures that count towards the next trip; unless closed, those of the outage.
    pub failures: u32,
    /// When the breaker opens and closes, in words.
    pub settings: String,
    /// Opened by a person and not closed since.
    pub tripped_by_hand: bool,
    /// Calls in flight.
    pub in_flight: u32,
    /// Maximum calls in flight.
    pub in_flight_max: u32,
    /// The current rate limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// End of the wait that the dependency asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
    /// Times the breaker opened since the server started; failed probes do not count.
    pub trips: u64,
    /// Attempts since the server started.
    pub attempts: u64,
    /// Failed attempts.
    pub failed: u64,
    /// Median duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    /// 99th percentile of durations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    /// Services, or `service/channel`, that need it.
    pub services: Vec<String>,
    /// Breaker changes, latest first.
    pub history: Vec<BreakerChangeJson>,
}

/// State of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BreakerState {
    /// Calls pass.
    Closed,
    /// Calls wait.
    Open,
    /// A few probes pass.
    HalfOpen,
    /// No breaker is configured.
    None,
}

impl BreakerState {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
            Self::None => "none",
        }
    }
}

/// A state change of a breaker.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct BreakerChangeJson {
    pub at: Timestamp,
    pub from: BreakerState,
    pub to: BreakerState,
    /// Failures counted by then.
    pub failures: u32,
    /// The delivery whose attempt caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// The person who caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
