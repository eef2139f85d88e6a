//! Errors and responses of reqwest.
//!
//! ```no_run
//! use redrive::http::HttpError;
//! use redrive::http::reqwest::check;
//!
//! # async fn shown() -> Result<(), Box<dyn std::error::Error>> {
//! # let book = redrive::Book::open("rules.yaml")?;
//! let (ntfy, client) = (book.guard("ntfy")?, reqwest::Client::new());
//! let answer = ntfy.call(|attempt| {
//!     let request = client
//!         .post("http://ntfy.example/alerts")
//!         .header("idempotency-key", attempt.idempotency_key().to_string())
//!         .body("the disk is full");
//!     // A 503 is an answer to reqwest; `check` makes it a failure, with what it asks for.
//!     async { check(request.send().await.map_err(HttpError::from)?).await }
//! });
//! println!("{}", answer.await?.text().await?);
//! # Ok(()) }
//! ```

use ::reqwest::{Error, Response};
use redrive_core::policy::answer::{
    AnswerKind, CallPart, HeaderPairs, ReplyKind, TargetAnswer, TargetReply, TransportError,
};
use tokio::time::timeout;

use super::answer::{self, BODY_KEPT_MAX, BODY_WAIT_MAX};
use super::{HttpError, chain, in_words};
use crate::guard::Classify;

/// Has only the status; [`check`] keeps the rest of the response.
impl Classify for Error {
    fn answer(&self) -> TargetAnswer<'_> {
        let (what, message) = match kind(self) {
            Kind::Status(status) => {
                (AnswerKind::Http { status, headers: &(), body: "" }, "an answer that is no success")
            }
            Kind::Transport(error) => (AnswerKind::Transport(error), in_words(error)),
            Kind::Unsendable => (AnswerKind::ConfigMissing, "a request that cannot be sent"),
        };
        TargetAnswer { what, message, retry_after: None }
    }
}

impl From<Error> for HttpError<Error> {
    fn from(error: Error) -> Self {
        let seen = seen(&error);
        // An address may contain a password.
        let error = error.without_url();
        Self::unanswered(seen, chain::told(&error), error)
    }
}

/// The response if successful, else an error with its status, headers and the beginning of its body.
pub async fn check(mut response: Response) -> Result<Response, HttpError<Error>> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let mut body = Vec::new();
    // The status counts even if the body breaks off or hangs.
    let _ = timeout(BODY_WAIT_MAX, async {
        while let (true, Ok(Some(piece))) = (body.len() < BODY_KEPT_MAX, response.chunk().await) {
            body.extend_from_slice(&piece[..piece.len().min(BODY_KEPT_MAX - body.len())]);
        }
    })
    .await;
    Err(HttpError::Refused(Box::new(answer::reply(status, response.headers(), &body))))
}

/// What was seen of a result, or `None` for success: a judge for `tower`. Leaves the body unread.
#[must_use]
pub fn judge(result: &Result<Response, Error>) -> Option<TargetReply> {
    match result {
        Ok(response) if response.status().is_success() => None,
        Ok(response) => Some(answer::reply(response.status(), response.headers(), b"")),
        Err(error) => {
            let message = Classify::answer(error).message.to_owned();
            Some(TargetReply { seen: seen(error), message, retry_after: None })
        }
    }
}

/// Clones requests with cloneable bodies and gives all attempts of a call one `idempotency-key`, unless the
/// request has one. A streaming body is sent once.
#[cfg(feature = "tower")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TryCloned;

#[cfg(feature = "tower")]
impl crate::tower::RequestPolicy<::reqwest::Request> for TryCloned {
    fn copy(&self, request: &::reqwest::Request) -> Option<::reqwest::Request> {
        request.try_clone()
    }

    fn prepare(&self, request: &mut ::reqwest::Request, attempt: &crate::guard::Attempt) {
        let key = attempt.idempotency_key().to_string();
        let key = key.parse().expect("hexadecimal digits are fit for a header");
        request.headers_mut().entry("idempotency-key").or_insert(key);
    }
}

fn seen(error: &Error) -> ReplyKind {
    match kind(error) {
        Kind::Status(status) => {
            ReplyKind::Http { status, headers: HeaderPairs::default(), body: String::new() }
        }
        Kind::Transport(error) => ReplyKind::Transport(error),
        Kind::Unsendable => ReplyKind::ConfigMissing,
    }
}

enum Kind {
    Status(u16),
    Transport(TransportError),
    /// The request is invalid or leads nowhere.
    Unsendable,
}

fn kind(error: &Error) -> Kind {
    if let Some(status) = error.status() {
        return Kind::Status(status.as_u16());
    }
    if error.is_builder() || chain::is_of_scheme(error) {
        return Kind::Unsendable;
    }
    Kind::Transport(match (error.is_timeout(), error.is_connect()) {
        (true, true) => TransportError::Timeout(CallPart::Connect),
        (true, false) => TransportError::Timeout(CallPart::Whole),
        (false, true) => chain::of_connecting(error),
        (false, false) => chain::of_call(error),
    })
}
