//! Calls from the outside: retries, timeouts, deadlines, breakers, and what an error says.

use std::time::Duration;

use redrive_core::policy::category::Category;
use tokio::time::{Instant, sleep};

use super::super::{Attempt, BreakerState, Cause};
use super::{Oops, guard, play};

const PLAIN: &str = "dependencies: { d: { kind: webhook, retry: quick, timeout: 5s } }";

/// A name, the place of a book, a script, what the call says and when its attempts began.
type Row<'a> = (&'a str, usize, &'a [Result<u32, Oops>], &'a str, &'a [u64]);

#[tokio::test(start_paused = true)]
async fn attempts_follow_the_rule() {
    use Oops::{Code, Refused, Status, Wait};
    let books = [
        PLAIN,
        "dependencies: { d: { kind: webhook, retry: quick, deadline: 2500ms } }",
        "dependencies: { d: { kind: webhook, retry: quick, classify: [{ status: 409, as: delivered, because: \"it is there\" }] } }",
    ];
    #[rustfmt::skip]
    let cases: [Row; 9] = [
        ("a success",               0, &[Ok(1)],                                            "ok",                               &[0]),
        ("two retries",             0, &[Err(Refused), Err(Refused), Ok(1)],                "ok",                               &[0, 1_000, 3_000]),
        ("retries run out",         0, &[Err(Refused); 4],                                  "transient MAX_RETRIES_EXCEEDED",   &[0, 1_000, 3_000, 7_000]),
        ("a refusal",               0, &[Err(Status(404))],                                 "permanent NOT_FOUND",              &[0]),
        ("a code of the caller's",  0, &[Err(Code("RECORD_NOT_FOUND"))],                    "permanent RECORD_NOT_FOUND",       &[0]),
        ("nobody knows",            0, &[Err(Status(500)); 3],                              "unknown MAX_RETRIES_EXCEEDED",     &[0, 1_000, 3_000]),
        ("Retry-After",             0, &[Err(Wait(9)), Ok(1)],                              "ok",                               &[0, 9_000]),
        ("the rule's deadline",     1, &[Err(Refused), Err(Refused)],                       "transient DEADLINE_EXCEEDED",      &[0, 1_000]),
        ("as good as done",         2, &[Err(Status(409))],                                 "permanent CONFLICT",               &[0]),
    ];
    for (name, book, script, expected, starts) in cases {
        let (result, began) = play(&guard(books[book]), script).await;
        let said =
            result.map_or_else(|error| format!("{} {}", error.category, error.code), |_| "ok".to_owned());
        assert_eq!((said.as_str(), began.as_slice()), (expected, starts), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_at_its_limit_which_may_grow() {
    let guard = guard(
        "dependencies: { d: { kind: webhook, retry: quick, timeout: { first: 1s, factor: 2, max: 3s } } }",
    );
    let begun = Instant::now();
    let error = guard
        .call(|attempt| async move {
            assert_eq!(attempt.limit().as_secs(), [1, 2, 3, 3][attempt.number() as usize - 1]);
            sleep(Duration::from_secs(60)).await;
            Ok::<(), Oops>(())
        })
        .await
        .expect_err("it never answers");
    assert_eq!(begun.elapsed(), Duration::from_secs(1 + 1 + 2 + 2 + 3 + 4 + 3));
    assert!(matches!(error.cause, Cause::TimedOut { limit } if limit == Duration::from_secs(3)));
    assert_eq!((error.attempts, error.category), (4, Category::Transient));
    assert_eq!(
        error.to_string(),
        "d: transient failure, MAX_RETRIES_EXCEEDED after 4 attempts in 16s; last failure: no answer within 3s"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_cuts_an_attempt_short_and_is_no_failure_of_the_dependency() {
    let guard = guard(PLAIN).deadline(Duration::from_millis(300));
    let begun = Instant::now();
    let error = guard
        .call(|attempt| async move {
            assert_eq!(attempt.remaining(), Some(Duration::from_millis(300)));
            sleep(Duration::from_secs(60)).await;
            Ok::<(), Oops>(())
        })
        .await
        .expect_err("it never answers");
    assert_eq!(begun.elapsed(), Duration::from_millis(300));
    assert!(matches!(error.cause, Cause::Deadline { last: None }));
    assert_eq!(guard.breaker(), BreakerState::Closed { failures: 0 });
    assert_eq!(guard.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_says_when_to_come_back() {
    let guard = guard("dependencies: { d: { kind: ntfy, retry: none } }");
    for _ in 0..5 {
        let (result, _) = play(&guard, &[Err(Oops::Refused)]).await;
        assert!(matches!(result.expect_err("it is down").cause, Cause::Failed(Oops::Refused)));
    }
    sleep(Duration::from_secs(18)).await;
    let error = play(&guard, &[]).await.0.expect_err("the breaker is open");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(12)));
    assert_eq!(error.code.as_str(), "CIRCUIT_BREAKER_OPEN");
    assert!(error.is_untried());
    assert_eq!(error.to_string(), "d: circuit breaker open, try again in 12s");
    let (waited, starts) = play(&guard.clone().wait_when_open(), &[Ok(7)]).await;
    assert_eq!((waited.expect("it waits"), starts), (7, vec![12_000]));
    assert_eq!(play(&guard, &[Ok(8)]).await.0.expect("the next probe"), 8);
    assert_eq!(guard.breaker(), BreakerState::Closed { failures: 0 });
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_opens_in_mid_call_keeps_the_last_error() {
    let book = "breakers: { two: { trip: { consecutive: 2 }, open: 10s } }\n\
                dependencies: { d: { kind: webhook, retry: quick, breaker: two } }";
    let guard = guard(book);
    let (result, starts) = play(&guard, &[Err(Oops::Refused), Err(Oops::Status(503))]).await;
    let error = result.expect_err("the breaker is open");
    assert_eq!(starts, [0, 1_000]);
    assert_eq!(error.to_string(), "d: circuit breaker open, try again in 8s; last failure: Status(503)");
    assert!(matches!(&error.cause, Cause::BreakerOpen { last: Some(Oops::Status(503)), .. }));
    let source = std::error::Error::source(&error).expect("the caller's own");
    assert_eq!(source.downcast_ref(), Some(&Oops::Status(503)));
    assert_eq!(error.into_last(), Some(Oops::Status(503)));
}

#[tokio::test(start_paused = true)]
async fn one_who_is_asked_to_wait_speaks_for_all() {
    let guard = guard(PLAIN);
    let (first, other) = tokio::join!(play(&guard, &[Err(Oops::Wait(30)), Ok(1)]), async {
        sleep(Duration::from_secs(10)).await;
        play(&guard, &[]).await.0
    });
    assert_eq!((first.0.expect("it waited"), first.1), (1, vec![0, 30_000]));
    let error = other.expect_err("the dependency is held");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(20)));
    assert_eq!((error.code.as_str(), error.category), ("RATE_LIMITED", Category::RateLimited));
    assert_eq!(error.to_string(), "d: asked callers to wait, try again in 20s");
}

#[tokio::test(start_paused = true)]
async fn the_key_is_the_same_for_all_attempts_of_one_call_only() {
    let guard = guard(PLAIN);
    let mut calls = Vec::new();
    for _ in 0..2 {
        let keys = std::cell::RefCell::new(Vec::new());
        let result = guard
            .call(|attempt| {
                keys.borrow_mut().push(attempt.idempotency_key().to_string());
                async move { if attempt.is_retry() { Ok(()) } else { Err(Oops::Refused) } }
            })
            .await;
        result.expect("the second attempt");
        let keys = keys.into_inner();
        assert_eq!(keys[0], keys[1]);
        calls.push(keys[0].clone());
    }
    assert_ne!(calls[0], calls[1]);
}

#[tokio::test(start_paused = true)]
async fn a_good_result_may_be_a_failure() {
    use redrive_core::policy::answer::{AnswerKind, TargetAnswer};
    fn judge(result: &Result<u16, Oops>) -> Option<TargetAnswer<'_>> {
        let http = |status| AnswerKind::Http { status, headers: &(), body: "" };
        result.as_ref().ok().map(|status| TargetAnswer {
            what: http(*status),
            message: "",
            retry_after: None,
        })
    }
    let by_attempt = async |statuses: [u16; 4]| {
        let work = move |attempt: Attempt| async move {
            match statuses[attempt.number() as usize - 1] {
                0 => Err(Oops::Refused),
                status => Ok(status),
            }
        };
        guard(PLAIN).call_judged(judge, work).await
    };
    assert_eq!(by_attempt([503, 200, 0, 0]).await.expect("the second"), 200);
    let error = by_attempt([503; 4]).await.expect_err("it stays away");
    assert!(matches!(error.cause, Cause::FaultFound));
    assert_eq!(error.failure.as_ref().and_then(|failure| failure.status), Some(503));
    let error = by_attempt([0; 4]).await.expect_err("an error that nothing is told of");
    assert_eq!((error.attempts, error.category), (3, Category::Unknown));
}
