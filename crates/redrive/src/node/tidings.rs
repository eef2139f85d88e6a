//! Spreads the news of a node: to its log, to whoever listens, and to whoever follows every step.
//!
//! Invariants: what happened is logged once, here unless whoever found it has done so with more to say; and it
//! is counted once, whether anybody hears of it or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redrive_core::ids::Seed;
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
    /// How often each kind of thing has happened, in the order of [`What::ALL`].
    counts: Arc<[AtomicU64; What::ALL.len()]>,
}

impl Tidings {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            listeners: broadcast::channel(HAPPENINGS_MAX).0,
            log: Log::new(seed),
            trail: Trail::new(),
            counts: Arc::default(),
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
