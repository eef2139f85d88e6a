//! However a call ends, what it held comes back: dropped at any await, panicked, or run by many threads at once.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{advance, sleep};

use super::super::{BreakerState, Cause, Guard};
use super::{Oops, guard};

const ONE_AT_A_TIME: &str = "dependencies: { d: { kind: webhook, retry: quick, timeout: 5s, in_flight: 1 } }";

/// Fails, then succeeds, and waits for others in between.
async fn twice(guard: &Guard) {
    let called = guard.call(|attempt| async move {
        yield_now().await;
        if attempt.is_retry() { Ok(()) } else { Err(Oops::Refused) }
    });
    called.await.expect("the second attempt");
}

#[tokio::test(start_paused = true)]
async fn a_call_may_be_dropped_at_any_await() {
    let mut finished = false;
    for polls in 0..=24 {
        let guard = guard(ONE_AT_A_TIME);
        let first = guard.call(|_| async {
            sleep(Duration::from_millis(150)).await;
            Ok::<(), Oops>(())
        });
        let mut first = Some(Box::pin(first));
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.as_mut().expect("it is there").as_mut().poll(&mut context).is_pending());
        {
            // It waits for room, then in an attempt, then for its retry, then in another attempt.
            let mut call = pin!(twice(&guard));
            for _ in 0..polls {
                if call.as_mut().poll(&mut context).is_ready() {
                    finished = true;
                    break;
                }
                advance(Duration::from_millis(100)).await;
                if let Some(running) = &mut first
                    && running.as_mut().poll(&mut context).is_ready()
                {
                    first = None;
                }
            }
        }
        assert_eq!(guard.in_flight(), u32::from(first.is_some()), "dropped after {polls} polls");
        drop(first);
        assert_eq!(guard.in_flight(), 0, "dropped after {polls} polls");
        let BreakerState::Closed { failures } = guard.breaker() else { panic!("one failure opens nothing") };
        assert!(failures <= 1, "{failures} failures after {polls} polls");
        assert!(guard.call(|_| async { Ok::<_, Oops>(()) }).await.is_ok(), "the next one gets in");
    }
    assert!(finished, "enough polls end the call");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_dropped_makes_way_for_another() {
    let guard = guard(
        "breakers: { touchy: { trip: { consecutive: 1 }, open: 10s } }\n\
         dependencies: { d: { kind: webhook, retry: none, breaker: touchy } }",
    );
    guard.call(|_| async { Err::<(), _>(Oops::Refused) }).await.expect_err("it is down");
    advance(Duration::from_secs(10)).await;
    {
        let mut probe = pin!(guard.call(|_| std::future::pending::<Result<(), Oops>>()));
        assert!(probe.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let denied = guard.call(|_| async { Ok::<(), Oops>(()) }).await.expect_err("one probe at a time");
        assert!(matches!(denied.cause, Cause::BreakerOpen { .. }));
    }
    guard.call(|_| async { Ok::<(), Oops>(()) }).await.expect("the next probe");
    assert_eq!(guard.breaker(), BreakerState::Closed { failures: 0 });
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_no_failure_of_the_dependency() {
    // The first call asks, the second passes by the word, the third panics after it was waited for.
    let guard = guard(ONE_AT_A_TIME);
    for waits in [0, 0, 1] {
        let calling = guard.clone();
        let ended = tokio::spawn(async move {
            calling
                .call(|_| async move {
                    for _ in 0..waits {
                        yield_now().await;
                    }
                    assert!(waits > 9, "as bugs do");
                    Ok::<(), Oops>(())
                })
                .await
        });
        assert!(ended.await.expect_err("it panicked").is_panic());
        assert_eq!(guard.in_flight(), 0);
        assert_eq!(guard.breaker(), BreakerState::Closed { failures: 0 });
        guard.call(|_| async { Ok::<(), Oops>(()) }).await.expect("the next one gets in");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_beyond_the_budget_end_the_call() {
    let guard = guard(
        "dependencies: { d: { kind: webhook, breaker: none, retry: quick, \
         retry_budget: { share: 0%, at_least: 1/m } } }",
    );
    let down = || guard.call(|_| async { Err::<(), _>(Oops::Refused) });
    let error = down().await.expect_err("it is down");
    assert_eq!((error.code.as_str(), error.attempts), ("RETRY_BUDGET_SPENT", 2));
    assert!(matches!(error.cause, Cause::BudgetSpent { last: Some(Oops::Refused) }));
    assert_eq!(error.to_string(), "d: retry budget spent after 2 attempts in 1s; last failure: Refused");
    assert_eq!(down().await.expect_err("it is down").attempts, 1, "the budget is everybody's");
    advance(Duration::from_secs(12)).await;
    assert_eq!(down().await.expect_err("it is down").attempts, 2, "it comes back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_more_are_in_flight_than_may_be_and_nobody_is_forgotten() {
    let guard = guard("dependencies: { d: { kind: webhook, in_flight: 3 } }");
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut callers = Vec::new();
    for _ in 0..16 {
        let (guard, running, most) = (guard.clone(), Arc::clone(&running), Arc::clone(&most));
        callers.push(tokio::spawn(async move {
            for round in 0..200 {
                let work = |_| async {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    if round % 3 > 0 {
                        yield_now().await;
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok::<(), Oops>(())
                };
                if round % 7 == 0 {
                    // Some give up before their turn comes.
                    let _ = tokio::time::timeout(Duration::ZERO, guard.call(|_| yield_now_ok())).await;
                }
                guard.call(work).await.expect("it is well");
            }
        }));
    }
    for caller in callers {
        tokio::time::timeout(Duration::from_secs(60), caller)
            .await
            .expect("nobody waits for ever")
            .expect("no panic");
    }
    assert!(most.load(Ordering::SeqCst) <= 3, "{most:?} at once");
    assert_eq!(guard.in_flight(), 0);
}

async fn yield_now_ok() -> Result<(), Oops> {
    yield_now().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_who_ask_at_once_only_so_many_probe() {
    let guard = guard(
        "breakers: { touchy: { trip: { consecutive: 1 }, open: 20ms, probes: 2 } }\n\
         dependencies: { d: { kind: webhook, retry: none, breaker: touchy } }",
    );
    guard.call(|_| async { Err::<(), _>(Oops::Refused) }).await.expect_err("it is down");
    while !matches!(guard.breaker(), BreakerState::HalfOpen { .. }) {
        sleep(Duration::from_millis(1)).await;
    }
    let (entered, denied) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let go_on = Arc::new(Notify::new());
    let mut callers = Vec::new();
    for _ in 0..32 {
        let (guard, entered, denied, go_on) =
            (guard.clone(), Arc::clone(&entered), Arc::clone(&denied), Arc::clone(&go_on));
        callers.push(tokio::spawn(async move {
            let go_on = go_on.notified();
            let mut go_on = pin!(go_on);
            go_on.as_mut().enable();
            let mut waiting = Some(go_on);
            let called = guard
                .call(|_| {
                    entered.fetch_add(1, Ordering::SeqCst);
                    let go_on = waiting.take().expect("one attempt");
                    async move {
                        go_on.await;
                        Ok::<(), Oops>(())
                    }
                })
                .await;
            if called.is_err() {
                denied.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    while denied.load(Ordering::SeqCst) + entered.load(Ordering::SeqCst) < 32 {
        yield_now().await;
    }
    assert_eq!(entered.load(Ordering::SeqCst), 2, "as many as `probes`");
    go_on.notify_waiters();
    for caller in callers {
        caller.await.expect("no panic");
    }
    assert_eq!((guard.breaker(), guard.in_flight()), (BreakerState::Closed { failures: 0 }, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_breaker_that_opens_and_closes_under_many_threads_is_never_wedged() {
    let guard = guard(
        "breakers: { touchy: { trip: { consecutive: 2 }, open: 1ms } }\n\
         dependencies: { d: { kind: webhook, retry: none, breaker: touchy, in_flight: 4 } }",
    );
    let mut callers = Vec::new();
    for caller in 0..8_u32 {
        let guard = guard.clone();
        callers.push(tokio::spawn(async move {
            for round in 0..500_u32 {
                let fails = (round + caller).is_multiple_of(3);
                let _ = guard
                    .call(|_| async move {
                        if round % 2 == 0 {
                            yield_now().await;
                        }
                        if fails { Err(Oops::Refused) } else { Ok(()) }
                    })
                    .await;
            }
        }));
    }
    for caller in callers {
        caller.await.expect("no panic");
    }
    assert_eq!(guard.in_flight(), 0);
    let patient = guard.wait_when_open();
    let called = patient.call(|_| async { Ok::<(), Oops>(()) });
    tokio::time::timeout(Duration::from_secs(60), called).await.expect("it is let in").expect("it is well");
}
