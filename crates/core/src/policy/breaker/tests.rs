//! What the breaker does, as scripts; what it never does is held against a plain model of it, in `model`.

mod model;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::text::{Share, parse_duration};

pub(super) const START: Timestamp = Timestamp::from_millis(1_000_000_000);
/// How long a call may take.
pub(super) const LIMIT: Duration = Duration::from_secs(30);
pub(super) const OPEN: Duration = Duration::from_secs(10);

fn number(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("not 0")
}

fn raw(trip: Trip) -> RawBreaker {
    RawBreaker { trip, open: OPEN, probes: 1, close_after: None, reset: None, count: CountingUnit::Attempt }
}

pub(super) fn settings(raw: RawBreaker) -> BreakerSettings {
    BreakerSettings::try_from(raw).expect("valid settings")
}

pub(super) fn in_a_row(count: u32) -> RawBreaker {
    raw(Trip::Consecutive(number(count)))
}

fn within(count: u32, within: Duration) -> RawBreaker {
    raw(Trip::Failures { count: number(count), within })
}

fn share(percent: f64, of_at_least: u32, within: Duration) -> RawBreaker {
    let share = Share::new(percent / 100.0).expect("a share");
    raw(Trip::FailureRate { share, of_at_least: number(of_at_least), within })
}

pub(super) fn permit(admission: Admission) -> Permit {
    match admission {
        Admission::Allowed(permit) => permit,
        Admission::WaitUntil(at) => panic!("held until {at}"),
    }
}

/// A breaker that has just opened for [`OPEN`] at [`START`].
pub(super) fn just_opened(settings: &BreakerSettings) -> Breaker {
    let mut breaker = Breaker::new();
    let _opened = breaker.trip_by_hand(settings, START);
    breaker
}

/// Plays a script and tells how it ends, and how often the state changed on the way.
///
/// `ok`, `fail`, `will-retry`, `answered`, `silent`: a whole call. `>a`: a call begins; `a:ok`,
/// `a:fail` …: it ends; `a:cancel`: its caller gave up. `held`: a call is refused. `+5s`: time
/// passes. `trip`, `reset`: an operator acts.
fn play(settings: &BreakerSettings, script: &str) -> String {
    let mut breaker = Breaker::new();
    let mut now = START;
    let mut out = BTreeMap::new();
    for word in script.split_whitespace() {
        if let Some(span) = word.strip_prefix('+') {
            now = now + parse_duration(span).expect("a duration");
        } else if let Some(name) = word.strip_prefix('>') {
            out.insert(name, permit(breaker.admit(settings, LIMIT, now)));
        } else if let Some((name, end)) = word.split_once(':') {
            let permit = out.remove(name).expect("a call that began");
            match end {
                "cancel" => breaker.cancel(permit),
                seen => drop(breaker.settle(permit, observation(seen), settings, now)),
            }
        } else {
            match word {
                "held" => assert!(matches!(breaker.admit(settings, LIMIT, now), Admission::WaitUntil(_))),
                "trip" => drop(breaker.trip_by_hand(settings, now)),
                "reset" => drop(breaker.reset_by_hand(now)),
                seen => {
                    let permit = permit(breaker.admit(settings, LIMIT, now));
                    breaker.settle(permit, observation(seen), settings, now);
                }
            }
        }
    }
    let state = match breaker.state(now) {
        BreakerState::Closed { failures } => format!("closed, {failures} failed"),
        BreakerState::Open { until } => format!("open for {:?}", until.since(now)),
        BreakerState::HalfOpen { probes_out, successes } => {
            format!("half-open, {probes_out} out, {successes} ok")
        }
    };
    format!("{state}, {} changes", breaker.generation().0)
}

fn observation(word: &str) -> Observation {
    match word {
        "ok" => Observation::Success,
        "fail" => Observation::Failure(CallEnd::Final),
        "will-retry" => Observation::Failure(CallEnd::WillRetry),
        "answered" => Observation::Answered,
        "silent" => Observation::Silent,
        other => panic!("{other} is no word of a script"),
    }
}

