//! The scenarios: each plays on the stage and says what it measured, one row for each budget.

mod accept;
mod deliver;
mod growth;
mod hooks;
mod kill;
mod neighbours;
mod replay;
mod sessions;
mod waiting;

use super::book::Manner;
use super::report::Row;
use super::stage::Stage;
use crate::cli::BenchScenario;

pub(super) fn play(scenario: BenchScenario, stage: &Stage) -> anyhow::Result<Vec<Row>> {
    match scenario {
        BenchScenario::Accept => accept::play(stage),
        BenchScenario::Deliver => deliver::play(stage),
        BenchScenario::Hanging => neighbours::play(stage, "hanging", Manner::Hangs),
        BenchScenario::Slow => neighbours::play(stage, "slow", Manner::Slow),
        BenchScenario::Hooks => hooks::play(stage),
        BenchScenario::Waiting => waiting::play(stage),
        BenchScenario::Growth => growth::play(stage),
        BenchScenario::Sessions => sessions::play(stage),
        BenchScenario::Replay => replay::play(stage),
        BenchScenario::Kill => kill::play(stage),
    }
}
