//! The whole guard of a call, async: what a program pays that wraps a future.
//!
//! A future that is ready at the first poll shows what is always paid. One that is ready at the second shows what
//! it costs to wait under a time limit; the limit is never reached.

use std::future::Future;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redrive::core::policy::answer::{AnswerKind, TargetAnswer};
use redrive::{Book, Classify, Guard};
use tower::{Service, service_fn};

use crate::call::{self, Unavailable};
use crate::measure::Subject;
use crate::peers::{self, FAILURES};

/// Ours; the ratios of these paths refer to it.
pub const OURS: &str = "redrive guard";
const LIMIT: Duration = Duration::from_secs(10);

const BOOK: &str = "\
version: 1
retry_policies: { three: { initial: 100ms, max: 10s, retries: 3, window: 5m } }
dependencies:
  target: { kind: webhook, retry: three, timeout: 10s, breaker: kafkaBreaker }
  shares: { kind: webhook, retry: three, timeout: 10s, breaker: share }
breakers: { share: { trip: { failure_rate: 50%, of_at_least: 20, within: 1m }, open: 30s } }
";

impl Classify for Unavailable {
    fn answer(&self) -> TargetAnswer<'_> {
        let what = AnswerKind::Http { status: 503, headers: &(), body: "" };
        TargetAnswer { what, message: "", retry_after: None }
    }
}

pub fn ready() -> Vec<Subject> {
    let (guard, by_share) = (guard("target"), guard("shares"));
    assert!(matches!(once(guard.call(|_| async { call::succeed(7) })), Ok(7)), "the result comes through");
    let mut tower = peers::tower_service(service_fn(peers::answer(call::succeed)), FAILURES as usize);
    vec![
        Subject::new("bare future", |input| {
            let _ = black_box(once(async move { call::succeed(input) }));
        }),
        Subject::new("clock alone", |_| {
            black_box(std::time::Instant::now());
        }),
        Subject::new(OURS, move |input| {
            let _ = black_box(once(guard.call(|_| async move { call::succeed(input) })));
        }),
        Subject::new("redrive guard, failure rate", move |input| {
            let _ = black_box(once(by_share.call(|_| async move { call::succeed(input) })));
        }),
        Subject::new("tower-resilience", move |input| {
            let _ = black_box(peers::poll_call(&mut tower, input));
        }),
    ]
}

pub fn pending() -> Vec<Subject> {
    let guard = guard("target");
    let mut tower = peers::tower_service(service_fn(Twice::new), FAILURES as usize);
    vec![
        Subject::new("bare future", |input| {
            let _ = black_box(twice(Twice::new(input)));
        }),
        in_runtime("tokio's timeout alone", |input| {
            let _ = black_box(twice(tokio::time::timeout(LIMIT, Twice::new(input))));
        }),
        in_runtime(OURS, move |input| {
            let _ = black_box(twice(guard.call(|_| Twice::new(input))));
        }),
        in_runtime("tower-resilience in tokio's timeout", move |input| {
            let ready = tower.poll_ready(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(ready, Poll::Ready(Ok(()))), "it is always ready");
            let _ = black_box(twice(tokio::time::timeout(LIMIT, tower.call(input))));
        }),
    ]
}

pub fn guard(dependency: &str) -> Guard {
    let book = Book::parse(BOOK).expect("the book above is sound");
    book.guard(dependency).expect("the book has it")
}

/// A subject whose timers have a runtime.
fn in_runtime(name: &'static str, mut call: impl FnMut(u64) + 'static) -> Subject {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    Subject::new(name, move |input| {
        let _inside = runtime.enter();
        call(input);
    })
}

/// Polls a future that is ready at once.
pub fn once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("everything here is ready at once"),
    }
}

/// Polls a future that is ready at the second time.
fn twice<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending(), "it is not ready at the first poll");
    match future.poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("it is ready at the second poll"),
    }
}

/// Succeeds at the second poll.
struct Twice {
    input: u64,
    is_polled: bool,
}

impl Twice {
    const fn new(input: u64) -> Self {
        Self { input, is_polled: false }
    }
}

impl Future for Twice {
    type Output = Result<u64, Unavailable>;

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Self::Output> {
        if std::mem::replace(&mut self.is_polled, true) {
            Poll::Ready(call::succeed(self.input))
        } else {
            Poll::Pending
        }
    }
}
