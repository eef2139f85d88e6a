//! Counters since the start: the data behind metrics, alerts, `redrive doctor` and the page.
//!
//! Counters only grow: rates and windows are differences of two snapshots, and cost the hot path nothing.
//!
//! Invariants: memory is bounded whatever names occur; a name beyond the bound is counted under [`OTHER`], so
//! that sums stay true.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::attempt_record::AttemptEnd;
use crate::engine::{CompletedCall, EngineActivity, NextState, PendingDelivery, QueueName, Settlement};
use crate::ids::DependencyName;
use crate::policy::breaker::BreakerPhase;
use crate::policy::category::{Category, codes};

mod histogram;
mod sketch;

pub use self::histogram::{BOUNDS_MS, Histogram};
pub use self::sketch::Sketch;

pub const OTHER: &str = "(other)";
pub const TYPES_MAX: usize = 100;
pub const CODES_MAX: usize = 50;
/// Deliveries with more attempts are counted here.
pub const TRIES_MAX: usize = 12;
/// Upper bounds of the ranges of concurrent calls; there is one more range beyond the last.
pub const BESIDE_BOUNDS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub intake: Intake,
    pub queues: BTreeMap<Arc<QueueName>, QueueFigures>,
    pub dependencies: BTreeMap<DependencyName, DependencyFigures>,
    /// Requests with a bad key, token or signature, by endpoint: `/v1/hooks/NAME` or `api`.
    pub turned_away: BTreeMap<Arc<str>, u64>,
    pub stale: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intake {
    pub accepted: u64,
    pub duplicates: u64,
    /// Events without a subscriber; also counted as accepted.
    pub unrouted: u64,
    pub refused: u64,
    pub unauthorized: u64,
    /// How long after the first event its duplicates came.
    pub redelivered: Histogram,
    pub latest_copies: Longest,
}

pub const LONGEST_KEPT: usize = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Longest([Duration; LONGEST_KEPT]);

impl Longest {
    pub fn add(&mut self, time: Duration) {
        let place = self.0.partition_point(|kept| *kept >= time);
        if let Some(shorter) = self.0.get_mut(place..).filter(|shorter| !shorter.is_empty()) {
            shorter.rotate_right(1);
            shorter[0] = time;
        }
    }

