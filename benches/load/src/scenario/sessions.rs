//! `sessions`: how fast a backlog is delivered in order, of one session and of many.

use crate::book::{Order, Service};
use crate::report::{Quantity, Row};
use crate::role::load::{LoadPlan, Sessions, Until};
use crate::role::sink::{Counts, now_ns};
use crate::stage::{Stage, closed, say};

pub(super) const MANY: u64 = 1_000;
/// Factor of events for many sessions: a single session waits for each settlement.
const TIMES: u64 = 10;

pub(super) fn play(stage: &Stage) -> anyhow::Result<Vec<Row>> {
    let count = stage.plan.session_events;
    let mut rows = Vec::new();
    let (mut lost, mut out_of_order, mut repeated) = (0, 0, 0);
    for (key, name, sessions, events) in
        [("one", "one session", 1, count), ("many", "1,000 sessions", MANY, count * TIMES)]
    {
        say(format!("sessions: {events} events of {name}"));
        let (counts, accepted, per_second) = drain(stage, sessions, events)?;
        lost += accepted.saturating_sub(counts.distinct);
        out_of_order += counts.out_of_order;
        repeated += counts.repeated;
        let what = format!("delivered in order, {name}");
        rows.push(Row::new(format!("sessions.{key}.rate"), what, Quantity::per_second(per_second)));
    }
    rows.push(Row::new("sessions.out-of-order", "out of order", Quantity::count(out_of_order)).never());
    rows.push(Row::new("sessions.lost", "lost", Quantity::count(lost)).never());
    rows.push(Row::new("sessions.repeated", "delivered twice", Quantity::count(repeated)).never());
    Ok(rows)
}

pub(super) fn drain(stage: &Stage, sessions: u64, events: u64) -> anyhow::Result<(Counts, u64, f64)> {
    let service = Service::taking(0, Order::Session);
    let sink = stage.sink()?;
    let server = stage.server(&sink, std::slice::from_ref(&service))?;
    server.pause(&service)?;
    let until = Until::Count(events);
    let plan = LoadPlan { sessions: Sessions::Count(sessions), ..closed(server.address(), until) };
    let accepted = stage.load(&plan)?.accepted;
    let resumed_at_ns = now_ns();
    server.resume(&service)?;
    let counts = sink.wait_for(accepted)?;
    server.remove();
    let took_ns = counts.last_at_ns.saturating_sub(resumed_at_ns).max(1);
    Ok((counts, accepted, counts.distinct as f64 / (took_ns as f64 / 1e9)))
}
