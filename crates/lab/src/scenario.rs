//! A scenario: what happens to a rule book, as readable data. [`crate::simulate`] runs it.
//!
//! Events arrive in a pattern, dependencies fail and recover, Redrive itself goes down or cannot write, and the outcome
//! is compared with expectations. A scenario is read like a rule book: [`yaml`] makes nodes, [`validate`] checks them
//! against the tables in [`schema`], and `lower.rs` gives them types. Whether it fits a book is a separate question
//! ([`Scenario::misfits`]): one scenario may run against many.
//!
//! Invariants: any bytes end in a scenario or in problems, never in a panic; a scenario with an error is rejected;
//! phases of one dependency do not overlap.

pub mod expectation;
mod fit;
mod layers;
mod lower;
pub mod reference;
pub mod schema;
#[cfg(test)]
mod tests;
pub mod trace;

use std::collections::BTreeMap;
use std::time::Duration;

pub use self::expectation::Expectation;
use redrive_core::book::Connectors;
use redrive_core::book::model::At;
use redrive_core::book::problem::{BookSpan, Problems};
use redrive_core::book::schema::ValueType;
use redrive_core::book::{self, validate, yaml};
use redrive_core::event::attribute::EventType;
use redrive_core::ids::DependencyName;
use redrive_core::text::{Rate, Share};

#[derive(Clone, Debug)]
pub struct Scenario {
    pub about: Option<String>,
    pub duration: Duration,
    /// How long the run continues after that, until all deliveries have ended.
    pub settle: Duration,
    pub nodes: u32,
    /// Empty: the rates in the facts of the rule book.
    pub arrivals: Vec<Arrival>,
    /// Those that are not named behave as `all`, or are always healthy.
    pub dependencies: BTreeMap<DependencyName, At<Behaviour>>,
    pub faults: Vec<NodeFault>,
    pub expectations: Vec<At<Expectation>>,
}

#[derive(Clone, Debug)]
pub struct Arrival {
    pub event_type: At<EventType>,
    pub scope: ArrivalScope,
    /// The number of sessions; none: events without a session.
    pub sessions: Option<u32>,
    pub poison: Share,
    pub from: Duration,
    /// At most the scenario's duration.
    pub until: Duration,
    pub flow: ArrivalPattern,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalScope {
    OneType,
    /// One type of each row of the book.
    EveryRow,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ArrivalPattern {
    Steady {
        rate: Rate,
        spacing: Spacing,
    },
    /// A rate that rises evenly from `low` to `high` and falls back within each period of `every`.
    Wave {
        low: Rate,
        high: Rate,
        every: Duration,
        spacing: Spacing,
    },
    /// `size` events at one moment; once without `every`.
    Bursts {
        size: u32,
        every: Option<Duration>,
    },
    /// Times in order, from a file; empty until it has been read.
    Trace {
        file: At<String>,
        times: Vec<Duration>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    Random,
    Even,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behaviour {
    pub latency: Option<Latency>,
    pub capacity: Option<Capacity>,
    pub phases: Vec<FailurePhase>,
    pub calls: Vec<InnerCall>,
}

/// A call that a dependency makes to another, with retries of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct InnerCall {
    /// The rule book need not know it.
    pub dependency: At<DependencyName>,
    pub attempts: u32,
    pub wait: Duration,
    pub timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    pub p50: Duration,
    pub p99: Duration,
}

impl Latency {
    pub const USUAL: Self = Self { p50: Duration::from_millis(20), p99: Duration::from_millis(200) };
}

/// Calls above the capacity queue inside the dependency, whether or not their caller still waits; a longer queue may
/// make it slower.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Capacity {
    pub rate: Option<Rate>,
    pub concurrent: Option<u32>,
    /// Calls in its queue; more are answered with 503.
    pub queue: Option<u32>,
    /// How much longer a call takes for each hundred calls in the queue.
    pub collapse: Option<Share>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FailurePhase {
    pub at: Duration,
    pub lasting: Duration,
    pub mode: FailureMode,
}

impl FailurePhase {
    #[must_use]
    pub fn until(&self) -> Duration {
        self.at.saturating_add(self.lasting)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum FailureMode {
    Down,
    /// Calls are accepted and never answered.
    Hanging,
    Slow(Latency),
    Failing(Vec<(u16, Share)>),
    /// Calls above the rate are answered with 429.
    Throttled {
        rate: Rate,
        retry_after: Option<Duration>,
    },
    /// Failures, each with its share of calls, as recorded: no file can state it.
    Mixed(Vec<(CallFailure, Share)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallFailure {
    Refused,
    /// No answer until the caller's timeout.
    Nothing,
    Status(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFault {
    pub at: Duration,
    pub lasting: Duration,
    /// Counted from 1; none: all nodes.
    pub node: Option<u32>,
    pub kind: FaultKind,
}

impl NodeFault {
    #[must_use]
    pub fn until(&self) -> Duration {
        self.at.saturating_add(self.lasting)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    Restart,
    StoreStall,
}

#[derive(Debug)]
pub struct ScenarioReading {
    pub scenario: Option<Scenario>,
    pub problems: Problems,
}

#[must_use]
pub fn read_bytes(bytes: &[u8]) -> ScenarioReading {
    let mut problems = Problems::default();
    match book::text_of(bytes, &mut problems) {
        Some(text) => read(text),
        None => ScenarioReading { scenario: None, problems },
    }
}

#[must_use]
pub fn read(text: &str) -> ScenarioReading {
    let mut problems = Problems::default();
    let Some(root) = yaml::read(text, &mut problems) else {
        if !problems.has_errors() {
            let help = "examples/scenarios has some to start from";
            problems.error("empty-scenario", BookSpan::default(), "the file is empty", help);
        }
        return ScenarioReading { scenario: None, problems };
    };
    yaml::check_keys(&root, &mut problems);
    if let Some((key, _)) = root.entries().iter().find(|(key, _)| key.text() == Some("services"))
        && root.get("duration").is_none()
    {
        let help = "pass the scenario first, and the rule book with --rules";
        problems.error("no-scenario", key.span, "this is a rule book, not a scenario", help);
        return ScenarioReading { scenario: None, problems };
    }
    let names = validate::DefinedNames::default();
    validate::validate(
        &root,
        &ValueType::Object(&schema::SCENARIO),
        &names,
        &Connectors::default(),
        &mut problems,
    );
    let scenario = lower::lower(&root, &mut problems);
    ScenarioReading { scenario: scenario.filter(|_| !problems.has_errors()), problems }
}

#[must_use]
pub fn json_schema() -> serde_json::Value {
    crate::json_schema::schema_of(&schema::SCENARIO, &Connectors::default(), "A Redrive scenario")
}

/// The entry for every dependency that is not named.
pub(crate) const ALL_DEPENDENCIES: &str = "all";

impl Scenario {
    pub fn traces(&self) -> impl Iterator<Item = &At<String>> {
        self.arrivals.iter().filter_map(|arrival| match &arrival.flow {
            ArrivalPattern::Trace { file, .. } => Some(file),
            ArrivalPattern::Steady { .. } | ArrivalPattern::Wave { .. } | ArrivalPattern::Bursts { .. } => {
                None
            }
        })
    }

    #[must_use]
    pub fn with_trace(mut self, name: &str, arrived: &[Duration]) -> Self {
        for arrival in &mut self.arrivals {
            if let ArrivalPattern::Trace { file, times } = &mut arrival.flow
                && file.value == name
            {
                times.clear();
                times.extend_from_slice(arrived);
            }
        }
        self
    }
}
