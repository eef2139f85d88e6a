//! Which trace an event belongs to, and the ids of the spans that tell of it.
//!
//! Every id is a hash of what it stands for: nothing is stored, a restart in between changes nothing, and
//! whoever makes a call and whoever tells of it later agree without having met. An event that came with a
//! `traceparent` goes on in that trace; one that came without begins a trace of its own.
//!
//! ```text
//! the sender's span              from `traceparent`, if there was one
//! ├─ accept                      the event is durable
//! └─ deliver                     one for each service that wants it; below `accept` if there was no sender
//!    ├─ attempt 1                its id goes to the target, as the `traceparent` of the call
//!    ├─ attempt 2
//!    └─ replay                   a dead letter that was sent again, with the attempts of that
//!       └─ attempt 3
//! ```
//!
//! Invariant: ids are frozen. A release that made others would tear apart what an older one has begun.

pub mod span;

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};

use crate::event::Event;
use crate::hash;
use crate::ids::{Attempt, DeliveryId};
use crate::letters::replay::ReplayId;

/// One trace: 128 bits, shown as 32 hexadecimal digits; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(NonZeroU128);

/// One span of a trace: 64 bits, shown as 16 hexadecimal digits; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(NonZeroU64);

/// Whether a trace is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// It is.
    Yes,
    /// It is not, and those who are called need not either.
    No,
}

/// How many of all traces are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f64);

/// Which traces are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// How many of those that nobody has decided about.
    pub share: Share,
    /// Whether a sender has a say.
    pub sender: SenderSays,
}

/// What the flag in a sender's `traceparent` is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderSays {
    /// What it says is done.
    Heeded,
    /// Every trace is decided about here.
    Ignored,
}

/// A place in a trace, as a `traceparent` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace.
    pub trace: TraceId,
    /// The span that whatever follows is a part of.
    pub span: SpanId,
    /// Whether it is recorded.
    pub sampled: Sampled,
}

/// The trace of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Its id.
    pub id: TraceId,
    /// The span of the sender, if it told of one.
    pub sender: Option<SpanId>,
    /// Whether it is recorded.
    pub sampled: Sampled,
    accept: SpanId,
}

impl Share {
    /// Every one.
    pub const ALL: Self = Self(1.0);
    /// None at all.
    pub const NONE: Self = Self(0.0);

    /// A part between 0 and 1.
    #[must_use]
    pub fn new(part: f64) -> Option<Self> {
        (0.0..=1.0).contains(&part).then_some(Self(part))
    }

    /// Whether a trace is in it: by its id alone, so that everybody with the same share says the same.
    #[must_use]
    fn has(self, trace: TraceId) -> bool {
        // As others do it: 63 bits of the lower half against that part of all of them.
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let drawn = (trace.0.get() as u64) >> 1;
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
        let drawn = drawn as f64 / (1_u64 << 63) as f64;
        self.0 >= 1.0 || drawn < self.0
    }
}

impl Sampler {
    /// Every trace, but for those that a sender does not want.
    pub const USUAL: Self = Self { share: Share::ALL, sender: SenderSays::Heeded };

    fn decide(self, trace: TraceId, sender: Option<&Context>) -> Sampled {
        match (sender, self.sender) {
            (Some(context), SenderSays::Heeded) => context.sampled,
            _ if self.share.has(trace) => Sampled::Yes,
            _ => Sampled::No,
        }
    }
}

impl Context {
    /// Reads a `traceparent`; none if it is not one. Of versions to come, what is known of the first is read.
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

/// As it stands in a `traceparent`.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = match self.sampled {
            Sampled::Yes => "01",
            Sampled::No => "00",
        };
        write!(f, "00-{}-{}-{flags}", self.trace, self.span)
    }
}

impl Trace {
    /// The trace that an event belongs to.
    ///
    /// An event that came without one has a trace that its source and its id name, so that all its deliveries
    /// meet there.
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

    /// The span of its acceptance.
    #[must_use]
    pub const fn accept(&self) -> SpanId {
        self.accept
    }

    /// What its deliveries are parts of: what the sender did, or else its acceptance.
    #[must_use]
    pub fn above_deliveries(&self) -> SpanId {
        self.sender.unwrap_or(self.accept)
    }

    /// The place that an attempt has in it, for the target to go on from: the `traceparent` of the call.
    #[must_use]
    pub fn at_attempt(&self, delivery: DeliveryId, attempt: Attempt) -> Context {
        Context { trace: self.id, span: SpanId::of_attempt(delivery, attempt), sampled: self.sampled }
    }
}

/// What keeps hashes of one thing for different ends apart.
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

    /// The span of a delivery.
    #[must_use]
    pub fn of_delivery(delivery: DeliveryId) -> Self {
        Self::hashed(delivery, DELIVERY, 0)
    }

    /// The span of a dead letter that a replay sends again.
    #[must_use]
    pub fn of_replay(delivery: DeliveryId, replay: ReplayId) -> Self {
        Self::hashed(delivery, REPLAY, replay.0)
    }

    /// The span of an attempt.
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
