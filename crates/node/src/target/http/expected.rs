//! Reads a successful response whole and examines it by the target's `expect`.

use http::response::Parts;
use hyper::body::Incoming;
use redrive::http::answer::{BODY_KEPT_MAX, reply};
use redrive_core::book::cel::CelExpression;
use redrive_core::book::connectors::http::expect::{TOO_LONG, examine};
use redrive_core::limits::EXPECTED_BODY_BYTES_MAX;
use redrive_core::policy::answer::{ReplyKind, TargetReply};
use tokio::time::Instant;

use super::answer::{self, BodyEnd, BodyLimits};

/// The reply, and whether the connection can be kept.
pub(super) async fn examined(
    expect: &CelExpression,
    head: &Parts,
    body: Incoming,
    until: Instant,
) -> (TargetReply, bool) {
    let max = EXPECTED_BODY_BYTES_MAX;
    let body = answer::read(body, BodyLimits { kept_max: max, read_max: max, until }).await;
    let (complete, is_whole) = match &body.end {
        BodyEnd::Whole if body.bytes.len() < max => (Ok(&*body.bytes), true),
        BodyEnd::Whole => (Err(TOO_LONG), true),
        BodyEnd::TooLong => (Err(TOO_LONG), false),
        BodyEnd::TimedOut => (Err("did not come in time"), false),
        BodyEnd::Broken(_) => (Err("broke off"), false),
    };
    let headers = head.headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let examined = examine(expect, head.status.as_u16(), headers, complete);
    let kept = &body.bytes[..body.bytes.len().min(BODY_KEPT_MAX)];
    let reply = reply(head.status, &head.headers, kept);
    match (examined, reply.seen) {
        (Err(unexpected), ReplyKind::Http { status, headers, body }) => {
            let seen = ReplyKind::Unexpected { status, headers, body };
            (TargetReply { seen, message: unexpected.to_string(), retry_after: reply.retry_after }, is_whole)
        }
        (_, seen) => (TargetReply { seen, ..reply }, is_whole),
    }
}
