//! `hanging` and `slow`: one healthy target among nine that hang or take a second.

use std::time::Duration;

use crate::book::{Manner, Order, Service};
use crate::report::{Budget, Quantity, Row, median};
use crate::role::load::{LoadPlan, Pace, Until};
use crate::stage::{Stage, closed, say};

/// The first is healthy.
const SERVICES: u64 = 10;
/// Events over all services.
const PER_SECOND: f64 = 1_000.0;
/// Calls in flight of a server, over all services.
pub(super) const CALLS_MAX: u32 = 1_024;
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Default)]
struct Round {
    /// Of the healthy service.
    p99_ms: f64,
    undelivered: u64,
    calls_peak: u64,
    memory_bytes_peak: u64,
}

pub(super) fn play(stage: &Stage, name: &'static str, manner: Manner) -> anyhow::Result<Vec<Row>> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for round in 1..=stage.plan.neighbour_rounds {
        say(format!("{name}: round {round} of {}: none, then nine", stage.plan.neighbour_rounds));
        good.push(play_round(stage, Manner::Takes)?);
        bad.push(play_round(stage, manner)?);
    }
    let p99 = |rounds: &[Round]| rounds.iter().map(|round| round.p99_ms).collect::<Vec<_>>();
    let most = |of: fn(&Round) -> u64| bad.iter().map(of).max().unwrap_or_default();
    Ok(vec![
        Row::new(
            format!("{name}.p99"),
            format!("at the healthy target, nine {name}, p99"),
            Quantity::millis(median(&p99(&bad))),
        )
        .beside("none", Quantity::millis(median(&p99(&good))))
        .budget(Budget::RatioAtMostOrPlus { ratio: 1.5, plus: 2.0 })
        .rounds(p99(&bad)),
        Row::new(
            format!("{name}.undelivered"),
            "not at the healthy target in the end",
            Quantity::count(most(|round| round.undelivered)),
        )
        .never(),
        Row::new(
            format!("{name}.calls"),
            "calls in flight, peak",
            Quantity::count(most(|round| round.calls_peak)),
        )
        .budget(Budget::AtMost(f64::from(CALLS_MAX))),
        Row::new(
            format!("{name}.memory"),
            "memory, peak",
            Quantity::bytes(most(|round| round.memory_bytes_peak)),
        )
        .budget(Budget::AtMost(150.0)),
    ])
}

fn play_round(stage: &Stage, manner: Manner) -> anyhow::Result<Round> {
    let services: Vec<Service> = (0..SERVICES)
        .map(|number| {
            let manner = if number == 0 { Manner::Takes } else { manner };
            Service { manner, ..Service::taking(number, Order::None) }
        })
        .collect();
    let sink = stage.sink()?;
    let server = stage.server(&sink, &services)?;
    let plan = LoadPlan {
        pace: Pace::PerSecond(PER_SECOND),
        types: SERVICES,
        ..closed(server.address(), Until::Over(stage.plan.neighbour_timed))
    };
    let mut load = stage.start(&plan)?;
    let mut round = Round::default();
    while load.is_running() {
        round.calls_peak = round.calls_peak.max(server.status()?.calls_in_flight);
        std::thread::sleep(LOOK_EVERY);
    }
    let sent = load.finish()?;
    // Types take turns, starting with the healthy service.
    let sent = sent.accepted.div_ceil(SERVICES);
    let healthy = sink.wait_for_service(&services[0], sent)?;
    round.p99_ms = healthy.p99_ms;
    round.undelivered = sent.saturating_sub(healthy.count);
    round.calls_peak = round.calls_peak.max(sink.seen()?.calls.open_peak);
    round.memory_bytes_peak = server.usage()?.memory_bytes_peak;
    server.remove();
    Ok(round)
}
