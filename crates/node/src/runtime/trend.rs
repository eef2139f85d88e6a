//! Recent history of figures: overall, per queue and per dependency, up to a day back.
//!
//! One task samples the node's figures every few seconds. Nothing is kept over a restart; every result says
//! how far back it goes.
//!
//! Invariant: memory is bounded by [`QUEUES_MAX`], [`DEPENDENCIES_MAX`] and the size of a ring.

mod ring;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redrive_core::book::alert_rules::is_own;
use redrive_core::engine::QueueName;
use redrive_core::figures::QueueFigures;
use redrive_core::ids::DependencyName;
use redrive_core::policy::breaker::{BreakerPhase, BreakerState};
use redrive_core::time::Timestamp;
use tokio::time::{Instant, MissedTickBehavior};

use self::ring::{LOOK_EVERY, Rings, TrendGauges, TrendSample};
pub use self::ring::{TrendPoint, TrendSpan};
use super::{Node, NodeShared, Snapshot};
use crate::store::{QueueCounts, StoreCounts};

const QUEUES_MAX: usize = 200;
const DEPENDENCIES_MAX: usize = 200;
const LATELY: Duration = Duration::from_mins(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrendOf {
    All,
    /// Services with all their channels, or `service/channel`, summed up.
    Services(Vec<String>),
    Dependency(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct TrendSeries {
    pub since: Timestamp,
    /// Oldest first.
    pub points: Vec<TrendPoint>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentFigures {
    pub attempts: u64,
    pub failed: u64,
    pub delivered: u64,
    pub dead: u64,
    /// Attempts in the last 15 minutes.
    pub recent_attempts: u64,
    /// Attempts failed in the last 15 minutes.
    pub recent_failed: u64,
    /// When an attempt last ended, to a few seconds; none if longer than 15 minutes ago.
    pub active_at: Option<Timestamp>,
}

impl Node {
    #[must_use]
    pub fn trend(&self, of: &TrendOf, span: TrendSpan) -> Option<TrendSeries> {
        self.shared.trends.lock().trend(of, span)
    }

    #[must_use]
    pub fn recent_figures(&self) -> BTreeMap<Arc<QueueName>, RecentFigures> {
        self.shared.trends.lock().lately()
    }
}

pub(super) async fn watch(shared: Weak<NodeShared>) {
    let mut ticks = tokio::time::interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(shared) = shared.upgrade() else { return };
        let node = Node { shared };
        let Some(snapshot) = node.snapshot().await else { return };
        // If the store cannot be read, only the waiting counts are missing.
        let counts = node.read(|reader| reader.counts()).await.unwrap_or_default();
        node.shared.trends.lock().look(&snapshot, &counts, node.now());
    }
}

pub(super) struct Trends(Mutex<TrendData>);

impl Trends {
    pub(super) fn new(since: Timestamp) -> Self {
        Self(Mutex::new(TrendData {
            since,
            looks: 0,
            all: Rings::default(),
            queues: BTreeMap::new(),
            dependencies: BTreeMap::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, TrendData> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TrendData {
    since: Timestamp,
    looks: u64,
    all: Rings,
    queues: BTreeMap<Arc<QueueName>, Rings>,
    dependencies: BTreeMap<DependencyName, Rings>,
}

impl TrendData {
    fn look(&mut self, snapshot: &Snapshot, counts: &StoreCounts, now: Timestamp) {
        self.looks += 1;
        let mut all = TrendSample { accepted: snapshot.figures.intake.accepted, ..TrendSample::default() };
        all.now.in_flight = u32::try_from(snapshot.calls).unwrap_or(u32::MAX);
        // Notifications are not part of the delivered traffic.
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
                BreakerState::Closed { .. } => BreakerPhase::Closed,
                BreakerState::Open { .. } => BreakerPhase::Open,
                BreakerState::HalfOpen { .. } => BreakerPhase::HalfOpen,
            });
            let at_once = TrendGauges { in_flight: view.in_flight, breaker, ..TrendGauges::default() };
            let known =
                TrendSample { accepted: 0, tally: figures.tally, took: figures.took_finely, now: at_once };
            if let Some(rings) = place(&mut self.dependencies, &view.name, DEPENDENCIES_MAX) {
                rings.look(self.looks, known, now);
            }
        }
        self.all.look(self.looks, all, now);
    }

    fn trend(&self, of: &TrendOf, span: TrendSpan) -> Option<TrendSeries> {
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
        Some(TrendSeries { since: self.since, points })
    }

    fn lately(&self) -> BTreeMap<Arc<QueueName>, RecentFigures> {
        let of = |rings: &Rings| {
            let mut lately = RecentFigures::default();
            for point in rings.recent(LATELY) {
                lately.attempts += point.attempts;
                lately.failed += point.failed;
                lately.delivered += point.delivered;
                lately.dead += point.dead;
            }
            for point in rings.recent(TrendSpan::Minutes.length()) {
                lately.recent_attempts += point.attempts;
                lately.recent_failed += point.failed;
                lately.active_at = lately.active_at.or((point.attempts > 0).then_some(point.at));
            }
            lately
        };
        self.queues.iter().map(|(name, rings)| (Arc::clone(name), of(rings))).collect()
    }
}

fn known_of_queue(figures: &QueueFigures, counts: QueueCounts) -> TrendSample {
    let now = TrendGauges { waiting: counts.waiting, dead_letters: counts.dead, ..TrendGauges::default() };
    TrendSample { took: figures.took_finely.clone(), tally: figures.total(), now, ..TrendSample::default() }
}

/// None if the name is new and there are too many.
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

/// Sums trends; shorter ones align at the end.
fn together(trends: impl Iterator<Item = Vec<TrendPoint>>) -> Option<Vec<TrendPoint>> {
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
