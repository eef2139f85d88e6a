//! Dependencies as they are shown, with their breakers.

use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All dependencies.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DependenciesResponse {
    /// When the server started: what breakers did before that is known by their turns only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    pub dependencies: Vec<DependencyJson>,
}

/// A dependency: how it is, and what stands in front of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DependencyJson {
    pub name: String,
    /// What kind of thing it is.
    pub kind: String,
    /// How its breaker is.
    pub state: BreakerState,
    /// When the breaker last changed, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When the first probe may go, while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens_until: Option<Timestamp>,
    /// The failures that count towards the next trip; while it is not closed, those of the outage.
    pub failures: u32,
    /// When it opens and closes, in words.
    pub settings: String,
    /// A person has opened it, and nothing has closed it since.
    pub tripped_by_hand: bool,
    /// Calls under way.
    pub in_flight: u32,
    /// Calls that may be under way at once.
    pub in_flight_max: u32,
    /// The rate that it is held to now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Until when it asked everybody to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
    /// How often its breaker has opened since the server started; a probe that fails is no trip of its own.
    pub trips: u64,
    /// Attempts since the server started.
    pub attempts: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// The time that half of them did not exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    /// The time that 99 of 100 did not exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    /// Who needs it: services, or `service/channel`.
    pub services: Vec<String>,
    /// What its breaker has been through, the latest first.
    pub history: Vec<BreakerChangeJson>,
}

/// How a breaker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BreakerState {
    /// Calls flow.
    Closed,
    /// Calls wait.
    Open,
    /// Only a few calls may try.
    HalfOpen,
    /// There is no breaker.
    None,
}

impl BreakerState {
    /// Its word.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
            Self::None => "none",
        }
    }
}

/// A change of a breaker.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct BreakerChangeJson {
    pub at: Timestamp,
    pub from: BreakerState,
    pub to: BreakerState,
    /// The failures that were counted by then.
    pub failures: u32,
    /// The delivery whose attempt did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// The person who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why they did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
