//! `growth`: a full store must not slow down ingress, and retention must free space.

use std::time::{Duration, Instant};

use crate::book::{Keep, Order, Service};
use crate::process::folder_bytes;
use crate::report::{Budget, Quantity, Row, median};
use crate::role::load::{LoadPlan, Pace, Until};
use crate::stage::{Stage, closed, say};

/// In a shorter run, files are still growing to their usual size.
const RETAINED_MIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(super) fn play(stage: &Stage) -> anyhow::Result<Vec<Row>> {
    let stored = stage.plan.stored;
    let (empty, full) = rates(stage)?;
    let (middle, end) = sizes(stage)?;
    let size = Row::new("growth.size", "largest, last third of a run with retention", Quantity::bytes(end))
        .beside("middle third", Quantity::bytes(middle));
    Ok(vec![
        Row::new("growth.rate", format!("accepted, {stored} stored"), Quantity::per_second(median(&full)))
            .beside("empty store", Quantity::per_second(median(&empty)))
            .budget(Budget::RatioAtLeast(0.8))
            .rounds(full),
        if stage.plan.retained_for < RETAINED_MIN { size } else { size.budget(Budget::RatioAtMost(1.1)) },
    ])
}

fn rates(stage: &Stage) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let service = Service::taking(0, Order::None);
    let services = std::slice::from_ref(&service);
    let sink = stage.sink()?;
    let full_server = stage.server(&sink, services)?;
    full_server.pause(&service)?;
    say(format!("growth: storing {} events", stage.plan.stored));
    let mut next = stage.load(&closed(full_server.address(), Until::Count(stage.plan.stored)))?.next;
    let (mut empty, mut full) = (Vec::new(), Vec::new());
    for round in 1..=stage.plan.rounds {
        say(format!("growth: round {round} of {}: empty, then full", stage.plan.rounds));
        let until = Until::Over(stage.plan.burst);
        let empty_server = stage.server(&sink, services)?;
        empty_server.pause(&service)?;
        empty.push(stage.load(&closed(empty_server.address(), until))?.rate());
        empty_server.remove();
        let result = stage.load(&LoadPlan { first: next, ..closed(full_server.address(), until) })?;
        next = result.next;
        full.push(result.rate());
    }
    full_server.remove();
    Ok((empty, full))
}

fn sizes(stage: &Stage) -> anyhow::Result<(u64, u64)> {
    let time = stage.plan.retained_for;
    say(format!(
        "growth: {} events a second for {time:?}, kept for {:?}",
        stage.plan.retained_per_second, stage.plan.retention
    ));
    let sink = stage.sink()?;
    let services = [Service::taking(0, Order::None)];
    let server = stage.forgetful_server(&sink, &services, Keep(stage.plan.retention))?;
    let pace = Pace::PerSecond(stage.plan.retained_per_second);
    let mut load = stage.start(&LoadPlan { pace, ..closed(server.address(), Until::Over(time)) })?;
    let started = Instant::now();
    let (mut middle, mut end) = (0, 0);
    while load.is_running() {
        let bytes = folder_bytes(&server.data());
        let elapsed = started.elapsed();
        if elapsed > time * 2 / 3 {
            end = bytes.max(end);
        } else if elapsed > time / 3 {
            middle = bytes.max(middle);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    load.finish()?;
    server.remove();
    Ok((middle, end))
}
