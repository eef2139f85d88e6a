//! The scenarios: each returns its results, a row per budget.

mod accept;
mod deliver;
mod growth;
mod hooks;
mod kill;
mod neighbours;
mod replay;
mod requests;
mod sessions;
mod waiting;

use super::book::Manner;
use super::report::Row;
use super::stage::Stage;
use crate::arguments::Scenario;

pub(super) fn play(scenario: Scenario, stage: &Stage) -> anyhow::Result<Vec<Row>> {
    match scenario {
        Scenario::Accept => accept::play(stage),
        Scenario::Deliver => deliver::play(stage),
        Scenario::Requests => requests::play(stage),
        Scenario::Hanging => neighbours::play(stage, "hanging", Manner::Hangs),
        Scenario::Slow => neighbours::play(stage, "slow", Manner::Slow),
        Scenario::Hooks => hooks::play(stage),
        Scenario::Waiting => waiting::play(stage),
        Scenario::Growth => growth::play(stage),
        Scenario::Sessions => sessions::play(stage),
        Scenario::Replay => replay::play(stage),
        Scenario::Kill => kill::play(stage),
    }
}
