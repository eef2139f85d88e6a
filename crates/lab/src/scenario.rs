//! A scenario: what the world does to a rule book, as data that a person can read aloud.
//!
//! Events arrive in some pattern, dependencies behave well and badly over time, Redrive itself goes down or
//! cannot write, and at the end something is expected. [`crate::simulate`] plays it.
//!
//! A scenario is read like a rule book: [`yaml`] makes nodes, [`validate`]
//! holds them against the tables in [`schema`], and `lower.rs` gives them types. Whether it fits a book is asked
//! apart ([`Scenario::misfits`]): one scenario may be played against many.
//!
//! Invariants: a scenario with an error is none; any bytes end in a scenario or in problems, never in a panic;
//! phases of one dependency do not overlap, so that at any moment it is in one mood.

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
use redrive_core::book::problem::{Problems, Span};
use redrive_core::book::schema::Type;
use redrive_core::book::{self, validate, yaml};
use redrive_core::event::attribute::EventType;
use redrive_core::ids::DependencyName;
use redrive_core::text::{Rate, Share};

/// What happens, and what is expected.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is about, in a sentence.
    pub about: Option<String>,
    /// For how long events arrive.
    pub duration: Duration,
    /// For how long after that the run waits for everything to settle.
    pub settle: Duration,
    /// How many nodes share the work.
    pub nodes: u32,
    /// What arrives; empty means what the rule book's facts say.
    pub arrivals: Vec<Arrival>,
    /// How dependencies behave; those that are not named are as `all` says, or always well.
    pub dependencies: BTreeMap<DependencyName, At<Behaviour>>,
    /// What happens to Redrive itself, in the order of time.
    pub faults: Vec<Fault>,
    /// What is expected of the outcome.
    pub expectations: Vec<At<Expectation>>,
}

/// Events of one type.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Their type.
    pub event_type: At<EventType>,
    /// Whether it is all that arrives, or stands for more.
    pub reach: Reach,
    /// Over how many sessions they are spread; none have one otherwise.
    pub sessions: Option<u32>,
    /// The share of them that every target rejects.
    pub poison: Share,
    /// When the first may arrive.
    pub from: Duration,
    /// When no more arrive; the scenario's duration at the latest.
    pub until: Duration,
    /// How they arrive.
    pub flow: Flow,
}

/// Whether a type stands for more than itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It is one type.
    OneType,
    /// It stands for one type of each row of the book: what is said holds for each of them.
    EveryRow,
}

/// How events arrive.
#[derive(Clone, Debug, PartialEq)]
pub enum Flow {
    /// At a rate.
    Steady { rate: Rate, spacing: Spacing },
    /// At a rate that rises from one value to another and falls back, evenly, again and again.
    Wave {
        /// The rate at the beginning of each wave.
        low: Rate,
        /// The rate in the middle of it.
        high: Rate,
        /// How long a wave is.
        every: Duration,
        /// How they are spaced.
        spacing: Spacing,
    },
    /// Many at one moment.
    Bursts { size: u32, every: Option<Duration> },
    /// As they were recorded in a file.
    Trace {
        /// The file, as the scenario names it.
        file: At<String>,
        /// When each arrived, in order; empty until somebody has read the file.
        times: Vec<Duration>,
    },
}

/// How events of a rate are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// By chance, as those of many senders are that know nothing of each other.
    Random,
    /// All the same distance apart.
    Even,
}

/// How a dependency behaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behaviour {
    /// How long a call takes while all is well.
    pub latency: Option<Latency>,
    /// How much it can take.
    pub capacity: Option<Capacity>,
    /// When it is not well, in the order of time.
    pub phases: Vec<Phase>,
    /// What it calls itself to answer, one after the other.
    pub calls: Vec<InnerCall>,
}

/// A call that a dependency makes to another, with retries of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct InnerCall {
    /// Whom it calls; the rule book need not know it.
    pub dependency: At<DependencyName>,
    /// How often it tries at most.
    pub attempts: u32,
    /// How long it waits before it tries again.
    pub wait: Duration,
    /// How long it waits for an answer.
    pub timeout: Duration,
}

/// How long calls take: half of them at most the one, 99 of 100 at most the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Half of them.
    pub p50: Duration,
    /// 99 of 100.
    pub p99: Duration,
}

impl Latency {
    /// What is taken where nobody says anything.
    pub const USUAL: Self = Self { p50: Duration::from_millis(20), p99: Duration::from_millis(200) };
}

/// How much a dependency can take. What it cannot take at once waits inside it, whether or not its caller still
/// waits too; and the more waits, the slower it may get.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Capacity {
    /// Calls that it can begin in a time.
    pub rate: Option<Rate>,
    /// Calls that it can work on at once.
    pub concurrent: Option<u32>,
    /// Calls that may wait inside it; one more is answered with 503 at once.
    pub queue: Option<u32>,
    /// By how much the work on a call grows for each hundred calls that wait inside it.
    pub collapse: Option<Share>,
}

