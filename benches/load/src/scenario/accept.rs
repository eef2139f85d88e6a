//! `accept`: how fast events become durable, beside a handler that stores nothing.

use crate::book::{Order, Service};
use crate::report::{Budget, Quantity, Row, median};
use crate::role::load::Until;
use crate::stage::{Burst, Stage, Timed, closed, say};

/// Of the peak rate: at saturation, latency measures the queue.
const SHARE_OF_PEAK: f64 = 0.5;

#[derive(Default)]
struct Rounds {
    bare: Vec<f64>,
    paused: Vec<f64>,
    paused_micros: Vec<f64>,
    paused_p99_ms: Vec<f64>,
    delivering: Vec<f64>,
    refused: u64,
}

pub(super) fn play(stage: &Stage) -> anyhow::Result<Vec<Row>> {
    let mut rounds = Rounds::default();
    for round in 1..=stage.plan.rounds {
        let of = stage.plan.rounds;
        say(format!("accept: round {round} of {of}: bare handler, service paused, service delivering"));
        rounds.bare.push(stage.bare_handler()?.result.rate());
        let paused = burst(stage, Delivery::Paused)?;
        rounds.paused.push(paused.result.rate());
        rounds.paused_micros.push(paused.cpu_micros);
        rounds.paused_p99_ms.push(paused.result.latency.p99_ms);
        let delivering = burst(stage, Delivery::Running)?;
        rounds.delivering.push(delivering.result.rate());
        rounds.refused += paused.result.refused + delivering.result.refused;
    }
    let rate = (median(&rounds.paused) * SHARE_OF_PEAK).max(1.0);
    say(format!("accept: {rate:.0} events a second for {:?}", stage.plan.accept_timed));
    let bare = stage.bare_handler_at(rate, stage.plan.accept_timed)?;
    let ours = timed(stage, rate)?;
    Ok(rows(rounds, rate, bare, ours))
}

#[derive(Clone, Copy)]
enum Delivery {
    Paused,
    Running,
}

fn burst(stage: &Stage, delivery: Delivery) -> anyhow::Result<Burst> {
    let service = Service::taking(0, Order::None);
    let sink = stage.sink()?;
    let server = stage.server(&sink, std::slice::from_ref(&service))?;
    if let Delivery::Paused = delivery {
        server.pause(&service)?;
    }
    let burst = stage.burst(server.listener(), &closed(server.address(), Until::Over(stage.plan.burst)))?;
    server.remove();
    Ok(burst)
}

fn timed(stage: &Stage, rate: f64) -> anyhow::Result<Timed> {
    let service = Service::taking(0, Order::None);
    let sink = stage.sink()?;
    let server = stage.server(&sink, std::slice::from_ref(&service))?;
    server.pause(&service)?;
    let timed = stage.timed(server.listener(), rate, stage.plan.accept_timed)?;
    server.remove();
    Ok(timed)
}

fn rows(rounds: Rounds, rate: f64, bare_timed: Timed, ours: Timed) -> Vec<Row> {
    let Rounds { bare, paused, paused_micros, paused_p99_ms, delivering, refused } = rounds;
    let bare = Quantity::per_second(median(&bare));
    vec![
        Row::new("accept.paused.rate", "accepted, service paused", Quantity::per_second(median(&paused)))
            .beside("bare handler", bare)
            .budget(Budget::RatioAtLeast(0.6))
            .rounds(paused),
        Row::new(
            "accept.paused.full.p99",
            "answered at full speed, p99",
            Quantity::millis(median(&paused_p99_ms)),
        )
        .rounds(paused_p99_ms),
        Row::new("accept.paused.cpu", "CPU for each", Quantity::micros(median(&paused_micros)))
            .rounds(paused_micros),
        Row::new(
            "accept.paused.p99",
            format!("answered at {rate:.0}/s, p99"),
            Quantity::millis(ours.latency.p99_ms),
        )
        .beside("bare handler", Quantity::millis(bare_timed.latency.p99_ms))
        .budget(Budget::AtMost(6.0)),
        Row::new("accept.paused.p999", "the same, p99.9", Quantity::millis(ours.latency.p999_ms))
            .beside("bare handler", Quantity::millis(bare_timed.latency.p999_ms))
            .budget(Budget::AtMost(80.0)),
        Row::new(
            "accept.paused.queued",
            "its threads waited for a core, each second",
            Quantity::millis(ours.queued_ms),
        )
        .beside("bare handler", Quantity::millis(bare_timed.queued_ms)),
        Row::new(
            "accept.delivering.rate",
            "accepted while delivering",
            Quantity::per_second(median(&delivering)),
        )
        .beside("bare handler", bare)
        .budget(Budget::RatioAtLeast(0.3))
        .rounds(delivering),
        Row::new("accept.refused", "refused", Quantity::count(refused)).never(),
    ]
}
