//! The times of the rule book as it is: tokio's clock is paused, so a minute takes no time.

use std::time::Duration;

use pkarr_verifier::code::ErrorCode;
use pkarr_verifier::verify::{LIFETIMES, Spent};
use redrive::guard::BreakerState;
use tokio::task::yield_now;
use tokio::time::{Instant, advance};

use crate::support::{RULES, Script, Step, alice, changed, contact, packet, someone, verifier, verifier_by};

#[tokio::test(start_paused = true)]
async fn retries_follow_the_table_of_delays() {
    // Jitter is drawn anew for each call, so many calls are looked at.
    for _ in 0..50 {
        let script = Script::new([Step::Fails(ErrorCode::TemporaryFailure)]);
        let verifier = verifier(script.clone());
        let answer = verifier.verify(&contact(&alice())).await;

        assert_eq!(answer.error_code, Some(ErrorCode::MaxRetriesExceeded));
        let spent = Spent { attempts: 4, last_error_code: ErrorCode::TemporaryFailure };
        assert_eq!(answer.metadata, Some(spent));
        let calls = script.calls();
        let delays: Vec<u128> = calls.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
        for (delay, range) in delays.iter().zip([700..=1_300, 1_400..=2_600, 2_800..=5_200]) {
            assert!(range.contains(delay), "{delays:?}");
        }
        assert_eq!(delays.len(), 3, "about seven seconds for four tries");
        assert!((4_900..=9_100).contains(&answer.response_time_ms), "{}", answer.response_time_ms);
    }
}

#[tokio::test(start_paused = true)]
async fn the_fourth_delay_would_be_capped_before_its_jitter() {
    let rules = changed(
        RULES,
        &[
            ("retry: relay", "retry: longer"),
            ("\ndependencies:", "\nretry_policies:\n  longer: { from: relay, retries: 4 }\n\ndependencies:"),
            ("deadline: 10s", "deadline: 60s"),
        ],
    );
    let script = Script::new([Step::Fails(ErrorCode::TemporaryFailure)]);
    verifier_by(&rules, script.clone(), LIFETIMES).verify(&contact(&alice())).await;
    let calls = script.calls();
    let last = (calls[4] - calls[3]).as_millis();
    assert!((5_600..=10_400).contains(&last), "{last}");
}

#[tokio::test(start_paused = true)]
async fn a_try_has_three_seconds_and_a_lookup_ten() {
    let script = Script::new([Step::Hangs]);
    let answer = verifier(script.clone()).verify(&contact(&alice())).await;
    assert_eq!(answer.error_code, Some(ErrorCode::NetworkTimeout), "the retries were not spent");
    assert!(answer.retried);
    assert!(answer.response_time_ms <= 10_000, "{}", answer.response_time_ms);
    let calls = script.calls();
    let first = (calls[1] - calls[0]).as_millis();
    assert!((3_700..=4_300).contains(&first), "three seconds and the first delay: {first}");
}