/// A time in which a dependency is not well.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// From when.
    pub at: Duration,
    /// For how long.
    pub lasting: Duration,
    /// What it does.
    pub mood: Mood,
}

impl Phase {
    /// When it is over.
    #[must_use]
    pub fn until(&self) -> Duration {
        self.at.saturating_add(self.lasting)
    }
}

/// What a dependency does while it is not well.
#[derive(Clone, Debug, PartialEq)]
pub enum Mood {
    /// Nobody listens there.
    Down,
    /// It takes calls and never answers.
    Hanging,
    /// It takes longer than usual.
    Slow(Latency),
    /// It answers with these statuses, each in its share of calls.
    Failing(Vec<(u16, Share)>),
    /// It takes so many calls in a time, and answers the others with 429.
    Throttled {
        /// How many.
        rate: Rate,
        /// How long it asks the others to wait.
        retry_after: Option<Duration>,
    },
    /// It answers so, each in its share of calls, and well otherwise: as a record has it, which no file can say.
    Mixed(Vec<(Met, Share)>),
}

/// How a call ends that does not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Met {
    /// Nobody listens.
    Refused,
    /// Nothing, for as long as the caller waits.
    Nothing,
    /// A status that is no success.
    Status(u16),
}

/// Something that happens to Redrive itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When.
    pub at: Duration,
    /// For how long.
    pub lasting: Duration,
    /// To which node, counted from 1; to all of them if not said.
    pub node: Option<u32>,
    /// What.
    pub kind: FaultKind,
}

impl Fault {
    /// When it is over.
    #[must_use]
    pub fn until(&self) -> Duration {
        self.at.saturating_add(self.lasting)
    }
}

/// What happens to Redrive itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It goes down without a word, and comes up again.
    Restart,
    /// Its store takes no writes.
    StoreStall,
}

/// What came of reading a text.
#[derive(Debug)]
pub struct Reading {
    /// The scenario, if there was no error.
    pub scenario: Option<Scenario>,
    /// What is wrong.
    pub problems: Problems,
}

/// Reads a scenario from bytes, which may be anything at all.
#[must_use]
pub fn read_bytes(bytes: &[u8]) -> Reading {
    let mut problems = Problems::default();
    match book::text_of(bytes, &mut problems) {
        Some(text) => read(text),
        None => Reading { scenario: None, problems },
    }
}

/// Reads a scenario.
#[must_use]
pub fn read(text: &str) -> Reading {
    let mut problems = Problems::default();
    let Some(root) = yaml::read(text, &mut problems) else {
        if !problems.has_errors() {
            let help = "examples/scenarios has some to start from";
            problems.error("empty-scenario", Span::default(), "there is nothing in this file", help);
        }
        return Reading { scenario: None, problems };
    };
    yaml::check_keys(&root, &mut problems);
    if let Some((key, _)) = root.entries().iter().find(|(key, _)| key.text() == Some("services"))
        && root.get("duration").is_none()
    {
        let help = "give the scenario first, and the rule book with --rules";
        problems.error("no-scenario", key.span, "this is a rule book, and no scenario", help);
        return Reading { scenario: None, problems };
    }
    let names = validate::Names::default();
    validate::validate(
        &root,
        &Type::Object(&schema::SCENARIO),
        &names,
        &Connectors::default(),
        &mut problems,
    );
    let scenario = lower::lower(&root, &mut problems);
    Reading { scenario: scenario.filter(|_| !problems.has_errors()), problems }
}

/// The format as JSON Schema, for editors.
#[must_use]
pub fn json_schema() -> serde_json::Value {
    crate::json_schema::schema_of(&schema::SCENARIO, &Connectors::default(), "A Redrive scenario")
}

/// The name that stands for every dependency that is not named.
pub(crate) const ALL_DEPENDENCIES: &str = "all";

impl Scenario {
    /// The files that recorded arrivals are to be read from, with where they are named.
    pub fn traces(&self) -> impl Iterator<Item = &At<String>> {
        self.arrivals.iter().filter_map(|arrival| match &arrival.flow {
            Flow::Trace { file, .. } => Some(file),
            Flow::Steady { .. } | Flow::Wave { .. } | Flow::Bursts { .. } => None,
        })
    }

    /// The same with what such a file says.
    #[must_use]
    pub fn with_trace(mut self, name: &str, arrived: &[Duration]) -> Self {
        for arrival in &mut self.arrivals {
            if let Flow::Trace { file, times } = &mut arrival.flow
                && file.value == name
            {
                times.clear();
                times.extend_from_slice(arrived);
            }
        }
        self
    }
}
