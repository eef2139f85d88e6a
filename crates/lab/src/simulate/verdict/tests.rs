//! What is found in which report, and that a change which is advised helps.

use std::sync::Arc;

use super::*;
use crate::scenario::expectation::{MetricValue, RunMetric};
use crate::scenario::{self, Scenario};
use crate::simulate::{Go, SimulationPlan, run};
use redrive_core::book::connectors::built_in;
use redrive_core::book::{self, patch};

fn text(inside: &str, more: &str) -> String {
    format!(
        "version: 1\n{more}services:\n  shop:\n    target: {{ http: \"http://127.0.0.1:9000/\" }}\n    depends_on: api\n{inside}    events: [\"orders.*\"]\n"
    )
}

fn scenario(api: &str) -> Scenario {
    let text = format!(
        "version: 1\nduration: 2m\nsettle: 1h\narrivals: [{{ type: orders.placed, rate: 5/s }}]\ndependencies:\n  api: {{ {api} }}\n"
    );
    scenario::read(&text).scenario.unwrap_or_else(|| panic!("{text}"))
}

fn play(book: &str, scenario: &Scenario) -> (SimulationReport, Arc<RuleBook>) {
    let read = book::read(book, built_in());
    let book = Arc::new(read.book.unwrap_or_else(|| panic!("{book}\n{:?}", read.problems)));
    let plan = SimulationPlan { scenario, book: Arc::clone(&book), seed: 1 };
    (run(&plan, &mut |_| Go::On).expect("no run is stopped"), book)
}

const BARE: &str = "dependencies:\n  api: { kind: webhook, breaker: none, in_flight: 500 }\n";
const GUARDED: &str = "breakers:\n  five: { trip: { consecutive: 5 }, open: 10s }\ndependencies:\n  api: { kind: webhook, breaker: five, in_flight: 500 }\n";
const STEPS: &str = "retry_policies:\n  steps: { delays: [1s, 2s, 4s], retries: 3, jitter: none }\n";

#[test]
fn each_finding_is_made_where_it_belongs() {
    let bare = |inside: &str| text(inside, &format!("{BARE}{STEPS}"));
    let guarded = |inside: &str| text(inside, &format!("{GUARDED}{STEPS}"));
    let steps = "    retry: steps\n";
    #[rustfmt::skip]
    let cases = [
        ("a calm day",              bare(""),        "latency: 10ms",                                                        vec!["all-delivered"]),
        ("down for good",           bare(steps),     "phases: [{ at: 0s, for: 1d, is: down }]",                              vec!["dead-letters", "amplified", "breaker-never-opens"]),
        ("down for a while",        guarded(steps),  "latency: 10ms, phases: [{ at: 30s, for: 30s, is: down }]",             vec!["drained", "all-delivered"]),
        ("all at once after it",    guarded(steps).replace("in_flight: 500", "in_flight: 500, ramp: 0s"), "latency: 10ms, phases: [{ at: 30s, for: 30s, is: down }]", vec!["stampede", "drained", "all-delivered"]),
        ("locked out",              bare("    on_failure: { fatal: pause }\n"), "latency: 10ms, phases: [{ at: 30s, for: 1h, fails: { status: 401 } }]", vec!["still-waiting"]),
        ("slower than anybody waits", bare("    retry: steps\n    timeout: 1s\n"), "phases: [{ at: 0s, for: 1d, slow: 3s }]",  vec!["dead-letters", "amplified", "breaker-never-opens", "duplicates"]),
        ("more comes than may start", bare("").replace("in_flight: 500", "rate: 3/s"), "latency: 10ms",                      vec!["growing-backlog"]),
        ("more comes than it takes", bare(""),       "latency: 10ms, phases: [{ at: 0s, for: 1d, throttled: { rate: 3/s } }]", vec!["growing-backlog"]),
        ("more comes than may be under way", bare("").replace("in_flight: 500", "in_flight: 1"), "latency: 300ms",           vec!["growing-backlog"]),
        ("refused for good",        bare(steps),     "latency: 10ms, phases: [{ at: 0s, for: 1d, fails: 422 }]",             vec!["dead-letters"]),
        ("mostly refused for good", bare(steps),     "latency: 10ms, phases: [{ at: 0s, for: 1d, fails: [{ status: 422, share: 70% }, { status: 503, share: 30% }] }]", vec!["dead-letters", "dead-letters"]),
        ("what the breaker ignores", text(steps, &format!("{}{STEPS}", GUARDED.replace("open: 10s", "open: 10s, ignores: [transient]"))), "phases: [{ at: 0s, for: 1d, is: down }]", vec!["dead-letters", "amplified"]),
    ];
    for (name, book, api, expected) in cases {
        let (report, book) = play(&book, &scenario(api));
        let findings = verdict(&report, &book);
        let codes: Vec<&str> = findings.iter().map(|finding| finding.code).collect();
        for code in &expected {
            assert!(codes.contains(code), "{name}: {code} is not among {findings:#?}");
        }
        assert_eq!(codes.len(), expected.len(), "{name}: {findings:#?}");
        assert!(findings.is_sorted_by_key(|finding| finding.weight), "{name}: the worst first");
    }
}

