//! Every key does something: for each key of the tables, one scenario is run with two values of it, and what is
//! observed must differ.
//!
//! What decides is run here, in virtual time. What only a running server shows is in `served_keys.txt`, and the
//! server's own test (`tests/all/inert.rs`) has a scenario for each line of it. A key in neither fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::dapr::{Matching, export};
use crate::lint::check;
use crate::rehearse::{AttemptKind, RehearsalStep, parse_script, rehearse};
use crate::report::{markdown, matrix};
use crate::scenario;
use crate::simulate::{Go, SimulationPlan, run};
use redrive_core::book::RuleBook;
use redrive_core::book::connectors::built_in;
use redrive_core::book::schema::{BOOK, ObjectSchema, ValueType};
use redrive_core::ids::Seed;

use self::By::{Check, Dapr, Play, Show, Try};

/// Keys that a running server shows.
const SERVED: &str = include_str!("../../core/src/book/schema/served_keys.txt");

/// A scenario for one key.
struct Row {
    /// The map and the key.
    key: (&'static str, &'static str),
    /// A book; `@` stands for what differs.
    book: &'static str,
    /// What stands there the first time and the second.
    values: [&'static str; 2],
    /// How it is looked at.
    by: By,
}

/// How a book is looked at.
#[derive(Clone, Copy)]
enum By {
    /// One delivery of type `a.b` to the service `s` gets these answers.
    Try(&'static str),
    /// The engine plays a scenario.
    Play(&'static str),
    /// The findings of `check`.
    Check,
    /// The tables for people.
    Show,
    /// The Dapr file.
    Dapr,
}

/// An error of a book, or what was seen.
fn observed(book: &str, by: By) -> String {
    if let Check = by {
        let codes = check(book.as_bytes(), built_in()).problems.into_iter().map(|problem| problem.code);
        return codes.collect::<Vec<_>>().join(" ");
    }
    let reading = redrive_core::book::read(book, built_in());
    let book = reading.book.unwrap_or_else(|| panic!("{:?}\n{book}", reading.problems));
    match by {
        Try(answers) => tried(&book, answers),
        Play(scenario) => played(book, scenario),
        Show => {
            let sections = book.sections();
            let rows =
                sections.rows().map(|(s, c, row)| markdown::render(&book, &sections.resolve(s, c, row)));
            matrix::render(&book) + &rows.collect::<String>()
        }
        Dapr => export(&book, Matching::AsStated).yaml,
        Check => unreachable!("a book with errors is checked too"),
    }
}

/// What becomes of one delivery: times, codes and verdicts, and nothing of what the book calls things.
fn tried(book: &RuleBook, answers: &str) -> String {
    let Some(rule) = book.rule("s", None, "a.b") else { return "not wanted".to_owned() };
    let script = parse_script(answers).expect("a script");
    let rehearsal = rehearse(rule, AttemptKind::Call, &script, Seed(7));
    let steps = rehearsal.steps.iter().map(|step| match step {
        RehearsalStep::Attempt(tried) => {
            let (times, decision) = ((tried.started_at, tried.ended_at), &tried.decision);
            let (verdict, alert) = (decision.verdict, decision.alert);
            format!("{times:?} {:?} {verdict:?} {alert:?} {:?}\n", tried.code, tried.transition)
        }
        RehearsalStep::Held { at, decision } => format!("{at:?} {:?}\n", decision.verdict),
    });
    steps.collect::<String>() + &format!("{:?}", rehearsal.end)
}

fn played(book: RuleBook, scenario: &str) -> String {
    let text = format!("version: 1\nduration: 5m\nsettle: 1h\n{scenario}");
    let reading = scenario::read(&text);
    let scenario = reading.scenario.unwrap_or_else(|| panic!("{:?}\n{text}", reading.problems));
    let plan = SimulationPlan { scenario: &scenario, book: Arc::new(book), seed: 1 };
    format!("{:?}", run(&plan, &mut |_| Go::On))
}

#[test]
fn every_key_changes_what_happens() {
    let mut problems = Vec::new();
    for Row { key: (object, key), book, values, by } in ROWS {
        assert!(book.contains('@'), "{object}: {key}: the book has no place for it");
        let [first, second] = values.map(|value| observed(&book.replace('@', value), *by));
        if first == second {
            problems.push(format!("{object}: {key}: changes nothing: {first}"));
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn every_key_has_a_scenario() {
    let mut keys = BTreeSet::new();
    walk(&BOOK, &mut keys, &mut BTreeSet::new());
    let here = ROWS.iter().map(|row| row.key);
    let served = SERVED.lines().filter_map(|line| line.split_once(": "));
    let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for key in here.chain(served) {
        *places.entry(key).or_default() += 1;
    }
    let missing = keys.iter().filter(|key| !places.contains_key(*key));
    let missing = missing.map(|(object, key)| format!("{object}: {key}: has no scenario"));
    let wrong = places.iter().filter(|(key, count)| **count > 1 || !keys.contains(*key));
    let wrong =
        wrong.map(|((object, key), count)| format!("{object}: {key}: is no key, or has {count} scenarios"));
    let problems: Vec<String> = missing.chain(wrong).collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// Collects the keys of a map and of all below it, each under the map that defines it.
fn walk(
    object: &'static ObjectSchema,
    keys: &mut BTreeSet<(&'static str, &'static str)>,
    seen: &mut BTreeSet<&'static str>,
) {
    if !seen.insert(object.name) {
        return;
    }
    for include in object.includes {
        walk(include, keys, seen);
    }
    for field in object.kind_fields(built_in()).into_iter().chain(object.fields) {
        keys.insert((object.name, field.key));
        if let Some(object) = map_in(&field.takes) {
            walk(object, keys, seen);
        }
    }
}

/// The map that may stand in a place.
fn map_in(takes: &'static ValueType) -> Option<&'static ObjectSchema> {
    match takes {
        ValueType::Object(object) | ValueType::ShortOrLong(_, object) => Some(object),
        ValueType::MapOf(item)
        | ValueType::ListOf(item)
        | ValueType::OneOrMany(item)
        | ValueType::ByFailure(item) => map_in(item),
        _ => None,
    }
}

/// A service with its own retries, and a place for more keys of it.
const SERVICE: &str = r#"version: 1
retry_policies: { p: { delays: [1s], retries: 6, jitter: none } }
breakers: { b: { trip: { consecutive: 2 }, open: 30s } }
dependencies: { d: { kind: log, breaker: b }, e: { kind: log, breaker: b } }
services: { s: { target: { http: "http://127.0.0.1:9/" }, retry: p, events: [a.b], @ } }
"#;
/// A retry policy.
const POLICY: &str = r#"version: 1
retry_policies: { p: { @ } }
services: { s: { target: { http: "http://127.0.0.1:9/" }, retry: p, breaker: none, events: [a.b] } }
"#;
/// A breaker.
const BREAKER: &str = r#"version: 1
retry_policies: { p: { delays: [1s], retries: 9, jitter: none } }
breakers: { b: { @ } }
services: { s: { target: { http: "http://127.0.0.1:9/" }, retry: p, breaker: b, events: [a.b] } }
"#;
/// The trip condition of a breaker.
const TRIP: &str = r#"version: 1
retry_policies: { p: { delays: [1s], retries: 9, jitter: none } }
breakers: { b: { trip: { @ }, open: 30s } }
services: { s: { target: { http: "http://127.0.0.1:9/" }, retry: p, breaker: b, events: [a.b] } }
"#;
/// A timeout in its long form.
const TIMEOUT: &str = r#"version: 1
retry_policies: { p: { delays: [1s], retries: 3, jitter: none } }
services: { s: { target: { http: "http://127.0.0.1:9/" }, timeout: { @ }, retry: p, breaker: none, events: [a.b] } }
"#;
/// A dependency that a service calls.
const DEPENDENCY: &str = r#"version: 1
retry_policies: { p: { delays: [1s], retries: 9, jitter: none } }
throttles: { t: { rate: 1/s } }
dependencies: { d: { @ } }
services: { s: { target: { http: "http://127.0.0.1:9/" }, retry: p, depends_on: d, events: [a.b] } }
"#;
/// A throttle.
const THROTTLE: &str = r#"version: 1
throttles: { t: { @ } }
breakers: { b: { trip: { consecutive: 5 }, open: 10s } }
dependencies: { d: { kind: webhook, throttle: t, breaker: b } }
services: { s: { target: { http: "http://127.0.0.1:9/" }, depends_on: d, events: [a.b] } }
"#;
/// The facts of a service.
const FACTS: &str = r#"version: 1
services: { s: { target: { http: "http://127.0.0.1:9/" }, events: [a.b], @ } }
"#;
/// A book, and a place for a section of it.
const SECTION: &str = r#"version: 1
dependencies: { d: { kind: webhook, breaker: none } }
services: { s: { target: { http: "http://127.0.0.1:9/" }, events: [a.b], timeout: fast, breaker: stateBreaker } }
@
"#;

const OUTAGE: &str = "arrivals: [{ type: a.b, rate: 5/s }]\ndependencies: { all: { phases: [{ at: 1m, for: 1m, is: down }] } }\n";
const THROTTLED: &str = "arrivals: [{ type: a.b, rate: 10/s }]\ndependencies: { all: { phases: [{ at: 30s, for: 2m, throttled: { rate: 3/s } }] } }\n";
const CALM: &str = "arrivals: [{ type: a.b, rate: 5/s }]\ndependencies: { all: { latency: 1s } }\n";
const FLAKY: &str = "arrivals: [{ type: a.b, rate: 5/s, sessions: 5 }]\ndependencies: { all: { phases: [{ at: 1m, for: 1m, fails: { status: 503, share: 50% } }] } }\n";

const fn row(
    object: &'static str,
    key: &'static str,
    book: &'static str,
    values: [&'static str; 2],
    by: By,
) -> Row {
    Row { key: (object, key), book, values, by }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("a rule book", "version", "version: @\nservices: {}\n", ["1", "2"], Check),
    row("a rule book", "defaults", SECTION, ["", "defaults: { retry: aggressive }"], Try("503*20")),
    row("a rule book", "retry_policies", SECTION, ["", "retry_policies: { standard: { from: standard, retries: 1 } }"], Try("503*20")),
    row("a rule book", "breakers", SECTION, ["", "breakers: { stateBreaker: { from: stateBreaker, open: 5s } }"], Try("503*20")),
    row("a rule book", "timeouts", SECTION, ["", "timeouts: { fast: 1s }"], Try("timeout*20")),
    row("a rule book", "throttles", "version: 1\nthrottles: { @ }\ndependencies: { d: { kind: webhook, throttle: t } }\nservices: { s: { target: { http: \"http://127.0.0.1:9/\" }, depends_on: d, events: [a.b] } }\n", ["t: { rate: 1/s }", "t: { rate: 50/s }"], Play(CALM)),
    row("a rule book", "dependencies", "version: 1\ndependencies: { @ }\nservices: { s: { target: { http: \"http://127.0.0.1:9/\" }, depends_on: d, events: [a.b] } }\n", ["d: { kind: webhook, retry: none }", "d: { kind: webhook }"], Try("503*20")),
    row("a rule book", "services", "version: 1\nservices: { @ }\n", ["", "s: { target: { http: \"http://127.0.0.1:9/\" }, events: [a.b] }"], Try("200")),
    row("a rule book", "dapr", SECTION, ["", "dapr: { name: one }"], Dapr),
    row("a rule book", "allow", SECTION, ["", "allow: [{ lint: dead-letters-unwatched, because: seen }]"], Check),

    row("defaults", "retry_budget", "version: 1\ndefaults: { @ }\nservices: { s: { target: { http: \"http://127.0.0.1:9/\" }, breaker: none, events: [a.b] } }\n", ["", "retry_budget: 1%"], Play(FLAKY)),

    row("names for Dapr", "name", SECTION, ["dapr: { name: one }", "dapr: { name: two }"], Dapr),
    row("names for Dapr", "namespace", SECTION, ["dapr: { name: one }", "dapr: { name: one, namespace: two }"], Dapr),
    row("names for Dapr", "scopes", SECTION, ["dapr: { name: one }", "dapr: { name: one, scopes: [two] }"], Dapr),
    row("a Dapr target", "component", DEPENDENCY, ["kind: webhook, dapr: { component: one }", "kind: webhook, dapr: { component: two }"], Dapr),
    row("a Dapr target", "direction", DEPENDENCY, ["kind: webhook, dapr: { component: one }", "kind: webhook, dapr: { component: one, direction: inbound }"], Dapr),
    row("a Dapr target", "app", DEPENDENCY, ["kind: webhook, dapr: { app: one }", "kind: webhook, dapr: { app: two }"], Dapr),
    row("a Dapr target", "actor", DEPENDENCY, ["kind: webhook, dapr: { actor: one }", "kind: webhook, dapr: { actor: two }"], Dapr),

    row("a retry policy", "from", POLICY, ["from: aggressive", "from: patient"], Try("503*20")),
    row("a retry policy", "initial", POLICY, ["initial: 1s, max: 30s, retries: 3, jitter: none", "initial: 2s, max: 30s, retries: 3, jitter: none"], Try("503*20")),
    row("a retry policy", "factor", POLICY, ["initial: 1s, max: 30s, retries: 3, jitter: none", "initial: 1s, max: 30s, retries: 3, jitter: none, factor: 3"], Try("503*20")),
    row("a retry policy", "max", POLICY, ["initial: 1s, max: 30s, retries: 3, jitter: none", "initial: 1s, max: 1s, retries: 3, jitter: none"], Try("503*20")),
    row("a retry policy", "delays", POLICY, ["delays: [1s], retries: 3, jitter: none", "delays: [1s, 5s], retries: 3, jitter: none"], Try("503*20")),
    row("a retry policy", "retries", POLICY, ["initial: 1s, max: 30s, retries: 3, jitter: none", "initial: 1s, max: 30s, retries: 2, jitter: none"], Try("503*20")),
    row("a retry policy", "window", POLICY, ["initial: 1s, max: 30s, retries: 3, jitter: none", "initial: 1s, max: 30s, retries: 3, jitter: none, window: 2s"], Try("503*20")),
    row("a retry policy", "jitter", POLICY, ["initial: 1s, max: 30s, retries: 3", "initial: 1s, max: 30s, retries: 3, jitter: full"], Try("503*20")),
    row("a retry policy", "alert_when_exhausted", POLICY, ["from: aggressive", "from: aggressive, alert_when_exhausted: true"], Try("503*20")),

    row("a breaker", "from", BREAKER, ["from: stateBreaker", "from: externalBreaker"], Try("503*9")),
    row("a breaker", "trip", BREAKER, ["from: kafkaBreaker", "from: kafkaBreaker, trip: { consecutive: 2 }"], Try("503*9")),
    row("a breaker", "open", BREAKER, ["trip: { consecutive: 2 }, open: 30s", "trip: { consecutive: 2 }, open: 1m"], Try("503*9")),
    row("a breaker", "probes", BREAKER, ["trip: { consecutive: 2 }, open: 10s, close_after: 5", "trip: { consecutive: 2 }, open: 10s, close_after: 5, probes: 5"], Play(OUTAGE)),
    row("a breaker", "close_after", BREAKER, ["trip: { consecutive: 2 }, open: 10s", "trip: { consecutive: 2 }, open: 10s, close_after: 9"], Play(OUTAGE)),
    row("a breaker", "reset", BREAKER, ["trip: { consecutive: 2 }, open: 10s", "trip: { consecutive: 2 }, open: 10s, reset: 500ms"], Try("503*4")),
    row("a breaker", "count", BREAKER, ["trip: { consecutive: 2 }, open: 10s", "trip: { consecutive: 2 }, open: 10s, count: call"], Try("503*4")),
    row("a breaker", "ignores", BREAKER, ["trip: { consecutive: 2 }, open: 10s", "trip: { consecutive: 2 }, open: 10s, ignores: [503]"], Try("503*4")),
    row("a breaker", "counts", BREAKER, ["trip: { consecutive: 1 }, open: 10s", "trip: { consecutive: 1 }, open: 10s, counts: [404]"], Try("404")),

    row("a trip condition", "consecutive", TRIP, ["consecutive: 2", "consecutive: 3"], Try("503*9")),
    row("a trip condition", "failures", TRIP, ["failures: 2, within: 1m", "failures: 4, within: 1m"], Try("503*9")),
    row("a trip condition", "within", TRIP, ["failures: 2, within: 1m", "failures: 2, within: 500ms"], Try("503*9")),
    row("a trip condition", "failure_rate", TRIP, ["failure_rate: 20%, of_at_least: 5, within: 1m", "failure_rate: 95%, of_at_least: 5, within: 1m"], Play(FLAKY)),
    row("a trip condition", "of_at_least", TRIP, ["failure_rate: 50%, of_at_least: 2, within: 1m", "failure_rate: 50%, of_at_least: 5, within: 1m"], Try("503*9")),

    row("a timeout", "whole", TIMEOUT, ["whole: 5s", "whole: 7s"], Try("timeout*9")),
    row("a timeout", "first", TIMEOUT, ["first: 2s, max: 30s", "first: 3s, max: 30s"], Try("timeout*9")),
    row("a timeout", "factor", TIMEOUT, ["first: 2s, max: 30s", "first: 2s, max: 30s, factor: 3"], Try("timeout*9")),
    row("a timeout", "max", TIMEOUT, ["first: 2s, max: 30s", "first: 2s, max: 3s"], Try("timeout*9")),
    row("a timeout", "as", TIMEOUT, ["whole: 5s", "whole: 5s, as: permanent"], Try("timeout*9")),

    row("a throttle", "in_flight", THROTTLE, ["", "in_flight: 2"], Play(CALM)),
    row("a throttle", "rate", THROTTLE, ["", "rate: 1/s"], Play(CALM)),
    row("a throttle", "rate_growth", THROTTLE, ["rate: 20/s", "rate: 20/s, rate_growth: 0%"], Play(THROTTLED)),
    row("a throttle", "rate_memory", THROTTLE, ["rate: 20/s", "rate: 20/s, rate_memory: 10s"], Play(THROTTLED)),
    row("a throttle", "ramp", THROTTLE, ["", "ramp: 0s"], Play(OUTAGE)),

    row("a retry budget", "share", DEPENDENCY, ["kind: log, retry_budget: { share: 1% }", "kind: log, retry_budget: { share: 100% }"], Play(FLAKY)),
    row("a retry budget", "at_least", DEPENDENCY, ["kind: log, retry_budget: { share: 1% }", "kind: log, retry_budget: { share: 1%, at_least: 50/s }"], Play(FLAKY)),

    row("a dependency", "kind", DEPENDENCY, ["kind: log", "kind: postgres"], Try("503*9")),
    row("a dependency", "throttle", DEPENDENCY, ["kind: log", "kind: log, throttle: t"], Play(CALM)),
    row("a dependency", "retry_budget", DEPENDENCY, ["kind: log", "kind: log, retry_budget: 1%"], Play(FLAKY)),
    row("a dependency", "dapr", DEPENDENCY, ["kind: webhook", "kind: webhook, dapr: { app: one }"], Dapr),

    row("a rule", "retry", SECTION, ["defaults: { retry: aggressive }", "defaults: { retry: patient }"], Try("503*20")),
    row("a rule", "on_failure", SERVICE, ["", "on_failure: { 404: p }"], Try("404*3")),
    row("a rule", "classify", SERVICE, ["", "classify: [{ status: 404, as: transient }]"], Try("404*3")),
    row("a rule", "timeout", SERVICE, ["timeout: 5s", "timeout: 7s"], Try("timeout*9")),
    row("a rule", "breaker", SERVICE, ["breaker: none", "breaker: b"], Try("503*9")),
    row("a rule", "when_open", SERVICE, ["breaker: b", "breaker: b, when_open: dead-letter"], Try("503*9")),
    row("a rule", "hold_max", SERVICE, ["breaker: b", "breaker: b, hold_max: 10s"], Try("503*9")),
    row("a rule", "deadline", SERVICE, ["", "deadline: 2s"], Try("503*9")),
    row("a rule", "fatal_after", SERVICE, ["", "fatal_after: 2s"], Try("refused*9")),
    row("a rule", "criticality", "version: 1\nservices: { s: { target: { http: \"http://127.0.0.1:9/\" }, retry: none, events: [{ type: a.b, @ }] } }\n", ["criticality: low", "criticality: critical"], Check),
    row("a rule", "data_loss", "version: 1\nservices: { s: { target: { http: \"http://127.0.0.1:9/\" }, dead_letter: { retention: 20d }, events: [{ type: a.b, @ }] } }\n", ["data_loss: acceptable", "data_loss: not-acceptable"], Check),
    row("a rule", "facts", FACTS, ["", "facts: { sla: 1s }"], Check),
    row("a rule", "allow", FACTS, ["", "allow: [{ lint: dead-letters-unwatched, because: seen }]"], Check),

    row("an override of the classification", "status", SERVICE, ["classify: [{ status: 404, as: transient }]", "classify: [{ status: 405, as: transient }]"], Try("404*3")),
    row("an override of the classification", "code", SERVICE, ["classify: [{ code: OWN_CODE, as: permanent }]", "classify: [{ code: OTHER_CODE, as: permanent }]"], Try("OWN_CODE*3")),
    row("an override of the classification", "header", SERVICE, ["classify: [{ header: retry-after, as: permanent }]", "classify: [{ header: x-reason, as: permanent }]"], Try("503:60,503:60")),
    row("an override of the classification", "message", SERVICE, ["classify: [{ message: quota, as: permanent }]", "classify: [{ message: other, as: permanent }]"], Try("503=quota,503=quota")),
    row("an override of the classification", "as", SERVICE, ["classify: [{ status: 404, as: transient }]", "classify: [{ status: 404, as: delivered }]"], Try("404*3")),
    row("an override of the classification", "give_code", SERVICE, ["classify: [{ status: 404, as: transient }]", "classify: [{ status: 404, as: transient, give_code: OWN_CODE }]"], Try("404*3")),
    row("an override of the classification", "because", SERVICE, ["classify: [{ status: 404, as: transient }]", "classify: [{ status: 404, as: transient, because: it is slow }]"], Show),

    row("a silenced lint", "lint", FACTS, ["allow: [{ lint: dead-letters-unwatched, because: seen }]", "allow: [{ lint: no-session-order, because: seen }]"], Check),
    row("a silenced lint", "because", FACTS, ["allow: [{ lint: dead-letters-unwatched, because: seen }]", "allow: [{ lint: dead-letters-unwatched, because: \"\" }]"], Check),

    row("a service", "title", FACTS, ["", "title: Shop"], Show),
    row("a service", "depends_on", SERVICE, ["", "depends_on: d"], Try("503*9")),
    row("a service", "order", SERVICE, ["", "order: session"], Play(FLAKY)),
    row("a service", "events", "version: 1\nservices: { s: { target: { http: \"http://127.0.0.1:9/\" }, events: [@] } }\n", ["a.b", "a.c"], Try("200")),
    row("a service", "channels", FACTS, ["", "channels: { c: { events: [a.b] } }"], Play(CALM)),

    row("an event row", "type", "version: 1\nservices: { s: { target: { http: \"http://127.0.0.1:9/\" }, events: [{ type: @ }] } }\n", ["a.b", "a.c"], Try("200")),
    row("an event row", "title", "version: 1\nservices: { s: { target: { http: \"http://127.0.0.1:9/\" }, events: [{ type: a.b, @ }] } }\n", ["", "title: Order"], Show),
    row("an event row", "depends_on", "version: 1\nbreakers: { b: { trip: { consecutive: 2 }, open: 1m } }\ndependencies: { d: { kind: webhook, breaker: b } }\nservices: { s: { target: { http: \"http://127.0.0.1:9/\" }, events: [{ type: a.b, @ }] } }\n", ["", "depends_on: d"], Try("503*9")),

    row("a channel", "title", FACTS, ["channels: { c: { events: [a.b] } }", "channels: { c: { events: [a.b], title: E-mail } }"], Show),
    row("a channel", "depends_on", SERVICE, ["channels: { c: { events: [a.b] } }", "channels: { c: { events: [a.b], depends_on: d } }"], Play(OUTAGE)),
    row("a channel", "events", FACTS, ["channels: { c: { events: [a.b] } }", "channels: { c: { events: [a.c] } }"], Play(CALM)),

    row("facts", "rate", "version: 1\nservices: { s: { target: { http: \"http://127.0.0.1:9/\" }, events: [{ type: a.b, facts: { @ } }] } }\n", ["rate: 1/s", "rate: 5/s"], Play("")),
    row("facts", "p99", FACTS, ["", "facts: { p99: 2s }"], Play("arrivals: [{ type: a.b, rate: 5/s }]\n")),
    row("facts", "sla", FACTS, ["facts: { sla: 1d }", "facts: { sla: 1s }"], Check),
    row("facts", "instances", "version: 1\nbreakers: { b: { trip: { consecutive: 1 }, open: 60s } }\nservices: { s: { target: { http: \"http://127.0.0.1:9/\" }, breaker: b, events: [a.b], facts: { @ } } }\n", ["instances: 1", "instances: 2"], Check),
    row("facts", "rate_limit_window", FACTS, ["hold_max: 10m, facts: { rate_limit_window: 1s }", "hold_max: 10m, facts: { rate_limit_window: 1h }"], Check),
    row("facts", "uses", "version: 1\ndependencies: { d: { kind: smtp } }\nservices: { s: { target: { http: \"http://127.0.0.1:9/\" }, events: [a.b], @ } }\n", ["", "facts: { uses: [d] }"], Check),
    row("facts", "idempotent_by", FACTS, ["idempotency: { by: none }", "idempotency: { by: none }, facts: { idempotent_by: upsert }"], Check),
    row("a consumer's idempotency", "pattern", FACTS, ["idempotency: { by: none }, facts: { idempotent_by: { pattern: nothing } }", "idempotency: { by: none }, facts: { idempotent_by: { pattern: upsert } }"], Check),
    row("a consumer's idempotency", "store", FACTS, ["facts: { idempotent_by: { pattern: upsert } }", "facts: { idempotent_by: { pattern: upsert, store: index } }"], Show),

    row("a source", "depends_on", "version: 1\nsecrets: { s: { env: S } }\ndependencies: { d: { kind: webhook } }\nsources: { n: { webhook: { scheme: github, secret: s }, type: a.b, @ } }\n", ["", "depends_on: d"], Check),
    row("a source", "facts", "version: 1\nsecrets: { k: { env: K } }\nsources: { n: { webhook: { scheme: github, secret: k }, type: a.b, facts: { @ } } }\nservices: { s: { target: { http: \"http://127.0.0.1:9/\" }, events: [a.b] } }\n", ["callers: 1", "callers: 30"], Check),

    row("facts of a source", "lease", FACTS, ["facts: { lease: 1d, heartbeat: 8m }", "facts: { lease: 10m, heartbeat: 8m }"], Check),
    row("facts of a source", "heartbeat", FACTS, ["facts: { lease: 10m, heartbeat: 1m }", "facts: { lease: 10m, heartbeat: 8m }"], Check),
    row("facts of a source", "redelivery", FACTS, ["facts: { redelivery: 1h }", "facts: { redelivery: 30d }"], Check),
    row("facts of a source", "poll_limit", FACTS, ["facts: { poll_limit: 1d }", "facts: { poll_limit: 1s }"], Check),
    row("facts of a source", "callers", FACTS, ["facts: { callers: 1 }", "facts: { callers: 30 }"], Check),
    row("facts of a source", "caller_timeout", FACTS, ["facts: { caller_timeout: 1d }", "facts: { caller_timeout: 1s }"], Check),
    row("facts of a source", "broker_attempts", FACTS, ["facts: { broker_attempts: 1 }", "facts: { broker_attempts: 30 }"], Check),
];
