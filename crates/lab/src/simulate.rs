//! The crystal ball: plays a scenario against a rule book in virtual time, with the engine that a server runs.
//!
//! ```text
//!   streams ──▶ nodes: engine + store ──▶ targets
//!   (arrive)         ▲        │          (mood, latency, capacity)
//!                    └────────┴── ledger, checker ──▶ report
//! ```
//!
//! What is decided is decided by [`redrive_core::engine`] itself; what is modelled is the world around it. A store that is
//! durable at once (`store.rs`), targets that answer as the scenario says (`target.rs`), and one list of what is to
//! happen (`agenda.rs`). `docs/decisions/0011-what-the-simulator-models.md` says what is left out.
//!
//! Invariants:
//! - the same scenario, book and seed give the same report, byte for byte, on every machine;
//! - what a call comes to depends on the seed, the delivery and the attempt, so two books meet the same luck;
//! - memory is bounded by what waits, and the report by the number of its steps;
//! - nothing is lost: what was sent was delivered, is dead, or waits.

pub mod advice;
mod agenda;
mod answers;
mod arrival;
mod chance;
pub(crate) mod change;
mod checker;
pub mod compare;
pub mod figures;
mod layers;
mod ledger;
mod quantiles;
#[cfg(test)]
pub(crate) mod record_test;
pub mod report;
pub mod runs;
mod series;
mod store;
mod stream;
pub mod sweep;
mod target;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod throttling_test;
mod trouble;
pub mod verdict;
mod world;

use std::sync::Arc;
use std::time::Duration;

pub use self::quantiles::Quantiles;
pub(crate) use self::quantiles::LatencySketch;
pub use self::report::SimulationReport;
use self::world::SimulatedWorld;
pub(crate) use self::world::target_of;
use crate::scenario::Scenario;
use redrive_core::book::RuleBook;

/// What to play.
#[derive(Clone, Debug)]
pub struct SimulationPlan<'a> {
    /// The scenario; it fits the book.
    pub scenario: &'a Scenario,
    /// The rules.
    pub book: Arc<RuleBook>,
    /// What makes this run's chance differ from another's.
    pub seed: u64,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulationProgress {
    /// In virtual time.
    pub at: Duration,
    /// For how long events arrive.
    pub duration: Duration,
    /// Deliveries that have ended.
    pub ended: u64,
    /// Deliveries that have not.
    pub open: u64,
    /// What else is in memory: all that is to happen, and calls between dependencies that are being made.
    pub planned: u64,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// Yes.
    On,
    /// No.
    Stop,
}

/// Somebody stopped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the simulation was stopped")]
pub struct Cancelled;

/// Plays a scenario; `watch` is told now and then how far it is, and may stop it.
pub fn run(plan: &SimulationPlan<'_>, watch: &mut dyn FnMut(SimulationProgress) -> Go) -> Result<SimulationReport, Cancelled> {
    let scenario = plan.scenario.clone().completed_by(&plan.book);
    SimulatedWorld::new(plan, &scenario).play(watch)
}
