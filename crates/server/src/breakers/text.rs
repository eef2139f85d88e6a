//! Breakers in a terminal: a table of all dependencies, or one after a change.

use redrive_core::text::show_count;
use redrive_core::time::Timestamp;

use crate::breakers::json::{BreakerState, DependencyJson};
use crate::terminal::moment::{ago, coming};
use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{plain, shell_word, style};

pub(crate) fn page(dependencies: &[DependencyJson], now: Timestamp, columns: Option<usize>) -> String {
    if dependencies.is_empty() {
        return format!("{} no dependencies in the rule book\n", style::good("✓"));
    }
    let left = CellAlign::Left;
    let mut table = Table::new(&[
        CellAlign::Whole,
        left,
        left,
        CellAlign::Right,
        CellAlign::Right,
        CellAlign::Right,
        left,
        left,
    ]);
    table.head(&["DEPENDENCY", "BREAKER", "", "FAILURES", "TRIPS", "IN FLIGHT", "SETTINGS", "SERVICES"]);
    for shown in dependencies {
        table.push(vec![
            Cell::bold(plain(&shown.name)),
            state(shown.state),
            Cell::dim(since(shown, now)),
            Cell::plain(show_count(u64::from(shown.failures))),
            Cell::plain(show_count(shown.trips)),
            Cell::plain(format!("{}/{}", shown.in_flight, shown.in_flight_max)),
            Cell::dim(plain(&shown.settings)),
            Cell::plain(plain(&shown.services.join(", "))),
        ]);
    }
    let mut text = table.within(columns).text();
    if dependencies.iter().any(|shown| shown.trips > 0) {
        let note = "TRIPS counts openings of a closed breaker since the start; failed probes do not count";
        text.push_str(&format!("\n{}\n", style::dim(note)));
    }
    text
}

pub(crate) fn turned(shown: &DependencyJson, now: Timestamp) -> String {
    let name = style::bold(plain(&shown.name));
    let reset = style::bold(format!("redrive breakers reset {}", shell_word(&shown.name)));
    match (shown.state, shown.opens_until) {
        (BreakerState::Open, Some(until)) => format!(
            "{} circuit breaker of {name} opened: calls wait, probes start {}; `{reset}` closes it\n",
            style::good("✓"),
            coming(until, now)
        ),
        (state, _) => format!("{} circuit breaker of {name} is {}\n", style::good("✓"), state.as_str()),
    }
}

fn state(state: BreakerState) -> Cell {
    match state {
        BreakerState::Closed => Cell::plain(state.as_str()),
        BreakerState::Open => Cell::painted(state.as_str(), style::error),
        BreakerState::HalfOpen => Cell::painted(state.as_str(), style::warning),
        BreakerState::None => Cell::dim(state.as_str()),
    }
}

/// How long it has been in its state, and what follows.
fn since(shown: &DependencyJson, now: Timestamp) -> String {
    let mut words = Vec::new();
    words.extend(shown.since.map(|since| ago(since, now)));
    words.extend(shown.tripped_by_hand.then(|| "manually".to_owned()));
    words.extend(shown.opens_until.map(|until| format!("probes {}", coming(until, now))));
    words.extend(shown.held_until.map(|until| format!("asked to wait, resumes {}", coming(until, now))));
    words.join(", ")
}
