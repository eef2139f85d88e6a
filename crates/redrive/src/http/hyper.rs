//! Errors and responses of hyper and hyper-util.

use std::error::Error;

use ::http::Response;
use ::hyper::body::{Body, Buf};
use http_body_util::BodyExt;
use hyper_util::client::legacy;
use redrive_core::policy::answer::{AnswerKind, ReplyKind, TargetAnswer, TargetReply, TransportError};
use tokio::time::timeout;

use super::answer::{self, BODY_KEPT_MAX, BODY_WAIT_MAX};
use super::{HttpError, causes, chain, in_words};
use crate::guard::Classify;

impl Classify for ::hyper::Error {
    fn answer(&self) -> TargetAnswer<'_> {
        let error = chain::of_hyper(self);
        TargetAnswer { what: AnswerKind::Transport(error), message: in_words(error), retry_after: None }
    }
}

impl Classify for legacy::Error {
    fn answer(&self) -> TargetAnswer<'_> {
        let (what, message) = match of_client(self) {
            Some(error) => (AnswerKind::Transport(error), in_words(error)),
            None => (AnswerKind::ConfigMissing, "a request that cannot be sent"),
        };
        TargetAnswer { what, message, retry_after: None }
    }
}

impl From<::hyper::Error> for HttpError<::hyper::Error> {
    fn from(error: ::hyper::Error) -> Self {
        let seen = ReplyKind::Transport(chain::of_hyper(&error));
        Self::unanswered(seen, chain::told(&error), error)
    }
}

impl From<legacy::Error> for HttpError<legacy::Error> {
    fn from(error: legacy::Error) -> Self {
        let seen = of_client(&error).map_or(ReplyKind::ConfigMissing, ReplyKind::Transport);
        Self::unanswered(seen, chain::told(&error), error)
    }
}

/// `None` for a request that cannot be sent.
fn of_client(error: &legacy::Error) -> Option<TransportError> {
    if chain::is_of_scheme(error) {
        None
    } else if error.is_connect() {
        Some(chain::of_connecting(error))
    } else {
        Some(chain::of_call(error))
    }
}

/// The response if successful, else an error with its status, headers and the beginning of its body.
pub async fn check<B, E>(response: Response<B>) -> Result<Response<B>, HttpError<E>>
where
    B: Body + Unpin,
{
    if response.status().is_success() {
        return Ok(response);
    }
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    // The status counts even if the body breaks off or hangs.
    let _ = timeout(BODY_WAIT_MAX, async {
        while let (true, Some(Ok(frame))) = (bytes.len() < BODY_KEPT_MAX, body.frame().await) {
            let Ok(mut data) = frame.into_data() else { continue };
            let wanted = data.remaining().min(BODY_KEPT_MAX - bytes.len());
            bytes.extend_from_slice(&data.copy_to_bytes(wanted));
        }
    })
    .await;
    Err(HttpError::Refused(Box::new(answer::reply(head.status, &head.headers, &bytes))))
}

/// What was seen of a result, or `None` for success: a judge for `tower` around any HTTP service. Leaves the
/// body unread.
pub fn judge<B, E: Error + 'static>(result: &Result<Response<B>, E>) -> Option<TargetReply> {
    match result {
        Ok(response) if response.status().is_success() => None,
        Ok(response) => Some(answer::reply(response.status(), response.headers(), b"")),
        Err(error) => {
            let client = causes(error).find_map(|cause| cause.downcast_ref::<legacy::Error>());
            let seen = match client {
                Some(error) => of_client(error).map_or(ReplyKind::ConfigMissing, ReplyKind::Transport),
                None => ReplyKind::Transport(chain::of_call(error)),
            };
            Some(TargetReply { seen, message: chain::told(error), retry_after: None })
        }
    }
}