/// Too few calls at once are what makes it grow, and more of them are what helps.
#[test]
fn what_helps_against_a_backlog_that_grows_is_told() {
    let book_text = text("", &BARE.replace("in_flight: 500", "in_flight: 1"));
    let scenario = scenario("latency: 300ms");
    let (report, book) = play(&book_text, &scenario);
    let plan = SimulationPlan { scenario: &scenario, book, seed: 1 };
    let advised = crate::simulate::advice::advised(&plan, &report, &book_text, &mut |_| Go::On);
    let growing = advised.iter().find(|it| it.code == "growing-backlog").expect("it grows");
    assert_eq!(growing.advice.len(), 1, "{growing:#?}");
    assert_eq!(growing.advice[0].words, "`in_flight: 4` on `api`");
}

/// Where only some of the failures are the dependency's own, it is said which are meant.
#[test]
fn a_breaker_is_missed_for_what_it_would_count() {
    let book = text("    retry: steps\n", &format!("{BARE}{STEPS}"));
    let fails = "fails: [{ status: 503, share: 70% }, { status: 422, share: 30% }]";
    let (report, book) =
        play(&book, &scenario(&format!("latency: 10ms, phases: [{{ at: 0s, for: 1d, {fails} }}]")));
    let api = &report.dependencies[0];
    assert!(api.calls_failed_counted < api.calls_failed && api.calls_failed == api.calls, "{api:#?}");
    let found = verdict(&report, &book).into_iter().find(|finding| finding.code == "breaker-never-opens");
    let text = found.expect("most of them count").text;
    let counted = show_count(api.calls_failed_counted);
    assert!(
        text.contains(&format!("although {counted} of ")) && text.ends_with(" in a way that breakers count"),
        "{text}"
    );
}

/// A known result: what failed together comes back together, unless chance parts it.
#[test]
fn full_jitter_parts_what_failed_together() {
    let burst = "version: 1\nduration: 2m\narrivals: [{ type: orders.placed, bursts: { size: 100 } }]\ndependencies:\n  api: { latency: 10ms, phases: [{ at: 0s, for: 30s, fails: { status: 503 } }] }\n";
    let burst = scenario::read(burst).scenario.expect("a scenario");
    let book_text = |jitter: &str| {
        let policy =
            format!("retry_policies:\n  steps: {{ initial: 10s, max: 10s, retries: 5, jitter: {jitter} }}\n");
        text("    retry: steps\n", &format!("{BARE}{policy}"))
    };
    let waves = |jitter: &str| {
        let (report, _) = play(&book_text(jitter), &burst);
        let calls = report.dependencies[0].series.calls.clone();
        (calls[1..].iter().copied().max().expect("there were retries"), report)
    };
    let (together, report) = waves("none");
    let (parted, report_of_parted) = waves("full");
    assert_eq!(together, 100, "all of them at once, again and again");
    assert!(parted < 40, "{parted}");
    for (jitter, report, is_found) in [("none", report, true), ("full", report_of_parted, false)] {
        let book = book::read(&book_text(jitter), built_in()).book.expect("a book");
        let codes: Vec<&str> = verdict(&report, &book).iter().map(|finding| finding.code).collect();
        assert_eq!(codes.contains(&"no-jitter"), is_found, "{jitter}: {codes:?}");
    }
}

