//! One atomic word in front of a dependency's breaker and throttle, for calls that need not ask them.
//!
//! Most calls find a closed breaker, room among those in flight, and end well, and none of that changes anything
//! but a few counts. So they are let in and out by one compare-and-set each, and whoever asks the breaker or the
//! throttle, under their lock, first takes the counts out of the word and tells them. While the lock is held the
//! word lets nobody pass, so whatever is decided there is decided alone.
//!
//! What the word says holds from [`Word`] being published until it is taken: the breaker is closed, in this
//! epoch, a success does this, the throttle limits nothing but how many are in flight.
//!
//! Invariant: a call that passes by the word leaves breaker, throttle and budget as if it had asked them; a test
//! holds both ways against each other.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use redrive_core::policy::breaker::Generation;

/// What lies in the word, from the lowest bit up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u64);

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
/// The most calls in flight that a word counts; the rule book has fewer.
pub(super) const IN_FLIGHT_MAX: u32 = (1 << IN_FLIGHT_BITS) - 1;

/// Which trip a success was judged by; few dependencies have more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u8);

impl Stamp {
    /// No success passes by this one.
    pub(super) const NONE: Self = Self(0);

    /// The stamp of the trip at that place among those of the dependency.
    pub(super) fn of(place: usize) -> Self {
        let number = u8::try_from(place + 1).ok().filter(|number| *number < 1 << STAMP_BITS);
        number.map_or(Self::NONE, Self)
    }
}

/// Which life of the breaker it is: another after each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(u16);

impl Epoch {
    /// Changes with every generation, and is the same again after 65,536 of them.
    #[expect(clippy::cast_possible_truncation, reason = "the low bits tell neighbours apart")]
    pub(super) const fn of(generation: Generation) -> Self {
        Self(generation.0 as u16)
    }
}

/// How a dependency stands, to be published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) in_flight: u32,
    pub(super) flow: Flow,
    pub(super) breaker: Closed,
}

/// Whether the throttle limits nothing but how many are in flight, and nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Free,
    Limited,
}

/// Whether the breaker is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    Yes {
        epoch: Epoch,
        /// By which trip a success may pass.
        stamp: Stamp,
    },
    No,
}

/// What a guard's rule asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// A breaker, by this trip.
    Breaker { stamp: Stamp, successes: Successes },
    /// None.
    NoBreaker,
}

/// What a success does to the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Successes {
    Counted,
    Ignored,
}

/// Counts that a word has gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gathered {
    pub(super) in_flight: u32,
    pub(super) let_in: u32,
    pub(super) successes: u32,
}

impl Word {
    /// Nobody passes.
    const TAKEN: Self = Self(0);

    fn of(standing: Standing) -> Self {
        let Standing { in_flight, flow, breaker } = standing;
        let mut bits = u64::from(in_flight.min(IN_FLIGHT_MAX));
        if flow == Flow::Free {
            bits |= 1 << FLOWS_AT;
        }
        if let Closed::Yes { epoch, stamp } = breaker {
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

    fn gathered(self) -> Gathered {
        Gathered {
            in_flight: self.in_flight(),
            let_in: self.field(LET_IN_AT, COUNT_BITS),
            successes: self.field(SUCCESSES_AT, COUNT_BITS),
        }
    }

    fn may_start(self, wants: Wants, in_flight_max: u32) -> bool {
        self.flows()
            && (self.is_closed() || wants == Wants::NoBreaker)
            && self.in_flight() < in_flight_max
            && self.field(LET_IN_AT, COUNT_BITS) < COUNT_MAX
    }

    fn may_end(self, wants: Wants, epoch: Epoch) -> bool {
        let Wants::Breaker { stamp, .. } = wants else { return self.flows() };
        self.flows()
            && self.is_closed()
            && stamp != Stamp::NONE
            && self.field(STAMP_AT, STAMP_BITS) == u32::from(stamp.0)
            && self.epoch() == epoch
            && self.field(SUCCESSES_AT, COUNT_BITS) < COUNT_MAX
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = (self.flows(), self.is_closed(), self.epoch());
        f.debug_tuple("Word").field(&self.gathered()).field(&flags).finish()
    }
}

/// The word itself, where all threads find it.
#[derive(Debug)]
pub(super) struct Gatekeeper(AtomicU64);

impl Gatekeeper {
    /// Lets nobody pass until a standing is published.
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(Word::TAKEN.0))
    }

    /// Lets a call in, if it need not ask; says in which epoch.
    #[inline]
    pub(super) fn start(&self, wants: Wants, in_flight_max: u32) -> Option<Epoch> {
        let mut bits = self.0.load(Ordering::Acquire);
        loop {
            let word = Word(bits);
            if !word.may_start(wants, in_flight_max) {
                return None;
            }
            let next = bits + 1 + ONE_LET_IN;
            match self.0.compare_exchange_weak(bits, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(word.epoch()),
                Err(newer) => bits = newer,
            }
        }
    }

    /// Lets a call out that ended well, if that need not be told.
    #[inline]
    pub(super) fn end_well(&self, wants: Wants, epoch: Epoch) -> Result<(), MustTell> {
        let counted = match wants {
            Wants::Breaker { successes: Successes::Counted, .. } => ONE_SUCCESS,
            Wants::Breaker { successes: Successes::Ignored, .. } | Wants::NoBreaker => 0,
        };
        let mut bits = self.0.load(Ordering::Acquire);
        loop {
            if !Word(bits).may_end(wants, epoch) {
                return Err(MustTell);
            }
            match self.0.compare_exchange_weak(bits, bits - 1 + counted, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Ok(()),
                Err(newer) => bits = newer,
            }
        }
    }

    /// Lets nobody pass any more, and says what has gathered; only for who holds the lock.
    pub(super) fn take(&self) -> Gathered {
        Word(self.0.swap(Word::TAKEN.0, Ordering::AcqRel)).gathered()
    }

    /// From now on calls may pass as the dependency stands; only for who holds the lock.
    pub(super) fn publish(&self, standing: Standing) {
        self.0.store(Word::of(standing).0, Ordering::Release);
    }
}

/// The breaker and the throttle must be told.
#[derive(Debug)]
pub(super) struct MustTell;
