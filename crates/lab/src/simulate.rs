//! Plays a scenario against a rule book in virtual time, with the engine that a server runs.
//!
//! ```text
//!   streams ──▶ nodes: engine + store ──▶ targets
//!   (arrive)         ▲        │          (mood, latency, capacity)
//!                    └────────┴── ledger, checker ──▶ report
//! ```
//!
//! [`redrive_core::engine`] makes every decision; only its surroundings are modelled: a store that is durable at once
//! (`store.rs`), targets that answer as the scenario says (`target.rs`) and one agenda of future events
//! (`agenda.rs`). `docs/decisions/0011-simulate-with-the-production-engine.md` lists what is left out.
//!
//! Invariants:
//! - the same scenario, book and seed give the same report, byte for byte, on every machine;
//! - the outcome of a call depends on the seed, the delivery and the attempt, so two books get the same random draws;
//! - memory is bounded by the pending deliveries, the report by its number of steps;
//! - nothing is lost: every delivery sent was delivered, is dead, or is waiting.

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

pub(crate) use self::quantiles::LatencySketch;
pub use self::quantiles::Quantiles;
pub use self::report::SimulationReport;
use self::world::SimulatedWorld;
pub(crate) use self::world::target_of;
use crate::scenario::Scenario;
use redrive_core::book::RuleBook;

#[derive(Clone, Debug)]
pub struct SimulationPlan<'a> {
    pub scenario: &'a Scenario,
    pub book: Arc<RuleBook>,
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulationProgress {
    pub at: Duration,
    pub duration: Duration,
    pub ended: u64,
    pub open: u64,
    /// Agenda entries and calls between dependencies that are held in memory.
    pub planned: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    On,
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the simulation was stopped")]
pub struct Cancelled;

/// Plays a scenario; `watch` is called with the progress and may stop it.
pub fn run(
    plan: &SimulationPlan<'_>,
    watch: &mut dyn FnMut(SimulationProgress) -> Go,
) -> Result<SimulationReport, Cancelled> {
    let scenario = plan.scenario.clone().completed_by(&plan.book);
    SimulatedWorld::new(plan, &scenario).play(watch)
}