#[test]
fn a_change_that_is_advised_helps_and_one_that_does_not_is_not_told() {
    let book_text = text("    retry: steps\n", &format!("{BARE}{STEPS}"));
    let outage = scenario("latency: 10ms, phases: [{ at: 30s, for: 40s, is: down }]");
    let (before, book) = play(&book_text, &outage);
    let findings = verdict(&before, &book);
    let dead = findings.iter().find(|finding| finding.code == "dead-letters").expect("some die");
    let gain = |candidate: &Candidate| {
        let changed = patch::laid_over(&book_text, &candidate.change.to_string()).expect("both are YAML");
        candidate.gain(&before, &play(&changed, &outage).0)
    };
    let told: Vec<(String, Option<CandidateGain>)> =
        dead.candidates.iter().map(|candidate| (candidate.words(), gain(candidate))).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    // More patience costs more calls while it lasts, and a breaker does not.
    let prices: Vec<String> =
        told.iter().filter_map(|(_, gain)| Some(gain.as_ref()?.price.to_string())).collect();
    assert!(prices[0].starts_with("at the cost of ") && prices[0].contains(" times the calls"), "{prices:?}");
    assert_eq!(prices[1], "", "{told:?}");
    for (words, gain) in &told {
        let gain = gain.unwrap_or_else(|| panic!("{words} helps"));
        assert!(gain.after.as_f64() < gain.before.as_f64(), "{words}: {gain:?}");
    }
    let mut idle = dead.candidates[0].clone();
    idle.change = patch::Patch::new().set(&patch::keys(&["defaults"]), "keep_delivered", "1d");
    assert_eq!(gain(&idle), None);
    // Fewer dead letters are no gain if clearly fewer arrive.
    let (mut after, _) = play(&book_text, &outage);
    (after.dead, after.delivered) = (0, before.delivered / 2);
    after.dependencies[0].dead = 0;
    assert_eq!(dead.candidates[0].gain(&before, &after), None);
}

/// A trouble that begins while much waits because of another is a backlog, too.
#[test]
fn the_worst_drain_in_words_is_that_of_the_figure() {
    let (mut report, book) = play(&text("", BARE), &scenario("latency: 10ms"));
    let trouble = |began_at_ms, waiting_before, waiting_max, drain_ms| Incident {
        began_at_ms,
        ended_at_ms: Some(began_at_ms + 20_000),
        waiting_before,
        waiting_max,
        waiting_after: waiting_before,
        drain_ms: Some(drain_ms),
    };
    report.dependencies[0].troubles =
        vec![trouble(10_000, 2, 105, 19_000), trouble(50_000, 105, 180, 53_000)];
    let worst = report.value(RunMetric::Drain, None).to_string();
    let said: Vec<String> = verdict(&report, &book).into_iter().map(|finding| finding.text).collect();
    assert!(said.iter().any(|text| text.contains(&format!("drained {worst} after"))), "{worst}: {said:?}");
}

