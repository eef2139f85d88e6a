//! Guard and engine rule alike: for any rule and any script of answers, a guard that may wait makes its attempts
//! when a delivery would, and ends as it ends.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use redrive_core::ids::Seed;
use redrive_core::policy::decide::Verdict;
use redrive_core::time::Timestamp;
use redrive_lab::rehearse::{AttemptKind, RehearsalEnd, RehearsalStep, parse_script, rehearse};
use tokio::time::Instant;

use super::super::attempt::CallKey;
use super::super::{CallError, Cause};
use super::engine::delivered;
use super::{Book, Oops};

/// One answer, as a script writes it and as an attempt gives it; none never answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line(pub(super) &'static str, pub(super) Option<Result<(), Oops>>);

const LINES: [Line; 11] = [
    Line("ok", Some(Ok(()))),
    Line("503", Some(Err(Oops::Status(503)))),
    Line("500", Some(Err(Oops::Status(500)))),
    Line("502", Some(Err(Oops::Status(502)))),
    Line("refused", Some(Err(Oops::Refused))),
    Line("503", Some(Err(Oops::Status(503)))),
    Line("404", Some(Err(Oops::Status(404)))),
    Line("401", Some(Err(Oops::Status(401)))),
    Line("RELAY_TIMEOUT", Some(Err(Oops::Code("RELAY_TIMEOUT")))),
    Line("MY_OWN", Some(Err(Oops::Code("MY_OWN")))),
    Line("timeout", None),
];

/// The last failure may be this one: after it the throttle keeps a pace of its own, which a rehearsal does not.
const ASKS_TO_WAIT: Line = Line("429:30", Some(Err(Oops::Wait(30))));

fn any_script() -> impl Strategy<Value = Vec<Line>> {
    let lines = prop::collection::vec(prop::sample::select(&LINES[1..]), 0..7);
    (lines, prop::bool::ANY).prop_map(|(mut lines, waits)| {
        lines.extend(waits.then_some(ASKS_TO_WAIT));
        lines.push(LINES[0]);
        lines
    })
}

/// A dependency with its policy and breaker. No two times that meet in a rule are alike, since timers are only
/// exact to a millisecond.
fn any_rule() -> impl Strategy<Value = String> {
    let policy = (5_u32..20, 1_u32..4, 0_u32..6, prop::option::of(10_u32..200), 0_usize..5);
    let breaker = (0_usize..4, 1_u32..5, 3_u32..40, 1_u32..3, prop::bool::ANY);
    let more = (prop::option::of(20_u32..120), 0_usize..2, prop::option::of(10_u32..60), 0_usize..3);
    (policy, breaker, more).prop_map(|(policy, breaker, more)| {
        let (initial, factor, retries, window, jitter) = policy;
        let jitter = ["none", "equal", "plus 900ms", "spread 25%", "spread 700ms"][jitter];
        let window = window.map_or(String::new(), |seconds| format!(", window: {seconds}333ms"));
        let (trip, count, open, close_after, per_call) = breaker;
        let trip = [
            format!("consecutive: {count}"),
            format!("failures: {count}, within: 47777ms"),
            format!("failure_rate: 50%, of_at_least: {count}, within: 47777ms"),
            format!("consecutive: {count}"),
        ][trip].clone();
        let counted = if per_call { ", count: call" } else { "" };
        let (hold_max, when_open, fatal_after, unknown) = more;
        let hold_max = hold_max.map_or(String::new(), |seconds| format!(", hold_max: {seconds}111ms"));
        let fatal_after = fatal_after.map_or(String::new(), |seconds| format!(", fatal_after: {seconds}555ms"));
        let when_open = ["", ", when_open: dead-letter"][when_open];
        let unknown = ["", ", on_failure: { unknown: own }", ", on_failure: { 404: own, fatal: pause }"][unknown];
        format!(
            "breakers: {{ own: {{ trip: {{ {trip} }}, open: {open}222ms, close_after: {close_after}{counted} }} }}\n\
             dependencies: {{ d: {{ kind: webhook, retry: own, breaker: own, \
             timeout: {{ first: 1s, factor: 2, max: 5s }}{hold_max}{when_open}{fatal_after}{unknown} }} }}\n\
             retry_policies: {{ own: {{ initial: {initial}s, factor: {factor}, max: 60s, retries: {retries}, jitter: {jitter}{window} }} }}\n\
             version: 1\n"
        )
    })
}

