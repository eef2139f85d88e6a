//! Publishes activities: to the log, to listeners, to tracing and to the troubles that people are alerted to at once.
//!
//! Invariants: an activity is logged once, here unless the part that found it has done so with more detail, and
//! counted once, whether anyone listens or not; a listener that is too slow misses some, and nothing waits for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::alerts::{DAMAGED, Trouble, Troubles};
use redrive_core::engine::{Next, Signal};
use redrive_core::event::Event;
use redrive_core::figures::{Intake, OTHER};
use redrive_core::ids::Seed;
use redrive_core::time::Timestamp;
use tokio::sync::broadcast;
use tracing::level_filters::LevelFilter;

use super::log::Log;
use super::{Activity, ActivityLine, EventFacts};

/// Lines that a slow listener may lag behind by.
const LINES_MAX: usize = 4_096;
/// Steps that a slow tracer may lag behind by.
const STEPS_MAX: usize = 8_192;
/// Doors that are counted apart; books have fewer, and those beyond are counted together.
const DOORS_MAX: usize = 200;

/// A step of an event, in full, for tracing.
#[derive(Debug)]
pub enum Step {
    /// It is durable, and new.
    Accepted {
        /// The event.
        event: Arc<Event>,
        /// How many deliveries it has.
        deliveries: u32,
        /// When it was accepted.
        at: Timestamp,
    },
    /// The engine has settled a delivery of it, or reports something else.
    Signal(Box<Signal>),
}

/// Publishes what happens on a node; clones are the same.
#[derive(Clone)]
pub(crate) struct ActivityFeed {
    lines: broadcast::Sender<Arc<ActivityLine>>,
    steps: broadcast::Sender<Arc<Step>>,
    log: Log,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Activities by their place.
    activities: [AtomicU64; Activity::NAMES.len()],
    refused: AtomicU64,
    /// Requests with a bad key, token or signature, by the door that they came to.
    unauthorized: Mutex<BTreeMap<Arc<str>, u64>>,
    /// What people are alerted to at once.
    troubles: Mutex<Troubles>,
}

impl ActivityFeed {
    pub(crate) fn new(seed: Seed) -> Self {
        Self {
            lines: broadcast::channel(LINES_MAX).0,
            steps: broadcast::channel(STEPS_MAX).0,
            log: Log::new(seed),
            counts: Arc::default(),
        }
    }

