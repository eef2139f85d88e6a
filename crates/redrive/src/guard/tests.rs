//! What the guard's tests have in common: errors that say what they are, and scripts of them.

mod books;
mod calls;
mod endings;
mod engine;
mod ramp;
mod same;
mod words;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use redrive_core::policy::answer::{AnswerKind, TargetAnswer, TransportError};
use tokio::time::Instant;

use super::{Attempt, Book, CallError, Classify, Guard};

/// An error of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Oops {
    Status(u16),
    /// 429, and wait for so many seconds.
    Wait(u64),
    Refused,
    Code(&'static str),
}

impl fmt::Display for Oops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Oops {}

impl Classify for Oops {
    fn answer(&self) -> TargetAnswer<'_> {
        let http = |status| AnswerKind::Http { status, headers: &(), body: "" };
        let (what, retry_after) = match *self {
            Self::Status(status) => (http(status), None),
            Self::Wait(seconds) => (http(429), Some(Duration::from_secs(seconds))),
            Self::Refused => (AnswerKind::Transport(TransportError::Refused), None),
            Self::Code(code) => (AnswerKind::Reported { code }, None),
        };
        TargetAnswer { what, message: "", retry_after }
    }
}

/// Calls once, with one result for each attempt, and says when each attempt began, in milliseconds.
pub(super) async fn play(
    guard: &Guard,
    script: &[Result<u32, Oops>],
) -> (Result<u32, CallError<Oops>>, Vec<u64>) {
    let begun = Instant::now();
    let script = RefCell::new(script.iter().copied().collect::<VecDeque<_>>());
    let starts = RefCell::new(Vec::new());
    let result = guard
        .call(|_attempt: Attempt| {
            starts.borrow_mut().push(u64::try_from(begun.elapsed().as_millis()).expect("a short test"));
            let next = script.borrow_mut().pop_front().expect("the script has an answer left");
            async move { next }
        })
        .await;
    (result, starts.into_inner())
}

pub(super) fn guard(dependency: &str) -> Guard {
    book(dependency).guard("d").expect("the book has it")
}

/// A book with one dependency `d`, written as given.
pub(super) fn book(dependency: &str) -> Book {
    let policies = "{ quick: { delays: [1s, 2s, 4s], retries: 3, jitter: none } }";
    let text = format!("version: 1\nretry_policies: {policies}\n{dependency}\n");
    Book::parse(&text).unwrap_or_else(|error| panic!("{error}"))
}
