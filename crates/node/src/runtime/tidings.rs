//! Spreads the news of a node: to its log, to whoever listens, and to whoever follows every step.
//!
//! Invariants: what happened is logged once, here unless whoever found it has done so with more to say; and it
//! is counted once, whether anybody hears of it or not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::alerts::{DAMAGED, Trouble, Troubles};
use redrive_core::engine::{Next, Signal};
use redrive_core::ids::Seed;
use redrive_core::time::Timestamp;
use tokio::sync::broadcast;

use super::trail::Trail;
use crate::happening::{Happening, Log, What, is_logged};

/// Happenings that a slow listener may lag behind by.
const HAPPENINGS_MAX: usize = 4_096;

/// Tells the log and whoever listens what happens.
#[derive(Clone)]
pub(super) struct Tidings {
    pub(super) listeners: broadcast::Sender<Arc<Happening>>,
    log: Log,
    pub(super) trail: Trail,
    /// What people are told of at once.
    troubles: Arc<Mutex<Troubles>>,
    /// How often each kind of thing has happened, in the order of [`What::ALL`].
    counts: Arc<[AtomicU64; What::ALL.len()]>,
}

impl Tidings {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            listeners: broadcast::channel(HAPPENINGS_MAX).0,
            log: Log::new(seed),
            trail: Trail::new(),
            troubles: Arc::default(),
            counts: Arc::default(),
        }
    }

    /// All that is known of what people are told of at once.
    pub(super) fn troubles(&self) -> MutexGuard<'_, Troubles> {
        // Whoever panicked with it has left it whole.
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on what people are told of at once, at a time that is taken under the lock.
    ///
    /// An alert that has looked at a moment counts what is found from then on. A time from before the lock could
    /// lie before a look that did not see it, and no later look would count it.
    pub(super) fn with_troubles<T>(
        &self,
        now: impl FnOnce() -> Timestamp,
        act: impl FnOnce(&mut Troubles, Timestamp) -> T,
    ) -> T {
        let mut troubles = self.troubles();
        let now = now();
        act(&mut troubles, now)
    }

    /// Has people told of what a signal says, if they are told of that at once.
    pub(super) fn raise(&self, signal: &Signal, now: impl FnOnce() -> Timestamp) {
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

    /// Whether anybody would hear of such a thing.
    pub(super) fn is_wanted(&self, what: What) -> bool {
        self.listeners.receiver_count() > 0 || is_logged(what)
    }

    /// Logs and tells what happened, if anybody would hear of it.
    pub(super) fn tell(&self, what: What, happening: impl FnOnce() -> Happening) {
        self.count(what);
        if self.is_wanted(what) {
            let happening = happening();
            self.log.write(&happening);
            self.send(happening);
        }
    }

    /// The same for what was logged by whoever found it.
    pub(super) fn pass_on(&self, happening: Happening) {
        self.count(happening.what);
        self.send(happening);
    }

    /// How often each kind of thing has happened.
    pub(super) fn counts(&self) -> impl Iterator<Item = (What, u64)> {
        What::ALL.into_iter().zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Counts what nobody would hear of.
    pub(super) fn count(&self, what: What) {
        self.counts[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn send(&self, happening: Happening) {
        // Nobody may be listening.
        let _ = self.listeners.send(Arc::new(happening));
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
        let tidings = Tidings::new(Seed(1));
        let queue = Arc::new(QueueName { service: ServiceName::new("s").expect("a name"), channel: None });
        let (kind, delivery, code) = (AlertKind::Internal, DeliveryId(7), "INTERNAL".to_owned());
        let signal = Signal::Alert { kind, queue, delivery, code };
        let under_the_lock = || {
            assert!(tidings.troubles.try_lock().is_err(), "no look comes in between");
            Timestamp::from_millis(7)
        };
        tidings.raise(&signal, under_the_lock);
        let found = tidings.with_troubles(under_the_lock, Troubles::samples);
        assert_eq!((found.len(), found[0].last_at), (1, Timestamp::from_millis(7)));
    }
}
