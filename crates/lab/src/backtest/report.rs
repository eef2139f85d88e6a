//! The report of a backtest.

use serde::Serialize;

use super::{BacktestDoubt, Certainty};
use crate::simulate::Quantiles;
use redrive_core::time::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BacktestReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    pub until: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<(Timestamp, Timestamp)>,
    pub deliveries: u64,
    pub before: Ends,
    /// Unknown outcomes are counted separately.
    pub after: Ends,
    pub certainty: Certainties,
    pub changed: u64,
    /// The most frequent first.
    pub changes: Vec<OutcomeChange>,
    pub changes_left_off: u64,
    pub unknown: Vec<OutcomeChange>,
    pub dependencies: Vec<DependencyLoad>,
    pub futile_retries: Pair,
    /// Only deliveries that arrive in both cases.
    pub until_delivered: DurationComparison,
    /// Only deliveries that die in both cases.
    pub until_dead: DurationComparison,
    pub newly_routed: Vec<NewRoute>,
    pub untold: Vec<UnknownItem>,
    /// Answers within this distance count as the answer at a time.
    pub near_ms: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ends {
    pub delivered: u64,
    pub dead: u64,
    pub waiting: u64,
    pub paused: u64,
    pub not_sent: u64,
    pub unknown: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Certainties {
    pub certain: u64,
    pub likely: u64,
    pub unknown: u64,
}

impl Certainties {
    pub(super) const fn add(&mut self, certainty: Certainty) {
        match certainty {
            Certainty::Certain => self.certain += 1,
            Certainty::Likely => self.likely += 1,
            Certainty::Unknown => self.unknown += 1,
        }
    }

    /// The worst of them.
    #[must_use]
    pub const fn worst(&self) -> Certainty {
        match self {
            Self { unknown: 1.., .. } => Certainty::Unknown,
            Self { likely: 1.., .. } => Certainty::Likely,
            Self { .. } => Certainty::Certain,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndName {
    Delivered,
    Dead,
    Waiting,
    Paused,
    NotSent,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutcomeChange {
    pub from: EndName,
    pub to: EndName,
    /// The service, or `service/channel`.
    pub service: String,
    /// Then or now; empty if they did not die.
    pub code: String,
    pub failure: String,
    pub deliveries: u64,
    pub certainty: Certainty,
    pub examples: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pair {
    pub before: u64,
    pub after: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DependencyLoad {
    pub name: String,
    pub calls: Pair,
    pub retries: Pair,
    /// With the new rules, calls whose answer is unknown.
    pub guessed: u64,
    /// Deliveries to it by how far the number of their calls can be trusted. Another breaker, throttle or hold leaves
    /// none of them certain.
    pub certainty: Certainties,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DurationComparison {
    pub deliveries: u64,
    pub sum_ms: Pair,
    pub before: Quantiles,
    pub after: Quantiles,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewRoute {
    /// The service, or `service/channel`.
    pub service: String,
    pub event_type: String,
    pub events: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownItem {
    pub doubt: UnknownKind,
    pub count: u64,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", untagged)]
pub enum UnknownKind {
    Delivery(BacktestDoubt),
    Whole(UnknownWhole),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownWhole {
    Load,
    NewRoutes,
}
