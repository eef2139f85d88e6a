//! Paths into a book, values over it, and what is traded.

use std::sync::Arc;

use super::*;
use crate::scenario;
use crate::simulate::figures::RunFigures;
use crate::simulate::{Go, SimulationPlan, run};
use redrive_core::book::connectors::built_in;
use redrive_core::book::{self, patch};

const BOOK: &str = "version: 1\nretry_policies:\n  steps: { initial: 1s, max: 4s, retries: 3, jitter: none }\ndependencies:\n  api: { kind: webhook, breaker: none }\nservices:\n  shop:\n    target: { http: \"http://127.0.0.1:9000/\" }\n    depends_on: api\n    retry: steps\n    events: [\"orders.*\", { type: mail.sent, timeout: 3s }]\n  bare:\n    target: { http: \"http://127.0.0.1:9001/\" }\n    events: [bare.one]\n";

fn book() -> RuleBook {
    book::read(BOOK, built_in()).book.expect("a book")
}

#[test]
fn a_sweep_is_a_path_and_values() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str], &[&str]); 6] = [
        ("retries.standard.max=5s,30s",          &["retry_policies", "standard", "max"],     &["5s", "30s"]),
        ("retry_policies.a.max = 5s , 30s",      &["retry_policies", "a", "max"],            &["5s", "30s"]),
        ("dependencies.\"api.eu\".in_flight=5",  &["dependencies", "api.eu", "in_flight"],   &["5"]),
        ("retries.a.delays=[1s, 2s],[3s]",       &["retry_policies", "a", "delays"],         &["[1s, 2s]", "[3s]"]),
        ("services.a.events.\"x.*\".timeout=1s", &["services", "a", "events", "x.*", "timeout"], &["1s"]),
        ("defaults.jitter=\"a=b\",c=d",          &["defaults", "jitter"],                    &["\"a=b\"", "c=d"]),
    ];
    for (text, keys, values) in cases {
        let sweep: Sweep = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(
            (sweep.keys.as_slice(), sweep.values.as_slice()),
            (
                &keys.iter().map(ToString::to_string).collect::<Vec<_>>()[..],
                &values.iter().map(ToString::to_string).collect::<Vec<_>>()[..]
            ),
            "{text}"
        );
    }
}

#[test]
fn what_is_no_sweep_is_refused() {
    #[rustfmt::skip]
    let cases = [
        ("retries.a.max",            "write PATH=VALUE,VALUE, such as retries.standard.max=5s,30s,120s"),
        ("retries.a.max=",           "write PATH=VALUE,VALUE, such as retries.standard.max=5s,30s,120s"),
        ("retries=1",                "`retries` is not a setting: a path needs at least two names; quote names with dots: dependencies.\"api.eu\".in_flight"),
        ("retries..max=1s",          "`retries..max` is not a setting: a path needs at least two names; quote names with dots: dependencies.\"api.eu\".in_flight"),
        ("retries.a.delays=[1s",     "`retries.a.delays=[1s`: unclosed bracket or quote"),
        ("retries.a.max=1s,2s,1s",   "duplicate value `1s`"),
    ];
    for (text, expected) in cases {
        assert_eq!(text.parse::<Sweep>().expect_err(text).to_string(), expected, "{text}");
    }
}

#[test]
fn a_name_that_nobody_knows_is_refused_and_a_near_one_offered() {
    #[rustfmt::skip]
    let cases = [
        ("retries.steps.max=1s",           None),
        ("retries.standard.max=1s",        None),
        ("retries.stpes.max=1s",           Some("`retries.stpes.max`: no `stpes` under `retry_policies`: did you mean `steps`?")),
        ("dependencies.bare.in_flight=1",  None),
        ("dependencies.apy.in_flight=1",   Some("`dependencies.apy.in_flight`: no `apy` under `dependencies`: did you mean `api`?")),
        ("services.shpo.timeout=1s",       Some("`services.shpo.timeout`: no `shpo` under `services`: did you mean `shop`?")),
        ("defaults.timeout=1s",            None),
    ];
    for (text, expected) in cases {
        let sweep: Sweep = text.parse().expect(text);
        assert_eq!(sweep.fits(&book()).err().map(|error| error.to_string()).as_deref(), expected, "{text}");
    }
}

