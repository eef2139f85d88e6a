//! Reads a response, as far as it is used.
//!
//! The status decides, and it precedes the body, so a body that breaks off or never ends changes nothing.
//! Only the response to a batch must be complete, since its body says which events failed.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::limits::BODY_READ_MAX;
use redrive::http::answer::BODY_KEPT_MAX;

pub(super) struct ResponseBody {
    pub(super) bytes: Vec<u8>,
    pub(super) end: BodyEnd,
}

#[derive(Debug)]
pub(super) enum BodyEnd {
    Whole,
    TooLong,
    TimedOut,
    /// The connection broke, or it is not HTTP.
    Broken(hyper::Error),
}

#[derive(Clone, Copy)]
pub(super) struct BodyLimits {
    pub(super) kept_max: usize,
    pub(super) read_max: usize,
    pub(super) until: Instant,
}

impl BodyLimits {
    pub(super) const fn usual(until: Instant) -> Self {
        Self { kept_max: BODY_KEPT_MAX, read_max: BODY_READ_MAX, until }
    }
}

pub(super) async fn read(mut body: Incoming, wanted: BodyLimits) -> ResponseBody {
    let mut bytes = Vec::new();
    let end = timeout_at(wanted.until, read_into(&mut bytes, &mut body, wanted)).await;
    ResponseBody { bytes, end: end.unwrap_or(BodyEnd::TimedOut) }
}

async fn read_into(bytes: &mut Vec<u8>, body: &mut Incoming, wanted: BodyLimits) -> BodyEnd {
    let mut read = 0;
    while read <= wanted.read_max {
        let frame = match body.frame().await {
            None => return BodyEnd::Whole,
            Some(Err(error)) => return BodyEnd::Broken(error),
            Some(Ok(frame)) => frame,
        };
        let Some(data) = frame.data_ref() else { continue };
        read += data.len();
        let room = wanted.kept_max.saturating_sub(bytes.len());
        bytes.extend_from_slice(&data[..data.len().min(room)]);
    }
    BodyEnd::TooLong
}
