//! JSON of the metrics.

use std::collections::BTreeMap;

use redrive_core::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// Metrics, as far as available.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MetricsJson {
    pub state: MetricsState,
    /// Time of the oldest part.
    pub at: Timestamp,
    pub age_ms: u64,
    /// Missing parts: `engine`, `counts` or `oldest`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Why a part is stale or missing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub trouble: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<CountsJson>,
    /// Times of the oldest items by service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Vec<OldestOfService>>,
}

/// Quality of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MetricsState {
    /// All parts are current.
    Fresh,
    /// All parts are present, some are old.
    Stale,
    /// Some parts are missing.
    Partial,
}

/// Counters since the start, and state of the engine.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EngineJson {
    /// New events accepted.
    pub accepted: u64,
    pub duplicates: u64,
    pub unrouted: u64,
    /// Submissions refused.
    pub refused: u64,
    /// Requests rejected for a bad key or signature.
    pub unauthorized: u64,
    pub attempts: u64,
    pub failed: u64,
    pub by_category: BTreeMap<String, u64>,
    pub by_code: BTreeMap<String, u64>,
    /// Deliveries whose first attempt was retried.
    pub retried: u64,
    pub retries: u64,
    pub delivered: u64,
    pub dead: u64,
    /// Deliveries that ran out of retries.
    pub exhausted: u64,
    /// Openings of circuit breakers.
    pub trips: u64,
    pub stale_settlements: u64,
    pub calls_in_flight: usize,
    pub services: Vec<ServiceMetrics>,
    pub dependencies: Vec<DependencyMetrics>,
}

/// Counters of a service since the start.
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
    /// Holds, which use no retry.
    pub held: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
}

/// Counters of a dependency since the start, and its state.
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

/// Sizes in the store.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CountsJson {
    pub events: u64,
    /// Unrouted events.
    pub unrouted: u64,
    /// Deliveries that the engine does not know: not 0 is a defect.
    pub stranded: u64,
    pub open_replays: u64,
    /// Size of the store on disk.
    pub store_bytes: u64,
    pub services: Vec<ServiceCounts>,
}

/// Sizes of a service.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ServiceCounts {
    pub service: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Deliveries that have not ended.
    pub waiting: u64,
    /// Deliveries waiting for another of their session.
    pub behind: u64,
    /// Dead letters.
    pub dead: u64,
}

/// Times of the oldest items of a service.
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
