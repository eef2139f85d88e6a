//! How it has been lately: of everything, of each queue and of each dependency, up to a day back.
//!
//! One task looks at the node's figures every few seconds. Nothing is kept over a restart, and every answer says
//! since when it knows.
//!
//! Invariant: memory is bounded by [`QUEUES_MAX`], [`DEPENDENCIES_MAX`] and what a ring holds.

mod ring;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redrive_core::book::own_book::is_own;
use redrive_core::engine::QueueName;
use redrive_core::figures::QueueFigures;
use redrive_core::ids::DependencyName;
use redrive_core::policy::breaker::{Phase, State};
use redrive_core::time::Timestamp;
use tokio::time::{Instant, MissedTickBehavior};

use self::ring::{Known, LOOK_EVERY, Now, Rings};
pub use self::ring::{Point, Span};
use super::{Node, Shared, Snapshot};
use crate::store::{Counts, QueueCounts};

/// Queues that are followed; more have no trend of their own.
const QUEUES_MAX: usize = 200;
/// Dependencies that are.
const DEPENDENCIES_MAX: usize = 200;
/// What is lately.
const LATELY: Duration = Duration::from_mins(1);

/// What somebody wants the trend of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrendOf {
    /// Everything.
    All,
    /// Services with all their channels, or `service/channel`, together.
    Services(Vec<String>),
    /// A dependency.
    Dependency(String),
}

/// How it has been.
#[derive(Clone, Debug, PartialEq)]
pub struct Trend {
    /// Since when it is known.
    pub since: Timestamp,
    /// Step by step, the oldest first.
    pub points: Vec<Point>,
}

/// How a queue has been in the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lately {
    /// Attempts that ended.
    pub attempts: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Deliveries that arrived.
    pub delivered: u64,
    /// Deliveries that failed for good.
    pub dead: u64,
    /// Attempts that ended in the last quarter of an hour.
    pub recent_attempts: u64,
    /// Those of them that failed.
    pub recent_failed: u64,
    /// When an attempt last ended, in steps of a few seconds; none if none has for a quarter of an hour.
    pub active_at: Option<Timestamp>,
}

impl Node {
    /// How it has been; none if nothing is known of that.
    #[must_use]
    pub fn trend(&self, of: &TrendOf, span: Span) -> Option<Trend> {
        self.shared.trends.lock().trend(of, span)
    }

    /// How every queue has been in the last minute.
    #[must_use]
    pub fn lately(&self) -> BTreeMap<Arc<QueueName>, Lately> {
        self.shared.trends.lock().lately()
    }
}

/// Looks until the node is gone.
pub(super) async fn watch(shared: Weak<Shared>) {
    let mut ticks = tokio::time::interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(shared) = shared.upgrade() else { return };
        let node = Node { shared };
        let Some(snapshot) = node.snapshot().await else { return };
        // A store that cannot be read leaves what waits unknown, and everything else as it is.
        let counts = node.read(|reader| reader.counts()).await.unwrap_or_default();
        node.shared.trends.lock().look(&snapshot, &counts, node.now());
    }
}

/// What the task has seen, for all who ask.
pub(super) struct Trends(Mutex<Seen>);

