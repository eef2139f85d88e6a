//! The word in front of a dependency against the admission control alone, which the engine asks every time: a call
//! that passes by the word leaves it as if it had been asked.

use std::time::Duration;

use proptest::prelude::*;
use redrive_core::policy::admission::{AdmissionGate, BudgetClaim, CallRequest, CallTicket};
use redrive_core::policy::breaker::{CallEnd, Observation};
use redrive_core::time::Timestamp;

use super::super::book::Terms;
use super::super::dependency::{Asker, CallPass};
use super::Book;

const START: Timestamp = Timestamp::from_millis(1_000_000_000);
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
enum Act {
    /// By the first rule or the second.
    Start(usize),
    EndWell(usize),
    Fail(usize),
    GiveUp(usize),
    Throttled(Option<u64>),
    CallPass(u64),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0_usize..2).prop_map(Act::Start),
        6 => (0_usize..8).prop_map(Act::EndWell),
        3 => (0_usize..8).prop_map(Act::Fail),
        1 => (0_usize..8).prop_map(Act::GiveUp),
        1 => prop::option::of(0_u64..3).prop_map(Act::Throttled),
        5 => prop_oneof![0_u64..60, 0_u64..2_000].prop_map(Act::CallPass),
    ]
}

fn any_trip() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&[
        "consecutive: 1",
        "consecutive: 3",
        "failures: 3, within: 2s",
        "failure_rate: 50%, of_at_least: 4, within: 3s",
        "failure_rate: 30%, of_at_least: 2, within: 16s",
    ])
}

/// Two rules for one dependency, which may disagree on when its breaker opens.
fn terms(trips: [&str; 2], in_flight: u32) -> [std::sync::Arc<Terms>; 2] {
    let [one, other] = trips;
    let target = "target: { http: \"http://127.0.0.1:9\" }, depends_on: d, events: [t]";
    let text = format!(
        "version: 1\nbreakers: {{ a: {{ trip: {{ {one} }}, open: 1s, probes: 2, reset: 9s }}, \
         b: {{ trip: {{ {other} }}, open: 1s, probes: 2, reset: 9s }} }}\n\
         dependencies: {{ d: {{ kind: webhook, in_flight: {in_flight} }} }}\n\
         services:\n  a: {{ breaker: a, {target} }}\n  b: {{ breaker: b, {target} }}\n"
    );
    let book = Book::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    ["a", "b"].map(|service| book.guard_for(service, None, "t").expect("the row").seat.terms())
}

#[derive(Debug, PartialEq)]
enum Answer {
    In,
    Held(Timestamp),
    NotYet(Option<Timestamp>),
}

const REQUEST: CallRequest = CallRequest { limit: LIMIT, claim: BudgetClaim::First };

fn answer(gate: AdmissionGate) -> (Answer, Option<CallTicket>) {
    match gate {
        AdmissionGate::Open(ticket) => (Answer::In, Some(ticket)),
        AdmissionGate::Held(_, until) => (Answer::Held(until), None),
        AdmissionGate::Paced(until) | AdmissionGate::OverBudget(until) => (Answer::NotYet(Some(until)), None),
        AdmissionGate::Busy => (Answer::NotYet(None), None),
    }
}

fn start(terms: &Terms, now: Timestamp) -> (Answer, Option<CallPass>) {
    if let Some(pass) = terms.dependency.start(terms.wants, now) {
        return (Answer::In, Some(pass));
    }
    let (answer, ticket) = answer(terms.dependency.admit(&terms.rule, REQUEST, Asker::Newcomer, now));
    (answer, ticket.map(CallPass::asked))
}

fn play(terms: &[std::sync::Arc<Terms>; 2], acts: &[Act]) -> Result<u32, TestCaseError> {
    let dependency = &terms[0].dependency;
    // The same as the engine has, asked every time.
    let mut model = dependency.control();
    let (mut now, mut out, mut quick) = (START, Vec::new(), 0);
    for act in acts {
        match *act {
            Act::Start(by) => {
                let (expected, theirs) = answer(model.admit(&terms[by].rule, REQUEST, now).0);
                let (given, ours) = start(&terms[by], now);
                prop_assert_eq!(given, expected);
                quick += u32::from(ours.as_ref().is_some_and(CallPass::is_quick));
                out.extend(ours.zip(theirs).map(|(ours, theirs)| (by, ours, theirs)));
            }
            Act::EndWell(at) | Act::Fail(at) | Act::GiveUp(at) if at < out.len() => {
                let (by, ours, theirs) = out.swap_remove(at);
                let rule = &terms[by].rule;
                match act {
                    Act::EndWell(_) => {
                        dependency.end_well(ours, terms[by].wants, rule, now);
                        model.back(theirs, Observation::Success, rule, now);
                    }
                    Act::Fail(_) => {
                        let seen = Observation::Failure(CallEnd::Final);
                        dependency.settle(ours, seen, rule, now);
                        model.back(theirs, seen, rule, now);
                    }
                    _ => {
                        dependency.unused(ours);
                        model.unused(theirs);
                    }
                }
            }
            Act::EndWell(_) | Act::Fail(_) | Act::GiveUp(_) => {}
            Act::Throttled(seconds) => {
                let retry_after = seconds.map(Duration::from_secs);
                dependency.throttled(retry_after, now);
                model.throttled(retry_after, now);
            }
            Act::CallPass(ms) => now = now + Duration::from_millis(ms),
        }
        // Looking asks the breaker, so it is done now and then: else nobody would ever pass by the word.
        if now.as_millis().is_multiple_of(7) {
            prop_assert_eq!(&dependency.control(), &model);
        }
    }
    prop_assert_eq!(&dependency.control(), &model);
    Ok(quick)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn who_passes_by_the_word_might_as_well_have_asked(
        one in any_trip(),
        other in any_trip(),
        in_flight in 1_u32..6,
        acts in prop::collection::vec(any_act(), 1..200),
    ) {
        play(&terms([one, other], in_flight), &acts)?;
    }
}

#[test]
fn most_calls_pass_by_the_word() {
    for trip in ["consecutive: 3", "failures: 3, within: 2s", "failure_rate: 50%, of_at_least: 4, within: 3s"]
    {
        let acts: Vec<Act> =
            (0..1_000).flat_map(|_| [Act::Start(0), Act::EndWell(0), Act::CallPass(1)]).collect();
        let quick = play(&terms([trip; 2], 4), &acts).expect("all alike");
        assert!(quick > 800, "{trip}: {quick} of 1000");
    }
}