    /// Zero where there were fewer.
    #[must_use]
    pub const fn times(&self) -> [Duration; LONGEST_KEPT] {
        self.0
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    pub types: BTreeMap<Arc<str>, AttemptTally>,
    pub codes: BTreeMap<Arc<str>, u64>,
    pub took: Histogram,
    /// Fine enough for quantiles.
    pub took_finely: Sketch,
    pub waited: Histogram,
    /// Ended deliveries by number of attempts; index 0 is one attempt.
    pub tries: [u64; TRIES_MAX],
    pub held: u64,
}

impl QueueFigures {
    #[must_use]
    pub fn total(&self) -> AttemptTally {
        let mut total = AttemptTally::default();
        self.types.values().for_each(|tally| total.add(tally));
        total
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DependencyFigures {
    pub tally: AttemptTally,
    pub took: Histogram,
    pub took_finely: Sketch,
    /// Results by the number of concurrent calls: ranges as in [`BESIDE_BOUNDS`].
    pub beside: [ConcurrencyFigures; BESIDE_BOUNDS.len() + 1],
    pub trips: u64,
    pub held: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptTally {
    pub attempts: u64,
    /// In the order of [`Category::ALL`].
    pub failed: [u64; Category::ALL.len()],
    /// Answered 503.
    pub unavailable: u64,
    pub unauthorized: u64,
    /// Configuration errors, except refused credentials.
    pub misconfigured: u64,
    pub firsts: u64,
    pub retried: u64,
    pub retries: u64,
    pub delivered: u64,
    pub dead: u64,
    pub exhausted: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConcurrencyFigures {
    pub calls: u64,
    pub failed: u64,
    pub took_micros: u64,
}

impl AttemptTally {
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failed.iter().sum()
    }

    #[must_use]
    pub const fn failed_as(&self, category: Category) -> u64 {
        self.failed[category as usize]
    }

    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.delivered + self.dead
    }

    pub fn add(&mut self, other: &Self) {
        self.each(other, u64::saturating_add);
    }

    /// The difference to an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        since.each(earlier, u64::saturating_sub);
        since
    }

    fn each(&mut self, other: &Self, of: impl Fn(u64, u64) -> u64) {
        let Self {
            attempts,
            failed,
            unavailable,
            unauthorized,
            misconfigured,
            firsts,
            retried,
            retries,
            delivered,
            dead,
            exhausted,
        } = other;
        for (own, other) in self.failed.iter_mut().zip(failed) {
            *own = of(*own, *other);
        }
        for (own, other) in [
            (&mut self.attempts, attempts),
            (&mut self.unavailable, unavailable),
            (&mut self.unauthorized, unauthorized),
            (&mut self.misconfigured, misconfigured),
            (&mut self.firsts, firsts),
            (&mut self.retried, retried),
            (&mut self.retries, retries),
            (&mut self.delivered, delivered),
            (&mut self.dead, dead),
            (&mut self.exhausted, exhausted),
        ] {
            *own = of(*own, *other);
        }
    }

    fn count(&mut self, settlement: &Settlement, has_ended: HasEnded) {
        if has_ended == HasEnded::Attempt {
            self.attempts += 1;
            let is_first = settlement.attempts == 1;
            let goes_on = matches!(settlement.next, NextState::Due { .. } | NextState::Ready);
            self.firsts += u64::from(is_first);
            self.retried += u64::from(is_first && goes_on);
            self.retries += u64::from(goes_on);
            if let Some(AttemptEnd::Failed { category, code, status, .. }) =
                settlement.record.as_ref().map(|record| &record.end)
            {
                self.failed[*category as usize] += 1;
                self.unavailable += u64::from(*status == Some(503));
                let refused = matches!(code.as_str(), codes::UNAUTHORIZED | codes::FORBIDDEN);
                self.unauthorized += u64::from(refused);
                self.misconfigured += u64::from(*category == Category::Fatal && !refused);
            }
        }
        match &settlement.next {
            NextState::Delivered => self.delivered += 1,
            NextState::Dead(info) => {
                self.dead += 1;
                let ran_out = matches!(
                    info.code.as_str(),
                    codes::MAX_RETRIES_EXCEEDED | codes::RETRY_WINDOW_EXCEEDED | codes::DEADLINE_EXCEEDED
                );
                self.exhausted += u64::from(ran_out);
            }
            NextState::Due { .. } | NextState::Ready | NextState::Starting => {}
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HasEnded {
    Attempt,
    Nothing,
}

impl HasEnded {
    fn of(settlement: &Settlement) -> Self {
        if settlement.attempts > settlement.attempts_before { Self::Attempt } else { Self::Nothing }
    }
}

impl Figures {
    pub fn count(&mut self, activity: &EngineActivity) {
        match activity {
            EngineActivity::Settled { delivery, settlement, made } => {
                self.settled(delivery, settlement, made.as_ref());
            }
            EngineActivity::Stale(_) => self.stale += 1,
            EngineActivity::Breaker { dependency, transition, .. } => {
                // A failed probe reopens it, which is no trip of its own.
                let (from, to) = (transition.from, transition.to);
                if from == BreakerPhase::Closed && to == BreakerPhase::Open {
                    self.dependency(dependency).trips += 1;
                }
            }
            EngineActivity::DependencyHeld { dependency, .. } => self.dependency(dependency).held += 1,
            EngineActivity::Replay { .. } | EngineActivity::Paused(_) | EngineActivity::Alert { .. } => {}
        }
    }

    #[must_use]
    pub fn total(&self) -> AttemptTally {
        let mut total = AttemptTally::default();
        self.queues.values().for_each(|queue| total.add(&queue.total()));
        total
    }

    fn dependency(&mut self, name: &DependencyName) -> &mut DependencyFigures {
        // Names of dependencies come from rule books, which are bounded.
        self.dependencies.entry(name.clone()).or_default()
    }

    fn settled(&mut self, delivery: &PendingDelivery, settlement: &Settlement, made: Option<&CompletedCall>) {
        let has_ended = HasEnded::of(settlement);
        let queue = match self.queues.get_mut(&delivery.queue) {
            Some(queue) => queue,
            None => self.queues.entry(Arc::clone(&delivery.queue)).or_default(),
        };
        let event_type = delivery.event.event_type.as_str();
        at_place(&mut queue.types, event_type, TYPES_MAX, |tally| tally.count(settlement, has_ended));
        if has_ended == HasEnded::Nothing && matches!(settlement.next, NextState::Due { .. }) {
            queue.held += 1;
        }
        if matches!(settlement.next, NextState::Delivered | NextState::Dead(_)) {
            let tries = (settlement.attempts as usize).clamp(1, TRIES_MAX);
            queue.tries[tries - 1] += 1;
        }
        let Some(record) = settlement.record.as_ref().filter(|_| has_ended == HasEnded::Attempt) else {
            return;
        };
        let took = Duration::from_nanos(record.took_nanos);
        queue.took.add(took);
        queue.took_finely.add(took);
        if settlement.attempts_before == 0 {
            // Until the first attempt, the last write was its acceptance.
            queue.waited.add(record.started_at.since(delivery.written_at));
        }
        if let AttemptEnd::Failed { code, .. } = &record.end {
            at_place(&mut queue.codes, code.as_str(), CODES_MAX, |count| *count += 1);
        }
        let Some(made) = made else { return };
        let dependency = match self.dependencies.get_mut(&made.dependency) {
            Some(dependency) => dependency,
            None => self.dependency(&made.dependency),
        };
        dependency.tally.count(settlement, has_ended);
        dependency.took.add(took);
        dependency.took_finely.add(took);
        let range =
            BESIDE_BOUNDS.iter().position(|bound| made.beside <= *bound).unwrap_or(BESIDE_BOUNDS.len());
        let beside = &mut dependency.beside[range];
        beside.calls += 1;
        beside.took_micros =
            beside.took_micros.saturating_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        if let AttemptEnd::Failed { category, .. } = &record.end {
            beside.failed += u64::from(category.counts_against_dependency());
        }
    }
}

/// Counts under a name, or under [`OTHER`].
fn at_place<T: Default>(
    places: &mut BTreeMap<Arc<str>, T>,
    name: &str,
    places_max: usize,
    count: impl FnOnce(&mut T),
) {
    // The name nearly always exists: one lookup must do.
    if let Some(place) = places.get_mut(name) {
        return count(place);
    }
    let name = if places.len() < places_max { name } else { OTHER };
    count(places.entry(name.into()).or_default());
}

#[cfg(test)]
pub(crate) mod tests;