#[tokio::test(start_paused = true)]
async fn the_breaker_opens_after_five_calls_for_half_a_minute_and_closes_after_two() {
    let script = Script::new([Step::Fails(ErrorCode::DhtUnavailable)]);
    let verifier = verifier(script.clone());
    for calls in 1..=5 {
        assert!(matches!(verifier.breaker(), BreakerState::Closed { .. }), "before call {calls}");
        let answer = verifier.verify(&contact(&someone())).await;
        assert_eq!(
            answer.error_code,
            Some(ErrorCode::MaxRetriesExceeded),
            "call {calls}, with all its retries"
        );
    }
    assert!(matches!(verifier.breaker(), BreakerState::Open { .. }));
    assert_eq!(verifier.metrics().circuit_breaker_trips, 1);

    let (asked_at, tries) = (Instant::now(), script.calls().len());
    let answer = verifier.verify(&contact(&someone())).await;
    assert_eq!(answer.error_code, Some(ErrorCode::CircuitBreakerOpen));
    assert_eq!((asked_at.elapsed(), script.calls().len()), (Duration::ZERO, tries), "rejected without a try");

    advance(Duration::from_millis(29_900)).await;
    let answer = verifier.verify(&contact(&someone())).await;
    assert_eq!(answer.error_code, Some(ErrorCode::CircuitBreakerOpen), "not before 30 seconds");

    advance(Duration::from_millis(200)).await;
    let (first, second) = (someone(), someone());
    script.turn_to(Step::Found(packet(&first)));
    assert!(verifier.verify(&contact(&first)).await.verified);
    assert!(matches!(verifier.breaker(), BreakerState::HalfOpen { .. }), "one success is not enough");
    script.turn_to(Step::Found(packet(&second)));
    assert!(verifier.verify(&contact(&second)).await.verified);
    assert!(matches!(verifier.breaker(), BreakerState::Closed { .. }));
    assert_eq!(verifier.metrics().circuit_breaker_trips, 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_while_half_open_opens_it_again() {
    let script = Script::new([Step::Fails(ErrorCode::DhtUnavailable)]);
    let verifier = verifier(script.clone());
    for _ in 0..5 {
        verifier.verify(&contact(&someone())).await;
    }
    advance(Duration::from_secs(31)).await;
    let answer = verifier.verify(&contact(&someone())).await;
    assert_ne!(answer.error_code, None);
    assert!(matches!(verifier.breaker(), BreakerState::Open { .. }));
    assert_eq!(verifier.metrics().circuit_breaker_trips, 2);
}

#[tokio::test(start_paused = true)]
async fn what_the_input_is_to_blame_for_opens_no_breaker() {
    let script = Script::new([Step::Fails(ErrorCode::RecordNotFound)]);
    let verifier = verifier(script.clone());
    for _ in 0..20 {
        verifier.verify(&contact(&someone())).await;
    }
    assert_eq!(script.calls().len(), 20, "nothing is tried twice");
    assert!(matches!(verifier.breaker(), BreakerState::Closed { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_found_record_serves_for_five_minutes_and_longer_while_nobody_answers() {
    let keys = alice();
    let script = Script::new([Step::Found(packet(&keys))]);
    let verifier = verifier(script.clone());
    let first = verifier.verify(&contact(&keys)).await;
    assert!(first.verified && !first.cached);

    advance(Duration::from_secs(4 * 60 + 59)).await;
    let again = verifier.verify(&contact(&keys)).await;
    assert!(again.verified && again.cached);
    assert_eq!(script.calls().len(), 1, "nobody was asked again");

    script.turn_to(Step::Fails(ErrorCode::DhtUnavailable));
    advance(Duration::from_secs(2)).await;
    for _ in 0..3 {
        let stale = verifier.verify(&contact(&keys)).await;
        assert!(stale.verified && stale.cached, "it serves while it is asked for in vain");
        advance(Duration::from_mins(1)).await;
    }
    assert!(script.calls().len() > 1, "somebody was asked");

    advance(LIFETIMES.kept).await;
    let gone = verifier.verify(&contact(&keys)).await;
    assert!(!gone.verified, "what is an hour old is no answer any more");
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_record_does_not_serve_on_and_nonsense_withdraws_nothing() {
    #[rustfmt::skip]
    let cases = [
        (ErrorCode::RecordNotFound,    Some(ErrorCode::RecordNotFound)),
        (ErrorCode::SignatureInvalid,  None),
        (ErrorCode::MalformedResponse, None),
        (ErrorCode::DhtUnavailable,    None),
    ];
    for (newest, expected) in cases {
        let keys = alice();
        let script = Script::new([Step::Found(packet(&keys)), Step::Fails(newest)]);
        let verifier = verifier(script);
        assert!(verifier.verify(&contact(&keys)).await.verified);
        advance(LIFETIMES.fresh + Duration::from_secs(1)).await;
        // The first who comes by gets what there is, and has it looked up again.
        verifier.verify(&contact(&keys)).await;
        yield_now().await;
        advance(Duration::from_secs(1)).await;
        let answer = verifier.verify(&contact(&keys)).await;
        assert_eq!((answer.error_code, answer.cached), (expected, true), "{newest}");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_remembered_for_half_a_minute() {
    let keys = alice();
    let script = Script::new([Step::Fails(ErrorCode::SignatureInvalid)]);
    let verifier = verifier(script.clone());
    assert!(!verifier.verify(&contact(&keys)).await.cached);
    advance(Duration::from_secs(29)).await;
    let answer = verifier.verify(&contact(&keys)).await;
    assert_eq!((answer.error_code, answer.cached), (Some(ErrorCode::SignatureInvalid), true));
    assert_eq!(script.calls().len(), 1);
    advance(Duration::from_secs(2)).await;
    assert!(!verifier.verify(&contact(&keys)).await.cached);
    assert_eq!(script.calls().len(), 2);
}