impl Trends {
    pub(super) fn new(since: Timestamp) -> Self {
        Self(Mutex::new(Seen {
            since,
            looks: 0,
            all: Rings::default(),
            queues: BTreeMap::new(),
            dependencies: BTreeMap::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        // What is looked at next replaces whatever was left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was seen so far.
struct Seen {
    since: Timestamp,
    looks: u64,
    all: Rings,
    queues: BTreeMap<Arc<QueueName>, Rings>,
    dependencies: BTreeMap<DependencyName, Rings>,
}

impl Seen {
    fn look(&mut self, snapshot: &Snapshot, counts: &Counts, now: Timestamp) {
        self.looks += 1;
        let mut all = Known { accepted: snapshot.figures.intake.accepted, ..Known::default() };
        all.now.in_flight = u32::try_from(snapshot.calls).unwrap_or(u32::MAX);
        // Notices to people go beside what is delivered, and are no part of it.
        let theirs = counts.queues.iter().filter(|(name, _)| !is_own(name.service.as_str()));
        for (_, counts) in theirs {
            all.now.waiting += counts.waiting;
            all.now.dead_letters += counts.dead;
        }
        let nothing = QueueFigures::default();
        for view in snapshot.queues.iter().filter(|view| !is_own(view.name.service.as_str())) {
            let figures = snapshot.figures.queues.get(&view.name).unwrap_or(&nothing);
            let known = known_of_queue(figures, counts.queues.get(&view.name).copied().unwrap_or_default());
            all.tally.add(&known.tally);
            all.took.merge(&known.took);
            if let Some(rings) = place(&mut self.queues, &view.name, QUEUES_MAX) {
                rings.look(self.looks, known, now);
            }
        }
        for view in &snapshot.dependencies {
            let figures = snapshot.figures.dependencies.get(&view.name).cloned().unwrap_or_default();
            let breaker = Some(match view.breaker {
                State::Closed { .. } => Phase::Closed,
                State::Open { .. } => Phase::Open,
                State::HalfOpen { .. } => Phase::HalfOpen,
            });
            let at_once = Now { in_flight: view.in_flight, breaker, ..Now::default() };
            let known = Known { accepted: 0, tally: figures.tally, took: figures.took_finely, now: at_once };
            if let Some(rings) = place(&mut self.dependencies, &view.name, DEPENDENCIES_MAX) {
                rings.look(self.looks, known, now);
            }
        }
        self.all.look(self.looks, all, now);
    }

    fn trend(&self, of: &TrendOf, span: Span) -> Option<Trend> {
        let points = match of {
            TrendOf::All => self.all.points(span),
            TrendOf::Services(names) => {
                let is_meant = |queue: &QueueName| {
                    names.iter().any(|name| queue.service.as_str() == name || queue.to_string() == *name)
                };
                let queues = self.queues.iter().filter(|(queue, _)| is_meant(queue));
                together(queues.map(|(_, rings)| rings.points(span)))?
            }
            TrendOf::Dependency(name) => {
                let found = self.dependencies.iter().find(|(known, _)| known.as_str() == name);
                found?.1.points(span)
            }
        };
        Some(Trend { since: self.since, points })
    }

    fn lately(&self) -> BTreeMap<Arc<QueueName>, Lately> {
        let of = |rings: &Rings| {
            let mut lately = Lately::default();
            for point in rings.recent(LATELY) {
                lately.attempts += point.attempts;
                lately.failed += point.failed;
                lately.delivered += point.delivered;
                lately.dead += point.dead;
            }
            for point in rings.recent(Span::Minutes.length()) {
                lately.recent_attempts += point.attempts;
                lately.recent_failed += point.failed;
                lately.active_at = lately.active_at.or((point.attempts > 0).then_some(point.at));
            }
            lately
        };
        self.queues.iter().map(|(name, rings)| (Arc::clone(name), of(rings))).collect()
    }
}

fn known_of_queue(figures: &QueueFigures, counts: QueueCounts) -> Known {
    let now = Now { waiting: counts.waiting, dead_letters: counts.dead, ..Now::default() };
    Known { took: figures.took_finely.clone(), tally: figures.total(), now, ..Known::default() }
}

/// The place of a name; none if it is new and there are too many.
fn place<'a, Name: Clone + Ord>(
    places: &'a mut BTreeMap<Name, Rings>,
    name: &Name,
    places_max: usize,
) -> Option<&'a mut Rings> {
    if !places.contains_key(name) && places.len() < places_max {
        places.insert(name.clone(), Rings::default());
    }
    places.get_mut(name)
}

/// The trends of several as one; none of nothing. What came later has fewer points, and the last are of the
/// same steps.
fn together(trends: impl Iterator<Item = Vec<Point>>) -> Option<Vec<Point>> {
    trends.reduce(|mut sum, mut other| {
        if other.len() > sum.len() {
            std::mem::swap(&mut sum, &mut other);
        }
        for (point, more) in sum.iter_mut().rev().zip(other.iter().rev()) {
            point.add(more);
        }
        sum
    })
}
