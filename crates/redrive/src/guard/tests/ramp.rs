//! Calls after an outage: those that have waited do not start all at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Oops, book, play};

const WAITING: usize = 400;

/// How many of the calls that have waited for an outage to end start in each second after it.
async fn starts_after_outage(ramp: &str) -> Vec<usize> {
    let book = book(&format!(
        "breakers: {{ b: {{ trip: {{ consecutive: 3 }}, open: 5s }} }}\n\
         dependencies: {{ d: {{ kind: webhook, breaker: b, retry: quick, in_flight: 300, ramp: {ramp} }} }}"
    ));
    let guard = book.guard("d").expect("the book has it");
    // The usual rate is 20 calls in a second.
    for _ in 0..20 * 60 {
        play(&guard, &[Ok(1)]).await.0.expect("all is well");
        sleep(Duration::from_millis(50)).await;
    }
    let outage = [Err(Oops::Status(503)); 3];
    play(&guard, &outage).await.0.expect_err("the breaker opens");
    let starts = Arc::new(Mutex::new(Vec::new()));
    let calls: Vec<_> = (0..WAITING)
        .map(|_| {
            let (guard, starts) = (guard.clone().wait_when_open(), Arc::clone(&starts));
            tokio::spawn(async move {
                let call = |_| {
                    starts.lock().expect("a list").push(Instant::now());
                    async {
                        sleep(Duration::from_millis(10)).await;
                        Ok::<_, Oops>(())
                    }
                };
                guard.call(call).await.expect("it is well again");
            })
        })
        .collect();
    for call in calls {
        call.await.expect("no call panics");
    }
    let starts = starts.lock().expect("a list").clone();
    let second = |at: &Instant| usize::try_from((*at - starts[0]).as_secs()).expect("few seconds");
    let mut by_second = vec![0; starts.iter().map(second).max().expect("all were made") + 1];
    for at in &starts {
        by_second[second(at)] += 1;
    }
    by_second
}

#[tokio::test(start_paused = true)]
async fn calls_that_waited_for_an_outage_to_end_ramp_up() {
    let made = starts_after_outage("10s").await;
    assert_eq!(made.iter().sum::<usize>(), WAITING);
    assert!((20..=25).contains(&made[0]), "at the usual rate at first: {made:?}");
    assert!((26..=31).contains(&made[5]), "half as many again after five seconds: {made:?}");
    assert!(made.len() > 10, "it takes its time: {made:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_ramp_they_start_as_fast_as_calls_end() {
    assert_eq!(starts_after_outage("0s").await, [WAITING]);
}