/// What dies of one queue is no part of what others have.
#[test]
fn dead_letters_are_a_part_of_what_their_queues_had() {
    let book_text = "version: 1\nservices:\n  a: { target: { http: \"http://127.0.0.1:9000/\" }, events: [a.x] }\n  b: { target: { http: \"http://127.0.0.1:9001/\" }, events: [b.x] }\n";
    #[rustfmt::skip]
    let cases = [
        ("one of two queues", "a: { phases: [{ at: 0s, for: 8500ms, fails: { status: 422 } }] }",   "`a`: 9 of its 10 deliveries (90.0%) became dead letters with "),
        ("both",              "all: { phases: [{ at: 0s, for: 8500ms, fails: { status: 422 } }] }", "`a` and `b`: 18 of their 20 deliveries (90.0%) became dead letters with "),
    ];
    for (name, phases, expected) in cases {
        let scenario = format!(
            "version: 1\nduration: 10s\narrivals: [{{ type: a.x, rate: 1/s, spacing: even }}, {{ type: b.x, rate: 1/s, spacing: even }}]\ndependencies: {{ {phases} }}\n"
        );
        let (report, book) = play(book_text, &scenario::read(&scenario).scenario.expect("a scenario"));
        let found = verdict(&report, &book);
        let dead = found.iter().find(|finding| finding.code == "dead-letters").expect("some die");
        assert!(dead.text.starts_with(expected), "{name}: {}", dead.text);
    }
}

#[test]
fn why_something_still_waits_is_said_with_how_many() {
    let policy = "retry_policies:\n  again: { delays: [1s], retries: 10000, jitter: none }\n";
    let down = "dependencies: { api: { phases: [{ at: 5s, for: 1h, is: down }] } }\n";
    let sessions = "order: session-strict\n";
    let (each, poison) = (
        "{ type: orders.paid, rate: 1/s, spacing: even }",
        "{ type: orders.placed, rate: 1/s, spacing: even, sessions: 1, poison: 100% }",
    );
    let both = format!("{each}, {poison}");
    #[rustfmt::skip]
    let cases = [
        ("the run ended",         "retry: again\n".to_owned(), each, down,
            "not finished when the run ends: 5 deliveries, still in progress"),
        ("it paused",             "on_failure: { fatal: pause }\n".to_owned(), each, "dependencies: { api: { phases: [{ at: 4500ms, for: 1h, fails: { status: 401 } }] } }\n",
            "not finished when the run ends: 5 deliveries, because `shop` paused itself at 5s and must be resumed by hand"),
        ("behind a dead letter",  sessions.to_owned(), poison, "",
            "not finished when the run ends: 9 deliveries, behind a dead letter of their session"),
        ("some of both",          format!("retry: again\n    {sessions}"), both.as_str(), down,
            "not finished when the run ends: 14 deliveries: 9 behind a dead letter of their session, 5 still in progress"),
    ];
    for (name, inside, arrival, more, expected) in cases {
        let book_text = text(&format!("    {inside}"), &format!("{BARE}{policy}"));
        let scenario = format!("version: 1\nduration: 10s\nsettle: 10s\narrivals: [{arrival}]\n{more}");
        let (report, book) = play(&book_text, &scenario::read(&scenario).scenario.expect("a scenario"));
        let found = verdict(&report, &book);
        let waits = found.iter().find(|finding| finding.code == "still-waiting").expect("some wait");
        assert_eq!(waits.text, expected, "{name}");
    }
}

/// Many calls in one second are no wave of retries if something else brings them.
#[test]
fn a_burst_is_not_taken_for_a_wave_of_retries() {
    let book_text = text("    retry: steps\n", &format!("{BARE}{STEPS}"));
    let scenario = "version: 1\nduration: 2m\narrivals: [{ type: orders.placed, rate: 1/s, spacing: even }, { type: orders.batch, bursts: { size: 100 }, from: 90s }]\ndependencies:\n  api: { latency: 10ms, phases: [{ at: 10s, for: 30s, is: down }] }\n";
    let (report, book) = play(&book_text, &scenario::read(scenario).scenario.expect("a scenario"));
    let api = &report.dependencies[0];
    assert!(api.call_rate_max >= 100.0 && api.retry_rate_max <= 4.0, "{api:#?}");
    let codes: Vec<&str> = verdict(&report, &book).iter().map(|finding| finding.code).collect();
    assert!(!codes.contains(&"no-jitter"), "{codes:?}");
}

