//! Publishes activities to the log, to listeners, to tracing and to the alerts that are raised at once.
//!
//! Invariants: an activity is logged once, here or by the component that found it, and counted once, with or
//! without listeners; a slow listener misses lines, and nothing waits for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::alerts::{DAMAGED, Incident, Incidents};
use redrive_core::engine::{EngineActivity, NextState};
use redrive_core::event::Event;
use redrive_core::figures::{Intake, OTHER};
use redrive_core::ids::Seed;
use redrive_core::time::Timestamp;
use tokio::sync::broadcast;
use tracing::level_filters::LevelFilter;

use super::log::ActivityLog;
use super::{Activity, ActivityLine, EventFacts};

const LINES_MAX: usize = 4_096;
const STEPS_MAX: usize = 8_192;
/// Endpoints counted separately; any beyond this are counted together.
const ENDPOINTS_MAX: usize = 200;

#[derive(Debug)]
pub enum TraceStep {
    Accepted { event: Arc<Event>, deliveries: u32, at: Timestamp },
    Signal(Box<EngineActivity>),
}

/// Clones share one feed.
#[derive(Clone)]
pub(crate) struct ActivityFeed {
    lines: broadcast::Sender<Arc<ActivityLine>>,
    steps: broadcast::Sender<Arc<TraceStep>>,
    log: ActivityLog,
    counts: Arc<FeedCounts>,
}

#[derive(Default)]
struct FeedCounts {
    activities: [AtomicU64; Activity::NAMES.len()],
    refused: AtomicU64,
    /// Requests with an invalid key, token or signature, by endpoint.
    unauthorized: Mutex<BTreeMap<Arc<str>, u64>>,
    troubles: Mutex<Incidents>,
}

