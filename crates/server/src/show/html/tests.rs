//! Pages of played scenarios: well-formed, whole without anybody else, and text where names want to be more.

use std::sync::Arc;

use redrive_core::book;
use redrive_core::book::connectors::built_in;
use redrive_lab::scenario;
use redrive_lab::simulate::advice::advised;
use redrive_lab::simulate::runs::Runs;
use redrive_lab::simulate::{Go, Plan, Report, run};

use super::*;
use crate::show::markup::form::{Tag, tags};

const BOOK: &str = r#"
version: 1
retry_policies:
  steps: { delays: [1s, 2s, 4s], retries: 3, jitter: none }
dependencies:
  warehouse: { kind: webhook }
  mill: { kind: webhook, breaker: none }
services:
  shop: { target: { http: "http://127.0.0.1:9000/" }, depends_on: warehouse, retry: steps, events: ["orders.*"] }
  flour: { target: { http: "http://127.0.0.1:9000/" }, depends_on: mill, retry: steps, events: ["orders.*"] }
"#;

const SCENARIO: &str = r#"
version: 1
about: "<script>alert(1)</script> & \"friends\""
duration: 1m
arrivals: [{ type: orders.placed, rate: 5/s, spacing: even }]
dependencies:
  all: { latency: 20ms, capacity: { rate: 20/s }, phases: [{ at: 15s, for: 20s, is: down }] }
expect: ["dead_letters == 0", "amplification < 20"]
"#;

/// What comes of the scenario, and what would help.
fn played(book_text: &str) -> (Report, Vec<Advised>) {
    played_by(SCENARIO, book_text)
}

fn played_by(scenario_text: &str, book_text: &str) -> (Report, Vec<Advised>) {
    let book = book::read(book_text, built_in()).book.expect("a book");
    let scenario = scenario::read_bytes(scenario_text.as_bytes()).scenario.expect("a scenario");
    let plan = Plan { scenario: &scenario, book: Arc::new(book), seed: 1 };
    let report = run(&plan, &mut |_| Go::On).expect("nobody stops it");
    let findings = advised(&plan, &report, book_text, &mut |_| Go::On);
    (report, findings)
}

fn page(report: &Report, findings: &[Advised]) -> String {
    document(&Head::of(report, "\"><img src=x onerror=alert(1)>.yaml"), &body(report, findings))
}

/// Panics unless the page is well-formed, runs nothing and asks nobody.
fn check_alone(html: &str) -> Vec<Tag> {
    const ALLOWED: [&str; 44] = [
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "footer",
        "div",
        "section",
        "header",
        "h1",
        "h2",
        "p",
        "ul",
        "li",
        "span",
        "b",
        "i",
        "small",
        "code",
        "pre",
        "details",
        "summary",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "figure",
        "figcaption",
        "svg",
        "desc",
        "path",
        "rect",
        "line",
        "circle",
        "text",
        "g",
        "em",
        "dl",
        "dt",
        "dd",
    ];
    let found = tags(html);
    for tag in &found {
        assert!(ALLOWED.contains(&tag.name.as_str()), "<{}>", tag.name);
        for (key, value) in &tag.attributes {
            assert!(
                !key.starts_with("on") && !["style", "src", "href", "id"].contains(&key.as_str()),
                "{tag:?}"
            );
            assert!(!value.contains("://"), "{tag:?}");
        }
    }
    assert!(!html.contains("@import") && !html.contains("url("), "a style asks for something");
    found
}

#[test]
fn a_page_is_whole_without_anybody_else() {
    let (report, findings) = played(BOOK);
    assert!(findings.iter().any(|finding| !finding.advice.is_empty()), "something would help");
    let html = page(&report, &findings);
    let found = check_alone(&html);
    let count = |name: &str| found.iter().filter(|tag| tag.name == name).count();
    assert_eq!((count("h1"), count("style"), count("script")), (1, 1, 0));
    assert_eq!(count("figure"), 8, "four of each dependency");
    let part = body(&report, &findings);
    assert!(check_alone(&part).iter().all(|tag| tag.name != "style" && tag.name != "meta"));
    assert_eq!(html, page(&report, &findings), "the same bytes");
}

#[test]
fn the_page_says_what_the_report_does() {
    let (report, findings) = played(BOOK);
    let part = body(&report, &findings);
    #[rustfmt::skip]
    let said = [
        "Verdict", "Expected", "1 of 2 met", "Dead letters", "MAX_RETRIES_EXCEEDED after CONNECTION_REFUSED",
        "can take 20/s", "capacity", "first attempts", "trouble", "breaker open", "What to write", "Took effect again",
    ];
    for words in said {
        assert!(part.contains(words), "{words}");
    }
    let dead = format!("<span class=\"value\">{}</span>", thousands(report.dead));
    assert!(report.dead > 0 && part.contains(&dead), "{dead}");
}

