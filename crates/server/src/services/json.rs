//! Services as they are shown, and how it has been.

use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::deliveries::json::WaitJson;

/// All services.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ServicesResponse {
    pub services: Vec<ServiceJson>,
}

/// A service, or one of its channels: how it is, and what the rule book says of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ServiceJson {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Where it is reached: the kind, and the address without credentials.
    pub target: String,
    /// The dependencies that its rows need.
    pub depends_on: Vec<String>,
    pub health: HealthWord,
    /// Why it is judged so, without the times.
    pub why: String,
    /// Since when that is so, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_since: Option<Timestamp>,
    /// Until when that is so, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_until: Option<Timestamp>,
    /// Deliveries that have not ended.
    pub waiting: u64,
    /// Those of them that wait for another of their session.
    pub behind: u64,
    /// Those of them that no row takes any more, and those behind these in their sessions.
    #[serde(default)]
    pub without_rule: u64,
    /// When the event was accepted whose delivery has waited for longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_waiting_at: Option<Timestamp>,
    /// Deliveries that arrived since the server started.
    pub delivered: u64,
    /// Dead letters that there are.
    pub dead: u64,
    /// Attempts since the server started.
    pub attempts: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Those of them that are followed by another.
    pub retried: u64,
    /// The time that half of the attempts did not exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    /// The time that 99 of 100 did not exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_since: Option<Timestamp>,
    /// Whether deliveries of a session keep their order.
    pub order: String,
    /// Calls that its dependencies allow at once, if they are not many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_max: Option<u32>,
    /// Which events it takes, and how.
    pub rows: Vec<ServiceRowJson>,
}

/// How a service is, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HealthWord {
    /// A person or a rule has paused it.
    Paused,
    /// The rule book has it no more.
    Removed,
    /// An open circuit breaker, a dependency that asked callers to wait, or the store keeps all of it waiting.
    Held,
    /// At least half of the attempts of the last minute failed, or all of the last 15 minutes.
    Failing,
    /// Some attempts failed, some rows are held, it is behind, or it has dead letters.
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
    /// Where it stands in the rule book.
    pub line: u32,
    /// What follows on a failure that may pass, in words.
    pub retry: String,
    /// How long the first attempt may take.
    pub timeout_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criticality: Option<String>,
    pub subscription: String,
    /// What holds all deliveries of the row, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitJson>,
}
