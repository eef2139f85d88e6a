//! What has been counted since the start: the figures behind metrics, alerts, `redrive doctor` and the page.
//!
//! Everything here only ever grows, so that whoever looks twice knows what happened in between: rates and
//! windows are differences of two looks, and cost the hot path nothing.
//!
//! Invariants: memory is bounded whatever names come by; what finds no place of its own is counted under
//! [`OTHER`], so that sums stay true.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::story::End;
use crate::engine::{Made, Next, QueueName, Settlement, Signal, Waiting};
use crate::ids::DependencyName;
use crate::policy::breaker::Phase;
use crate::policy::category::{Category, codes};

mod histogram;
mod sketch;

pub use self::histogram::{BOUNDS_MS, Histogram};
pub use self::sketch::{Sketch, TimeSketch};

/// What names are counted under that came when there was no place left.
pub const OTHER: &str = "(other)";
/// Event types that are counted apart, for each queue.
pub const TYPES_MAX: usize = 100;
/// Codes that are counted apart, for each queue.
pub const CODES_MAX: usize = 50;
/// The most attempts of a delivery that are told apart; a delivery with more is counted here.
pub const TRIES_MAX: usize = 12;
/// The upper ends of the ranges that calls at once are told apart in; beyond the last there is one more.
pub const BESIDE_BOUNDS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// All that is counted.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// What came in.
    pub intake: Intake,
    /// By queue.
    pub queues: BTreeMap<Arc<QueueName>, QueueFigures>,
    /// By dependency.
    pub dependencies: BTreeMap<DependencyName, DependencyFigures>,
    /// Calls with a bad key, token or signature, by the door that they came to: `/v1/hooks/NAME` or `api`.
    pub turned_away: BTreeMap<Arc<str>, u64>,
    /// Settlements that came too late.
    pub stale: u64,
}

/// What came in at the doors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intake {
    /// Events that were taken and are new.
    pub accepted: u64,
    /// Events that had come before.
    pub duplicates: u64,
    /// Events that nobody wanted; they are among the accepted.
    pub unrouted: u64,
    /// Submissions that were refused, for whatever reason.
    pub refused: u64,
    /// Calls at the doors with a bad key or a bad signature.
    pub unauthorized: u64,
    /// How long after the first the duplicates came.
    pub redelivered: Histogram,
    /// The longest of these times.
    pub latest_copies: Longest,
}

/// Times that [`Longest`] keeps.
pub const LONGEST_KEPT: usize = 3;

/// The longest times of many, the longest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Longest([Duration; LONGEST_KEPT]);

impl Longest {
    /// Looks at one more.
    pub fn add(&mut self, time: Duration) {
        let place = self.0.partition_point(|kept| *kept >= time);
        if let Some(shorter) = self.0.get_mut(place..).filter(|shorter| !shorter.is_empty()) {
            shorter.rotate_right(1);
            shorter[0] = time;
        }
    }

    /// The longest, the next and the third; zero where there were fewer.
    #[must_use]
    pub const fn times(&self) -> [Duration; LONGEST_KEPT] {
        self.0
    }
}

/// What became of the deliveries of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// By event type.
    pub types: BTreeMap<Arc<str>, Tally>,
    /// Failed attempts by code.
    pub codes: BTreeMap<Arc<str>, u64>,
    /// How long attempts took.
    pub took: Histogram,
    /// The same, fine enough for quantiles.
    pub took_finely: Sketch,
    /// How long deliveries waited for their first attempt.
    pub waited: Histogram,
    /// Deliveries that ended, by how many attempts they took: the first counts those with one.
    pub tries: [u64; TRIES_MAX],
    /// Deliveries that were held without burning a retry, each time they were.
    pub held: u64,
}

impl QueueFigures {
    /// All event types together.
    #[must_use]
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.types.values().for_each(|tally| total.add(tally));
        total
    }
}

/// What became of the calls to one dependency.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DependencyFigures {
    /// Its attempts.
    pub tally: Tally,
    /// How long they took.
    pub took: Histogram,
    /// The same, fine enough for quantiles.
    pub took_finely: Sketch,
    /// How calls went by how many were under way at once: ranges as in [`BESIDE_BOUNDS`].
    pub beside: [Beside; BESIDE_BOUNDS.len() + 1],
    /// How often its breaker has opened.
    pub trips: u64,
    /// How often it asked everybody to wait.
    pub held: u64,
}

/// Attempts and what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Attempts that have ended.
    pub attempts: u64,
    /// Those of them that failed, in the order of [`Category::ALL`].
    pub failed: [u64; Category::ALL.len()],
    /// Those that were answered 503.
    pub unavailable: u64,
    /// Those that say that our credentials are wrong.
    pub unauthorized: u64,
    /// Those that say that something is configured wrongly; wrong credentials are not among them.
    pub misconfigured: u64,
    /// First attempts.
    pub firsts: u64,
    /// First attempts that are followed by another.
    pub retried: u64,
    /// Attempts that are followed by another.
    pub retries: u64,
    /// Deliveries that arrived.
    pub delivered: u64,
    /// Deliveries that failed for good.
    pub dead: u64,
    /// Those of them that ran out of retries.
    pub exhausted: u64,
}

