//! `replay`: how fast dead letters of a broken target are found and replayed in order.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::sessions::{self, MANY};
use crate::ask;
use crate::book::{Manner, Order, Service};
use crate::report::{Budget, Quantity, Row};
use crate::role::load::{LoadPlan, Sessions, Until};
use crate::role::sink::Counts;
use crate::stage::{Server, Stage, closed, micros_each, say};

/// Deliveries timed on their first way, to compare the replay with.
const FIRST_TIME_MAX: u64 = 100_000;
const QUESTIONS: usize = 100;
const ASK_EVERY: Duration = Duration::from_millis(100);
/// A count without change for this long is final.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Queries that must be fast with any number of letters.
const LISTS: [&str; 6] = [
    "/v1/dead-letters?service=s0&limit=50",
    "/v1/dead-letters?category=permanent&limit=50",
    "/v1/dead-letters?type=bench.s0&tier=dead&limit=50",
    "/v1/dead-letters?session=7&limit=50",
    "/v1/dead-letters?service=s0&category=transient&limit=50",
    "/v1/dead-letters?from=24h&code=nothing&limit=50",
];

#[derive(Clone, Debug, Deserialize)]
struct Replay {
    id: u64,
    state: String,
}

struct Measured {
    per_second: f64,
    cpu_micros: f64,
    memory_bytes_peak: u64,
    list_p99: Duration,
    groups_p99: Duration,
    lost: u64,
    counts: Counts,
}

pub(super) fn play(stage: &Stage) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let (mut lost, mut out_of_order, mut repeated) = (0, 0, 0);
    for letters in stage.plan.letters {
        let first_time = (*letters).min(FIRST_TIME_MAX);
        say(format!("replay: {first_time} deliveries of {MANY} sessions, the first time"));
        let (_, _, beside) = sessions::drain(stage, MANY, first_time)?;
        let measured = measure(stage, *letters, MANY)?;
        lost += measured.lost;
        out_of_order += measured.counts.out_of_order;
        repeated += measured.counts.repeated;
        rows.extend(rows_of(*letters, beside, &measured));
    }
    let letters = stage.plan.session_events;
    say(format!("replay: {letters} deliveries of one session, the first time"));
    let (_, _, beside) = sessions::drain(stage, 1, letters)?;
    let one = measure(stage, letters, 1)?;
    lost += one.lost;
    out_of_order += one.counts.out_of_order;
    repeated += one.counts.repeated;
    let what = format!("{letters} letters of one session");
    let rate = Row::new("replay.one-session.rate", what, Quantity::per_second(one.per_second));
    rows.push(rate.beside("the first time", Quantity::per_second(beside)));
    rows.push(Row::new("replay.out-of-order", "out of order", Quantity::count(out_of_order)).never());
    rows.push(Row::new("replay.lost", "lost", Quantity::count(lost)).never());
    rows.push(Row::new("replay.repeated", "delivered twice", Quantity::count(repeated)).never());
    Ok(rows)
}

fn rows_of(letters: u64, beside: f64, measured: &Measured) -> Vec<Row> {
    let key = |name: &str| format!("replay.{letters}.{name}");
    let millis = |time: Duration| Quantity::millis(time.as_secs_f64() * 1e3);
    vec![
        Row::new(
            key("rate"),
            format!("{letters} letters replayed in order"),
            Quantity::per_second(measured.per_second),
        )
        .beside("the first time", Quantity::per_second(beside))
        .budget(Budget::RatioAtLeast(0.8)),
        Row::new(key("cpu"), "CPU for each, in the server", Quantity::micros(measured.cpu_micros)),
        Row::new(key("memory"), "memory", Quantity::bytes(measured.memory_bytes_peak))
            .budget(Budget::AtMost(200.0)),
        Row::new(key("list.p99"), "filtered lists, p99", millis(measured.list_p99))
            .budget(Budget::AtMost(50.0)),
        Row::new(key("groups.p99"), "failure groups, p99", millis(measured.groups_p99))
            .budget(Budget::AtMost(50.0)),
    ]
}

fn measure(stage: &Stage, letters: u64, sessions: u64) -> anyhow::Result<Measured> {
    let service = Service { manner: Manner::Breaks, ..Service::taking(0, Order::Session) };
    let sink = stage.sink()?;
    let server = stage.server(&sink, std::slice::from_ref(&service))?;
    say(format!("replay: {letters} dead letters"));
    let until = Until::Count(letters);
    let plan = LoadPlan { sessions: Sessions::Count(sessions), ..closed(server.address(), until) };
    let accepted = stage.load(&plan)?.accepted;
    wait_for_dead(&server, accepted)?;
    let list_p99 = p99(&server, &LISTS)?;
    let groups_p99 = p99(&server, &["/v1/failure-groups", "/v1/failure-groups?service=s0"])?;
    ask::post(sink.address(), "/fix")?;
    say(format!("replay: sending {accepted} letters again"));
    let before = server.usage()?;
    let started = Instant::now();
    let wish = json!({ "service": service.name });
    let replay: Replay = ask::post_json(server.address(), "/v1/replays", &wish)?;
    let counts = sink.wait_for(accepted)?;
    let took = started.elapsed();
    wait_for_end(&server, replay.id)?;
    let after = server.usage()?;
    server.remove();
    Ok(Measured {
        per_second: counts.distinct as f64 / took.as_secs_f64(),
        cpu_micros: micros_each(before, after, accepted),
        memory_bytes_peak: after.memory_bytes_peak,
        list_p99,
        groups_p99,
        lost: accepted.saturating_sub(counts.distinct),
        counts,
    })
}

fn wait_for_dead(server: &Server, letters: u64) -> anyhow::Result<()> {
    let (mut highest, mut since) = (0, Instant::now());
    loop {
        let dead = server.status()?.services.iter().map(|service| service.dead).sum();
        if dead > highest {
            (highest, since) = (dead, Instant::now());
        }
        if dead >= letters {
            return Ok(());
        }
        anyhow::ensure!(since.elapsed() < SILENCE_MAX, "{dead} of {letters} letters are dead, and no more");
        std::thread::sleep(ASK_EVERY);
    }
}

fn wait_for_end(server: &Server, id: u64) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let replay: Replay = ask::get(server.address(), &format!("/v1/replays/{id}"))?;
        if replay.state == "done" {
            return Ok(());
        }
        anyhow::ensure!(started.elapsed() < SILENCE_MAX, "the replay is {}, not done", replay.state);
        std::thread::sleep(ASK_EVERY);
    }
}

fn p99(server: &Server, questions: &[&str]) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..QUESTIONS {
        for question in questions {
            let started = Instant::now();
            let _: Value = ask::get(server.address(), question)?;
            times.push(started.elapsed());
        }
    }
    times.sort_unstable();
    Ok(times[(times.len() * 99 / 100).min(times.len() - 1)])
}
