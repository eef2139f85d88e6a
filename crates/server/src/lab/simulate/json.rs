//! Simulations as they are asked for and shown.

use redrive_lab::simulate::verdict::SimulationFinding;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::request;
use crate::rules::json::FindingJson;

/// A scenario to be played against the rule book that holds.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SimulateRequest {
    /// The scenario, as YAML.
    #[schema(min_length = 1)]
    pub scenario: String,
    /// What chance is drawn from; 1 unless it is said.
    #[serde(default, deserialize_with = "request::number")]
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    pub seed: Option<u64>,
}

/// What a scenario came to.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct SimulateResponse {
    /// All figures, as `redrive simulate --format json` prints them.
    #[schema(value_type = Object)]
    pub report: serde_json::Value,
    /// What they show, the worst first.
    pub findings: Vec<SimulationFinding>,
    /// What of the scenario never happens.
    pub warnings: Vec<FindingJson>,
}

/// Scenarios that are ready to be played.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ScenariosResponse {
    pub scenarios: Vec<ScenarioJson>,
}

/// One of them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ScenarioJson {
    pub name: String,
    /// In a few words.
    pub about: String,
    /// The scenario, as YAML.
    pub text: String,
}
