//! Guarded services in virtual time, around one that does as it is told.

use std::collections::VecDeque;
use std::future::{Ready, poll_fn, ready};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use redrive_core::policy::answer::{HeaderPairs, ReplyKind};
use redrive_core::policy::category::Category;
use tokio::time::Instant;
use tower_service::Service;

use super::*;
use crate::guard::Cause;
use crate::{Book, BoxFuture};

const BOOK: &str = "
version: 1
retry_policies: { quick: { delays: [1s, 2s], retries: 2, jitter: none } }
dependencies:
  shop: { kind: webhook, retry: quick }
";

fn guard(book: &str) -> Guard {
    Book::parse(book).expect("a book").guard("shop").expect("it is in the book")
}

/// What the inner service does, one after the other.
#[derive(Clone, Copy, Debug)]
enum Act {
    Answer(u16),
    Refuse,
    Panic,
    NotReady,
}

/// Does what it is told and notes what it was called with.
#[derive(Clone, Default)]
struct Shop {
    acts: Arc<Mutex<VecDeque<Act>>>,
    calls: Arc<Mutex<Vec<String>>>,
    /// A clone is not ready, as the contract of services has it.
    is_ready: Fresh,
}

#[derive(Default)]
struct Fresh(bool);

impl Clone for Fresh {
    fn clone(&self) -> Self {
        Self(false)
    }
}

impl Shop {
    fn doing(acts: &[Act]) -> Self {
        Self { acts: Arc::new(Mutex::new(acts.iter().copied().collect())), ..Self::default() }
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("no code panics under this lock").clone()
    }

    fn next(&self) -> Act {
        self.acts.lock().expect("no code panics under this lock").pop_front().expect("an act is left")
    }
}

fn refused() -> io::Error {
    io::Error::from(ErrorKind::ConnectionRefused)
}

impl Service<String> for Shop {
    type Response = u16;
    type Error = io::Error;
    type Future = Ready<Result<u16, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        let mut acts = self.acts.lock().expect("no code panics under this lock");
        if matches!(acts.front(), Some(Act::NotReady)) {
            acts.pop_front();
            return Poll::Ready(Err(refused()));
        }
        self.is_ready = Fresh(true);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: String) -> Self::Future {
        assert!(self.is_ready.0, "it was not asked whether it is ready");
        self.is_ready = Fresh(false);
        self.calls.lock().expect("no code panics under this lock").push(request);
        ready(match self.next() {
            Act::Answer(status) => Ok(status),
            Act::Refuse => Err(refused()),
            Act::Panic => panic!("a bug of the service"),
            Act::NotReady => unreachable!("it is taken when it is asked"),
        })
    }
}

/// Statuses are answers here; those of 500 and more are failures.
fn by_status(result: &Result<u16, io::Error>) -> Option<TargetReply> {
    let status = *result.as_ref().ok().filter(|status| **status >= 500)?;
    let seen = ReplyKind::Http { status, headers: HeaderPairs::default(), body: String::new() };
    Some(TargetReply { seen, message: format!("status {status}"), retry_after: None })
}

async fn send<S, Req>(service: &mut S, request: Req) -> Result<S::Response, S::Error>
where
    S: Service<Req>,
{
    poll_fn(|context| service.poll_ready(context)).await?;
    service.call(request).await
}

#[tokio::test(start_paused = true)]
async fn errors_and_bad_answers_are_tried_again_and_told_in_the_end() {
    use Act::{Answer, NotReady, Refuse};
    type Row<'a> = (&'a str, &'a [Act], Result<u16, &'a str>, usize, u64);
    #[rustfmt::skip]
    let cases: [Row<'_>; 7] = [
        ("a success",                       &[Answer(200)],                           Ok(200), 1, 0),
        ("an error that heals",             &[Refuse, Answer(200)],                   Ok(200), 2, 1),
        ("response counts as failure",     &[Answer(503), Answer(200)],              Ok(200), 2, 1),
        ("one that is not",                 &[Answer(404)],                           Ok(404), 1, 0),
        ("not ready, and then it is",       &[NotReady, Answer(200)],                 Ok(200), 1, 0),
        ("never ready",                     &[NotReady, NotReady, NotReady, NotReady], Err("the connection was refused"), 0, 3),
        ("failing to the end",              &[Refuse, Answer(502), Answer(503)],      Err("status 503"), 3, 3),
    ];
    for (name, acts, expected, calls, seconds) in cases {
        let shop = Shop::doing(acts);
        let judge = |result: &Result<u16, io::Error>| by_status(result).or_else(|| seen_of(result));
        let mut guarded = GuardLayer::new(guard(BOOK)).judged(judge).layer(shop.clone());
        let began = Instant::now();
        let told = send(&mut guarded, "a book".to_owned()).await;
        assert_eq!(told.as_ref().ok(), expected.as_ref().ok(), "{name}");
        let last = told.as_ref().err().and_then(|error| error.last()).map(ToString::to_string);
        assert_eq!(last.as_deref(), expected.err(), "{name}");
        assert_eq!(shop.calls(), vec!["a book"; calls], "{name}");
        assert_eq!(began.elapsed().as_secs(), seconds, "{name}");
    }
}

/// What an error says of itself, as a judge that owns it.
fn seen_of(result: &Result<u16, io::Error>) -> Option<TargetReply> {
    let error = result.as_ref().err()?;
    let transport = crate::http::transport(error)?;
    let message = crate::http::in_words(transport).to_owned();
    Some(TargetReply { seen: ReplyKind::Transport(transport), message, retry_after: None })
}