fn check(cases: &[(&str, RawBreaker, &str, &str)]) {
    for (name, raw, script, expected) in cases {
        assert_eq!(play(&settings(raw.clone()), script), *expected, "{name}: {script}");
    }
}

#[test]
fn what_opens_it() {
    let minute = Duration::from_mins(1);
    #[rustfmt::skip]
    check(&[
        ("a new one is closed",              in_a_row(3), "",                                    "closed, 0 failed, 0 changes"),
        ("two of three in a row",            in_a_row(3), "fail fail",                           "closed, 2 failed, 0 changes"),
        ("the third opens",                  in_a_row(3), "fail fail fail held",                 "open for 10s, 1 changes"),
        ("one of one opens",                 in_a_row(1), "fail",                                "open for 10s, 1 changes"),
        ("a success starts the row again",   in_a_row(3), "fail fail ok fail fail",              "closed, 2 failed, 0 changes"),
        ("what was refused is no failure",   in_a_row(2), "fail answered silent",                "closed, 1 failed, 0 changes"),
        ("nor does it end a row",            in_a_row(2), "fail answered silent fail",           "open for 10s, 1 changes"),
        ("a call cancelled says nothing",    in_a_row(1), ">a a:cancel",                         "closed, 0 failed, 0 changes"),

        ("three within a minute",            within(3, minute), "fail +30s fail +30s fail",      "open for 10s, 1 changes"),
        ("a little more than a minute",      within(3, minute), "fail +30s fail +30001ms fail",  "closed, 2 failed, 0 changes"),
        ("the window slides",                within(3, minute), "fail +50s fail +50s fail +5s fail", "open for 10s, 1 changes"),
        ("a success resets nothing",         within(3, minute), "fail ok fail ok ok fail",       "open for 10s, 1 changes"),
        ("one alone",                        within(1, minute), "fail",                          "open for 10s, 1 changes"),
        ("old failures are not shown",       within(3, minute), "fail fail +61s",                "closed, 0 failed, 0 changes"),

        ("half, but of too few",             share(50.0, 4, minute), "fail ok fail",             "closed, 2 failed, 0 changes"),
        ("half of enough",                   share(50.0, 4, minute), "ok ok fail fail",          "open for 10s, 1 changes"),
        ("less than half",                   share(50.0, 4, minute), "ok ok ok fail fail",       "closed, 2 failed, 0 changes"),
        ("a success never opens",            share(50.0, 4, minute), "fail fail fail ok",        "closed, 3 failed, 0 changes"),
        ("the next failure does",            share(50.0, 4, minute), "fail fail fail ok fail",   "open for 10s, 1 changes"),
        ("old calls do not count",           share(50.0, 4, minute), "ok ok ok ok +60s fail fail fail fail", "open for 10s, 1 changes"),
        ("a refused message is no call",     share(50.0, 4, minute), "answered silent fail fail fail", "closed, 3 failed, 0 changes"),
        ("all of them",                      share(100.0, 2, minute), "fail fail",               "open for 10s, 1 changes"),

        ("an operator trips it",             in_a_row(9), "trip held",                           "open for 10s, 1 changes"),
        ("and again, for longer",            in_a_row(9), "trip +5s trip",                       "open for 10s, 2 changes"),
        ("an operator resets it",            in_a_row(2), "trip reset ok fail",                  "closed, 1 failed, 2 changes"),
        ("resetting forgets failures",       in_a_row(2), "fail reset fail",                     "closed, 1 failed, 1 changes"),
    ]);
}

