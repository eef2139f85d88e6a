//! `kill`: the server is killed under full load and restarted; its senders retry.

use std::time::Duration;

use super::neighbours::CALLS_MAX;
use crate::book::{Order, Service};
use crate::report::{Budget, Nature, Quantity, Row, median};
use crate::role::load::{LoadPlan, OnFailure, Sessions, Until};
use crate::role::sink::now_ns;
use crate::stage::{Stage, closed, say};

/// Sessions of the events, to check their order too.
const SESSIONS: u64 = 1_000;

struct Kill {
    accepted: u64,
    lost: u64,
    repeated: u64,
    out_of_order: u64,
    ready_ms: f64,
    delivering_ms: f64,
}

pub(super) fn play(stage: &Stage) -> anyhow::Result<Vec<Row>> {
    let mut kills = Vec::new();
    for round in 1..=stage.plan.kills {
        say(format!("kill: round {round} of {}", stage.plan.kills));
        kills.push(kill(stage)?);
    }
    let sum = |of: fn(&Kill) -> u64| kills.iter().map(of).sum::<u64>();
    let times = |of: fn(&Kill) -> f64| kills.iter().map(of).collect::<Vec<_>>();
    let (ready, delivering) = (times(|kill| kill.ready_ms), times(|kill| kill.delivering_ms));
    let repeated = kills.iter().map(|kill| kill.repeated).max().unwrap_or_default();
    let in_flight = Row {
        nature: Nature::Promise,
        ..Row::new("kill.repeated", "repeated by one kill", Quantity::count(repeated))
    };
    let what = format!("lost, of {} accepted", sum(|kill| kill.accepted));
    Ok(vec![
        Row::new("kill.lost", what, Quantity::count(sum(|kill| kill.lost))).never(),
        Row::new("kill.out-of-order", "out of order", Quantity::count(sum(|kill| kill.out_of_order))).never(),
        in_flight.budget(Budget::AtMost(f64::from(CALLS_MAX))),
        Row::new("kill.ready", "answers after the restart", Quantity::millis(median(&ready)))
            .budget(Budget::AtMost(1_000.0))
            .rounds(ready),
        Row::new("kill.delivering", "delivers after the restart", Quantity::millis(median(&delivering)))
            .budget(Budget::AtMost(1_000.0))
            .rounds(delivering),
    ])
}

fn kill(stage: &Stage) -> anyhow::Result<Kill> {
    let service = Service::taking(0, Order::Session);
    let sink = stage.sink()?;
    let mut server = stage.server(&sink, std::slice::from_ref(&service))?;
    let plan = LoadPlan {
        sessions: Sessions::Count(SESSIONS),
        on_failure: OnFailure::Insist,
        ..closed(server.address(), Until::Over(stage.plan.kill_after * 2))
    };
    let load = stage.start(&plan)?;
    std::thread::sleep(stage.plan.kill_after);
    server.kill();
    sink.mark()?;
    let restarted_at_ns = now_ns();
    let ready = server.restart()?;
    let sent = load.finish()?;
    let counts = sink.wait_for(sent.accepted)?;
    server.remove();
    // A server that never delivers again took all the time.
    let delivering_ns = counts.first_since_mark_ns.unwrap_or(u64::MAX).saturating_sub(restarted_at_ns);
    Ok(Kill {
        accepted: sent.accepted,
        lost: sent.accepted.saturating_sub(counts.distinct),
        repeated: counts.repeated,
        out_of_order: counts.out_of_order,
        ready_ms: ready.as_secs_f64() * 1e3,
        delivering_ms: Duration::from_nanos(delivering_ns).as_secs_f64() * 1e3,
    })
}