#[test]
fn what_never_came_is_no_nought() {
    let lasting = SCENARIO.replace("at: 15s, for: 20s, is: down", "at: 0s, for: 1h, is: down");
    let lasting = lasting.replace("duration: 1m", "duration: 1m\nsettle: 1m");
    let (report, findings) = played_by(&lasting, &BOOK.replace("retries: 3", "retries: 1000"));
    assert!(report.delivered == 0 && report.waiting == 600, "{report:#?}");
    let part = body(&report, &findings);
    let text = crate::show::simulate::page(&report, &findings, None);
    #[rustfmt::skip]
    let said = [
        (&part, "nothing arrived"), (&part, "trouble from 0s on, longer than the run"), (&part, "600 of them not ended"),
        (&text, "nothing arrived"), (&text, "600 of them not ended"), (&text, "after which 600 still wait"),
    ];
    for (page, words) in said {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(!part.contains("drained") && !text.contains("until the last has ended"), "{text}");
}

#[test]
fn who_stands_behind_whom_is_said() {
    let layers = "  warehouse: { latency: 5ms, calls: { shelves: {} } }\n  mill: { calls: { shelves: {} } }\n  shelves: { capacity: { rate: 50/s } }\nexpect";
    let (report, findings) = played_by(&SCENARIO.replace("expect", layers), BOOK);
    let part = body(&report, &findings);
    #[rustfmt::skip]
    let said = [
        "shelves <span class=\"dim\">behind mill, warehouse</span>",
        "<h2>shelves</h2><div class=\"more dim\">behind mill, warehouse · can take 50/s</div>",
    ];
    for words in said {
        assert!(part.contains(words), "{words}: {part}");
    }
    assert_eq!(part.matches("behind ").count(), said.len(), "nobody else does");
}

/// Names that a book may not have today, or may have tomorrow: here they are put into the report itself.
#[test]
fn names_are_text_whatever_they_say() {
    const HOSTILE: &str =
        "</section></svg></style><script>alert(1)</script><!-- \" onload='x' \u{202e}\0 `<b>` &#60;";
    let (mut report, mut findings) = played(BOOK);
    report.about = Some(HOSTILE.to_owned());
    for queue in &mut report.queues {
        queue.name = HOSTILE.to_owned();
    }
    for dependency in &mut report.dependencies {
        dependency.name = HOSTILE.to_owned();
        dependency.behind = vec![HOSTILE.to_owned()];
    }
    for cause in &mut report.dead_letters {
        (cause.queue, cause.code, cause.failure_code) =
            (HOSTILE.to_owned(), HOSTILE.to_owned(), HOSTILE.to_owned());
    }
    for expected in &mut report.expectations {
        HOSTILE.clone_into(&mut expected.expectation);
    }
    report.paused = vec![redrive_lab::simulate::report::Paused { service: HOSTILE.to_owned(), at_ms: 7 }];
    for advised in &mut findings {
        advised.finding.text = HOSTILE.to_owned();
        for proven in &mut advised.advice {
            (proven.words, proven.change) = (HOSTILE.to_owned(), format!("a: 1\n{HOSTILE}"));
        }
    }
    check_alone(&page(&report, &findings));
    let mut runs = Runs::default();
    runs.add(&report);
    let ranges = runs.ranges().expect("one run");
    check_alone(&document(&ranges::head(Some(HOSTILE), &ranges, HOSTILE), &ranges::body(&ranges)));
}

#[test]
fn many_dependencies_are_listed_and_the_most_troubled_are_drawn() {
    let (mut report, findings) = played(BOOK);
    let one = report.dependencies[0].clone();
    report.dependencies = (0..100)
        .map(|number| {
            let mut dependency = one.clone();
            dependency.name = format!("dependency-{number}");
            dependency.dead = number;
            dependency
        })
        .collect();
    let part = body(&report, &findings);
    let drawn = |number: u32| part.contains(&format!("<h2>dependency-{number}</h2>"));
    assert!(drawn(99) && drawn(76) && !drawn(75) && !drawn(0));
    assert!(part.contains("dependency-0</td>"), "it is in the table");
}

#[test]
fn many_attempts_are_told_together() {
    let count = |attempts, deliveries| AttemptCount { attempts, deliveries, waiting: 0 };
    let counts = [count(1, 90), count(2, 5), count(6, 1), count(9, 2), count(11, 3), count(500, 4)];
    let told: Vec<(String, u64)> =
        attempt_bars(&counts).into_iter().map(|bar| (bar.name, bar.count)).collect();
    #[rustfmt::skip]
    let expected = [("1 attempt", 90), ("2 attempts", 5), ("6 to 10", 3), ("11 to 20", 3), ("more than 100", 4)];
    assert_eq!(told, expected.map(|(name, count)| (name.to_owned(), count)));
}

#[test]
fn ranges_have_a_row_and_a_bar_for_each_figure() {
    let (report, _) = played(BOOK);
    let mut runs = Runs::default();
    for seed in 0..3 {
        runs.add(&Report { seed, ..report.clone() });
    }
    let ranges = runs.ranges().expect("three runs");
    let part = ranges::body(&ranges);
    check_alone(&part);
    assert_eq!(part.matches("<svg class=\"range").count(), ranges.figures.len());
    assert!(!part.contains("NaN"), "{part}");
    assert!(part.contains("<h2>warehouse</h2>") && part.contains("in</span> 0 of 3 runs"), "{part}");
}

const HOSTILE_NAME: &str = "</section><script>alert(1)</script> \" onload='x' `<b>`";

#[test]
fn two_books_are_drawn_on_the_same_axes() {
    use redrive_lab::simulate::compare::{beside, compare};
    let (one, _) = played(BOOK);
    let (mut other, _) = played(&BOOK.replace("retries: 3", "retries: 9").replace("4s]", "4s, 8s]"));
    other.dependencies[0].name = HOSTILE_NAME.to_owned();
    let (comparison, over_time) = (compare(&one, &other), beside(&one, &other));
    let names = ["a.yaml", HOSTILE_NAME];
    let part = compare::body(names, &comparison, &over_time);
    check_alone(&document(&compare::head(&one, names, &comparison), &part));
    assert_eq!(part.matches("<figure").count(), 2 * over_time.len(), "calls and waiting of each");
    for words in [
        "Verdict",
        "Not compared: latency p50",
        "<h2>All deliveries</h2>",
        "dead letters",
        "Calls on warehouse",
    ] {
        assert!(part.contains(words), "{words}: {part}");
    }
    assert!(!part.contains("NaN"), "{part}");
}

#[test]
fn a_terminal_and_a_page_show_the_same_numbers() {
    let (report, findings) = played(BOOK);
    let (html, text) = (body(&report, &findings), crate::show::simulate::page(&report, &findings, None));
    let text = anstream::adapter::strip_str(&text).to_string();
    let advice: Vec<&Proven> = findings.iter().flat_map(|advised| &advised.advice).collect();
    assert!(advice.len() > 1 && report.expectations.len() > 1, "{advice:#?}");
    for Proven { before, after, .. } in advice {
        assert!(text.contains(&format!(" {before} → {after}\n")), "{before} → {after}: {text}");
        assert!(html.contains(&format!(" {before} → <b>{after}</b>")), "{before} → {after}: {html}");
    }
    for Expected { expectation, value, .. } in &report.expectations {
        assert!(text.contains(&format!("expected {expectation}: {value}\n")), "{expectation}: {text}");
        assert!(html.contains(&format!("came to</span> {value}</p>")), "{expectation}: {html}");
    }
}

#[test]
fn a_sweep_has_a_curve_for_each_figure_that_differs() {
    use redrive_lab::simulate::figures::Measured;
    use redrive_lab::simulate::sweep::{grid, swept};
    let scenario = scenario::read_bytes(SCENARIO.as_bytes()).scenario.expect("a scenario");
    let reports =
        ["1", "3"].map(|retries| played(&BOOK.replace("retries: 3", &format!("retries: {retries}"))).0);
    let runs: Vec<Vec<Measured>> = reports.iter().map(|report| vec![Measured::of(report)]).collect();
    for text in ["retries.steps.retries=1,3", "retries.steps.max=1s,3s", "services.shop.retry=a,b"] {
        let sweeps = [text.parse().expect("a sweep")];
        let swept = swept(&sweeps, &grid(&sweeps).expect("two books"), &runs);
        let part = sweep::body(&swept);
        check_alone(&document(&sweep::head(&scenario, &swept, HOSTILE_NAME), &part));
        assert_eq!(part.matches("<figure").count(), swept.columns.len(), "{text}");
        assert!(part.contains("✓ ") && !part.contains("NaN"), "{text}: {part}");
        let (_, values) = text.split_once('=').expect("values");
        for value in values.split(',') {
            let (label, dot) = (format!("dy=\"1.5em\">{value}</text>"), format!("<title>{value}: "));
            assert_eq!(part.matches(&label).count(), swept.columns.len(), "{text}: {value} on each axis");
            assert_eq!(part.matches(&dot).count(), swept.columns.len(), "{text}: {value} on each curve");
        }
    }
    let sweeps = ["retries.steps.retries=1,3", "defaults.x=1"].map(|text| text.parse().expect("a sweep"));
    let part = sweep::body(&swept(&sweeps, &grid(&sweeps).expect("two books"), &runs));
    check_alone(&part);
    assert!(!part.contains("<figure"), "a grid has no curve");
}
