//! What is seen of a node beside its happenings: how each delivery goes, for whoever traces it, and what the
//! doors turn away before the engine hears of it.
//!
//! Invariants: following costs nothing while nobody does; and who follows too slowly misses something, and
//! nobody waits for them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::engine::Signal;
use redrive_core::event::Event;
use redrive_core::figures::{Intake, OTHER};
use redrive_core::time::Timestamp;
use tokio::sync::broadcast;

/// Steps that somebody who follows may lag behind by.
const STEPS_MAX: usize = 8_192;

/// A step of an event's way.
#[derive(Debug)]
pub enum Step {
    /// It is durable, and new.
    Accepted {
        /// The event.
        event: Arc<Event>,
        /// How many deliveries it has.
        deliveries: u32,
        /// When.
        at: Timestamp,
    },
    /// The engine says something of a delivery of it.
    Signal(Box<Signal>),
}

/// Tells whoever follows, and counts what the doors turn away; clones are the same.
#[derive(Clone)]
pub(super) struct Trail {
    steps: broadcast::Sender<Arc<Step>>,
    turned_away: Arc<TurnedAway>,
}

#[derive(Default)]
struct TurnedAway {
    refused: AtomicU64,
    /// Those with a bad key, token or signature, by the door that they came to.
    unauthorized: Mutex<BTreeMap<Arc<str>, u64>>,
}

/// Doors that are told apart; books have fewer, and those of very many books are counted together.
const DOORS_MAX: usize = 200;

impl Trail {
    pub(super) fn new() -> Self {
        Self { steps: broadcast::channel(STEPS_MAX).0, turned_away: Arc::default() }
    }

    pub(super) fn follow(&self) -> broadcast::Receiver<Arc<Step>> {
        self.steps.subscribe()
    }

    pub(super) fn is_followed(&self) -> bool {
        self.steps.receiver_count() > 0
    }

    pub(super) fn tell(&self, step: impl FnOnce() -> Step) {
        if self.is_followed() {
            // The last one may have left this instant.
            let _ = self.steps.send(Arc::new(step()));
        }
    }

    /// A submission was refused.
    pub(super) fn refused(&self) {
        self.turned_away.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody came to that door with a bad key, token or signature.
    pub(super) fn unauthorized(&self, door: &str) {
        let mut doors = self.doors();
        if let Some(count) = doors.get_mut(door) {
            *count += 1;
            return;
        }
        let door = if doors.len() < DOORS_MAX { door } else { OTHER };
        *doors.entry(door.into()).or_default() += 1;
    }

    /// Those who came with a bad key, token or signature, by the door that they came to.
    pub(super) fn turned_away(&self) -> BTreeMap<Arc<str>, u64> {
        self.doors().clone()
    }

    fn doors(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, u64>> {
        // A count is whole whoever panicked.
        self.turned_away.unauthorized.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What came in, with what was turned away.
    pub(super) fn intake(&self, counted: &Intake) -> Intake {
        Intake {
            refused: self.turned_away.refused.load(Ordering::Relaxed),
            unauthorized: self.doors().values().sum(),
            ..*counted
        }
    }
}
