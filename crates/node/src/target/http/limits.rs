//! Limits of one call, of its response and of kept connections.

use std::future::Future;
use std::time::Duration;

use redrive_core::engine::TargetCall;
use redrive_core::ids::Attempt;
use redrive_core::limits::DURATION_MAX;
use redrive_core::policy::answer::CallPart;
use redrive_core::text::show_duration;
use tokio::time::{Instant, timeout_at};

use super::address::HttpOrigin;
use super::failure::CallFailure;

pub(super) const IDLE_MAX: usize = 100;

pub(super) const IDLE_TIME_MAX: Duration = Duration::from_secs(90);

/// A request that must not be sent twice uses a connection idle for no longer than this: hardly any server
/// closes one so soon, and a look at the socket shows whether it has.
pub(super) const JUST_USED: Duration = Duration::from_millis(2);

/// Such a request also needs a connection whose last request was written within this time.
pub(super) const CALLED_WITHIN: Duration = Duration::from_millis(10);

/// Idle time before the first TCP keep-alive probe.
pub(super) const TCP_KEEP_ALIVE: Duration = Duration::from_secs(30);

/// How long a connection may take after a response until it can be reused.
pub(super) const TURN_AROUND_MAX: Duration = Duration::from_millis(100);

pub(super) const ADDRESSES_MAX: usize = 8;

/// Bytes of the head of a response, and of one read.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Bytes read of a body; a connection is reused only after the end of its response.
pub(super) const BODY_READ_MAX: usize = 256 * 1024;

/// For the response to a batch, which may name every delivery, or for a list; it must be complete.
pub(super) const BATCH_ANSWER_MAX: usize = 1024 * 1024;

pub(super) const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// How often an HTTP/2 connection with open streams is asked whether it is alive.
pub(super) const PING_EVERY: Duration = Duration::from_secs(20);

pub(super) const PING_ANSWER_MAX: Duration = Duration::from_secs(10);

/// How long a call waits for the connection that another one opens.
pub(super) const TURN_WAIT_MAX: Duration = Duration::from_secs(2);

/// Origins whose protocol is remembered.
pub(super) const ORIGINS_MAX: usize = 1_000;

/// For one request to an issuer of tokens.
pub(super) const TOKEN_FETCH_MAX: Duration = Duration::from_secs(10);

pub(super) const TOKEN_ANSWER_MAX: usize = 64 * 1024;

pub(super) const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// If the issuer does not say for how long a token is good.
pub(super) const TOKEN_LIFE_DEFAULT: Duration = Duration::from_mins(5);

/// A token is renewed that long before it expires, or after nine tenths of a shorter life.
pub(super) const TOKEN_MARGIN: Duration = Duration::from_secs(30);

/// A younger token that a target refuses is not renewed: the refusal stands.
pub(super) const TOKEN_RENEW_EVERY: Duration = Duration::from_secs(10);

/// How long an issuer is left alone after it refused a client.
pub(super) const TOKEN_REFUSAL_KEPT: Duration = Duration::from_secs(10);

/// The same after it did not answer.
pub(super) const TOKEN_FAILURE_KEPT: Duration = Duration::from_secs(5);

pub(super) struct CallLimits {
    pub(super) connect: Duration,
    pub(super) tls: Duration,
    headers: Duration,
    pub(super) whole: Duration,
    pub(super) whole_at: Instant,
    pub(super) reuse: Reuse,
}

/// Whether a call may use an idle connection, which the other side may be about to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    /// If it closes before any response, the request is sent once more.
    Any,
    /// Only one that was [just used](JUST_USED) and is quiet; a completely written request is not sent again,
    /// since its rule retries no lost connection.
    JustUsed,
    /// A retry must not fail because of an old connection.
    None,
}

impl Reuse {
    fn of(call: &TargetCall) -> Self {
        if call.deliveries.iter().any(|delivery| delivery.next_attempt() > Attempt::FIRST) {
            Self::None
        } else if call.rule.retries_lost_connections() {
            Self::Any
        } else {
            Self::JustUsed
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum CallPhase {
    Connection,
    Tls,
    Head,
    Body,
}

impl CallLimits {
    pub(super) fn of(call: &TargetCall) -> Self {
        let timeouts = &call.rule.timeouts;
        let whole = call.limit.min(DURATION_MAX);
        Self {
            connect: timeouts.connect.min(DURATION_MAX),
            tls: timeouts.tls.min(DURATION_MAX),
            headers: timeouts.headers.min(DURATION_MAX),
            whole,
            whole_at: Instant::now() + whole,
            reuse: Reuse::of(call),
        }
    }

    /// One limit for the whole and each of its parts.
    pub(super) fn within(whole: Duration) -> Self {
        let whole_at = Instant::now() + whole;
        Self { connect: whole, tls: whole, headers: whole, whole, whole_at, reuse: Reuse::Any }
    }

    /// Until the step's own limit or that of the whole.
    pub(super) async fn wait<T>(
        &self,
        step: CallPhase,
        origin: &HttpOrigin,
        work: impl Future<Output = T>,
    ) -> Result<T, CallFailure> {
        let (part, limit) = match step {
            CallPhase::Connection => (CallPart::Connect, self.connect),
            CallPhase::Tls => (CallPart::Tls, self.tls),
            CallPhase::Head => (CallPart::Headers, self.headers),
            CallPhase::Body => (CallPart::Whole, self.whole),
        };
        let part_at = Instant::now() + limit;
        let (part, limit, at) = if part_at < self.whole_at {
            (part, limit, part_at)
        } else {
            (CallPart::Whole, self.whole, self.whole_at)
        };
        timeout_at(at, work).await.map_err(|_| timed_out(step, part, limit, origin))
    }
}

pub(super) fn timed_out(
    step: CallPhase,
    part: CallPart,
    limit: Duration,
    origin: &HttpOrigin,
) -> CallFailure {
    let limit = show_duration(limit);
    let message = match step {
        CallPhase::Connection => format!("no connection to {origin} within {limit}"),
        CallPhase::Tls => format!("no TLS handshake with {origin} within {limit}"),
        CallPhase::Head => format!("no answer from {origin} within {limit}"),
        CallPhase::Body => format!("response of {origin} not complete within {limit}"),
    };
    CallFailure::timeout(part, message)
}
