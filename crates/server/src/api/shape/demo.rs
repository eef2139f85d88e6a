//! The JSON of the demo's story.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The demo: who takes part, and where the story stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DemoShown {
    pub services: Vec<ServiceShown>,
    pub steps: Vec<StepShown>,
}

/// A service of the demo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DemoService)]
pub(crate) struct ServiceShown {
    pub service: String,
    /// What it is like.
    pub habit: String,
    pub address: String,
}

/// A step of the story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DemoStep)]
pub(crate) struct StepShown {
    pub title: String,
    pub text: String,
    /// The part of the page that shows it.
    pub page: String,
    /// The same in a terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What can be done about it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<ActShown>,
    pub state: StepStateShown,
}

/// Something to press.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DemoAct)]
pub(crate) struct ActShown {
    /// The last part of the path to post to.
    pub act: String,
    /// What stands on the button.
    pub label: String,
}

/// Where a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = DemoStepState)]
pub(crate) enum StepStateShown {
    Done,
    Now,
    Later,
}