#[test]
fn each_value_is_laid_over_the_book() {
    #[rustfmt::skip]
    let cases = [
        ("a policy of the book",        "retries.steps.max=9s",              "retry_policies:\n  steps:\n    max: 9s\n"),
        ("one of the catalog",          "retries.standard.max=9s",           "retry_policies:\n  standard:\n    from: standard\n    max: 9s\n"),
        ("a declared dependency",       "dependencies.api.in_flight=9",      "dependencies:\n  api:\n    in_flight: 9\n"),
        ("one that is not",             "dependencies.bare.in_flight=9",     "dependencies:\n  bare:\n    kind: webhook\n    in_flight: 9\n"),
        ("a default",                   "defaults.timeout=9s",               "defaults:\n  timeout: 9s\n"),
        ("a row",                       "services.shop.events.\"orders.*\".timeout=9s", "services:\n  shop:\n    events:\n      - type: \"orders.*\"\n        timeout: 9s\n"),
    ];
    for (name, text, expected) in cases {
        let sweep: Sweep = text.parse().expect(name);
        let change = sweep.change(&book(), &sweep.values()[0]);
        assert_eq!(change.to_string(), expected, "{name}");
        let laid = patch::laid_over(BOOK, &change.to_string())
            .unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
        let read = book::read(&laid, built_in());
        assert!(read.book.is_some(), "{name}: {laid}\n{:?}", read.problems);
    }
}

#[test]
fn a_grid_has_every_combination_and_a_bound() {
    let sweeps = |texts: &[&str]| texts.iter().map(|text| text.parse().expect(text)).collect::<Vec<Sweep>>();
    let rows = grid(&sweeps(&["defaults.a=1,2", "defaults.b=x,y"])).expect("four books");
    assert_eq!(rows, [["1", "x"], ["1", "y"], ["2", "x"], ["2", "y"]]);
    let many = format!("defaults.a={}", (0..33).map(|it| it.to_string()).collect::<Vec<_>>().join(","));
    let error = grid(&sweeps(&[&many, "defaults.b=x,y"])).expect_err("66 books");
    assert_eq!(error.to_string(), "66 combinations exceed the limit of 64: use fewer values");
}

fn played(text: &str, seeds: u64) -> SweepResult {
    let outage = "version: 1\nduration: 2m\narrivals: [{ type: orders.placed, rate: 5/s, spacing: even }]\ndependencies:\n  api: { latency: 20ms, phases: [{ at: 30s, for: 20s, is: down }] }\n";
    let scenario = scenario::read(outage).scenario.expect("a scenario");
    let sweep: Sweep = text.parse().expect(text);
    let grid = grid(std::slice::from_ref(&sweep)).expect("few");
    let runs = grid.iter().map(|values| {
        let laid =
            patch::laid_over(BOOK, &sweep.change(&book(), &values[0]).to_string()).expect("both are YAML");
        let book = Arc::new(book::read(&laid, built_in()).book.unwrap_or_else(|| panic!("{laid}")));
        let play = |seed| {
            run(&SimulationPlan { scenario: &scenario, book: Arc::clone(&book), seed }, &mut |_| Go::On)
        };
        (1..=seeds).map(|seed| RunFigures::of(&play(seed).expect("no run is stopped"))).collect()
    });
    let runs: Vec<Vec<RunFigures>> = runs.collect();
    swept(&[sweep], &grid, &runs)
}

#[test]
fn what_is_traded_is_told() {
    let swept = played("retries.steps.retries=1,3,9", 2);
    let dead = swept.columns.iter().find(|column| column.metric == "dead_letters").expect("it differs");
    assert_eq!(dead.is_best, [false, false, true], "{dead:?}");
    let calls = swept.columns.iter().find(|column| column.metric == "calls").expect("it differs");
    assert_eq!(calls.is_best, [true, false, false], "{calls:?}");
    let latency = swept.columns.iter().find(|column| column.metric == "latency_p99").expect("it differs");
    assert_eq!(latency.is_best, [false, false, true], "who lets more die is not quicker: {latency:?}");
    let words = swept.words.join("\n");
    assert!(!words.contains("latency"), "{words}");
    assert!(swept.words[0].starts_with("a higher `retries`, 9 instead of 1: "), "{:?}", swept.words);
    assert!(swept.words[1].starts_with("a lower `retries`, 1 instead of 9: "), "{:?}", swept.words);
    assert_eq!(swept.rows.iter().map(|row| row.ranges.runs).collect::<Vec<_>>(), [2, 2, 2]);
}

#[test]
fn what_makes_no_difference_is_said() {
    let swept = played("retries.patient.max=1h,2h", 1);
    assert!(swept.columns.is_empty(), "{:?}", swept.columns);
    assert_eq!(swept.words, ["`retries.patient.max` makes no difference in this scenario"]);
    let alone = played("retries.steps.retries=1", 1);
    assert_eq!(alone.words, ["`retries.steps.retries` has only one value: name several to compare them"]);
}