/// The load on a dependency that is back can be many times the usual, by retries alone.
#[test]
fn what_retries_do_after_recovery_is_told_with_what_helps() {
    let policy = "retry_policies:\n  steps: { initial: 1m, max: 1m, retries: 9, jitter: none }\n";
    let book_text = text("    retry: steps\n", &format!("{BARE}{policy}"));
    let scenario = "version: 1\nduration: 10m\narrivals: [{ type: orders.placed, rate: 1/s, spacing: even }, { type: orders.batch, bursts: { size: 60 }, from: 2m }]\ndependencies:\n  api: { latency: 10ms, phases: [{ at: 1m, for: 90s, is: down }] }\n";
    let scenario = scenario::read(scenario).scenario.expect("a scenario");
    let (before, book) = play(&book_text, &scenario);
    let findings = verdict(&before, &book);
    let stampede = findings.iter().find(|finding| finding.code == "stampede").expect("they come together");
    assert!(stampede.text.starts_with("`api`: retries multiply the load by "), "{}", stampede.text);
    // A second of it has more than the step in which it lies, so it is said what the figure is taken over.
    assert!(
        stampede.text.contains(" after recovery (up to ") && stampede.text.contains("/s over 4s)"),
        "{}",
        stampede.text
    );
    let words: Vec<String> = stampede.candidates.iter().map(Candidate::words).collect();
    assert_eq!(
        words,
        ["`jitter: full` in `steps`", "`breaker: externalBreaker` on `api`", "`retry_budget: 10%` on `api`"]
    );
    let changed =
        patch::laid_over(&book_text, &stampede.candidates[0].change.to_string()).expect("both are YAML");
    let gain = stampede.candidates[0].gain(&before, &play(&changed, &scenario).0);
    assert!(gain.is_some_and(|gain| gain.after.as_f64() < 0.5 * gain.before.as_f64()), "{gain:?}");
}

/// A known result: with few retries among the calls, a storm of them cannot keep a dependency down.
#[test]
fn a_retry_budget_is_advised_where_retries_keep_a_dependency_down() {
    let policy = "retry_policies:\n  steps: { initial: 1s, max: 2s, retries: 10000, jitter: full }\n";
    let book_text = text("    retry: steps\n    timeout: 1s\n", &format!("{BARE}{policy}"));
    let scenario = "version: 1\nduration: 4m\nsettle: 1s\narrivals: [{ type: orders.placed, rate: 5/s }]\ndependencies:\n  api: { latency: 50ms, capacity: { rate: 10/s, queue: 1000 }, phases: [{ at: 30s, for: 30s, is: down }] }\n";
    let scenario = scenario::read(scenario).scenario.expect("a scenario");
    let (before, book) = play(&book_text, &scenario);
    let findings = verdict(&before, &book);
    let found = findings.iter().find(|finding| finding.code == "never-drained");
    let found = found.unwrap_or_else(|| panic!("it stays down: {findings:#?}"));
    let budget = found.candidates.iter().find(|it| it.words() == "`retry_budget: 10%` on `api`");
    let budget = budget.expect("it is tried");
    let changed = patch::laid_over(&book_text, &budget.change.to_string()).expect("both are YAML");
    let gain = budget.gain(&before, &play(&changed, &scenario).0);
    assert!(gain.is_some_and(|gain| gain.before == MetricValue::Never), "{gain:?}");
}