impl ActivityFeed {
    pub(crate) fn new(seed: Seed) -> Self {
        Self {
            lines: broadcast::channel(LINES_MAX).0,
            steps: broadcast::channel(STEPS_MAX).0,
            log: ActivityLog::new(seed),
            counts: Arc::default(),
        }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<ActivityLine>> {
        self.lines.subscribe()
    }

    /// Steps are built only while there is a receiver.
    pub(crate) fn follow(&self) -> broadcast::Receiver<Arc<TraceStep>> {
        self.steps.subscribe()
    }

    pub(crate) fn publish(&self, at: Timestamp, activity: Activity) {
        self.publish_line(ActivityLine { at, activity });
    }

    fn publish_line(&self, line: ActivityLine) {
        self.log.write(&line.activity);
        self.publish_logged(line);
    }

    pub(crate) fn publish_logged(&self, line: ActivityLine) {
        self.count(line.activity.place());
        let _ = self.lines.send(Arc::new(line));
    }

    pub(crate) fn publish_accepted(&self, event: &Arc<Event>, deliveries: u32, at: Timestamp) {
        if deliveries == 0 {
            self.publish(at, Activity::Unrouted(EventFacts::of(event)));
        } else if self.is_busy_followed() {
            self.publish(at, Activity::Accepted(EventFacts::of(event)));
        } else {
            self.count(Activity::ACCEPTED);
        }
        self.trace(|| TraceStep::Accepted { event: Arc::clone(event), deliveries, at });
    }

    pub(crate) fn publish_signal(&self, signal: Box<EngineActivity>, now: impl Fn() -> Timestamp) {
        // Most signals are successes, and usually there is no listener.
        let is_delivery = matches!(&*signal, EngineActivity::Settled { settlement, .. } if settlement.next == NextState::Delivered);
        if is_delivery && !self.is_busy_followed() {
            self.count(Activity::DELIVERED);
        } else {
            self.raise(&signal, &now);
            if let Some(line) = ActivityLine::of(&signal, now()) {
                self.publish_line(line);
            }
        }
        self.trace(|| TraceStep::Signal(signal));
    }

    /// Whether single events and deliveries are published; there are many.
    fn is_busy_followed(&self) -> bool {
        self.lines.receiver_count() > 0 || LevelFilter::current() >= LevelFilter::DEBUG
    }

    fn trace(&self, step: impl FnOnce() -> TraceStep) {
        if self.steps.receiver_count() > 0 {
            let _ = self.steps.send(Arc::new(step()));
        }
    }

    fn count(&self, place: usize) {
        self.counts.activities[place].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.counts.activities.iter().map(|count| count.load(Ordering::Relaxed));
        Activity::NAMES.into_iter().zip(counts)
    }

    pub(crate) fn troubles(&self) -> MutexGuard<'_, Incidents> {
        self.counts.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs with a time taken under the lock.
    ///
    /// An alert evaluated at a moment counts what is found from then on. A time from before the lock could
    /// precede an evaluation that did not see the problem, and no later one would count it.
    pub(crate) fn with_troubles<T>(
        &self,
        now: impl FnOnce() -> Timestamp,
        act: impl FnOnce(&mut Incidents, Timestamp) -> T,
    ) -> T {
        let mut troubles = self.troubles();
        let now = now();
        act(&mut troubles, now)
    }

    fn raise(&self, signal: &EngineActivity, now: impl FnOnce() -> Timestamp) {
        match signal {
            EngineActivity::Alert { kind, queue, delivery, code } => {
                let why = format!("{code}, delivery {delivery}");
                self.with_troubles(now, |troubles, now| {
                    troubles.raise_of(Incident::from(*kind), queue, &why, now);
                });
            }
            EngineActivity::Settled { delivery, settlement, .. } => {
                if let NextState::Dead(death) = &settlement.next
                    && death.code.as_str() == DAMAGED
                {
                    let why = format!("delivery {}", delivery.id);
                    self.with_troubles(now, |troubles, now| {
                        troubles.raise_of(Incident::EventDamaged, &delivery.queue, &why, now);
                    });
                }
            }
            EngineActivity::Stale(_)
            | EngineActivity::Breaker { .. }
            | EngineActivity::Replay { .. }
            | EngineActivity::DependencyHeld { .. }
            | EngineActivity::Paused(_) => {}
        }
    }

    pub(crate) fn refused(&self) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unauthorized(&self, endpoint: &str) {
        let mut endpoints = self.endpoints();
        if let Some(count) = endpoints.get_mut(endpoint) {
            *count += 1;
            return;
        }
        let endpoint = if endpoints.len() < ENDPOINTS_MAX { endpoint } else { OTHER };
        *endpoints.entry(endpoint.into()).or_default() += 1;
    }

    /// Requests with an invalid key, token or signature, by endpoint.
    pub(crate) fn turned_away(&self) -> BTreeMap<Arc<str>, u64> {
        self.endpoints().clone()
    }

    fn endpoints(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, u64>> {
        self.counts.unauthorized.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn intake(&self, counted: &Intake) -> Intake {
        Intake {
            refused: self.counts.refused.load(Ordering::Relaxed),
            unauthorized: self.endpoints().values().sum(),
            ..*counted
        }
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::engine::QueueName;
    use redrive_core::ids::{DeliveryId, ServiceName};
    use redrive_core::policy::decide::AlertKind;

    use super::*;

    #[test]
    fn a_trouble_has_the_time_at_which_it_is_noted_and_no_earlier_one() {
        let feed = ActivityFeed::new(Seed(1));
        let queue = Arc::new(QueueName { service: ServiceName::new("s").expect("a name"), channel: None });
        let (kind, delivery, code) = (AlertKind::Internal, DeliveryId(7), "INTERNAL".to_owned());
        let signal = EngineActivity::Alert { kind, queue, delivery, code };
        let under_the_lock = || {
            assert!(feed.counts.troubles.try_lock().is_err(), "no look comes in between");
            Timestamp::from_millis(7)
        };
        feed.raise(&signal, under_the_lock);
        let found = feed.with_troubles(under_the_lock, Incidents::samples);
        assert_eq!((found.len(), found[0].last_at), (1, Timestamp::from_millis(7)));
    }
}
