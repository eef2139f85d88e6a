//! `POST /v1/simulate`: runs scenarios against the active rule book.
//!
//! Invariants: one simulation at a time, on one low-priority thread; it ends when it takes too long, when the
//! caller disconnects and when the server stops; it starts only if it fits into memory. It never touches real
//! deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::HeaderMap;
use redrive_core::book::RuleBook;
use redrive_core::book::problem::{ProblemSeverity, Problems};
use redrive_core::text::show_count;
use redrive_lab::scenario::{self, Scenario};
use redrive_lab::simulate::advice::advised;
use redrive_lab::simulate::{self, Go, SimulationPlan, SimulationProgress};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::access::addresses::VisibleAddresses;
use crate::access::caller::ApiCaller;
use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult};
use crate::api::{App, body, reply, request};
use crate::lab::simulate::json::{ScenarioJson, ScenariosResponse, SimulateRequest, SimulateResponse};
use crate::rules::json::FindingJson;

const SCENARIO_BYTES_MAX: usize = 256 * 1024;

const DELIVERIES_MAX: u64 = 300_000;

/// Deliveries waiting at a time: they are in memory, with a KiB or two each.
const WAITING_MAX: u64 = 100_000;

/// Other planned steps at a time: ends of calls, timeouts, faults.
const PLANNED_MAX: u64 = 500_000;

/// Arrivals; each may match every row of the book.
const ARRIVALS_MAX: usize = 1_000;

/// Faults of dependencies, which are planned before the run starts.
const TROUBLES_MAX: usize = 100_000;

/// The largest seed: clients that use doubles can represent it.
const SEED_MAX: u64 = (1 << 53) - 1;

/// Time limit of a run with its advice; the caller gets no answer until then.
const PLAYED_FOR_MAX: Duration = Duration::from_secs(10);

const AT_ONCE: usize = 1;

const RETRY_AFTER_SECONDS: u32 = 3;

#[rustfmt::skip]
const READY: [(&str, &str); 7] = [
    ("outage",          include_str!("../../../../../examples/scenarios/outage.yaml")),
    ("brown-out",       include_str!("../../../../../examples/scenarios/brown-out.yaml")),
    ("throttling",      include_str!("../../../../../examples/scenarios/throttling.yaml")),
    ("slow",            include_str!("../../../../../examples/scenarios/slow.yaml")),
    ("bad-deploy",      include_str!("../../../../../examples/scenarios/bad-deploy.yaml")),
    ("poison-burst",    include_str!("../../../../../examples/scenarios/poison-burst.yaml")),
    ("thundering-herd", include_str!("../../../../../examples/scenarios/thundering-herd.yaml")),
];

/// The slot of the running simulation; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Simulations(Arc<Semaphore>);

impl Default for Simulations {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

/// Scenarios that fit any rule book, to run as they are or to start from.
#[utoipa::path(
    get, path = "/v1/scenarios", operation_id = "listScenarios", tag = "operating",
    responses((status = 200, description = "the built-in scenarios", body = ScenariosResponse))
)]
pub(crate) async fn ready() -> ApiResult {
    let shown = |(name, text): (&str, &str)| {
        let about = scenario::read_bytes(text.as_bytes()).scenario.and_then(|scenario| scenario.about);
        ScenarioJson { name: name.to_owned(), about: about.unwrap_or_default(), text: text.to_owned() }
    };
    let scenarios = READY.into_iter().map(shown).collect();
    reply::ok(&ScenariosResponse { scenarios })
}

