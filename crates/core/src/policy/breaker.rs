//! The circuit breaker of one dependency: closed, calls flow; open, they wait; half-open, a few probe.
//!
//! ```text
//!           the trip is reached                    `open` has passed, a call is asked for
//!   closed ───────────────────────▶ open ◀───────────────────────────▶ half-open
//!     ▲                             any failure of a probe                │
//!     └───────────────────────────────────────────────────────────────────┘
//!                       `close_after` successes of probes in a row
//! ```
//!
//! No call is made without a [`Permit`]: [`Breaker::admit`] makes one, and [`Breaker::settle`] or
//! [`Breaker::cancel`] takes it back.
//!
//! Why generations: a call may take longer than the breaker stays in one state. Its result is then about
//! another time: the timeout of a call made before the outage must not fail the probe that shows its end.
//! Every change of state begins a new generation, and a permit of an earlier one changes nothing.
//!
//! Why leases: a probe may never return, and a breaker that waits for it would stay half-open forever. A
//! probe has its place until its lease ends; then its place may be given to another, and is as soon as a
//! caller asks and finds no free one. A missing probe says nothing about the dependency: a caller that waits
//! for an answer has a timeout of its own, and reports that. So a lease is a little longer than the call, and
//! a late probe still counts: fully while it has its place; once another has it only as a failure, since two
//! successes in one place would close the breaker too early.
//!
//! Invariants:
//! - before `until`, an open breaker admits no call
//! - in half-open, at most `probes` permits are out whose leases have not ended
//! - a failed probe reopens the breaker if it is still half-open in the same generation, however late
//! - after `until` and every lease have passed, a call is admitted
//! - while closed, `admit` and the `settle` of a success allocate nothing