/// When the attempts began, and how it ended.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    pub(super) starts_ms: Vec<u64>,
    pub(super) end: String,
}

fn rehearsed(book: &Book, script: &[Line]) -> Told {
    let rule = book.rules().dependency_rule("d").expect("the book has it");
    let words: Vec<&str> = script.iter().map(|line| line.0).collect();
    let script = parse_script(&words.join(",")).expect("a script");
    let rehearsal = rehearse(&rule, AttemptKind::Call, &script, Seed::default());
    let millis = |at: Timestamp| at.as_millis();
    let mut last_code = String::new();
    let mut starts_ms = Vec::new();
    for step in &rehearsal.steps {
        if let RehearsalStep::Attempt(tried) = step {
            starts_ms.push(millis(tried.started_at));
            last_code = tried.code.as_ref().map_or_else(String::new, ToString::to_string);
        }
    }
    let end = match rehearsal.end {
        RehearsalEnd::Settled { verdict: Verdict::Deliver, .. } => "ok".to_owned(),
        RehearsalEnd::Settled { verdict: Verdict::DeadLetter { reason, .. }, .. } => {
            reason.code().map_or(last_code, str::to_owned)
        }
        RehearsalEnd::Settled { .. } => last_code,
        RehearsalEnd::Waiting { .. } => unreachable!("every script ends with a success"),
    };
    Told { starts_ms, end }
}

async fn called(book: &Book, script: &[Line]) -> Told {
    let guard = book.guard("d").expect("the book has it").wait_when_open();
    CallKey::next_is_one();
    let begun = Instant::now();
    let starts = std::cell::RefCell::new(Vec::new());
    let result: Result<(), CallError<Oops>> = guard
        .call(|attempt| {
            starts.borrow_mut().push(u64::try_from(begun.elapsed().as_millis()).expect("a short test"));
            let line = script[attempt.number() as usize - 1];
            async move {
                match line.1 {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            }
        })
        .await;
    assert_eq!(guard.in_flight(), 0);
    let end = match result {
        Ok(()) => "ok".to_owned(),
        Err(error) => {
            assert!(!matches!(error.cause, Cause::BudgetSpent { .. }), "nobody has so many retries");
            error.code.to_string()
        }
    };
    Told { starts_ms: starts.into_inner(), end }
}

/// What a guard does that is called by that book, on a clock that stands still while nothing happens.
fn guarded(rule: &str, script: &[Line]) -> Told {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    // The clock of a book is the one that is paused.
    runtime.expect("a runtime").block_on(async {
        let book = Book::parse(rule).expect("a sound book");
        called(&book, script).await
    })
}

fn agrees(ours: &Told, theirs: &Told) -> Result<(), TestCaseError> {
    prop_assert_eq!(&ours.end, &theirs.end, "{:?} {:?}", ours, theirs);
    prop_assert_eq!(ours.starts_ms.len(), theirs.starts_ms.len(), "{:?} {:?}", ours, theirs);
    for (our, their) in ours.starts_ms.iter().zip(&theirs.starts_ms) {
        let late = our.checked_sub(*their);
        prop_assert!(late.is_some_and(|late| late <= 20), "{:?} {:?}", ours, theirs);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_guard_does_what_a_rehearsal_says(rule in any_rule(), script in any_script()) {
        let book = Book::parse(&rule).expect("a sound book");
        agrees(&guarded(&rule, &script), &rehearsed(&book, &script))?;
    }

    #[test]
    fn a_guard_does_what_the_engine_does_with_a_delivery(rule in any_rule(), script in any_script()) {
        if let Some(theirs) = delivered(&rule, &script) {
            agrees(&guarded(&rule, &script), &theirs)?;
        }
    }
}
