//! JSON of services.

use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::deliveries::json::WaitJson;

/// All services.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ServicesResponse {
    pub services: Vec<ServiceJson>,
}

/// A service or one of its channels: health, figures and rules.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ServiceJson {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Kind and address of the target, without credentials.
    pub target: String,
    /// Dependencies of its rows.
    pub depends_on: Vec<String>,
    pub health: HealthWord,
    /// Why it has this health, without times.
    pub why: String,
    /// Start of that condition, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_since: Option<Timestamp>,
    /// End of that condition, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_until: Option<Timestamp>,
    /// Deliveries that have not ended.
    pub waiting: u64,
    /// Deliveries waiting for another of their session.
    pub behind: u64,
    /// Deliveries that no row matches any more, and those behind them.
    #[serde(default)]
    pub without_rule: u64,
    /// When the event of the oldest waiting delivery was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_waiting_at: Option<Timestamp>,
    /// Successful deliveries since the server started.
    pub delivered: u64,
    /// Current dead letters.
    pub dead: u64,
    /// Attempts since the server started.
    pub attempts: u64,
    /// Failed attempts.
    pub failed: u64,
    /// Failed attempts followed by a retry.
    pub retried: u64,
    /// Median duration of attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    /// 99th percentile of durations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_since: Option<Timestamp>,
    /// Whether deliveries of a session stay in order.
    pub order: String,
    /// Maximum calls in flight by its dependencies, if low.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_max: Option<u32>,
    /// Its rules.
    pub rows: Vec<ServiceRowJson>,
}

/// Health of a service, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HealthWord {
    /// Paused by a person or a rule.
    Paused,
    /// Removed from the rule book.
    Removed,
    /// All deliveries wait for an open circuit breaker, a dependency that asked callers to wait, or the
    /// store.
    Held,
    /// At least half of the attempts of the last minute failed, or all of the last 15 minutes.
    Failing,
    /// Some attempts failed, some rows are blocked, it lags, or it has dead letters.
    Degraded,
    /// No attempt ended in the last minute.
    Idle,
    /// Attempts of the last minute succeeded, and it has no dead letters.
    Healthy,
}

/// A row of the rule book.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ServiceRowJson {
    /// The event type, or a pattern.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Its line in the rule book.
    pub line: u32,
    /// The retry policy for transient failures, in words.
    pub retry: String,
    /// Timeout of the first attempt.
    pub timeout_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criticality: Option<String>,
    pub subscription: String,
    /// What blocks all deliveries of the row, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitJson>,
}