mod record;
mod settings;
mod tally;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::record::{Adoption, BreakerRecord};
pub use self::settings::{BreakerSettings, CountingUnit, InvalidBreaker, RawBreaker, Trip};
use self::tally::{FailureTally, TripJudgement};
use crate::limits;
use crate::time::Timestamp;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Breaker {
    mode: Mode,
    generation: Generation,
    /// Never reset, so that no two probes share a lease.
    last_lease: LeaseNumber,
    last_failure_at: Option<Timestamp>,
    last_success_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
enum Mode {
    Closed(FailureTally),
    Open { outage: BreakerOutage, until: Timestamp },
    HalfOpen { outage: BreakerOutage, since: Timestamp, leases: Vec<Lease>, successes: u32 },
}

impl Default for Mode {
    fn default() -> Self {
        Self::Closed(FailureTally::default())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BreakerOutage {
    began_at: Timestamp,
    opened_at: Timestamp,
    /// The failures that opened it, and those of probes since.
    failures: u32,
}

/// The place of a probe that has not returned; in the order in which they were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    number: LeaseNumber,
    ends_at: Timestamp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LeaseNumber(u64);

/// How many times a breaker, or one whose state it adopted, has changed its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A state without its figures.
///
/// Ordered by caution: of two states of the same generation, the later one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BreakerPhase {
    Closed,
    HalfOpen,
    Open,
}

impl BreakerPhase {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half-open",
            Self::Open => "open",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    Closed {
        failures: u32,
    },
    Open {
        until: Timestamp,
    },
    HalfOpen {
        /// Probes whose leases have not ended.
        probes_out: u32,
        successes: u32,
    },
}

impl BreakerState {
    #[must_use]
    pub const fn phase(&self) -> BreakerPhase {
        match self {
            Self::Closed { .. } => BreakerPhase::Closed,
            Self::Open { .. } => BreakerPhase::Open,
            Self::HalfOpen { .. } => BreakerPhase::HalfOpen,
        }
    }

    #[must_use]
    pub const fn open_until(&self) -> Option<Timestamp> {
        match self {
            Self::Open { until } => Some(*until),
            Self::Closed { .. } | Self::HalfOpen { .. } => None,
        }
    }
}

#[derive(Debug)]
pub enum Admission {
    Allowed(Permit),
    /// Not before then. Where probes are out it may be sooner: ask again after each [`Transition`] and
    /// whenever a probe is settled or cancelled.
    WaitUntil(Timestamp),
}

/// The right to make one call. A permit that is dropped costs, at worst, one probe's lease.
#[derive(Debug)]
#[must_use = "a permit is given back by `settle` or `cancel`"]
pub struct Permit {
    generation: Generation,
    kind: PermitKind,
}

#[derive(Debug)]
enum PermitKind {
    Call,
    /// The probe that made the breaker half-open.
    FirstProbe(LeaseNumber),
    Probe(LeaseNumber),
}

impl Permit {
    #[must_use]
    pub const fn is_probe(&self) -> bool {
        match self.kind {
            PermitKind::Call => false,
            PermitKind::FirstProbe(_) | PermitKind::Probe(_) => true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSuccess {
    /// Nothing, except that it is the latest one.
    Nothing,
    /// It is counted, and alike until then: several may be counted together.
    Counts {
        alike_until: Timestamp,
    },
    Changes,
}

/// What a call says about the health of the dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    Success,
    Failure(CallEnd),
    /// It answered, if only to refuse this one message (`permanent`, `invalid`): a probe has found it
    /// healthy, and a closed breaker learns nothing.
    Answered,
    /// Nothing: the fault was ours or the caller's (`fatal`, `internal`, a cancellation).
    Silent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    Final,
    /// Another attempt follows; under [`CountingUnit::Call`] only the last one counts.
    WillRetry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    pub from: BreakerPhase,
    pub to: BreakerPhase,
    pub at: Timestamp,
    pub generation: Generation,
    /// Failures since it was last closed: those that opened it, and those of probes.
    pub failures: u32,
}

impl Breaker {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a permit to make one call that takes at most `limit`.
    ///
    /// A probe may lose its place if it is not settled within its lease: the call's limit, or
    /// [`limits::PROBE_LEASE_MIN`] if that is longer, plus [`limits::PROBE_LEASE_MARGIN`].
    ///
    /// The first probe is a change of state: see [`Self::transition_by`].
    #[inline]
    pub fn admit(&mut self, settings: &BreakerSettings, limit: Duration, now: Timestamp) -> Admission {
        match self.mode {
            Mode::Closed(_) => {
                Admission::Allowed(Permit { generation: self.generation, kind: PermitKind::Call })
            }
            Mode::Open { until, .. } if now < until => Admission::WaitUntil(until),
            Mode::Open { outage, .. } => {
                let half_open = Mode::HalfOpen { outage, since: now, leases: Vec::new(), successes: 0 };
                self.change_to(half_open, outage.failures, now);
                self.admit_probe(settings, limit, PermitKind::FirstProbe, now)
            }
            Mode::HalfOpen { .. } => self.admit_probe(settings, limit, PermitKind::Probe, now),
        }
    }

    /// The change from open to half-open, if this permit is the first probe; ask right after [`Self::admit`].
    /// A permit does not carry it, since most are not probes and all are moved.
    #[must_use]
    pub fn transition_by(&self, permit: &Permit) -> Option<Transition> {
        if let (Mode::HalfOpen { outage, since, .. }, PermitKind::FirstProbe(_)) = (&self.mode, &permit.kind)
            && permit.generation == self.generation
        {
            let (from, to, at) = (BreakerPhase::Open, BreakerPhase::HalfOpen, *since);
            Some(Transition { from, to, at, generation: self.generation, failures: outage.failures })
        } else {
            None
        }
    }

    /// Takes a permit back, with the result of the call.
    ///
    /// A permit of an earlier generation changes nothing, nor does the success of a probe whose place another
    /// has by now.
    #[inline]
    pub fn settle(
        &mut self,
        permit: Permit,
        seen: Observation,
        settings: &BreakerSettings,
        now: Timestamp,
    ) -> Option<Transition> {
        if permit.generation != self.generation {
            return None;
        }
        match (&mut self.mode, permit.kind) {
            (Mode::Closed(tally), PermitKind::Call) => match seen {
                Observation::Success => {
                    tally.success(settings.trip(), now);
                    self.last_success_at = Some(now);
                    None
                }
                Observation::Failure(end) => self.fail_closed(end, settings, now),
                Observation::Answered | Observation::Silent => None,
            },
            (Mode::HalfOpen { .. }, PermitKind::FirstProbe(lease) | PermitKind::Probe(lease)) => {
                self.settle_probe(lease, seen, settings, now)
            }
            // The state of another node was adopted, possibly with the generation that we had.
            (Mode::Closed(_), PermitKind::FirstProbe(_) | PermitKind::Probe(_))
            | (Mode::HalfOpen { .. }, PermitKind::Call)
            | (Mode::Open { .. }, PermitKind::Call | PermitKind::FirstProbe(_) | PermitKind::Probe(_)) => {
                None
            }
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "a permit that was given back cannot be used again")]
    pub fn cancel(&mut self, permit: Permit) {
        if let Mode::HalfOpen { leases, .. } = &mut self.mode
            && let PermitKind::FirstProbe(lease) | PermitKind::Probe(lease) = permit.kind
        {
            leases.retain(|out| out.number != lease);
        }
    }

    /// Until when it admits no call; `None` if the next one gets a permit.
    #[must_use]
    pub fn refuses_until(&self, settings: &BreakerSettings, now: Timestamp) -> Option<Timestamp> {
        match &self.mode {
            Mode::Closed(_) => None,
            Mode::Open { until, .. } => (now < *until).then_some(*until),
            Mode::HalfOpen { leases, .. } => {
                let out = leases.iter().filter(|out| now < out.ends_at);
                let is_full = out.clone().count() >= settings.probes().get() as usize;
                out.map(|out| out.ends_at).min().filter(|_| is_full)
            }
        }
    }

    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.mode, Mode::Closed(_))
    }

    /// What the success of a call does that was admitted while closed.
    ///
    /// A shell on the hot path need not ask for a permit while the breaker is closed, nor settle a success
    /// that does nothing: [`Self::admit`] always gives the same permit then, which [`Self::closed_permit`]
    /// gives later if needed.
    #[must_use]
    pub fn on_success(&self, trip: Trip) -> OnSuccess {
        match &self.mode {
            Mode::Closed(tally) => tally.on_success(trip),
            Mode::Open { .. } | Mode::HalfOpen { .. } => OnSuccess::Changes,
        }
    }

    /// The permit of every call while it is closed; `None` if it is not.
    #[must_use]
    pub fn closed_permit(&self) -> Option<Permit> {
        self.is_closed().then_some(Permit { generation: self.generation, kind: PermitKind::Call })
    }

    /// Counts successes of calls that were admitted while closed: `count` of those with
    /// [`OnSuccess::Counts`], the last at `last_at`.
    pub fn count_successes(&mut self, count: u32, trip: Trip, last_at: Timestamp) {
        if let Mode::Closed(tally) = &mut self.mode {
            if count > 0 {
                tally.successes(count, trip, last_at);
            }
            self.last_success_at = self.last_success_at.max(Some(last_at));
        }
    }

    /// Opens it for an operator, for as long as a trip would; extends an open one.
    pub fn trip_by_hand(&mut self, settings: &BreakerSettings, now: Timestamp) -> Transition {
        self.open(self.failures(now), settings, now)
    }

    /// Closes it for an operator and forgets the failures so far; calls in flight no longer count.
    pub fn reset_by_hand(&mut self, now: Timestamp) -> Transition {
        self.change_to(Mode::default(), self.failures(now), now)
    }

    /// An open breaker whose time is over is half-open, though no call has been asked for yet.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> BreakerState {
        match &self.mode {
            Mode::Closed(tally) => BreakerState::Closed { failures: tally.failures(now) },
            Mode::Open { until, .. } if now < *until => BreakerState::Open { until: *until },
            Mode::Open { .. } => BreakerState::HalfOpen { probes_out: 0, successes: 0 },
            Mode::HalfOpen { leases, successes, .. } => {
                let probes_out = leases.iter().filter(|out| now < out.ends_at).map(|_| 1).sum();
                BreakerState::HalfOpen { probes_out, successes: *successes }
            }
        }
    }

    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// When the outage began, through all its probes; `None` while it is closed.
    #[must_use]
    pub fn not_closed_since(&self) -> Option<Timestamp> {
        self.outage().map(|outage| outage.began_at)
    }

    fn phase(&self) -> BreakerPhase {
        match self.mode {
            Mode::Closed(_) => BreakerPhase::Closed,
            Mode::Open { .. } => BreakerPhase::Open,
            Mode::HalfOpen { .. } => BreakerPhase::HalfOpen,
        }
    }

    fn outage(&self) -> Option<BreakerOutage> {
        match self.mode {
            Mode::Closed(_) => None,
            Mode::Open { outage, .. } | Mode::HalfOpen { outage, .. } => Some(outage),
        }
    }

    /// Towards the next trip; while it is not closed, those of the outage.
    #[must_use]
    pub fn failures(&self, now: Timestamp) -> u32 {
        match &self.mode {
            Mode::Closed(tally) => tally.failures(now),
            Mode::Open { outage, .. } | Mode::HalfOpen { outage, .. } => outage.failures,
        }
    }

    #[cold]
    fn admit_probe(
        &mut self,
        settings: &BreakerSettings,
        limit: Duration,
        kind: fn(LeaseNumber) -> PermitKind,
        now: Timestamp,
    ) -> Admission {
        let Mode::HalfOpen { leases, .. } = &mut self.mode else {
            unreachable!("only a half-open breaker is probed");
        };
        // An ended lease is kept until its place is needed: its probe may still return.
        while leases.len() >= settings.probes().get() as usize {
            let Some(lost) = leases.iter().position(|out| now >= out.ends_at) else {
                let first_end = leases.iter().map(|out| out.ends_at).min();
                return Admission::WaitUntil(
                    first_end.expect("there are no fewer leases than probes, which are not 0"),
                );
            };
            leases.remove(lost);
        }
        self.last_lease = LeaseNumber(self.last_lease.0 + 1);
        let ends_at = now + limit.max(limits::PROBE_LEASE_MIN) + limits::PROBE_LEASE_MARGIN;
        leases.push(Lease { number: self.last_lease, ends_at });
        Admission::Allowed(Permit { generation: self.generation, kind: kind(self.last_lease) })
    }

    #[cold]
    fn fail_closed(
        &mut self,
        end: CallEnd,
        settings: &BreakerSettings,
        now: Timestamp,
    ) -> Option<Transition> {
        if (settings.count(), end) == (CountingUnit::Call, CallEnd::WillRetry) {
            return None;
        }
        let Mode::Closed(tally) = &mut self.mode else {
            unreachable!("only a closed breaker counts failures");
        };
        self.last_failure_at = Some(now);
        match tally.failure(settings, now) {
            TripJudgement::Holds => None,
            TripJudgement::Trips { failures } => Some(self.open(failures, settings, now)),
        }
    }

    #[cold]
    fn settle_probe(
        &mut self,
        lease: LeaseNumber,
        seen: Observation,
        settings: &BreakerSettings,
        now: Timestamp,
    ) -> Option<Transition> {
        let Mode::HalfOpen { outage, leases, successes, .. } = &mut self.mode else {
            unreachable!("only a half-open breaker has probes out");
        };
        let place = leases.iter().position(|out| out.number == lease);
        let place = place.map(|index| leases.remove(index));
        match seen {
            // Whether the call continues or not: one failure shows that it is too early.
            Observation::Failure(CallEnd::Final | CallEnd::WillRetry) => {
                self.last_failure_at = Some(now);
                let failures = outage.failures.saturating_add(1);
                Some(self.open(failures, settings, now))
            }
            Observation::Success | Observation::Answered => {
                place?;
                self.last_success_at = Some(now);
                *successes += 1;
                let closes = *successes >= settings.close_after().get();
                let failures = outage.failures;
                closes.then(|| self.change_to(Mode::default(), failures, now))
            }
            Observation::Silent => None,
        }
    }

    fn open(&mut self, failures: u32, settings: &BreakerSettings, now: Timestamp) -> Transition {
        let began_at = self.not_closed_since().unwrap_or(now);
        let outage = BreakerOutage { began_at, opened_at: now, failures };
        self.change_to(Mode::Open { outage, until: now + settings.open() }, failures, now)
    }

    fn change_to(&mut self, mode: Mode, failures: u32, at: Timestamp) -> Transition {
        let from = self.phase();
        self.mode = mode;
        self.generation = self.generation.next();
        Transition { from, to: self.phase(), at, generation: self.generation, failures }
    }
}
