//! The word in front of a dependency against breaker, throttle and budget alone: whoever passes by it leaves them as
//! if they had been asked.

use std::time::Duration;

use proptest::prelude::*;
use redrive_core::ids::DependencyName;
use redrive_core::policy::breaker::{Admission, Breaker, CallEnd, Observation, Permit, Record};
use redrive_core::policy::budget::Budget;
use redrive_core::policy::category::{Category, Code};
use redrive_core::policy::classify::{Connection, Failure};
use redrive_core::policy::rule::Rule;
use redrive_core::policy::throttle::{self, Slot, Throttle, ThrottleSettings};
use redrive_core::time::Timestamp;

use super::super::book::Terms;
use super::super::dependency::{Asker, Gate, Pass};
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
    Pass(u64),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0_usize..2).prop_map(Act::Start),
        6 => (0_usize..8).prop_map(Act::EndWell),
        3 => (0_usize..8).prop_map(Act::Fail),
        1 => (0_usize..8).prop_map(Act::GiveUp),
        1 => prop::option::of(0_u64..3).prop_map(Act::Throttled),
        5 => prop_oneof![0_u64..60, 0_u64..2_000].prop_map(Act::Pass),
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

/// Breaker, throttle and budget, asked every time.
struct Model {
    breaker: Breaker,
    throttle: Throttle,
    budget: Budget,
    limits: ThrottleSettings,
    name: DependencyName,
}

#[derive(Debug, PartialEq)]
enum Answer {
    In,
    Held(Timestamp),
    NotYet(Option<Timestamp>),
}

impl Model {
    fn start(&mut self, rule: &Rule, now: Timestamp) -> (Answer, Option<(Permit, Slot)>) {
        if let Some(until) = self.throttle.hold_until().filter(|until| now < *until) {
            return (Answer::Held(until), None);
        }
        let settings = &rule.breaker.as_ref().expect("the rules have one").settings;
        let permit = match self.breaker.admit(settings, LIMIT, now) {
            Admission::WaitUntil(until) => return (Answer::Held(until), None),
            Admission::Allowed(permit) => permit,
        };
        let until = match self.throttle.admit(&self.limits, now) {
            throttle::Pass::Go(slot) => {
                self.budget.count_calls(1, now);
                return (Answer::In, Some((permit, slot)));
            }
            throttle::Pass::Full => None,
            throttle::Pass::WaitUntil(until) => Some(until),
        };
        self.breaker.cancel(permit);
        (Answer::NotYet(until), None)
    }

    /// All that can be seen, but for when the last success was: that is noted now and then.
    fn record(&self, now: Timestamp) -> Record {
        Record { last_success_at: None, ..self.breaker.record(&self.name, now) }
    }
}

fn start(terms: &Terms, now: Timestamp) -> (Answer, Option<Pass>) {
    if let Some(pass) = terms.dependency.start(terms.wants, now) {
        return (Answer::In, Some(pass));
    }
    match terms.dependency.admit(&terms.rule, LIMIT, Asker::Newcomer, now) {
        Gate::Open(pass) => {
            terms.dependency.count_call(now);
            (Answer::In, Some(pass))
        }
        Gate::Held(_, until) => (Answer::Held(until), None),
        Gate::Paced(until) => (Answer::NotYet(Some(until)), None),
        Gate::Busy => (Answer::NotYet(None), None),
    }
}

fn too_many(retry_after: Option<Duration>) -> Failure {
    Failure {
        category: Category::RateLimited,
        code: Code::of("RATE_LIMITED"),
        status: Some(429),
        message: String::new(),
        retry_after,
        matched: None,
        default_category: None,
        connection: Connection::Made,
    }
}

fn play(terms: &[std::sync::Arc<Terms>; 2], acts: &[Act], in_flight: u32) -> Result<u32, TestCaseError> {
    let dependency = &terms[0].dependency;
    let limits = ThrottleSettings {
        in_flight: in_flight.try_into().expect("not 0"),
        rate: None,
        growth: redrive_core::limits::RATE_GROWTH_DEFAULT,
        memory: redrive_core::limits::RATE_MEMORY_DEFAULT,
    };
    let mut model = Model {
        breaker: Breaker::new(),
        throttle: Throttle::new(),
        budget: Budget::new(),
        limits,
        name: dependency.name.clone(),
    };
    let (mut now, mut out, mut quick) = (START, Vec::new(), 0);
    for act in acts {
        match *act {
            Act::Start(by) => {
                let (expected, theirs) = model.start(&terms[by].rule, now);
                let (told, ours) = start(&terms[by], now);
                prop_assert_eq!(told, expected);
                quick += u32::from(ours.as_ref().is_some_and(Pass::is_quick));
                out.extend(ours.zip(theirs).map(|(ours, theirs)| (by, ours, theirs)));
            }
            Act::EndWell(at) | Act::Fail(at) | Act::GiveUp(at) if at < out.len() => {
                let (by, ours, (permit, slot)) = out.swap_remove(at);
                let rule = &terms[by].rule;
                let settings = &rule.breaker.as_ref().expect("the rules have one").settings;
                model.throttle.release(slot);
                match act {
                    Act::EndWell(_) => {
                        dependency.end_well(ours, terms[by].wants, rule, now);
                        model.breaker.settle(permit, Observation::Success, settings, now);
                    }
                    Act::Fail(_) => {
                        let seen = Observation::Failure(CallEnd::Final);
                        dependency.settle(ours, seen, rule, now);
                        model.breaker.settle(permit, seen, settings, now);
                    }
                    _ => {
                        dependency.unused(ours);
                        model.breaker.cancel(permit);
                    }
                }
            }
            Act::EndWell(_) | Act::Fail(_) | Act::GiveUp(_) => {}
            Act::Throttled(seconds) => {
                let retry_after = seconds.map(Duration::from_secs);
                dependency.throttled(&too_many(retry_after), now);
                model.throttle.throttled(&limits, retry_after, now);
            }
            Act::Pass(ms) => now = now + Duration::from_millis(ms),
        }
        // Looking asks the breaker, so it is done now and then: else nobody would ever pass by the word.
        if now.as_millis().is_multiple_of(7) {
            let (breaker, throttle, budget) = dependency.seen();
            let seen = Record { last_success_at: None, ..breaker.record(&dependency.name, now) };
            prop_assert_eq!(seen, model.record(now));
            prop_assert_eq!(&throttle, &model.throttle);
            prop_assert_eq!(&budget, &model.budget);
        }
    }
    let (breaker, throttle, budget) = dependency.seen();
    prop_assert_eq!(breaker.state(now), model.breaker.state(now));
    prop_assert_eq!((&throttle, &budget), (&model.throttle, &model.budget));
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
        play(&terms([one, other], in_flight), &acts, in_flight)?;
    }
}

#[test]
fn most_calls_pass_by_the_word() {
    for trip in ["consecutive: 3", "failures: 3, within: 2s", "failure_rate: 50%, of_at_least: 4, within: 3s"]
    {
        let acts: Vec<Act> =
            (0..1_000).flat_map(|_| [Act::Start(0), Act::EndWell(0), Act::Pass(1)]).collect();
        let quick = play(&terms([trip; 2], 4), &acts, 4).expect("all alike");
        assert!(quick > 800, "{trip}: {quick} of 1000");
    }
}
