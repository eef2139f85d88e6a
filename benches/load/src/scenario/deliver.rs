//! `deliver`: from the sender through the store to the target, beside a relay without a store.

use crate::book::{Order, Service};
use crate::process::Listener;
use crate::report::{Budget, Quantity, Row, median};
use crate::role::load::{LoadPlan, LoadResult, Pace, Until};
use crate::role::sink::Counts;
use crate::stage::{Sink, Stage, Timed, closed, micros_each, queued_ms_each_second, say};

const TIMED_PER_SECOND: f64 = 200.0;

#[derive(Default)]
struct Rounds {
    relay: Vec<f64>,
    relay_micros: Vec<f64>,
    ours: Vec<f64>,
    micros: Vec<f64>,
    memory_bytes_idle: u64,
    memory_bytes_peak: u64,
    lost: u64,
    repeated: u64,
}

pub(super) struct Through {
    pub(super) per_second: f64,
    pub(super) micros: f64,
    memory_bytes_peak: u64,
    pub(super) lost: u64,
    pub(super) repeated: u64,
}

pub(super) fn play(stage: &Stage) -> anyhow::Result<Vec<Row>> {
    let mut rounds = Rounds::default();
    for round in 1..=stage.plan.rounds {
        say(format!("deliver: round {round} of {}: bare relay, then ours", stage.plan.rounds));
        let sink = stage.sink()?;
        let relay = through(stage, &stage.bare_relay(&sink)?, &sink)?;
        rounds.relay.push(relay.per_second);
        rounds.relay_micros.push(relay.micros);
        drop(sink);

        let sink = stage.sink()?;
        let server = stage.server(&sink, &[Service::taking(0, Order::None)])?;
        server.status()?;
        rounds.memory_bytes_idle = rounds.memory_bytes_idle.max(server.usage()?.memory_bytes);
        let ours = through(stage, server.listener(), &sink)?;
        server.remove();
        rounds.ours.push(ours.per_second);
        rounds.micros.push(ours.micros);
        rounds.memory_bytes_peak = rounds.memory_bytes_peak.max(ours.memory_bytes_peak);
        rounds.lost += ours.lost;
        rounds.repeated += ours.repeated;
    }
    say(format!("deliver: {TIMED_PER_SECOND} events a second for {:?}", stage.plan.deliver_timed));
    let sink = stage.sink()?;
    let relay = timed(stage, &stage.bare_relay(&sink)?, &sink)?;
    let sink = stage.sink()?;
    let server = stage.server(&sink, &[Service::taking(0, Order::None)])?;
    let ours = timed(stage, server.listener(), &sink)?;
    server.remove();
    Ok(rows(rounds, relay, ours))
}

pub(super) fn through(stage: &Stage, listener: &Listener, sink: &Sink) -> anyhow::Result<Through> {
    let before = listener.usage()?;
    let sent = stage.load(&closed(listener.address, Until::Over(stage.plan.burst)))?;
    let counts = sink.wait_for(sent.accepted)?;
    let after = listener.usage()?;
    Ok(Through {
        per_second: per_second(&sent, &counts),
        micros: micros_each(before, after, sent.accepted),
        memory_bytes_peak: after.memory_bytes_peak,
        lost: sent.accepted.saturating_sub(counts.distinct),
        repeated: counts.repeated,
    })
}

/// From the first sent to the last received.
fn per_second(sent: &LoadResult, counts: &Counts) -> f64 {
    let took_ns = counts.last_at_ns.saturating_sub(sent.started_at_ns).max(1);
    counts.distinct as f64 / (took_ns as f64 / 1e9)
}

/// From the due time to the arrival at the sink.
fn timed(stage: &Stage, listener: &Listener, sink: &Sink) -> anyhow::Result<Timed> {
    let before = listener.usage()?;
    let until = Until::Over(stage.plan.deliver_timed);
    let plan = LoadPlan { pace: Pace::PerSecond(TIMED_PER_SECOND), ..closed(listener.address, until) };
    let sent = stage.load(&plan)?;
    let latency = sink.wait_for_service(&Service::taking(0, Order::None), sent.accepted)?;
    let queued_ms = queued_ms_each_second(before, listener.usage()?, stage.plan.deliver_timed);
    Ok(Timed { latency, queued_ms })
}

fn rows(rounds: Rounds, relay: Timed, ours: Timed) -> Vec<Row> {
    vec![
        Row::new("deliver.rate", "accepted and delivered", Quantity::per_second(median(&rounds.ours)))
            .beside("bare relay", Quantity::per_second(median(&rounds.relay)))
            .budget(Budget::RatioAtLeast(0.6))
            .rounds(rounds.ours),
        Row::new("deliver.cpu", "CPU for each, in the server", Quantity::micros(median(&rounds.micros)))
            .beside("bare relay", Quantity::micros(median(&rounds.relay_micros)))
            .budget(Budget::AtMost(58.0))
            .rounds(rounds.micros),
        Row::new("deliver.latency.p50", "at the target, 200/s, p50", Quantity::millis(ours.latency.p50_ms))
            .beside("bare relay", Quantity::millis(relay.latency.p50_ms))
            .budget(Budget::AtMost(1.0)),
        Row::new("deliver.latency.p99", "the same, p99", Quantity::millis(ours.latency.p99_ms))
            .beside("bare relay", Quantity::millis(relay.latency.p99_ms))
            .budget(Budget::AtMost(3.0)),
        Row::new(
            "deliver.latency.queued",
            "its threads waited for a core, each second",
            Quantity::millis(ours.queued_ms),
        )
        .beside("bare relay", Quantity::millis(relay.queued_ms)),
        Row::new("deliver.memory.idle", "memory, idle", Quantity::bytes(rounds.memory_bytes_idle))
            .budget(Budget::AtMost(30.0)),
        Row::new("deliver.memory.peak", "memory, under full load", Quantity::bytes(rounds.memory_bytes_peak))
            .budget(Budget::AtMost(150.0)),
        Row::new("deliver.lost", "lost", Quantity::count(rounds.lost)).never(),
        Row::new("deliver.repeated", "delivered twice", Quantity::count(rounds.repeated)).never(),
    ]
}