#[test]
fn what_holds_for_many_dependencies_is_said_and_mended_once() {
    let mut book_text = "version: 1\nservices:\n".to_owned();
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        let service = format!(
            "  {name}: {{ target: {{ http: \"http://127.0.0.1:9000/\" }}, retry: few, events: [{name}.x] }}\n"
        );
        book_text.push_str(&service);
    }
    let bare: Vec<String> =
        names.iter().map(|name| format!("{name}: {{ kind: webhook, breaker: none }}")).collect();
    book_text.push_str(&format!("dependencies: {{ {} }}\n", bare.join(", ")));
    book_text.push_str("retry_policies: { few: { delays: [1s], retries: 3, jitter: none } }\n");
    let scenario = "version: 1\nduration: 1m\narrivals: [{ type: \"*\", rate: 2/s }]\ndependencies: { all: { phases: [{ at: 10s, for: 30s, is: down }] } }\n";
    let scenario = scenario::read(scenario).scenario.expect("a scenario");
    let (before, book) = play(&book_text, &scenario);
    let findings = verdict(&before, &book);
    let dead: Vec<&SimulationFinding> =
        findings.iter().filter(|finding| finding.code == "dead-letters").collect();
    let [dead] = dead.as_slice() else { panic!("{dead:#?}") };
    assert!(dead.text.contains(" and 3 others: "), "{}", dead.text);
    let words: Vec<String> = dead.candidates.iter().map(Candidate::words).collect();
    assert_eq!(words.len(), 2, "{words:?}");
    assert!(
        words[1].starts_with("`breaker: externalBreaker` on `") && words[1].ends_with(" and 3 others"),
        "{words:?}"
    );
    let changed =
        patch::laid_over(&book_text, &dead.candidates[1].change.to_string()).expect("both are YAML");
    let after = book::read(&changed, built_in()).book.expect("a book");
    let has_breaker =
        |name: &str| after.rule(name, None, &format!("{name}.x")).is_some_and(|rule| rule.breaker.is_some());
    assert!(names.into_iter().all(has_breaker), "{changed}");
}

/// Each of very many dependencies has had very many troubles; what is said of them takes no longer than to look at each.
#[test]
fn very_many_troubles_of_very_many_dependencies_are_judged_at_once() {
    const MANY: usize = 1_500;
    const TROUBLES: u64 = 300;
    let name = |number: usize| format!("s{number}");
    let mut book_text =
        "version: 1\nretry_policies: { few: { delays: [1s], retries: 3, jitter: none } }\nservices:\n"
            .to_owned();
    for number in 0..MANY {
        let name = name(number);
        book_text.push_str(&format!(
            "  {name}: {{ target: {{ http: \"http://127.0.0.1:9000/\" }}, retry: few, events: [{name}.x] }}\n"
        ));
    }
    let scenario = "version: 1\nduration: 2m\narrivals: [{ type: s7.x, rate: 5/s }]\ndependencies:\n  s7: { latency: 10ms, phases: [{ at: 30s, for: 30s, is: down }] }\n";
    let scenario = scenario::read(scenario).scenario.expect("a scenario");
    let (mut report, book) = play(&book_text, &scenario);
    let one = report.dependencies.iter().find(|it| it.name == "s7").expect("it is called").clone();
    let trouble = one.troubles[0];
    let each = |number: usize| {
        let later =
            |by| Incident { ended_at_ms: trouble.ended_at_ms.map(|at| at + by), drain_ms: None, ..trouble };
        DependencyReport { name: name(number), troubles: (0..TROUBLES).map(later).collect(), ..one.clone() }
    };
    report.dependencies = (0..MANY).map(each).collect();
    let findings = verdict(&report, &book);
    let never = findings.iter().find(|finding| finding.code == "never-drained").expect("none of them is");
    assert!(never.text.starts_with("`s0`, `s1` and 1,498 others: at worst recovered at "), "{}", never.text);
    let budget = never.candidates.iter().find(|it| it.words().starts_with("`retry_budget: 10%` on"));
    let changed = patch::laid_over(&book_text, &budget.expect("it is tried").change.to_string())
        .expect("both are YAML");
    let book = book::read(&changed, built_in()).book.expect("a book");
    let has_budget = |number: usize| {
        let name = redrive_core::ids::DependencyName::new(&name(number)).expect("a name");
        book.retry_budget(&name).is_some()
    };
    assert!((0..MANY).all(has_budget), "all of them in one change");
}
