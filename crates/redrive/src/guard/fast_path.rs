//! One atomic word in front of a dependency's breaker and throttle, for calls that need not ask them.
//!
//! Most calls find a closed breaker and room in flight, and succeed, which only changes a few counts. They
//! enter and leave by one compare-and-set each. Whoever asks the breaker or throttle takes the lock, moves
//! the counts out of the word, and closes it until the lock is released, so decisions are made alone.
//!
//! What the word says holds from its publication until it is taken: the breaker is closed in this epoch, and
//! only the number in flight is limited.
//!
//! Invariant: a call on the fast path leaves breaker, throttle and budget as if it had asked them; a test
//! compares both paths.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use redrive_core::policy::breaker::Generation;

/// From the lowest bit up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FastPathWord(u64);

const IN_FLIGHT_BITS: u32 = 17;
const COUNT_BITS: u32 = 12;
const STAMP_BITS: u32 = 5;

const LET_IN_AT: u32 = IN_FLIGHT_BITS;
const SUCCESSES_AT: u32 = LET_IN_AT + COUNT_BITS;
const FLOWS_AT: u32 = SUCCESSES_AT + COUNT_BITS;
const CLOSED_AT: u32 = FLOWS_AT + 1;
const STAMP_AT: u32 = CLOSED_AT + 1;
const EPOCH_AT: u32 = STAMP_AT + STAMP_BITS;
const _: () = assert!(EPOCH_AT + u16::BITS == u64::BITS);

const ONE_LET_IN: u64 = 1 << LET_IN_AT;
const ONE_SUCCESS: u64 = 1 << SUCCESSES_AT;
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
/// Above the maximum of the rule book.
pub(super) const IN_FLIGHT_MAX: u32 = (1 << IN_FLIGHT_BITS) - 1;

/// The trip settings of a success; few dependencies have more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TripStamp(u8);

impl TripStamp {
    /// No success takes the fast path.
    pub(super) const NONE: Self = Self(0);

    /// The stamp of the trip settings at that index.
    pub(super) fn of(place: usize) -> Self {
        let number = u8::try_from(place + 1).ok().filter(|number| *number < 1 << STAMP_BITS);
        number.map_or(Self::NONE, Self)
    }
}

/// The breaker's generation, as far as the word has bits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(u16);

impl Epoch {
    /// Repeats after 65,536 generations.
    #[expect(clippy::cast_possible_truncation, reason = "the low bits distinguish neighbours")]
    pub(super) const fn of(generation: Generation) -> Self {
        Self(generation.0 as u16)
    }
}

/// The state to publish.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastPathState {
    pub(super) in_flight: u32,
    pub(super) flow: FlowLimit,
    pub(super) breaker: BreakerClosed,
}