#[tokio::test(start_paused = true)]
async fn the_last_answer_and_the_services_own_error_are_in_the_error() {
    let shop = Shop::doing(&[Act::Answer(503); 3]);
    let mut guarded = GuardLayer::new(guard(BOOK)).judged(by_status).layer(shop);
    let error = send(&mut guarded, String::new()).await.expect_err("it fails to the end");
    assert_eq!((error.attempts, error.category), (3, Category::Transient));
    assert!(matches!(&error.cause, Cause::Failed(FailedResult { result: Ok(503), .. })), "{error:?}");

    let shop = Shop::doing(&[Act::Refuse; 3]);
    let mut guarded = GuardLayer::new(guard(BOOK)).layer(shop);
    let error = send(&mut guarded, String::new()).await.expect_err("it fails to the end");
    assert_eq!(error.category, Category::Transient, "its error says itself what it is");
    let source = error.source().and_then(Error::source).and_then(|error| error.downcast_ref::<io::Error>());
    assert_eq!(source.map(io::Error::kind), Some(ErrorKind::ConnectionRefused));

    let shop = Shop::doing(&[Act::Refuse; 3]);
    let mut guarded = GuardLayer::new(guard(BOOK)).judged(by_status).layer(shop);
    let error = send(&mut guarded, String::new()).await.expect_err("it fails to the end");
    assert_eq!(error.category, Category::Unknown, "nobody says what it is");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_rule_takes_for_a_success_is_returned() {
    let accepted = "retry: quick, classify: [{ status: 503, as: delivered, because: it lies }]";
    let book = BOOK.replace("retry: quick", accepted);
    let shop = Shop::doing(&[Act::Answer(503)]);
    let mut guarded = GuardLayer::new(guard(&book)).judged(by_status).layer(shop);
    assert_eq!(send(&mut guarded, String::new()).await.expect("the rule says so"), 503);
}

/// Numbers its requests by their attempts; those that are marked cannot be copied.
#[derive(Clone)]
struct Numbered;

impl RequestPolicy<String> for Numbered {
    fn copy(&self, request: &String) -> Option<String> {
        (!request.starts_with("stream")).then(|| request.clone())
    }

    fn prepare(&self, request: &mut String, attempt: &Attempt) {
        request.push_str(&format!(" #{}", attempt.number()));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_prepared_for_each_attempt_and_what_cannot_be_copied_is_sent_once() {
    let shop = Shop::doing(&[Act::Refuse, Act::Refuse, Act::Answer(200), Act::Refuse, Act::Refuse]);
    let mut guarded = GuardLayer::new(guard(BOOK)).requests(Numbered).layer(shop.clone());
    assert_eq!(send(&mut guarded, "a book".to_owned()).await.expect("the third goes well"), 200);
    assert_eq!(shop.calls(), ["a book #1", "a book #2", "a book #3"]);
    let error = send(&mut guarded, "stream".to_owned()).await.expect_err("it cannot be sent again");
    assert_eq!((error.attempts, error.category), (1, Category::Transient));
    assert_eq!(error.code.as_str(), "CONNECTION_REFUSED", "the failure's own code, for that alone ended it");
    let mut once = GuardLayer::new(guard(BOOK)).requests(SendOnce).layer(shop);
    assert_eq!(send(&mut once, "a book".to_owned()).await.expect_err("once").attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_keeps_calls_from_the_service_and_a_panic_gives_all_back() {
    let book = BOOK.replace("retry: quick", "retry: quick, breaker: one");
    let book = format!("{book}breakers: {{ one: {{ trip: {{ consecutive: 1 }}, open: 30s }} }}\n");
    let shop = Shop::doing(&[Act::Panic, Act::Refuse]);
    let guard = guard(&book);
    let mut guarded = GuardLayer::new(guard.clone()).layer(shop.clone());
    let panicking = tokio::spawn(send_boxed(guarded.clone()));
    panicking.await.expect_err("it panicked");
    assert_eq!(guard.in_flight(), 0, "its place is free again");
    let error = send(&mut guarded, String::new()).await.expect_err("it fails, and the breaker opens");
    assert!(matches!(error.cause, Cause::BreakerOpen { .. }), "{error}");
    let error = send(&mut guarded, String::new()).await.expect_err("it is open");
    assert!(error.is_untried() && error.retry_after().is_some(), "{error}");
    assert_eq!(shop.calls().len(), 2, "the service was left alone");
}

fn send_boxed(
    mut service: GuardService<Shop>,
) -> BoxFuture<'static, Result<u16, ServiceError<u16, io::Error>>> {
    Box::pin(async move { send(&mut service, String::new()).await })
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_busy_is_waited_for_before_the_call() {
    /// Ready only when it is let.
    #[derive(Clone)]
    struct Busy(Arc<tokio::sync::Semaphore>);
    impl Service<()> for Busy {
        type Response = ();
        type Error = io::Error;
        type Future = Ready<Result<(), io::Error>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
            if self.0.available_permits() > 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
        }
        fn call(&mut self, (): ()) -> Self::Future {
            ready(Ok(()))
        }
    }
    let room = Arc::new(tokio::sync::Semaphore::new(0));
    let mut guarded = GuardLayer::new(guard(BOOK)).layer(Busy(Arc::clone(&room)));
    let now = poll_fn(|context| Poll::Ready(guarded.poll_ready(context).is_ready())).await;
    assert!(!now, "who is pressed says so outward");
    room.add_permits(1);
    send(&mut guarded, ()).await.expect("there is room");
}
