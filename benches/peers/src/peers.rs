//! The other crates, each as its documentation shows it and with the same policy.
//!
//! failsafe and recloser are breakers without retries, backon is retries without a breaker: they are
//! measured alone, marked so, and in the pairs that people make of them. On the failure path the trips
//! are out of reach, so that the breaker stays closed however long the run is.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use backon::{BackoffBuilder, BlockingRetryable, ExponentialBuilder};
use failsafe::CircuitBreaker;
use recloser::Recloser;
use tower::{Layer, Service, service_fn};
use tower_resilience::circuitbreaker::{CircuitBreakerError, CircuitBreakerLayer};
use tower_resilience::retry::{ExponentialRandomBackoff, RetryLayer, RetryPolicy};

use crate::call::{self, Unavailable};
use crate::measure::Subject;

const RETRIES: usize = 3;
const DELAY_FIRST: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(10);
const OPEN: Duration = Duration::from_secs(10);
/// Failures in a row that open a breaker on the success path.
pub const FAILURES: u32 = 5;
/// The share of failures that opens recloser, which knows no failures in a row, and of how many calls.
pub const FAILURE_SHARE: f32 = 0.5;
const WINDOW_CALLS: usize = 100;

pub fn success() -> Vec<Subject> {
    let mut tower = tower_service(service_fn(answer(call::succeed)), FAILURES as usize);
    assert!(matches!(poll_call(&mut tower, 7), Ok(7)), "tower-resilience lets the result through");

    let (alone, paired) = (failsafe_breaker(FAILURES), failsafe_breaker(FAILURES));
    let failsafe_with_backon = move |input| {
        (|| paired.call(|| call::succeed(input)))
            .retry(exponential())
            .when(|error| matches!(error, failsafe::Error::Inner(_)))
            .sleep(|_| unreachable!("nothing fails on this path"))
            .call()
    };
    assert!(matches!(failsafe_with_backon(7), Ok(7)), "failsafe and backon let the result through");

    let (recloser_alone, paired) = (recloser(FAILURE_SHARE), recloser(FAILURE_SHARE));
    let recloser_with_backon = move |input| {
        (|| paired.call(|| call::succeed(input)))
            .retry(exponential())
            .when(|error| matches!(error, recloser::Error::Inner(_)))
            .sleep(|_| unreachable!("nothing fails on this path"))
            .call()
    };
    assert!(matches!(recloser_with_backon(7), Ok(7)), "recloser and backon let the result through");

    vec![
        Subject::new("tower-resilience", move |input| {
            let _ = black_box(poll_call(&mut tower, input));
        }),
        Subject::new("failsafe + backon", move |input| {
            let _ = black_box(failsafe_with_backon(input));
        }),
        Subject::new("recloser + backon", move |input| {
            let _ = black_box(recloser_with_backon(input));
        }),
        Subject::new("failsafe (breaker only)", move |input| {
            let _ = black_box(alone.call(|| call::succeed(input)));
        }),
        Subject::new("recloser (breaker only)", move |input| {
            let _ = black_box(recloser_alone.call(|| call::succeed(input)));
        }),
        Subject::new("backon (retry only)", |input| {
            let retried = (|| call::succeed(input)).retry(exponential());
            let _ = black_box(retried.sleep(|_| unreachable!("nothing fails on this path")).call());
        }),
    ]
}