#[test]
fn what_closes_it_again() {
    let two_probes = RawBreaker { probes: 2, ..in_a_row(1) };
    let one_by_one = RawBreaker { close_after: Some(2), ..in_a_row(1) };
    #[rustfmt::skip]
    check(&[
        ("held to the last moment",          in_a_row(1), "fail +9999ms held",                   "open for 1ms, 1 changes"),
        ("shown as half-open before a call", in_a_row(1), "fail +10s",                           "half-open, 0 out, 0 ok, 1 changes"),
        ("one probe, the rest wait",         in_a_row(1), "fail +10s >a held held",              "half-open, 1 out, 0 ok, 2 changes"),
        ("its success closes",               in_a_row(1), "fail +10s ok",                        "closed, 0 failed, 3 changes"),
        ("its failure opens anew",           in_a_row(1), "fail +10s >a +3s a:fail held",        "open for 10s, 3 changes"),
        ("even one that will be retried",    RawBreaker { count: CountingUnit::Call, ..in_a_row(1) },
                                                          "fail +10s will-retry",                "open for 10s, 3 changes"),
        ("a refused message shows health",   in_a_row(1), "fail +10s answered",                  "closed, 0 failed, 3 changes"),
        ("our own fault decides nothing",    in_a_row(1), "fail +10s silent silent",             "half-open, 0 out, 0 ok, 2 changes"),
        ("a probe given back",               in_a_row(1), "fail +10s >a held a:cancel >b",       "half-open, 1 out, 0 ok, 2 changes"),

        ("two at once",                      two_probes.clone(), "fail +10s >a >b held",         "half-open, 2 out, 0 ok, 2 changes"),
        ("one success is not enough",        two_probes.clone(), "fail +10s >a >b a:ok >c held", "half-open, 2 out, 1 ok, 2 changes"),
        ("two close",                        two_probes.clone(), "fail +10s >a >b a:ok b:ok",    "closed, 0 failed, 3 changes"),
        ("one failure opens",                two_probes.clone(), "fail +10s >a >b a:ok b:fail",  "open for 10s, 3 changes"),
        ("one after the other",              one_by_one.clone(), "fail +10s >a held a:ok ok",    "closed, 0 failed, 3 changes"),
        ("our fault between them",           one_by_one,  "fail +10s ok silent ok",              "closed, 0 failed, 3 changes"),

        ("a call that takes its whole time", in_a_row(1), "fail +10s >a +30s held a:fail held",  "open for 10s, 3 changes"),
        ("a lost probe frees its place",     in_a_row(1), "fail +10s >a +30999ms held +1ms >b held", "half-open, 1 out, 0 ok, 2 changes"),
        ("a probe that nobody waits for",    in_a_row(1), "fail +10s >a +31s",                   "half-open, 0 out, 0 ok, 2 changes"),
        ("fails late",                       in_a_row(1), "fail +10s >a +1h a:fail held",        "open for 10s, 3 changes"),
        ("or succeeds late",                 in_a_row(1), "fail +10s >a +1h a:ok",               "closed, 0 failed, 3 changes"),
        ("or says nothing, late",            in_a_row(1), "fail +10s >a +1h a:silent >b held",   "half-open, 1 out, 0 ok, 2 changes"),
        ("without a place it may fail",      in_a_row(1), "fail +10s >a +31s >b a:fail held",    "open for 10s, 3 changes"),
        ("then its successor says nothing",  in_a_row(1), "fail +10s >a +31s >b a:fail b:ok",    "open for 10s, 3 changes"),
        ("but not succeed",                  in_a_row(1), "fail +10s >a +31s >b a:ok held",      "half-open, 1 out, 0 ok, 2 changes"),
        ("nor be answered",                  in_a_row(1), "fail +10s >a +31s >b a:answered held", "half-open, 1 out, 0 ok, 2 changes"),
        ("its cancellation frees no other",  in_a_row(1), "fail +10s >a +31s >b a:cancel held",  "half-open, 1 out, 0 ok, 2 changes"),
        ("only the place needed is taken",   two_probes.clone(), "fail +10s >a >b +31s >c b:ok c:ok", "closed, 0 failed, 3 changes"),
        ("the one that was given first",     two_probes.clone(), "fail +10s >a >b +31s >c a:ok b:ok", "half-open, 1 out, 1 ok, 2 changes"),
        ("successes start again then",       two_probes,  "fail +10s ok fail +10s ok",           "half-open, 0 out, 1 ok, 4 changes"),

        ("a late failure opens nothing new", in_a_row(1), ">a fail +10s ok a:fail",              "closed, 0 failed, 3 changes"),
        ("nor does it fail a probe",         in_a_row(1), ">a fail +10s >b a:fail",              "half-open, 1 out, 0 ok, 2 changes"),
        ("nor does a late success close",    in_a_row(1), ">a fail +10s >b a:ok",                "half-open, 1 out, 0 ok, 2 changes"),
        ("a probe of an earlier time",       in_a_row(1), "fail +10s >a trip +10s >b a:ok held", "half-open, 1 out, 0 ok, 4 changes"),
    ]);
}

