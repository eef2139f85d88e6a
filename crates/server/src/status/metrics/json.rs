//! The JSON of the figures.

use std::collections::BTreeMap;

use redrive_core::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// The figures, as far as they can be had.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MetricsJson {
    pub state: MetricsState,
    /// Of when the oldest part of it is.
    pub at: Timestamp,
    /// How long ago that was.
    pub age_ms: u64,
    /// The parts that cannot be had: `engine`, `counts` or `oldest`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Why a part is stale or missing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub trouble: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<CountsJson>,
    /// Since when the oldest of each service are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Vec<OldestOfService>>,
}

/// How good the figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MetricsState {
    /// All of it is as it is now.
    Fresh,
    /// All of it is there, and some of it is as it was.
    Stale,
    /// Some of it is missing.
    Partial,
}

/// What was counted since the start, and how the engine is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EngineJson {
    /// Events that were taken and are new.
    pub accepted: u64,
    pub duplicates: u64,
    pub unrouted: u64,
    /// Submissions that were refused.
    pub refused: u64,
    /// Calls at the doors with a bad key or a bad signature.
    pub unauthorized: u64,
    pub attempts: u64,
    pub failed: u64,
    pub by_category: BTreeMap<String, u64>,
    pub by_code: BTreeMap<String, u64>,
    /// Deliveries whose first attempt was followed by another.
    pub retried: u64,
    pub retries: u64,
    pub delivered: u64,
    pub dead: u64,
    /// Deliveries that ran out of retries.
    pub exhausted: u64,
    /// How often breakers have opened.
    pub trips: u64,
    pub stale_settlements: u64,
    pub calls_in_flight: usize,
    pub services: Vec<ServiceMetrics>,
    pub dependencies: Vec<DependencyMetrics>,
}

/// What was counted of a service since the start.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ServiceMetrics {
    pub service: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub attempts: u64,
    pub failed: u64,
    pub retried: u64,
    pub delivered: u64,
    pub dead: u64,
    /// How often deliveries were held without burning a retry.
    pub held: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
}

/// What was counted of a dependency since the start, and how it is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DependencyMetrics {
    pub name: String,
    /// `closed`, `open` or `half-open`.
    pub state: String,
    pub in_flight: u32,
    pub trips: u64,
    pub attempts: u64,
    pub failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
}

/// How much the store has.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CountsJson {
    pub events: u64,
    /// Events that nobody has wanted so far.
    pub unrouted: u64,
    /// Deliveries that nobody would start: anything but 0 is a fault.
    pub stranded: u64,
    pub open_replays: u64,
    /// How much of a disk the store takes.
    pub store_bytes: u64,
    pub services: Vec<ServiceCounts>,
}

/// How much of a service is there.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ServiceCounts {
    pub service: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Deliveries that are not over.
    pub waiting: u64,
    /// Those of them that wait behind another of their session.
    pub behind: u64,
    /// Dead letters.
    pub dead: u64,
}

/// Since when the oldest of a service are there.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OldestOfService {
    pub service: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_since: Option<Timestamp>,
}
