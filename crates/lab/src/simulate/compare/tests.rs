//! Two books against each other: who is better at what, and who is only lucky.

use std::sync::Arc;

use super::*;
use crate::scenario::{self, Scenario};
use crate::simulate::{Go, SimulationPlan, SimulationReport, run};
use redrive_core::book;
use redrive_core::book::connectors::built_in;

const STEPS: &str = "steps: { delays: [1s, 2s, 4s], retries: 3, jitter: none }";
const LONG: &str = "steps: { initial: 1s, max: 30s, retries: 20, jitter: full }";

fn outage() -> Scenario {
    let text = "version: 1\nduration: 2m\narrivals: [{ type: orders.placed, rate: 5/s, spacing: even }]\ndependencies:\n  api: { latency: 20ms, phases: [{ at: 30s, for: 20s, is: down }] }\nexpect: [\"dead_letters == 0\"]\n";
    scenario::read(text).scenario.expect("a scenario")
}

fn play(policy: &str, seed: u64) -> SimulationReport {
    let text = format!(
        "version: 1\nretry_policies:\n  {policy}\ndependencies:\n  api: {{ kind: webhook, breaker: none }}\nservices:\n  shop:\n    target: {{ http: \"http://127.0.0.1:9000/\" }}\n    depends_on: api\n    retry: steps\n    events: [\"orders.*\"]\n"
    );
    let read = book::read(&text, built_in());
    let book = Arc::new(read.book.unwrap_or_else(|| panic!("{text}\n{:?}", read.problems)));
    run(&SimulationPlan { scenario: &outage(), book, seed }, &mut |_| Go::On).expect("no run is stopped")
}

fn compare(a: &SimulationReport, b: &SimulationReport) -> BookComparison {
    compare_runs(&[[RunFigures::of(a), RunFigures::of(b)]])
}

fn figure<'a>(comparison: &'a BookComparison, metric: &str) -> &'a FigureComparison {
    comparison.figures.iter().find(|figure| figure.metric == metric).expect("it is told")
}

#[test]
fn a_book_is_as_good_as_itself() {
    let report = play(STEPS, 1);
    let comparison = compare(&report, &report);
    assert!(comparison.advantages.is_empty(), "{:?}", comparison.advantages);
    assert!(comparison.undecided().by_chance.is_empty());
    assert!(comparison.undecided().same.contains(&"dead letters".to_owned()));
    assert_eq!(comparison.overall(["a", "b"]), "No difference between a and b in this scenario.");
}

#[test]
fn a_trade_is_told_from_both_sides() {
    let comparison = compare(&play(STEPS, 1), &play(LONG, 1));
    let told: Vec<(BookSide, &str)> =
        comparison.advantages.iter().map(|advantage| (advantage.side, advantage.metric)).collect();
    assert!(told.contains(&(BookSide::B, "dead_letters")), "{told:?}");
    assert!(told.contains(&(BookSide::A, "drain")), "{told:?}");
    let overall = comparison.overall(["a.yaml", "b.yaml"]);
    assert!(overall.starts_with("Trade-off: a.yaml is better in "), "{overall}");
    assert!(!overall.contains("attempts max"), "few attempts are no virtue: {overall}");
    let back = compare(&play(LONG, 1), &play(STEPS, 1));
    let mirrored: Vec<(BookSide, &str)> =
        back.advantages.iter().map(|advantage| (advantage.side.other(), advantage.metric)).collect();
    assert_eq!(mirrored, told, "whichever comes first");
    let expected = &comparison.expectations[0];
    assert_eq!((expected.a, expected.b, comparison.is_as_expected()), (0, 1, false));
}