#[test]
fn what_is_forgotten_and_what_counts_once() {
    let minute = Duration::from_mins(1);
    let five = Some(Duration::from_secs(5));
    let by_call = RawBreaker { count: CountingUnit::Call, ..in_a_row(2) };
    #[rustfmt::skip]
    check(&[
        ("no reset, no forgetting",        in_a_row(2),                                    "fail +1000h fail",         "open for 10s, 1 changes"),
        ("failures close together",        RawBreaker { reset: five, ..in_a_row(2) },      "fail +4999ms fail",        "open for 10s, 1 changes"),
        ("forgotten after `reset`",        RawBreaker { reset: five, ..in_a_row(2) },      "fail +5s fail",            "closed, 1 failed, 0 changes"),
        ("which also shows",               RawBreaker { reset: five, ..in_a_row(2) },      "fail +5s",                 "closed, 0 failed, 0 changes"),
        ("each failure starts it again",   RawBreaker { reset: five, ..in_a_row(3) },      "fail +4s fail +4s fail",   "open for 10s, 1 changes"),
        ("within a minute, forgotten",     RawBreaker { reset: five, ..within(2, minute) }, "fail +5s fail",           "closed, 1 failed, 0 changes"),
        ("a rate, forgotten",              RawBreaker { reset: five, ..share(60.0, 3, minute) }, "ok fail +5s fail",   "closed, 1 failed, 0 changes"),

        ("attempts count, retried or not", in_a_row(2),                                    "will-retry will-retry",    "open for 10s, 1 changes"),
        ("a retried call counts once",     by_call.clone(),                                "will-retry will-retry will-retry fail", "closed, 1 failed, 0 changes"),
        ("two calls",                      by_call,                                        "will-retry fail will-retry fail", "open for 10s, 1 changes"),
    ]);
}

#[test]
fn a_new_trip_counts_anew() {
    let old = settings(in_a_row(2));
    let new = settings(within(2, Duration::from_mins(1)));
    let mut breaker = Breaker::new();
    for settings in [&old, &new] {
        let permit = permit(breaker.admit(settings, LIMIT, START));
        let seen = Observation::Failure(CallEnd::Final);
        assert_eq!(breaker.settle(permit, seen, settings, START), None);
    }
    assert_eq!(breaker.state(START), BreakerState::Closed { failures: 1 });
}