/// The parts that decide are called one by one: the whole would go on to sleep.
pub fn failure() -> Vec<Subject> {
    let mut breaker = breaker_layer(usize::MAX).layer(service_fn(answer(call::fail)));
    let policy = RetryPolicy::<u64, CircuitBreakerError<Unavailable>>::new(Arc::new(exponential_random()))
        .with_retry_predicate(is_retryable);
    let mut tower = move |input| {
        let error = poll_call(&mut breaker, input).err()?;
        policy.should_retry(&error).then(|| policy.next_backoff(0))
    };
    assert!(tower(7).is_some_and(|delay| !delay.is_zero()), "tower-resilience decides a delay");

    let (alone, paired) = (failsafe_breaker(u32::MAX), failsafe_breaker(u32::MAX));
    let failsafe_with_backon = move |input| match paired.call(|| call::fail(input)) {
        Err(failsafe::Error::Inner(Unavailable)) => exponential().build().next(),
        Ok(_) | Err(failsafe::Error::Rejected) => None,
    };
    assert!(failsafe_with_backon(7).is_some(), "failsafe and backon decide a delay");

    // No share is above 1.
    let (recloser_alone, paired) = (recloser(2.0), recloser(2.0));
    let recloser_with_backon = move |input| match paired.call(|| call::fail(input)) {
        Err(recloser::Error::Inner(Unavailable)) => exponential().build().next(),
        Ok(_) | Err(recloser::Error::Rejected) => None,
    };
    assert!(recloser_with_backon(7).is_some(), "recloser and backon decide a delay");

    vec![
        // A peer that stopped deciding would look quick: each delay is asked for.
        Subject::new("tower-resilience", move |input| {
            black_box(tower(input).expect("the breaker stays closed"));
        }),
        Subject::new("failsafe + backon", move |input| {
            black_box(failsafe_with_backon(input).expect("the breaker stays closed"));
        }),
        Subject::new("recloser + backon", move |input| {
            black_box(recloser_with_backon(input).expect("the breaker stays closed"));
        }),
        Subject::new("failsafe (breaker only)", move |input| {
            let _ = black_box(alone.call(|| call::fail(input)));
        }),
        Subject::new("recloser (breaker only)", move |input| {
            let _ = black_box(recloser_alone.call(|| call::fail(input)));
        }),
        Subject::new("backon (retry only)", |input| {
            let delay = call::fail(input).err().and_then(|Unavailable| exponential().build().next());
            black_box(delay.expect("a first failure is retried"));
        }),
    ]
}

fn exponential() -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(DELAY_FIRST)
        .with_factor(2.0)
        .with_max_delay(DELAY_MAX)
        .with_max_times(RETRIES)
        .with_jitter()
}

fn exponential_random() -> ExponentialRandomBackoff {
    let backoff = ExponentialRandomBackoff::new(DELAY_FIRST, 0.5).expect("half is a share");
    backoff.max_interval(DELAY_MAX)
}

fn is_retryable(error: &CircuitBreakerError<Unavailable>) -> bool {
    matches!(error, CircuitBreakerError::Inner(Unavailable))
}

/// A function as an async one that is ready at once.
pub fn answer(
    call: fn(u64) -> Result<u64, Unavailable>,
) -> impl Fn(u64) -> std::future::Ready<Result<u64, Unavailable>> + Clone + Send + 'static {
    move |input| std::future::ready(call(input))
}

fn breaker_layer(failures: usize) -> CircuitBreakerLayer {
    let builder = CircuitBreakerLayer::builder().consecutive_failures(failures);
    builder.wait_duration_in_open(OPEN).build().expect("the settings are valid")
}

/// Retries around the breaker, so that the breaker sees every attempt.
pub fn tower_service<F>(
    service: F,
    failures: usize,
) -> impl Service<u64, Response = u64, Error = CircuitBreakerError<Unavailable>, Future: Send> + Clone + Send
where
    F: Service<u64, Response = u64, Error = Unavailable, Future: Send> + Clone + Send + 'static,
{
    let retry = RetryLayer::<u64, u64, CircuitBreakerError<Unavailable>>::builder()
        .max_attempts(1 + RETRIES)
        .backoff(exponential_random())
        .retry_on(is_retryable)
        .build();
    retry.layer(breaker_layer(failures).layer(service))
}

pub fn failsafe_breaker(failures: u32) -> impl CircuitBreaker + Clone + Send + 'static {
    let backoff = failsafe::backoff::exponential(OPEN, OPEN);
    let policy = failsafe::failure_policy::consecutive_failures(failures, backoff);
    failsafe::Config::new().failure_policy(policy).build()
}

pub fn recloser(failure_share: f32) -> Recloser {
    Recloser::custom().error_rate(failure_share).closed_len(WINDOW_CALLS).open_wait(OPEN).build()
}

/// Waits for readiness and for the answer; both are there at the first poll, or nothing is measured.
pub fn poll_call<S: Service<u64>>(service: &mut S, input: u64) -> Result<S::Response, S::Error> {
    let mut context = Context::from_waker(Waker::noop());
    match service.poll_ready(&mut context) {
        Poll::Ready(ready) => ready?,
        Poll::Pending => unreachable!("a closed breaker is ready"),
    }
    match pin!(service.call(input)).poll(&mut context) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("the call answers at once and nobody sleeps"),
    }
}