/// Runs a scenario against the active rule book, in virtual time.
///
/// Limits: ten seconds, one simulation at a time, 300,000 deliveries of which 100,000 may wait at a time;
/// `redrive simulate` has no such limits. Problems of a scenario are in `details.problems`, each with its
/// line.
#[utoipa::path(
    post, path = "/v1/simulate", operation_id = "runSimulation", tag = "operating",
    request_body = SimulateRequest,
    responses((status = 200, description = "the report and its findings", body = SimulateResponse))
)]
pub(crate) async fn simulate(app: App, caller: ApiCaller, headers: HeaderMap, body: Body) -> ApiResult {
    let body = body::read_up_to(&app, &headers, body, SCENARIO_BYTES_MAX).await?;
    let SimulateRequest { scenario: text, seed } = request::of_body(&body)?;
    let seed = seed.unwrap_or(1);
    if seed > SEED_MAX {
        return Err(ApiError::invalid("seed", format!("is at most {SEED_MAX}")));
    }
    let (book, book_text) = app.node.book_and_text();
    let place = Arc::clone(&app.simulations.0).try_acquire_owned().map_err(|_| {
        ApiError::unavailable("another simulation is running: try again in a moment")
            .retry_after(RETRY_AFTER_SECONDS)
    })?;
    let addresses = VisibleAddresses::for_caller(&caller, &book);
    let closing = app.closing.clone();
    // Parsing a hostile scenario may be slow too.
    let played = on_a_thread(place, move |left| {
        let (scenario, warnings) = fitting(&text, &book)?;
        let asked = SimulationInput { scenario, warnings, book, book_text, seed };
        play(&asked, &|| left() || *closing.borrow())
    });
    addresses.ok(&played.await??)
}

