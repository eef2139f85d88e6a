//! `hooks`: response time of webhooks while every target hangs and the archive fails.

use std::path::PathBuf;

use crate::book::{Hook, Manner, Order, Service};
use crate::latency::Latency;
use crate::report::{Budget, Quantity, Row, median};
use crate::role::load::{Door, LoadPlan, Pace, Until};
use crate::stage::{Stage, closed, say};

const SERVICES: u64 = 10;
const PER_SECOND: f64 = 1_000.0;
/// Senders give up after one to ten seconds.
const P99_MILLIS_MAX: f64 = 50.0;

#[derive(Clone, Copy)]
struct Round {
    latency: Latency,
    refused: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Weather {
    Fair,
    Foul,
}

pub(super) fn play(stage: &Stage) -> anyhow::Result<Vec<Row>> {
    let (mut fair, mut foul) = (Vec::new(), Vec::new());
    for round in 1..=stage.plan.neighbour_rounds {
        say(format!("hooks: round {round} of {}: all well, then nothing", stage.plan.neighbour_rounds));
        fair.push(play_round(stage, Weather::Fair)?);
        foul.push(play_round(stage, Weather::Foul)?);
    }
    let all = |rounds: &[Round], of: fn(&Latency) -> f64| {
        rounds.iter().map(|round| of(&round.latency)).collect::<Vec<_>>()
    };
    let row = |key: &str, what: &str, of: fn(&Latency) -> f64| {
        let rounds = all(&foul, of);
        Row::new(format!("hooks.{key}"), what, Quantity::millis(median(&rounds)))
            .beside("all well", Quantity::millis(median(&all(&fair, of))))
            .rounds(rounds)
    };
    let refused = fair.iter().chain(&foul).map(|round| round.refused).sum();
    Ok(vec![
        row("p50", "a webhook answered, targets hang and the archive fails, p50", |latency| latency.p50_ms),
        row("p99", "the same, p99", |latency| latency.p99_ms).budget(Budget::AtMost(P99_MILLIS_MAX)),
        row("p999", "the same, p99.9", |latency| latency.p999_ms),
        Row::new("hooks.refused", "webhooks that were not taken", Quantity::count(refused)).never(),
    ])
}

fn play_round(stage: &Stage, weather: Weather) -> anyhow::Result<Round> {
    let manner = match weather {
        Weather::Fair => Manner::Takes,
        Weather::Foul => Manner::Hangs,
    };
    let services: Vec<Service> =
        (0..SERVICES).map(|number| Service { manner, ..Service::taking(number, Order::None) }).collect();
    let hook = Hook { source: "bench".to_owned(), secret: "what only the sender knows".to_owned() };
    let archive = match weather {
        Weather::Fair => stage.path("archive"),
        // Nothing can be written below a file.
        Weather::Foul => PathBuf::from("/dev/null/archive"),
    };
    let sink = stage.sink()?;
    let server = stage.hooked_server(&sink, &services, &hook, &archive)?;
    let plan = LoadPlan {
        pace: Pace::PerSecond(PER_SECOND),
        types: SERVICES,
        door: Door::Hook { source: hook.source, secret: hook.secret },
        ..closed(server.address(), Until::Over(stage.plan.neighbour_timed))
    };
    let sent = stage.load(&plan)?;
    server.remove();
    Ok(Round { latency: sent.latency, refused: sent.refused })
}