/// How calls went while so many were under way at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Calls.
    pub calls: u64,
    /// Those that failed in a way that counts against the dependency.
    pub failed: u64,
    /// How long they took in all, in microseconds.
    pub took_micros: u64,
}

impl Tally {
    /// Attempts that failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failed.iter().sum()
    }

    /// Attempts that failed in that way.
    #[must_use]
    pub const fn failed_as(&self, category: Category) -> u64 {
        self.failed[category as usize]
    }

    /// Deliveries that have ended.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.delivered + self.dead
    }

    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.each(other, u64::saturating_add);
    }

    /// What has been counted since an earlier look.
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

    /// Counts what a settlement says.
    fn count(&mut self, settlement: &Settlement, has_ended: HasEnded) {
        if has_ended == HasEnded::Attempt {
            self.attempts += 1;
            let is_first = settlement.attempts == 1;
            let goes_on = matches!(settlement.next, Next::Due { .. } | Next::Ready);
            self.firsts += u64::from(is_first);
            self.retried += u64::from(is_first && goes_on);
            self.retries += u64::from(goes_on);
            if let Some(End::Failed { category, code, status, .. }) =
                settlement.story.as_ref().map(|story| &story.end)
            {
                self.failed[*category as usize] += 1;
                self.unavailable += u64::from(*status == Some(503));
                let refused = matches!(code.as_str(), codes::UNAUTHORIZED | codes::FORBIDDEN);
                self.unauthorized += u64::from(refused);
                self.misconfigured += u64::from(*category == Category::Fatal && !refused);
            }
        }
        match &settlement.next {
            Next::Delivered => self.delivered += 1,
            Next::Dead(death) => {
                self.dead += 1;
                let ran_out = matches!(
                    death.code.as_str(),
                    codes::MAX_RETRIES_EXCEEDED | codes::RETRY_WINDOW_EXCEEDED | codes::DEADLINE_EXCEEDED
                );
                self.exhausted += u64::from(ran_out);
            }
            Next::Due { .. } | Next::Ready | Next::Starting => {}
        }
    }
}

/// What a settlement is the end of.
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
    /// Counts what a signal says.
    pub fn count(&mut self, signal: &Signal) {
        match signal {
            Signal::Settled { delivery, settlement, made } => {
                self.settled(delivery, settlement, made.as_ref());
            }
            Signal::Stale(_) => self.stale += 1,
            Signal::Breaker { dependency, transition, .. } => {
                // A probe that fails opens it again and is no trip of its own.
                let (from, to) = (transition.from, transition.to);
                if from == Phase::Closed && to == Phase::Open {
                    self.dependency(dependency).trips += 1;
                }
            }
            Signal::DependencyHeld { dependency, .. } => self.dependency(dependency).held += 1,
            Signal::Replay { .. } | Signal::Paused(_) | Signal::Alert { .. } => {}
        }
    }

    /// Everything of all queues.
    #[must_use]
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.queues.values().for_each(|queue| total.add(&queue.total()));
        total
    }

    fn dependency(&mut self, name: &DependencyName) -> &mut DependencyFigures {
        // Names of dependencies come from rule books, which are bounded.
        self.dependencies.entry(name.clone()).or_default()
    }

    fn settled(&mut self, delivery: &Waiting, settlement: &Settlement, made: Option<&Made>) {
        let has_ended = HasEnded::of(settlement);
        let queue = match self.queues.get_mut(&delivery.queue) {
            Some(queue) => queue,
            None => self.queues.entry(Arc::clone(&delivery.queue)).or_default(),
        };
        let event_type = delivery.event.event_type.as_str();
        at_place(&mut queue.types, event_type, TYPES_MAX, |tally| tally.count(settlement, has_ended));
        if has_ended == HasEnded::Nothing && matches!(settlement.next, Next::Due { .. }) {
            queue.held += 1;
        }
        if matches!(settlement.next, Next::Delivered | Next::Dead(_)) {
            let tries = (settlement.attempts as usize).clamp(1, TRIES_MAX);
            queue.tries[tries - 1] += 1;
        }
        let Some(story) = settlement.story.as_ref().filter(|_| has_ended == HasEnded::Attempt) else {
            return;
        };
        let took = Duration::from_nanos(story.took_nanos);
        queue.took.add(took);
        queue.took_finely.add(took);
        if settlement.attempts_before == 0 {
            // Until its first attempt, nothing was written since it was accepted.
            queue.waited.add(story.started_at.since(delivery.written_at));
        }
        if let End::Failed { code, .. } = &story.end {
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
        if let End::Failed { category, .. } = &story.end {
            beside.failed += u64::from(category.counts_against_dependency());
        }
    }
}

/// Counts at the place of a name, or of all that found none.
fn at_place<T: Default>(
    places: &mut BTreeMap<Arc<str>, T>,
    name: &str,
    places_max: usize,
    count: impl FnOnce(&mut T),
) {
    // Nearly always it has one, and one look must do.
    if let Some(place) = places.get_mut(name) {
        return count(place);
    }
    let name = if places.len() < places_max { name } else { OTHER };
    count(places.entry(name.into()).or_default());
}

#[cfg(test)]
pub(crate) mod tests;
