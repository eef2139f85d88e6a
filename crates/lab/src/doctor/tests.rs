//! Every diagnosis finds its sickness, stays silent about its healthy twin, and the change that it advises can be
//! put into the book.

mod cases;
mod laws;
mod sketch;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use self::sketch::Sketch;
use super::{DoctorFinding, DoctorReport, Harm, all, examine};
use crate::lint::check;
use redrive_core::book::connectors::built_in;
use redrive_core::book::problem::ProblemSeverity;

/// The sick of all cases, and what came of examining them: changes are played, which takes a while.
static SICK: LazyLock<Vec<Sick>> = LazyLock::new(|| {
    let examined = |(name, code, sick, _): cases::Case| {
        let (book, examined) = (sick.book(), examine(&sick.evidence()));
        Sick { name, code, book, examined }
    };
    cases::cases().into_iter().map(examined).collect()
});

struct Sick {
    name: &'static str,
    code: &'static str,
    book: String,
    examined: DoctorReport,
}

/// What was found of a case by a diagnosis.
fn found(name: &str, code: &str) -> &'static DoctorFinding {
    let sick = SICK.iter().find(|sick| sick.name == name).expect("a case of that name");
    sick.examined.findings.iter().find(|finding| finding.code == code).expect("it is found")
}

#[test]
fn every_diagnosis_finds_its_sickness_and_leaves_the_healthy_alone() {
    let mut wrong = Vec::new();
    for (sick, (name, code, _, healthy)) in SICK.iter().zip(cases::cases()) {
        let codes = |examined: &DoctorReport| -> Vec<String> {
            examined.findings.iter().map(|finding| finding.code.to_string()).collect()
        };
        let (sick, healthy) = (codes(&sick.examined), codes(&examine(&healthy.evidence())));
        if !sick.iter().any(|found| found == code) {
            wrong.push(format!("{name}: {code} is not among {sick:?}"));
        }
        if healthy.iter().any(|found| found == code) {
            wrong.push(format!("{name}: {code} is found in the healthy twin"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_diagnosis_has_a_case() {
    let tested: BTreeSet<_> = SICK.iter().map(|sick| sick.code).collect();
    let known: BTreeSet<_> = all().map(|diagnosis| diagnosis.code).collect();
    assert_eq!(tested, known);
    assert_eq!(known.len(), all().count(), "no code is used twice");
}

#[test]
fn every_change_can_be_put_into_the_book_and_leaves_no_error() {
    for Sick { name, book, examined, .. } in SICK.iter() {
        for finding in &examined.findings {
            let Some(change) = &finding.change else { continue };
            let merged = redrive_core::book::patch::laid_over(book, change).expect("both are YAML");
            let problems = check(merged.as_bytes(), built_in()).problems;
            let errors: Vec<_> = problems.iter().filter(|p| p.severity == ProblemSeverity::Error).collect();
            assert!(errors.is_empty(), "{name}: {}\n{change}\n{merged}\n{errors:#?}", finding.code);
        }
    }
}

#[test]
fn changes_are_minimal_and_name_the_line_that_they_change() {
    let mut wrong = Vec::new();
    for (name, code, expected, line) in cases::changes() {
        let finding = found(name, code);
        if (finding.change.as_deref(), finding.line) != (Some(expected), line) {
            wrong.push((name, finding));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_shows_it_is_said_in_true_numbers() {
    for (name, code, expected) in cases::shown() {
        assert_eq!(found(name, code).evidence, expected, "{name}");
    }
}

#[test]
fn three_calls_prove_nothing_and_that_is_said() {
    let sketch = Sketch::new("", "timeout: 3s").deliveries(3, "timeout 3s dead MAX_RETRIES_EXCEEDED");
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
        ("refused until now",   "422 20ms dead UNPROCESSABLE", 0,  "permanent-failures", Harm::High, "rejects"),
        ("a few have arrived",  "422 20ms dead UNPROCESSABLE", 29, "permanent-failures", Harm::High, "rejects"),
        ("enough have arrived", "422 20ms dead UNPROCESSABLE", 30, "permanent-failures", Harm::Low,  "and has recovered"),
        ("failing until now",   "503 20ms waits",              29, "transient-failures", Harm::High, "fail with transient errors"),
        ("well again",          "503 20ms waits",              30, "transient-failures", Harm::Low,  "and have recovered"),
    ];
    for (name, failure, arrived, code, harm, words) in cases {
        let sketch = Sketch::new("", "timeout: 3s")
            .deliveries(40, "ok 50ms")
            .deliveries(30, failure)
            .deliveries(arrived, "ok 50ms");
        let findings = examine(&sketch.evidence()).findings;
        let finding =
            findings.iter().find(|finding| finding.code == code).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(finding.harm, harm, "{name}");
        assert!(finding.title.contains(words), "{name}: {}", finding.title);
        let when = finding.evidence.iter().filter(|line| line.starts_with("last failure "));
        assert_eq!(when.count(), 1, "{name}: {:?}", finding.evidence);
    }
}

#[test]
fn the_worst_comes_first() {
    let sketch = Sketch::new("", "timeout: 3s")
        .deliveries(40, "503 10ms dead MAX_RETRIES_EXCEEDED")
        .unrouted("x.y", 1_000);
    let findings = examine(&sketch.evidence()).findings;
    let harms: Vec<_> = findings.iter().map(|finding| finding.harm).collect();
    assert!(harms.len() > 1 && harms.is_sorted(), "{harms:?}");
}

#[test]
fn a_budget_of_simulations_that_is_spent_is_reported() {
    let policy = "retry_policies: { short: { initial: 1s, max: 6s, retries: 5 } }\n";
    let sketch = cases::outage(Sketch::new(policy, "retry: short\n| breaker: none"), 90);
    let exhausted = |looks_max| {
        let findings = super::examine_within(&sketch.evidence(), looks_max).findings;
        findings.into_iter().find(|finding| finding.code == "retries-exhausted").expect("it is found")
    };
    let spent = exhausted(0);
    assert!(spent.advice.contains("the simulation budget is used up"), "{spent:#?}");
    assert_eq!((spent.change, spent.gain), (None, None));
    let simulated = exhausted(super::proof::LOOKS_MAX);
    assert!(!simulated.advice.contains("simulation budget"), "{simulated:#?}");
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
        let sketch = Sketch::with_services(services).unrouted(event_type, 7);
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

/// Every key that a change sets, with the keys that it stands under.
fn keys_of(change: &str) -> Vec<String> {
    let mut above: Vec<(usize, &str)> = Vec::new();
    let mut found = Vec::new();
    for line in change.lines() {
        if line.trim_start().starts_with("- {") {
            found.push(line.trim().to_owned());
            continue;
        }
        let indent = line.len() - line.trim_start_matches([' ', '-']).len();
        let (key, value) =
            line.trim_start_matches([' ', '-']).split_once(':').unwrap_or((line.trim(), "item"));
        above.retain(|(outer, _)| *outer < indent);
        above.push((indent, key));
        if !value.trim().is_empty() && key != "type" {
            found.push(above.iter().map(|(_, key)| *key).collect::<Vec<_>>().join("."));
        }
    }
    found
}

#[test]
fn no_two_findings_set_the_same_key_and_all_changes_are_one() {
    for Sick { name, book, examined, .. } in SICK.iter() {
        let changes = || examined.findings.iter().filter_map(|finding| finding.change.as_deref());
        let keys: Vec<String> = changes().flat_map(keys_of).collect();
        let apart: BTreeSet<&String> = keys.iter().collect();
        assert_eq!(keys.len(), apart.len(), "{name}: {:#?}", changes().collect::<Vec<_>>());
        let together: Vec<String> = examined.change.iter().flat_map(|change| keys_of(change)).collect();
        assert_eq!(together.iter().collect::<BTreeSet<_>>(), apart, "{name}: {:?}", examined.change);
        let Some(change) = &examined.change else { continue };
        let merged = redrive_core::book::patch::laid_over(book, change).expect("both are YAML");
        let problems = check(merged.as_bytes(), built_in()).problems;
        assert!(
            problems.iter().all(|problem| problem.severity != ProblemSeverity::Error),
            "{name}: {problems:#?}"
        );
    }
}

#[test]
fn a_change_says_what_it_gains_and_is_high_only_if_that_is_much() {
    let policy =
        |max: &str| format!("retry_policies: {{ short: {{ initial: 1s, max: {max}, retries: 5 }} }}\n");
    for (max, seconds) in [("6s", 90), ("16s", 45), ("16s", 600)] {
        let sketch = Sketch::new(&policy(max), "retry: short\n| breaker: none");
        let findings = examine(&cases::outage(sketch, seconds).evidence()).findings;
        let found = findings.iter().find(|finding| finding.code == "retries-exhausted").expect("it is found");
        match (&found.change, &found.gain) {
            (Some(_), Some(gain)) => {
                assert!(gain.after < gain.before, "{seconds}: {}", gain.words);
                let is_much = (gain.before - gain.after) * 4 >= gain.before;
                assert!(is_much || found.harm >= Harm::Medium, "{seconds}: {} is {}", gain.words, found.harm);
            }
            // A breaker is proposed, which helps more.
            (None, None) => assert!(found.advice.contains("help here too"), "{seconds}: {found:#?}"),
            other => panic!("{seconds}: {other:?}"),
        }
        let is_helped = seconds < 100;
        assert_eq!(found.change.is_some(), is_helped, "{seconds}: {found:#?}");
    }
}

#[test]
fn who_asks_for_patience_while_much_waits_is_given_a_rate_and_not_more_calls_at_once() {
    let sick = SICK.iter().find(|sick| sick.name.starts_with("a few are asked to wait"));
    let findings = &sick.expect("there is such a case").examined.findings;
    assert_eq!(findings[0].code, "rate-limited-often", "{findings:#?}");
    let change = findings[0].change.as_deref().expect("a change");
    assert!(change.contains("rate: ") && !change.contains("in_flight"), "{change}");
    assert!(
        findings.iter().all(|finding| !finding.advice.contains("raise its concurrency")),
        "{findings:#?}"
    );
}