    /// All activities from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<ActivityLine>> {
        self.lines.subscribe()
    }

    /// All steps from now on; it costs something as long as there is a receiver.
    pub(crate) fn follow(&self) -> broadcast::Receiver<Arc<Step>> {
        self.steps.subscribe()
    }

    /// Logs and publishes an activity.
    pub(crate) fn publish(&self, at: Timestamp, activity: Activity) {
        self.publish_line(ActivityLine { at, activity });
    }

    fn publish_line(&self, line: ActivityLine) {
        self.log.write(&line.activity);
        self.publish_logged(line);
    }

    /// Publishes an activity that was logged by the part that found it.
    pub(crate) fn publish_logged(&self, line: ActivityLine) {
        self.count(line.activity.place());
        // There may be no listener.
        let _ = self.lines.send(Arc::new(line));
    }

    /// Publishes that an event was accepted.
    pub(crate) fn publish_accepted(&self, event: &Arc<Event>, deliveries: u32, at: Timestamp) {
        if deliveries == 0 {
            self.publish(at, Activity::Unrouted(EventFacts::of(event)));
        } else if self.is_busy_followed() {
            self.publish(at, Activity::Accepted(EventFacts::of(event)));
        } else {
            self.count(Activity::ACCEPTED);
        }
        self.trace(|| Step::Accepted { event: Arc::clone(event), deliveries, at });
    }

    /// Publishes what the engine reports.
    pub(crate) fn publish_signal(&self, signal: Box<Signal>, now: impl Fn() -> Timestamp) {
        // Most reports are of a success, and mostly no one listens.
        let is_delivery =
            matches!(&*signal, Signal::Settled { settlement, .. } if settlement.next == Next::Delivered);
        if is_delivery && !self.is_busy_followed() {
            self.count(Activity::DELIVERED);
        } else {
            self.raise(&signal, &now);
            if let Some(line) = ActivityLine::of(&signal, now()) {
                self.publish_line(line);
            }
        }
        self.trace(|| Step::Signal(signal));
    }

    /// Whether activities of single events and deliveries are wanted, which are many.
    fn is_busy_followed(&self) -> bool {
        self.lines.receiver_count() > 0 || LevelFilter::current() >= LevelFilter::DEBUG
    }

    fn trace(&self, step: impl FnOnce() -> Step) {
        if self.steps.receiver_count() > 0 {
            // The last one may have left this instant.
            let _ = self.steps.send(Arc::new(step()));
        }
    }

    fn count(&self, place: usize) {
        self.counts.activities[place].fetch_add(1, Ordering::Relaxed);
    }

    /// How often each kind of activity has happened.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.counts.activities.iter().map(|count| count.load(Ordering::Relaxed));
        Activity::NAMES.into_iter().zip(counts)
    }

    /// What people are alerted to at once.
    pub(crate) fn troubles(&self) -> MutexGuard<'_, Troubles> {
        // It is whole whoever panicked with it.
        self.counts.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the troubles at a time that is taken under the lock.
    ///
    /// An alert that has looked at a moment counts what is found from then on. A time from before the lock could
    /// lie before a look that did not see it, and no later look would count it.
    pub(crate) fn with_troubles<T>(
        &self,
        now: impl FnOnce() -> Timestamp,
        act: impl FnOnce(&mut Troubles, Timestamp) -> T,
    ) -> T {
        let mut troubles = self.troubles();
        let now = now();
        act(&mut troubles, now)
    }

    /// Raises the trouble that a signal reports, if any.
    fn raise(&self, signal: &Signal, now: impl FnOnce() -> Timestamp) {
        match signal {
            Signal::Alert { kind, queue, delivery, code } => {
                let why = format!("{code}, delivery {delivery}");
                self.with_troubles(now, |troubles, now| {
                    troubles.raise_of(Trouble::from(*kind), queue, &why, now);
                });
            }
            Signal::Settled { delivery, settlement, .. } => {
                if let Next::Dead(death) = &settlement.next
                    && death.code.as_str() == DAMAGED
                {
                    let why = format!("delivery {}", delivery.id);
                    self.with_troubles(now, |troubles, now| {
                        troubles.raise_of(Trouble::EventDamaged, &delivery.queue, &why, now);
                    });
                }
            }
            Signal::Stale(_)
            | Signal::Breaker { .. }
            | Signal::Replay { .. }
            | Signal::DependencyHeld { .. }
            | Signal::Paused(_) => {}
        }
    }

    /// Counts a submission that was refused.
    pub(crate) fn refused(&self) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request to that door with a bad key, token or signature.
    pub(crate) fn unauthorized(&self, door: &str) {
        let mut doors = self.doors();
        if let Some(count) = doors.get_mut(door) {
            *count += 1;
            return;
        }
        let door = if doors.len() < DOORS_MAX { door } else { OTHER };
        *doors.entry(door.into()).or_default() += 1;
    }

    /// Requests with a bad key, token or signature, by the door that they came to.
    pub(crate) fn turned_away(&self) -> BTreeMap<Arc<str>, u64> {
        self.doors().clone()
    }

    fn doors(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, u64>> {
        // A count is whole whoever panicked.
        self.counts.unauthorized.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What came in, with what was turned away.
    pub(crate) fn intake(&self, counted: &Intake) -> Intake {
        Intake {
            refused: self.counts.refused.load(Ordering::Relaxed),
            unauthorized: self.doors().values().sum(),
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
        let signal = Signal::Alert { kind, queue, delivery, code };
        let under_the_lock = || {
            assert!(feed.counts.troubles.try_lock().is_err(), "no look comes in between");
            Timestamp::from_millis(7)
        };
        feed.raise(&signal, under_the_lock);
        let found = feed.with_troubles(under_the_lock, Troubles::samples);
        assert_eq!((found.len(), found[0].last_at), (1, Timestamp::from_millis(7)));
    }
}
