//! Reads an answer, as far as anybody looks at it.
//!
//! The status decides. It comes before the body, so a body that breaks off, hangs or never ends takes
//! nothing back: a target that has said yes has the event, and one that has said no has told why as far as
//! its body came. Only the answer to a batch must be whole, for there the body says who failed.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::limits::BODY_READ_MAX;
use redrive::http::answer::BODY_KEPT_MAX;

/// What was read of a body.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) end: BodyEnd,
}

/// Where reading a body ended.
#[derive(Debug)]
pub(super) enum BodyEnd {
    /// At its end.
    Whole,
    /// At the most that is read of one.
    TooLong,
    /// Where time was up.
    TimedOut,
    /// Where the connection broke, or spoke no HTTP any more.
    Broken(hyper::Error),
}

/// How much of a body is wanted.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// The part that is kept.
    pub(super) kept_max: usize,
    /// The part that is read.
    pub(super) read_max: usize,
    /// How long that may take.
    pub(super) until: Instant,
}

impl Wanted {
    /// What any answer may say, until then.
    pub(super) const fn usual(until: Instant) -> Self {
        Self { kept_max: BODY_KEPT_MAX, read_max: BODY_READ_MAX, until }
    }
}

pub(super) async fn read(mut body: Incoming, wanted: Wanted) -> Body {
    let mut bytes = Vec::new();
    let end = timeout_at(wanted.until, read_into(&mut bytes, &mut body, wanted)).await;
    Body { bytes, end: end.unwrap_or(BodyEnd::TimedOut) }
}

async fn read_into(bytes: &mut Vec<u8>, body: &mut Incoming, wanted: Wanted) -> BodyEnd {
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
