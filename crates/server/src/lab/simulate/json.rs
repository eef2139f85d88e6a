//! JSON types of simulations.

use redrive_lab::simulate::verdict::SimulationFinding;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::request;
use crate::rules::json::FindingJson;

/// A scenario to run against the active rule book.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SimulateRequest {
    /// The scenario, as YAML.
    #[schema(min_length = 1)]
    pub scenario: String,
    /// Random seed; 1 by default.
    #[serde(default, deserialize_with = "request::number")]
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    pub seed: Option<u64>,
}

/// Result of a simulation.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct SimulateResponse {
    /// All figures, as `redrive simulate --format json` prints them.
    #[schema(value_type = Object)]
    pub report: serde_json::Value,
    /// Findings, the worst first.
    pub findings: Vec<SimulationFinding>,
    /// Parts of the scenario that never happen.
    pub warnings: Vec<FindingJson>,
}

/// Built-in scenarios.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ScenariosResponse {
    pub scenarios: Vec<ScenarioJson>,
}

/// A built-in scenario.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ScenarioJson {
    pub name: String,
    /// Short description.
    pub about: String,
    /// The scenario, as YAML.
    pub text: String,
}
