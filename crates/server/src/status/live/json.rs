//! What a live stream tells every second.

use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::breakers::json::BreakerState;
use crate::services::json::HealthWord;

/// How it is, once a second.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Pulse {
    pub at: Timestamp,
    /// Happenings that were left out since the last pulse.
    pub left_out: u64,
    /// Events that came in; not told to those who are bound to services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_per_s: Option<f64>,
    /// Deliveries that arrived.
    pub delivered_per_s: f64,
    /// Attempts that failed.
    pub failed_per_s: f64,
    /// Attempts that are followed by another.
    pub retried_per_s: f64,
    /// Deliveries that failed for good.
    pub dead_per_s: f64,
    /// The share of the deliveries that ended in the last minute which arrived; null if none ended.
    pub success_rate: Option<f64>,
    /// Deliveries that have not ended.
    pub waiting: u64,
    /// When the event was accepted whose delivery has waited for longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_waiting_at: Option<Timestamp>,
    /// Dead letters.
    pub dead: u64,
    /// The causes that dead letters have in common.
    pub failure_groups: u64,
    /// Calls under way.
    pub in_flight: u64,
    /// Dependencies whose breakers are open.
    pub open_breakers: Vec<String>,
    /// Alerts that fire; not told to those who are bound to services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firing_alerts: Option<u64>,
    pub services: Vec<ServicePulse>,
    pub dependencies: Vec<DependencyPulse>,
}

/// How a service is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ServicePulse {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub waiting: u64,
    pub dead: u64,
    pub delivered_per_s: f64,
    pub failed_per_s: f64,
    pub health: HealthWord,
}

/// How a dependency is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DependencyPulse {
    pub name: String,
    pub state: BreakerState,
    pub in_flight: u32,
}