#[test]
fn better_in_few_runs_is_luck() {
    #[rustfmt::skip]
    let cases = [
        ("all of them",   20, 20, Some(BookSide::B)),
        ("all but one",   19, 20, Some(BookSide::B)),
        ("all but two",   18, 20, None),
        ("one of two",    1,  2,  None),
        ("none",          0,  20, None),
    ];
    let (worse, better) = (play(STEPS, 1), play(LONG, 1));
    let [worse, better] = [worse, better].map(|report| RunFigures::of(&report));
    for (name, wins, runs, expected) in cases {
        let pair = |number| [worse.clone(), if number < wins { better.clone() } else { worse.clone() }];
        let pairs: Vec<[RunFigures; 2]> = (0..runs).map(pair).collect();
        let comparison = compare_runs(&pairs);
        let dead = figure(&comparison, "dead_letters");
        assert_eq!((dead.better, dead.better_in), (expected, [0, wins]), "{name}");
        let by_chance = comparison.undecided().by_chance.contains(&"dead letters".to_owned());
        assert_eq!(by_chance, expected.is_none() && wins > 0, "{name}");
    }
}

/// What dies is not late, and whoever lets it die is not quick.
#[test]
fn latency_is_compared_only_where_as_much_arrives() {
    let of = |delivered: u64, p99_ms: u64| {
        let mut report = play(STEPS, 1);
        (report.deliveries, report.delivered, report.dead) = (1_000, delivered, 1_000 - delivered);
        report.latency =
            Some(crate::simulate::Quantiles { p50_ms: p99_ms, p90_ms: p99_ms, p99_ms, max_ms: p99_ms });
        report
    };
    #[rustfmt::skip]
    let cases = [
        ("both deliver all",            (1_000, 20), (1_000, 900), Some(BookSide::A), 0),
        ("nearly as much",              (999, 20),   (1_000, 900), Some(BookSide::A), 0),
        ("the quicker delivers less",   (500, 20),   (1_000, 900), None,          1),
        ("the quicker delivers more",   (1_000, 20), (500, 900),   Some(BookSide::A), 0),
    ];
    for (name, a, b, expected, not_compared) in cases {
        let comparison = compare(&of(a.0, a.1), &of(b.0, b.1));
        let latency = figure(&comparison, "latency_p99");
        assert_eq!((latency.better, latency.not_compared_in), (expected, not_compared), "{name}");
        let words = comparison.undecided().not_compared;
        assert_eq!(words.contains(&"latency p99".to_owned()), not_compared > 0, "{name}: {words:?}");
        let overall = comparison.overall(["a", "b"]);
        assert_eq!(
            overall.contains("Not compared: latency p50 and latency p99"),
            not_compared > 0,
            "{overall}"
        );
    }
}

#[test]
fn a_dependency_that_one_book_does_not_know_is_not_judged() {
    let (one, mut other) = (play(STEPS, 1), play(STEPS, 1));
    other.dependencies[0].name = "another".to_owned();
    let comparison = compare(&one, &other);
    let calls: Vec<(Option<&str>, bool, bool)> = comparison
        .figures
        .iter()
        .filter(|figure| figure.metric == "calls")
        .map(|figure| (figure.of.as_deref(), figure.a.is_some(), figure.b.is_some()))
        .collect();
    assert_eq!(calls, [(Some("api"), true, false), (Some("another"), false, true)]);
    assert!(comparison.advantages.is_empty(), "{:?}", comparison.advantages);
    let names: Vec<String> = beside(&one, &other).into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["api", "another"]);
}

#[test]
fn steps_of_two_lengths_become_steps_of_the_longer() {
    let (mut fine, mut coarse) = (play(STEPS, 1), play(STEPS, 1));
    (fine.step_ms, coarse.step_ms) = (1_000, 2_000);
    fine.dependencies[0].series.calls = vec![1, 2, 3];
    fine.dependencies[0].series.waiting = vec![5, 9, 1];
    coarse.dependencies[0].series.calls = vec![7];
    let put = beside(&fine, &coarse).remove(0);
    assert_eq!((put.step_ms, &put.calls[0], &put.waiting[0]), (2_000, &vec![3, 3], &vec![9, 1]));
    assert_eq!(put.calls[1], [7]);
}