#[test]
fn changes_are_told() {
    let settings = settings(RawBreaker { probes: 2, ..in_a_row(2) });
    let fail = Observation::Failure(CallEnd::Final);
    let mut breaker = Breaker::new();
    let [first, second] = [(), ()].map(|()| permit(breaker.admit(&settings, LIMIT, START)));
    assert_eq!(breaker.settle(first, fail, &settings, START), None);
    let told = |from, to, at, generation, failures| {
        Some(Transition { from, to, at, generation: Generation(generation), failures })
    };
    let opened = breaker.settle(second, fail, &settings, START);
    assert_eq!(opened, told(BreakerPhase::Closed, BreakerPhase::Open, START, 1, 2));

    let then = START + OPEN;
    let first = permit(breaker.admit(&settings, LIMIT, then));
    assert_eq!(breaker.transition_by(&first), told(BreakerPhase::Open, BreakerPhase::HalfOpen, then, 2, 2));
    let second = permit(breaker.admit(&settings, LIMIT, then));
    assert!(second.is_probe());
    assert_eq!(breaker.transition_by(&second), None, "it is told once");
    let reopened = breaker.settle(first, fail, &settings, then);
    assert_eq!(reopened, told(BreakerPhase::HalfOpen, BreakerPhase::Open, then, 3, 3));
    assert_eq!(breaker.not_closed_since(), Some(START), "the outage goes on");

    let later = then + OPEN;
    for expected in [None, told(BreakerPhase::HalfOpen, BreakerPhase::Closed, later, 5, 3)] {
        let permit = permit(breaker.admit(&settings, LIMIT, later));
        assert_eq!(breaker.settle(permit, Observation::Success, &settings, later), expected);
    }
    assert_eq!(breaker.not_closed_since(), None);
}

#[test]
fn those_who_wait_are_told_until_when() {
    let settings = settings(RawBreaker { probes: 2, ..in_a_row(1) });
    let mut breaker = just_opened(&settings);
    let wait = |admission| match admission {
        Admission::Allowed(_) => None,
        Admission::WaitUntil(at) => Some(at),
    };
    assert_eq!(wait(breaker.admit(&settings, LIMIT, START)), Some(START + OPEN));
    let then = START + OPEN;
    assert_eq!(wait(breaker.admit(&settings, LIMIT * 2, then)), None);
    assert_eq!(wait(breaker.admit(&settings, LIMIT, then)), None);
    let first_end = then + LIMIT + limits::PROBE_LEASE_MARGIN;
    assert_eq!(wait(breaker.admit(&settings, LIMIT, then)), Some(first_end), "the earliest lease");
    assert_eq!(wait(breaker.admit(&settings, LIMIT, first_end)), None);
}

#[test]
fn a_crowd_at_a_half_open_door_gets_exactly_the_probes() {
    for probes in [1, 2, 3, 7, 49, 50] {
        let settings = settings(RawBreaker { probes, ..in_a_row(1) });
        let mut breaker = just_opened(&settings);
        let admitted = (0..50)
            .filter(|_| matches!(breaker.admit(&settings, LIMIT, START + OPEN), Admission::Allowed(_)))
            .count();
        assert_eq!(admitted, probes as usize);
    }
}

#[test]
fn a_lease_is_longer_than_the_call_and_never_short() {
    let settings = settings(in_a_row(1));
    let (min, margin) = (limits::PROBE_LEASE_MIN, limits::PROBE_LEASE_MARGIN);
    let then = START + OPEN;
    for (limit, lease) in [(Duration::ZERO, min), (min, min), (min * 3, min * 3)] {
        let mut breaker = just_opened(&settings);
        let _probe = permit(breaker.admit(&settings, limit, then));
        match breaker.admit(&settings, limit, then) {
            Admission::WaitUntil(at) => assert_eq!(at, then + lease + margin, "{limit:?}"),
            Admission::Allowed(_) => panic!("{limit:?}: the only place was free"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_rate_opens_exactly_when_enough_of_enough_calls_failed(
        calls in prop::collection::vec(any::<bool>(), 1..60),
        percent in 1_u32..=100,
        of_at_least in 1_u32..30,
    ) {
        let settings = settings(share(f64::from(percent), of_at_least, Duration::from_mins(1)));
        let mut breaker = Breaker::new();
        let (mut made, mut failed) = (0, 0);
        for fails in calls {
            made += 1;
            failed += u32::from(fails);
            let seen = if fails { Observation::Failure(CallEnd::Final) } else { Observation::Success };
            let permit = permit(breaker.admit(&settings, LIMIT, START));
            let opened = breaker.settle(permit, seen, &settings, START).is_some();
            prop_assert_eq!(opened, fails && made >= of_at_least && failed * 100 >= made * percent);
            if opened {
                break;
            }
        }
    }
}
