//! Simulations as they are asked for and shown.

use redrive_lab::scenario::expectation::Value;
use redrive_lab::simulate::advice::{Advised, Proven};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::book::FindingShown;
use crate::api::request;

/// A scenario to be played against the rule book that holds.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SimulateWanted {
    /// The scenario, as YAML.
    #[schema(min_length = 1)]
    pub scenario: String,
    /// What chance is drawn from; 1 unless it is said.
    #[serde(default, deserialize_with = "request::number")]
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    pub seed: Option<u64>,
}

/// What a scenario came to.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Simulated {
    /// All figures, as `redrive simulate --format json` prints them.
    #[schema(value_type = Object)]
    pub report: serde_json::Value,
    /// What they show, the worst first.
    pub findings: Vec<SimulatedFinding>,
    /// What of the scenario never happens.
    pub warnings: Vec<FindingShown>,
}

/// Something that a simulation shows.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct SimulatedFinding {
    pub code: String,
    #[schema(pattern = "^(bad|fair|good)$")]
    pub weight: String,
    pub text: String,
    /// Changes to the rule book with which the scenario was played again with several seeds, and came out better with each.
    pub advice: Vec<SimulatedAdvice>,
}

/// A change to the rule book that helps.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct SimulatedAdvice {
    /// In a few words.
    pub words: String,
    /// YAML to be put into the book.
    pub change: String,
    /// What became less.
    pub metric: String,
    /// What it was with the seed of the run; times are in seconds, and what never came is none.
    #[schema(value_type = Option<f64>)]
    pub before: serde_json::Value,
    /// What it is with the change.
    #[schema(value_type = Option<f64>)]
    pub after: serde_json::Value,
    /// Both as people read them.
    pub shown: [String; 2],
    /// What gets clearly worse by it, in words; empty if nothing does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub price: String,
    /// With so many seeds it was played, and it became less with each of them.
    pub seeds: u64,
}

impl From<&Advised> for SimulatedFinding {
    fn from(advised: &Advised) -> Self {
        let weight = match advised.finding.weight {
            redrive_lab::simulate::verdict::Weight::Bad => "bad",
            redrive_lab::simulate::verdict::Weight::Fair => "fair",
            redrive_lab::simulate::verdict::Weight::Good => "good",
        };
        Self {
            code: advised.finding.code.to_owned(),
            weight: weight.to_owned(),
            text: advised.finding.text.clone(),
            advice: advised.advice.iter().map(SimulatedAdvice::from).collect(),
        }
    }
}

impl From<&Proven> for SimulatedAdvice {
    fn from(proven: &Proven) -> Self {
        Self {
            words: proven.words.clone(),
            change: proven.change.clone(),
            metric: proven.metric.to_owned(),
            before: number(proven.before),
            after: number(proven.after),
            shown: proven.shown.clone(),
            price: proven.price.clone(),
            seeds: proven.seeds,
        }
    }
}

fn number(value: Value) -> serde_json::Value {
    serde_json::to_value(value).expect("a number or none is always JSON")
}

/// Scenarios that are ready to be played.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Scenarios {
    pub scenarios: Vec<ScenarioShown>,
}

/// One of them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ScenarioShown {
    pub name: String,
    /// In a few words.
    pub about: String,
    /// The scenario, as YAML.
    pub text: String,
}