fn fitting(text: &str, book: &RuleBook) -> Result<(Scenario, Vec<FindingJson>), ApiError> {
    let reading = scenario::read_bytes(text.as_bytes());
    let Some(scenario) = reading.scenario else { return Err(refused(reading.problems)) };
    if scenario.arrivals.len() > ARRIVALS_MAX {
        let [all, most] = [scenario.arrivals.len(), ARRIVALS_MAX].map(|count| show_count(count as u64));
        return Err(too_much(&format!("has {all} arrivals; at most {most} are allowed here")));
    }
    let mut problems = scenario.misfits(book);
    for file in scenario.traces() {
        let message = "recorded traces are not available on a server";
        let help = "run it with `redrive simulate`, or use a rate";
        problems.error("trace-elsewhere", file.span, message, help);
    }
    if problems.has_errors() {
        return Err(refused(problems));
    }
    let (in_all, at_once) = (scenario.deliveries_expected(book), scenario.deliveries_at_once(book));
    if in_all > DELIVERIES_MAX as f64 {
        let (all, most) = (whole(in_all), show_count(DELIVERIES_MAX));
        return Err(too_much(&format!("has about {all} deliveries; at most {most} are allowed here")));
    }
    if at_once > WAITING_MAX as f64 {
        let (all, most) = (whole(at_once), show_count(WAITING_MAX));
        return Err(too_much(&format!("has {all} deliveries at once; at most {most} may wait here")));
    }
    if scenario.troubles_expected(book) > TROUBLES_MAX {
        let most = show_count(TROUBLES_MAX as u64);
        return Err(too_much(&format!("has more than {most} phases and faults of dependencies")));
    }
    Ok((scenario, shown(reading.problems)))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are not negative")]
fn whole(count: f64) -> String {
    show_count(count.round() as u64)
}

fn shown(problems: Problems) -> Vec<FindingJson> {
    problems.into_sorted().into_iter().map(FindingJson::from).collect()
}

fn too_much(what: &str) -> ApiError {
    let reason =
        format!("{what}: shorten it, lower its rates, or use `redrive simulate`, which has no such limit");
    ApiError::invalid("scenario", reason)
}

fn refused(problems: Problems) -> ApiError {
    let problems = shown(problems);
    let first = problems
        .iter()
        .find(|problem| problem.severity == ProblemSeverity::Error.to_string())
        .map_or_else(String::new, |problem| format!(" line {}: {}", problem.line, problem.message));
    let shown = serde_json::to_value(problems).expect("texts and numbers are always JSON");
    ApiError::invalid("scenario", format!("is not valid:{first}")).with("problems", shown)
}

struct SimulationInput {
    scenario: Scenario,
    warnings: Vec<FindingJson>,
    book: Arc<RuleBook>,
    book_text: Arc<str>,
    seed: u64,
}

fn play(asked: &SimulationInput, is_stopped: &dyn Fn() -> bool) -> Result<SimulateResponse, ApiError> {
    let plan = SimulationPlan { scenario: &asked.scenario, book: Arc::clone(&asked.book), seed: asked.seed };
    let began = Instant::now();
    let mut ended_by = None;
    let mut watch = |progress: SimulationProgress| {
        ended_by = end_of(progress, began.elapsed(), is_stopped);
        if ended_by.is_some() { Go::Stop } else { Go::On }
    };
    let report = simulate::run(&plan, &mut watch);
    let Ok(report) = report else { return Err(ended_by.expect("only an end stops it").into_error()) };
    // The remaining time is for advice; without any, findings have none.
    let findings = advised(&plan, &report, &asked.book_text, &mut watch);
    Ok(SimulateResponse {
        report: serde_json::to_value(&report).expect("a report is always JSON"),
        findings,
        warnings: asked.warnings.clone(),
    })
}

#[derive(Clone, Copy, Debug)]
enum SimulationEnd {
    /// The caller disconnected, or the server stops.
    Stopped,
    Time,
    Waiting,
    Planned,
}

fn end_of(
    progress: SimulationProgress,
    played_for: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> Option<SimulationEnd> {
    if is_stopped() {
        return Some(SimulationEnd::Stopped);
    }
    if progress.open > WAITING_MAX {
        return Some(SimulationEnd::Waiting);
    }
    if progress.planned > PLANNED_MAX {
        return Some(SimulationEnd::Planned);
    }
    (played_for > PLAYED_FOR_MAX).then_some(SimulationEnd::Time)
}

impl SimulationEnd {
    fn into_error(self) -> ApiError {
        match self {
            Self::Stopped => ApiError::unavailable("the server is shutting down"),
            Self::Time => too_much(&format!("takes longer than {} s", PLAYED_FOR_MAX.as_secs())),
            Self::Waiting => {
                let most = show_count(WAITING_MAX);
                too_much(&format!("has more than {most} deliveries waiting at a time"))
            }
            Self::Planned => {
                let most = show_count(PLANNED_MAX);
                too_much(&format!("has more than {most} pending calls and timeouts at a time"))
            }
        }
    }
}

/// Runs slow work on its own thread, which is notified when the caller is gone; the slot is free when it has
/// ended.
async fn on_a_thread<T: Send + 'static>(
    place: OwnedSemaphorePermit,
    work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let (answer, answered) = oneshot::channel();
    let leaving = CancelOnDrop::default();
    let left = Arc::clone(&leaving.0);
    let thread = std::thread::Builder::new().name("simulate".to_owned()).spawn(move || {
        lower_priority();
        let done = work(&|| left.load(Ordering::Relaxed));
        drop(place);
        // The caller may be gone.
        let _ = answer.send(done);
    });
    thread.map_err(|_| ApiError::unavailable("could not start a thread"))?;
    answered.await.map_err(|_| {
        tracing::error!("simulation failed");
        ApiError::new(ApiCode::Internal, "simulation failed; see the server's log")
    })
}

#[derive(Default)]
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lowers this thread's priority to a third of that of deliveries, without starving it. Where threads have no
/// priority of their own, the simulation costs one core while it runs.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        const A_THIRD: i32 = 5;
        // Without permission the priority stays as it was.
        let _ = rustix::process::setpriority_process(None, A_THIRD);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use redrive_core::book::connectors::built_in;

    #[test]
    fn every_scenario_of_the_examples_is_ready() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/scenarios");
        let files = std::fs::read_dir(folder).expect("the examples are there");
        let names = files.filter_map(|entry| {
            let path = entry.expect("an entry can be read").path();
            path.is_file().then(|| path.file_stem().expect("a name").to_string_lossy().into_owned())
        });
        let ready: BTreeSet<String> = READY.into_iter().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(names.collect::<BTreeSet<_>>(), ready);
    }

    fn listed(count: usize, one: impl Fn(usize) -> String) -> String {
        (0..count).map(one).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn what_cannot_be_played_says_why() {
        let book =
            "version: 1\nservices:\n  shop: { target: { http: \"http://127.0.0.1:9/\" }, events: [a.b] }\n";
        let book = redrive_core::book::read(book, built_in()).book.expect("a book");
        let arrivals = |arrivals: &str| format!("version: 1\nduration: 1h\narrivals: [{arrivals}]\n");
        let calm = |rest: &str| format!("{}{rest}", arrivals("{ type: a.b, rate: 1/s }"));
        let layer = listed(500, |n| format!("d{n}: {{}}"));
        let faults = listed(300, |n| format!("{{ at: {n}s, restart: 100ms }}"));
        #[rustfmt::skip]
        let cases = [
            ("no scenario",         "nonsense: 1\n".to_owned(),                               "is not valid"),
            ("another type",        arrivals("{ type: c.d, rate: 1/s }"),                     "line 3: no service of the book receives `c.d`"),
            ("a trace",             arrivals("{ type: a.b, trace: x.csv }"),                  "line 3: recorded traces are not available"),
            ("too much over time",  arrivals("{ type: a.b, rate: 1000/s }"),                  "about 3,600,000 deliveries"),
            ("too much at once",    arrivals("{ type: a.b, bursts: { size: 200000 } }"),      "200,000 deliveries at once"),
            ("far too much",        arrivals("{ type: a.b, rate: 100000/s }"),                "more than 100,000,000 events"),
            ("very many arrivals",  arrivals(&"{ type: a.b, rate: 1/h },".repeat(1_001)),     "has 1,001 arrivals; at most 1,000 are allowed here"),
            ("very many troubles",  calm(&format!("dependencies: {{ shop: {{ calls: {{ {layer} }} }} }}\nfaults: [{faults}]\n")), "more than 100,000 phases and faults"),
        ];
        for (name, text, expected) in cases {
            let refused = fitting(&text, &book).expect_err(name);
            assert!(refused.message().contains(expected), "{name}: {}", refused.message());
        }
        assert!(fitting(&arrivals("{ type: a.b, rate: 50/s }"), &book).is_ok());
    }

    #[tokio::test]
    async fn whoever_leaves_stops_it_and_leaves_the_place_to_others() {
        let simulations = Simulations::default();
        let place = || Arc::clone(&simulations.0).try_acquire_owned();
        let (began, has_begun) = oneshot::channel();
        let endless = on_a_thread(place().expect("it is free"), move |left| {
            began.send(()).expect("the test waits");
            while !left() {
                std::thread::yield_now();
            }
        });
        let waiting = tokio::spawn(endless);
        has_begun.await.expect("it begins");
        assert!(place().is_err(), "it is taken");
        waiting.abort();
        let freed = Arc::clone(&simulations.0).acquire_owned();
        let freed = tokio::time::timeout(Duration::from_secs(30), freed).await;
        assert!(freed.is_ok_and(|place| place.is_ok()), "it ends when the caller is gone");
    }

    #[test]
    fn what_is_stopped_is_told_so() {
        let book_text =
            "version: 1\nservices:\n  shop: { target: { http: \"http://127.0.0.1:9/\" }, events: [a.b] }\n";
        let book = Arc::new(redrive_core::book::read(book_text, built_in()).book.expect("a book"));
        let calm = "version: 1\nduration: 1h\narrivals: [{ type: a.b, rate: 50/s }]\n";
        let down = "dependencies: { all: { phases: [{ at: 0s, for: 1h, is: down }] } }\n";
        let flood = format!("{}{down}", calm.replace("1h", "1m").replace("50/s", "4000/s"));
        let layer = listed(200, |n| format!("d{n}: {{ timeout: 24h }}"));
        let layers = format!("{calm}dependencies: {{ shop: {{ latency: 1ms, calls: {{ {layer} }} }} }}\n");
        #[rustfmt::skip]
        let cases = [
            ("a server that stops",  calm,    true,  "shutting down"),
            ("a flood",              &flood,  false, "more than 100,000 deliveries waiting"),
            ("a flood within",       &layers, false, "more than 500,000 pending calls and timeouts"),
        ];
        for (name, text, is_stopped, expected) in cases {
            let (scenario, warnings) = fitting(text, &book).expect(name);
            let (book, book_text) = (Arc::clone(&book), book_text.into());
            let asked = SimulationInput { scenario, warnings, book, book_text, seed: 1 };
            let stopped = play(&asked, &|| is_stopped).expect_err(name);
            assert!(stopped.message().contains(expected), "{name}: {}", stopped.message());
        }
    }
}
