//! Which trace an event belongs to, and the ids of its spans.
//!
//! Every id is a hash of what it identifies: nothing is stored, a restart in between changes nothing, and the
//! caller of a target and the exporter of spans agree without communication. An event with a `traceparent`
//! continues that trace; one without begins a trace of its own.
//!
//! ```text
//! the sender's span              from `traceparent`, if there was one
//! ├─ accept                      the event is durable
//! └─ deliver                     one for each subscribed service; below `accept` if there was no sender
//!    ├─ attempt 1                its id goes to the target, as the `traceparent` of the call
//!    ├─ attempt 2
//!    └─ replay                   a dead letter that was sent again, with its attempts
//!       └─ attempt 3
//! ```
//!
//! Invariant: ids are frozen. A release with other ids would tear apart traces that an older one has begun.

pub mod span;

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};

use crate::event::Event;
use crate::hash;
use crate::ids::{Attempt, DeliveryId};
use crate::letters::replay::ReplayId;
use crate::text::Share;

/// 128 bits, shown as 32 hexadecimal digits; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(NonZeroU128);

/// 64 bits, shown as 16 hexadecimal digits; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(NonZeroU64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    Yes,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// Of the traces without a sender's decision.
    pub share: Share,
    pub sender: SenderSays,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderSays {
    Heeded,
    Ignored,
}

/// A position in a trace, as in a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub trace: TraceId,
    /// The parent of what follows.
    pub span: SpanId,
    pub sampled: Sampled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTrace {
    pub id: TraceId,
    pub sender: Option<SpanId>,
    pub sampled: Sampled,
    accept: SpanId,
}

impl Sampler {
    /// Every trace, except those that a sender does not record.
    pub const USUAL: Self = Self { share: Share::ALL, sender: SenderSays::Heeded };

    fn decide(self, trace: TraceId, sender: Option<&Context>) -> Sampled {
        match (sender, self.sender) {
            (Some(context), SenderSays::Heeded) => context.sampled,
            _ if is_drawn(trace, self.share) => Sampled::Yes,
            _ => Sampled::No,
        }
    }
}

/// Whether a trace is in the share: by its id alone, so that every node with the same share decides the same.
fn is_drawn(trace: TraceId, share: Share) -> bool {
    // The usual way of OpenTelemetry: 63 bits of the lower half against that part of all of them.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    let drawn = (trace.0.get() as u64) >> 1;
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    let drawn = drawn as f64 / (1_u64 << 63) as f64;
    share.get() >= 1.0 || drawn < share.get()
}

impl Context {
    /// `None` if it is not a `traceparent`. Later versions are read as far as the first is known.
    #[must_use]
    pub fn parse(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.splitn(5, '-');
        let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
        let (flags, rest) = (parts.next()?, parts.next());
        let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let lengths = [(version, 2), (trace, 32), (span, 16), (flags, 2)];
        if !lengths.iter().all(|(text, length)| text.len() == *length && is_hex(text)) {
            return None;
        }
        if version == "ff" || version == "00" && rest.is_some() {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().and_then(NonZeroU128::new)?;
        let span = u64::from_str_radix(span, 16).ok().and_then(NonZeroU64::new)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let sampled = if flags & 1 == 1 { Sampled::Yes } else { Sampled::No };
        Some(Self { trace: TraceId(trace), span: SpanId(span), sampled })
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = match self.sampled {
            Sampled::Yes => "01",
            Sampled::No => "00",
        };
        write!(f, "00-{}-{}-{flags}", self.trace, self.span)
    }
}

impl EventTrace {
    /// An event without a trace gets one by its source and id, which all its deliveries share.
    #[must_use]
    pub fn of(event: &Event, sampler: Sampler) -> Self {
        let sender = event.traceparent.as_ref().and_then(|text| Context::parse(text.as_str()));
        let name = [event.source.as_str().as_bytes(), &[0], event.id.as_str().as_bytes()].concat();
        let own = || TraceId(NonZeroU128::new(hash::stable_128(&name)).unwrap_or(NonZeroU128::MIN));
        let id = sender.map_or_else(own, |context| context.trace);
        Self {
            id,
            sender: sender.map(|context| context.span),
            sampled: sampler.decide(id, sender.as_ref()),
            accept: SpanId::new(hash::stable_64(&name, ACCEPT)),
        }
    }

    #[must_use]
    pub const fn accept(&self) -> SpanId {
        self.accept
    }

    /// The parent of its deliveries: the sender's span, or else its acceptance.
    #[must_use]
    pub fn above_deliveries(&self) -> SpanId {
        self.sender.unwrap_or(self.accept)
    }

    #[must_use]
    pub fn at_attempt(&self, delivery: DeliveryId, attempt: Attempt) -> Context {
        Context { trace: self.id, span: SpanId::of_attempt(delivery, attempt), sampled: self.sampled }
    }
}

/// Separate hashes of one thing for different purposes.
const ACCEPT: u64 = 1;
const DELIVERY: u64 = 2;
const REPLAY: u64 = 3;
const ATTEMPT: u64 = 4;

impl SpanId {
    fn new(hash: u64) -> Self {
        Self(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN))
    }

    fn hashed(delivery: DeliveryId, end: u64, number: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "one half after the other")]
        let (low, high) = (delivery.0 as u64, (delivery.0 >> 64) as u64);
        Self::new(hash::stable_64_of(hash::stable_64_of(low, high), hash::stable_64_of(end, number)))
    }

    #[must_use]
    pub fn of_delivery(delivery: DeliveryId) -> Self {
        Self::hashed(delivery, DELIVERY, 0)
    }

    #[must_use]
    pub fn of_replay(delivery: DeliveryId, replay: ReplayId) -> Self {
        Self::hashed(delivery, REPLAY, replay.0)
    }

    #[must_use]
    pub fn of_attempt(delivery: DeliveryId, attempt: Attempt) -> Self {
        Self::hashed(delivery, ATTEMPT, u64::from(attempt.get()))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
