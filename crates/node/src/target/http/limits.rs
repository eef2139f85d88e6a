//! How long the parts of one call may take, how much of an answer is read, and how connections are kept.

use std::future::Future;
use std::time::Duration;

use redrive_core::engine::Call;
use redrive_core::ids::Attempt;
use redrive_core::limits::DURATION_MAX;
use redrive_core::policy::answer::CallPart;
use redrive_core::text::show_duration;
use tokio::time::{Instant, timeout_at};

use super::address::Origin;
use super::failure::Failure;

/// Connections that wait for their next call, over all hosts.
pub(super) const IDLE_MAX: usize = 100;

/// How long a connection waits for its next call.
pub(super) const IDLE_TIME_MAX: Duration = Duration::from_secs(90);

/// A call that must not be sent twice is written to a connection that has rested for no longer than this: hardly
/// any server closes one so soon, and a look at the socket shows whether it has.
pub(super) const JUST_USED: Duration = Duration::from_millis(2);

/// Such a call also needs a connection whose last call was written within this time.
pub(super) const CALLED_WITHIN: Duration = Duration::from_millis(10);

/// After so much silence the other side is asked whether it is still there.
pub(super) const TCP_KEEP_ALIVE: Duration = Duration::from_secs(30);

/// How long a connection may take after the end of an answer until it can carry another call.
pub(super) const TURN_AROUND_MAX: Duration = Duration::from_millis(100);

/// The addresses of one name that are tried, one after the other.
pub(super) const ADDRESSES_MAX: usize = 8;

/// The largest head of an answer, and the largest piece that is read at once.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The part of an answer's body that is read, since a connection lives on only if its answer has ended.
pub(super) const BODY_READ_MAX: usize = 256 * 1024;

/// The same of an answer to a batch: it may name every delivery, and half of it tells nothing.
pub(super) const BATCH_ANSWER_MAX: usize = 1024 * 1024;

/// How long the body of a success is waited for that no rule looks at.
pub(super) const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// The limits of one call, from when it was made.
pub(super) struct Limits {
    pub(super) connect: Duration,
    tls: Duration,
    headers: Duration,
    pub(super) whole: Duration,
    pub(super) whole_at: Instant,
    pub(super) reuse: Reuse,
}

/// Whether a call may take a kept connection, which the other side may be about to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    /// Any: if it closes before anything of an answer has come, the request is sent once more.
    Any,
    /// Only one that was [just used](JUST_USED) and shows no sign of an end; a request that was written whole
    /// is not sent again, since its rule retries no lost connection.
    JustUsed,
    /// None: it is a retry, and must not fail for what is left from before.
    None,
}

impl Reuse {
    fn of(call: &Call) -> Self {
        if call.deliveries.iter().any(|delivery| delivery.next_attempt() > Attempt::FIRST) {
            Self::None
        } else if call.rule.retries_lost_connections() {
            Self::Any
        } else {
            Self::JustUsed
        }
    }
}

/// What is being waited for.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Connection,
    Tls,
    Head,
    Body,
}

impl Limits {
    pub(super) fn of(call: &Call) -> Self {
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

    /// The same limit for the whole and for each of its parts, from now on.
    pub(super) fn within(whole: Duration) -> Self {
        let whole_at = Instant::now() + whole;
        Self { connect: whole, tls: whole, headers: whole, whole, whole_at, reuse: Reuse::Any }
    }

    /// Waits for a step until its own limit or that of the whole is over, whichever comes first.
    pub(super) async fn wait<T>(
        &self,
        step: Step,
        origin: &Origin,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let (part, limit) = match step {
            Step::Connection => (CallPart::Connect, self.connect),
            Step::Tls => (CallPart::Tls, self.tls),
            Step::Head => (CallPart::Headers, self.headers),
            Step::Body => (CallPart::Whole, self.whole),
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

pub(super) fn timed_out(step: Step, part: CallPart, limit: Duration, origin: &Origin) -> Failure {
    let limit = show_duration(limit);
    let message = match step {
        Step::Connection => format!("no connection to {origin} within {limit}"),
        Step::Tls => format!("no TLS handshake with {origin} within {limit}"),
        Step::Head => format!("no answer from {origin} within {limit}"),
        Step::Body => format!("the answer of {origin} was not whole within {limit}"),
    };
    Failure::timeout(part, message)
}
