//! Every diagnosis finds its sickness, stays silent about its healthy twin, and the change that it advises can be
//! put into the book.

mod cases;
mod laws;
mod sketch;

use std::collections::BTreeSet;

use super::{Harm, all, examine};
use crate::book::lint::check;
use crate::book::problem::Severity;

#[test]
fn every_diagnosis_finds_its_sickness_and_leaves_the_healthy_alone() {
    for (name, code, sick, healthy) in cases::cases() {
        let codes = |sketch: sketch::Sketch| -> Vec<&str> {
            examine(&sketch.evidence()).findings.iter().map(|finding| finding.code).collect()
        };
        let (sick, healthy) = (codes(sick), codes(healthy));
        assert!(sick.contains(&code), "{name}: {code} is not among {sick:?}");
        assert!(!healthy.contains(&code), "{name}: {code} is found in the healthy twin");
    }
}

#[test]
fn every_diagnosis_has_a_case() {
    let tested: BTreeSet<_> = cases::cases().iter().map(|(_, code, ..)| *code).collect();
    let known: BTreeSet<_> = all().map(|diagnosis| diagnosis.code).collect();
    assert_eq!(tested, known);
    assert_eq!(known.len(), all().count(), "no code is used twice");
}

#[test]
fn every_change_can_be_put_into_the_book_and_leaves_no_error() {
    for (name, _, sick, _) in cases::cases() {
        let book = sick.book();
        for finding in examine(&sick.evidence()).findings {
            let Some(change) = finding.change else { continue };
            let merged = crate::book::overlay::laid_over(&book, &change).expect("both are YAML");
            let problems = check(merged.as_bytes()).problems;
            let errors: Vec<_> = problems.iter().filter(|p| p.severity == Severity::Error).collect();
            assert!(errors.is_empty(), "{name}: {}\n{change}\n{merged}\n{errors:#?}", finding.code);
        }
    }
}

#[test]
fn changes_are_minimal_and_name_the_line_that_they_change() {
    for (name, code, expected, line) in cases::changes() {
        let sick =
            cases::cases().into_iter().find(|(known, ..)| *known == name).expect("a case of that name").2;
        let findings = examine(&sick.evidence()).findings;
        let finding = findings.iter().find(|finding| finding.code == code).expect("it is found");
        assert_eq!(finding.change.as_deref(), Some(expected), "{name}");
        assert_eq!(finding.line, line, "{name}");
    }
}

#[test]
fn what_shows_it_is_said_in_true_numbers() {
    for (name, code, expected) in cases::shown() {
        let sick =
            cases::cases().into_iter().find(|(known, ..)| *known == name).expect("a case of that name").2;
        let findings = examine(&sick.evidence()).findings;
        let finding = findings.iter().find(|finding| finding.code == code).expect("it is found");
        assert_eq!(finding.evidence, expected, "{name}");
    }
}

#[test]
fn three_calls_prove_nothing_and_that_is_said() {
    let sketch = sketch::Sketch::new("", "timeout: 3s").deliveries(3, "timeout 3s dead MAX_RETRIES_EXCEEDED");
    let examined = examine(&sketch.evidence());
    assert!(examined.findings.is_empty(), "{:?}", examined.findings);
    let [few] = examined.too_little.as_slice() else { panic!("{:?}", examined.too_little) };
    assert_eq!((few.service.as_str(), few.events.as_str(), few.attempts), ("mail", "a.b", 3));
    assert_eq!((examined.looked_at.deliveries, examined.looked_at.attempts), (3, 3));
}

#[test]
fn what_has_healed_since_does_little_harm_and_says_when_it_was() {
    #[rustfmt::skip]
    let cases = [
        ("refused until now",   "422 20ms dead UNPROCESSABLE", 0,  "permanent-failures", Harm::High, "refuses"),
        ("a few have arrived",  "422 20ms dead UNPROCESSABLE", 29, "permanent-failures", Harm::High, "refuses"),
        ("enough have arrived", "422 20ms dead UNPROCESSABLE", 30, "permanent-failures", Harm::Low,  "and takes it again"),
        ("failing until now",   "503 20ms waits",              29, "transient-failures", Harm::High, "fail for a while"),
        ("well again",          "503 20ms waits",              30, "transient-failures", Harm::Low,  "and they arrive again"),
    ];
    for (name, failure, arrived, code, harm, words) in cases {
        let sketch = sketch::Sketch::new("", "timeout: 3s")
            .deliveries(40, "ok 50ms")
            .deliveries(30, failure)
            .deliveries(arrived, "ok 50ms");
        let findings = examine(&sketch.evidence()).findings;
        let finding =
            findings.iter().find(|finding| finding.code == code).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(finding.harm, harm, "{name}");
        assert!(finding.title.contains(words), "{name}: {}", finding.title);
        let when = finding.evidence.iter().filter(|line| line.starts_with("it last happened "));
        assert_eq!(when.count(), 1, "{name}: {:?}", finding.evidence);
    }
}

#[test]
fn the_worst_comes_first() {
    let sketch = sketch::Sketch::new("", "timeout: 3s")
        .deliveries(40, "503 10ms dead MAX_RETRIES_EXCEEDED")
        .unrouted("x.y", 1_000);
    let findings = examine(&sketch.evidence()).findings;
    let harms: Vec<_> = findings.iter().map(|finding| finding.harm).collect();
    assert!(harms.len() > 1 && harms.is_sorted_by(|one, other| one >= other), "{harms:?}");
}

#[test]
fn explanations_are_sentences() {
    for diagnosis in all() {
        assert!(diagnosis.explanation.ends_with('.'), "{}", diagnosis.code);
        assert!(!diagnosis.summary.ends_with('.') && !diagnosis.needs.ends_with('.'), "{}", diagnosis.code);
    }
}

#[test]
fn what_nobody_wants_is_offered_to_whoever_takes_the_like() {
    let of = |services: &str, event_type: &str| {
        let sketch = sketch::Sketch::with_services(services).unrouted(event_type, 7);
        let findings = examine(&sketch.evidence()).findings;
        let finding =
            findings.into_iter().find(|finding| finding.code == "unrouted-events").expect("it is found");
        finding.change
    };
    let others = "  audit: { target: { log: stdout }, events: [logins.seen] }\n  ship: { target: { log: stdout }, events: [orders.placed] }\n";
    #[rustfmt::skip]
    let cases = [
        ("the first segment is the same", "orders.cancelled", Some("services:\n  ship:\n    events:\n      - orders.cancelled\n")),
        ("nothing is alike",              "stock.low",        None),
    ];
    for (name, event_type, expected) in cases {
        assert_eq!(of(others, event_type).as_deref(), expected, "{name}");
    }
}
