//! The JSON of the demo's story.

use serde::Serialize;
use utoipa::ToSchema;

/// The demo: who takes part, and where the story stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct DemoShown {
    pub services: Vec<ServiceShown>,
    pub steps: Vec<StepShown>,
}

/// A service of the demo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DemoService)]
pub(crate) struct ServiceShown {
    pub service: &'static str,
    /// What it is like.
    pub habit: &'static str,
    pub address: String,
}

/// A step of the story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DemoStep)]
pub(crate) struct StepShown {
    pub title: &'static str,
    pub text: &'static str,
    /// The part of the page that shows it.
    pub page: &'static str,
    /// The same in a terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<&'static str>,
    /// What can be done about it here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub act: Option<ActShown>,
    pub state: StepStateShown,
}

/// Something to press.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = DemoAct)]
pub(crate) struct ActShown {
    /// The last part of the path to post to.
    pub act: &'static str,
    /// What stands on the button.
    pub label: &'static str,
}

/// Where a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = DemoStepState)]
pub(crate) enum StepStateShown {
    Done,
    Now,
    Later,
}