/// Whether only the number in flight is limited, and no caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowLimit {
    Free,
    Limited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreakerClosed {
    Yes {
        epoch: Epoch,
        /// The trip settings of successes on the fast path.
        stamp: TripStamp,
    },
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleNeeds {
    Breaker { stamp: TripStamp, successes: Successes },
    NoBreaker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Successes {
    Counted,
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FastPathCounts {
    pub(super) in_flight: u32,
    pub(super) let_in: u32,
    pub(super) successes: u32,
}

impl FastPathWord {
    /// Closed.
    const TAKEN: Self = Self(0);

    fn of(standing: FastPathState) -> Self {
        let FastPathState { in_flight, flow, breaker } = standing;
        let mut bits = u64::from(in_flight.min(IN_FLIGHT_MAX));
        if flow == FlowLimit::Free {
            bits |= 1 << FLOWS_AT;
        }
        if let BreakerClosed::Yes { epoch, stamp } = breaker {
            bits |= 1 << CLOSED_AT | u64::from(stamp.0) << STAMP_AT | u64::from(epoch.0) << EPOCH_AT;
        }
        Self(bits)
    }

    const fn field(self, at: u32, bits: u32) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "no field is wider than 32 bits")]
        let field = (self.0 >> at) as u32 & ((1 << bits) - 1);
        field
    }

    const fn in_flight(self) -> u32 {
        self.field(0, IN_FLIGHT_BITS)
    }

    const fn flows(self) -> bool {
        self.field(FLOWS_AT, 1) == 1
    }

    const fn is_closed(self) -> bool {
        self.field(CLOSED_AT, 1) == 1
    }

    const fn epoch(self) -> Epoch {
        Epoch((self.0 >> EPOCH_AT) as u16)
    }

    fn gathered(self) -> FastPathCounts {
        FastPathCounts {
            in_flight: self.in_flight(),
            let_in: self.field(LET_IN_AT, COUNT_BITS),
            successes: self.field(SUCCESSES_AT, COUNT_BITS),
        }
    }

    fn may_start(self, wants: RuleNeeds, in_flight_max: u32) -> bool {
        self.flows()
            && (self.is_closed() || wants == RuleNeeds::NoBreaker)
            && self.in_flight() < in_flight_max
            && self.field(LET_IN_AT, COUNT_BITS) < COUNT_MAX
    }

    fn may_end(self, wants: RuleNeeds, epoch: Epoch) -> bool {
        let RuleNeeds::Breaker { stamp, .. } = wants else { return self.flows() };
        self.flows()
            && self.is_closed()
            && stamp != TripStamp::NONE
            && self.field(STAMP_AT, STAMP_BITS) == u32::from(stamp.0)
            && self.epoch() == epoch
            && self.field(SUCCESSES_AT, COUNT_BITS) < COUNT_MAX
    }
}

impl fmt::Debug for FastPathWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = (self.flows(), self.is_closed(), self.epoch());
        f.debug_tuple("Word").field(&self.gathered()).field(&flags).finish()
    }
}

/// The shared word.
#[derive(Debug)]
pub(super) struct FastPath(AtomicU64);

impl FastPath {
    /// Closed until a state is published.
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(FastPathWord::TAKEN.0))
    }

    /// Admits a call and returns its epoch.
    #[inline]
    pub(super) fn start(&self, wants: RuleNeeds, in_flight_max: u32) -> Option<Epoch> {
        let mut bits = self.0.load(Ordering::Acquire);
        loop {
            let fast_path = FastPathWord(bits);
            if !fast_path.may_start(wants, in_flight_max) {
                return None;
            }
            let next = bits + 1 + ONE_LET_IN;
            match self.0.compare_exchange_weak(bits, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(fast_path.epoch()),
                Err(newer) => bits = newer,
            }
        }
    }

    /// Counts a success.
    #[inline]
    pub(super) fn end_well(&self, wants: RuleNeeds, epoch: Epoch) -> Result<(), MustAsk> {
        let counted = match wants {
            RuleNeeds::Breaker { successes: Successes::Counted, .. } => ONE_SUCCESS,
            RuleNeeds::Breaker { successes: Successes::Ignored, .. } | RuleNeeds::NoBreaker => 0,
        };
        let mut bits = self.0.load(Ordering::Acquire);
        loop {
            if !FastPathWord(bits).may_end(wants, epoch) {
                return Err(MustAsk);
            }
            match self.0.compare_exchange_weak(bits, bits - 1 + counted, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Ok(()),
                Err(newer) => bits = newer,
            }
        }
    }

    /// Closes the word and returns its counts; requires the lock.
    pub(super) fn take(&self) -> FastPathCounts {
        FastPathWord(self.0.swap(FastPathWord::TAKEN.0, Ordering::AcqRel)).gathered()
    }

    /// Opens the word; requires the lock.
    pub(super) fn publish(&self, standing: FastPathState) {
        self.0.store(FastPathWord::of(standing).0, Ordering::Release);
    }
}

/// The call must ask the breaker and the throttle.
#[derive(Debug)]
pub(super) struct MustAsk;
