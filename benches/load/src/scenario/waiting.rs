//! `waiting`: cost of a backlog: memory and restart time must depend on windows, not on its size.

use std::time::Duration;

use crate::book::{Order, Service};
use crate::report::{Budget, Quantity, Row};
use crate::role::load::{LoadPlan, Sessions, Until};
use crate::stage::{Stage, closed, say};

const TIMES: u64 = 10;

/// Below this, windows and caches are still filling.
const FEW_MIN: u64 = 100_000;

struct Shape {
    key: &'static str,
    name: &'static str,
    order: Order,
    sessions: Sessions,
}

const SHAPES: [Shape; 3] = [
    Shape { key: "one-session", name: "one session", order: Order::Session, sessions: Sessions::Count(1) },
    Shape { key: "distinct", name: "a session each", order: Order::Session, sessions: Sessions::Distinct },
    Shape { key: "unordered", name: "unordered", order: Order::None, sessions: Sessions::None },
];

struct Measured {
    memory_bytes_few: u64,
    memory_bytes_many: u64,
    ready: Duration,
    memory_bytes_draining: u64,
}

pub(super) fn play(stage: &Stage) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for shape in &SHAPES {
        let Measured { memory_bytes_few, memory_bytes_many, ready, memory_bytes_draining } =
            measure(stage, shape)?;
        let Shape { key, name, .. } = shape;
        let count = stage.plan.waiting;
        let memory = Row::new(
            format!("waiting.{key}.memory"),
            format!("memory, {count} waiting, {name}"),
            Quantity::bytes(memory_bytes_many),
        )
        .beside("a tenth of that", Quantity::bytes(memory_bytes_few))
        .budget(Budget::AtMost(200.0));
        let says_much = count / TIMES >= FEW_MIN;
        rows.push(if says_much { memory.budget(Budget::RatioAtMost(1.1)) } else { memory });
        rows.push(
            Row::new(
                format!("waiting.{key}.ready"),
                "ready after a kill and a restart",
                Quantity::millis(ready.as_secs_f64() * 1e3),
            )
            .budget(Budget::AtMost(1_000.0)),
        );
        rows.push(
            Row::new(
                format!("waiting.{key}.draining"),
                "memory while it is delivered",
                Quantity::bytes(memory_bytes_draining),
            )
            .budget(Budget::AtMost(200.0)),
        );
    }
    Ok(rows)
}

fn measure(stage: &Stage, shape: &Shape) -> anyhow::Result<Measured> {
    let service = Service::taking(0, shape.order);
    let sink = stage.sink()?;
    let mut server = stage.server(&sink, std::slice::from_ref(&service))?;
    server.pause(&service)?;
    let (few, many) = (stage.plan.waiting / TIMES, stage.plan.waiting);
    say(format!("waiting: {}: {few} events", shape.name));
    let plan = LoadPlan { sessions: shape.sessions, ..closed(server.address(), Until::Count(few)) };
    let next = stage.load(&plan)?.next;
    let memory_bytes_few = server.usage()?.memory_bytes_peak;
    say(format!("waiting: {}: {many} events", shape.name));
    stage.load(&LoadPlan { first: next, until: Until::Count(many - few), ..plan })?;
    let memory_bytes_many = server.usage()?.memory_bytes_peak;
    server.kill();
    let ready = server.restart()?;
    server.resume(&service)?;
    std::thread::sleep(stage.plan.drained);
    let memory_bytes_draining = server.usage()?.memory_bytes_peak;
    server.remove();
    Ok(Measured { memory_bytes_few, memory_bytes_many, ready, memory_bytes_draining })
}
