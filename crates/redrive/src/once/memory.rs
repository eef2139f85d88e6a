//! An in-memory store for one process.
//!
//! Invariants: at most `keys_max` keys; work in progress is never evicted; expired results go first.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redrive_core::time::Timestamp;
use tokio::sync::watch;

use super::store::{DedupStore, DedupStoreError, FencingToken, KeyState, OnceKey, Ownership};
use crate::BoxFuture;
use crate::clock::wall_clock;
use crate::stale::{ClockFn, timer_clock};

const KEYS_MAX: usize = 100_000;
/// Expired entries removed per call.
const SWEPT_AT_ONCE: usize = 16;

/// An in-memory store; clones share it.
#[derive(Clone)]
pub struct MemoryDedupStore {
    shared: Arc<MemoryInner>,
}

/// The capacity of a store in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCapacity {
    /// Maximum number of keys.
    pub keys_max: usize,
    /// What to do when it is reached.
    pub when_full: WhenMemoryFull,
}

/// What to do with a new key when the store is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenMemoryFull {
    /// Refuse it, so that no work is repeated within its time.
    Refuse,
    /// Forget the result that expires first; its work may then be repeated.
    ForgetOldest,
}

struct MemoryInner {
    room: MemoryCapacity,
    clock: ClockFn,
    state: Mutex<MemoryKeys>,
}

#[derive(Default)]
struct MemoryKeys {
    by_key: HashMap<OnceKey, KeyEntry>,
    by_end: BTreeMap<(Timestamp, FencingToken), OnceKey>,
    last: FencingToken,
}

enum KeyEntry {
    InProgress {
        token: FencingToken,
        lease_ends_at: Timestamp,
        /// Closed when the lease ends.
        ends: watch::Sender<()>,
    },
    Done {
        token: FencingToken,
        result: Vec<u8>,
        expires_at: Timestamp,
    },
}

/// Holds 100,000 keys and refuses more.
impl Default for MemoryDedupStore {
    fn default() -> Self {
        Self::new(MemoryCapacity { keys_max: KEYS_MAX, when_full: WhenMemoryFull::Refuse })
    }
}

impl MemoryDedupStore {
    /// An empty store.
    #[must_use]
    pub fn new(room: MemoryCapacity) -> Self {
        Self::with_clock(room, timer_clock())
    }

    pub(super) fn with_clock(room: MemoryCapacity, clock: ClockFn) -> Self {
        assert!(room.keys_max > 0, "a store without room for a key would refuse everything");
        // Tokens must be higher than those of an earlier process.
        let last = FencingToken(wall_clock().as_nanos() / 1_000);
        let state = MemoryKeys { last, ..MemoryKeys::default() };
        Self { shared: Arc::new(MemoryInner { room, clock, state: Mutex::new(state) }) }
    }

    /// Number of keys, just expired ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().by_key.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, MemoryKeys> {
        self.shared.state.lock().expect("nothing panics while it holds the keys")
    }

    fn now(&self) -> Timestamp {
        (self.shared.clock)()
    }

    fn begun(&self, key: &OnceKey, lease: Duration) -> Result<KeyState, DedupStoreError> {
        let now = self.now();
        let mut state = self.lock();
        state.sweep(now);
        match state.by_key.get(key) {
            Some(KeyEntry::InProgress { lease_ends_at, .. }) if now < *lease_ends_at => {
                return Ok(KeyState::InProgress { lease_left: lease_ends_at.since(now) });
            }
            Some(KeyEntry::Done { result, expires_at, .. }) if now < *expires_at => {
                return Ok(KeyState::Done { result: result.clone() });
            }
            Some(KeyEntry::InProgress { .. } | KeyEntry::Done { .. }) => state.remove(key),
            None => state.make_room(self.shared.room)?,
        }
        Ok(KeyState::Yours(state.mark(key, now + lease)))
    }
}

impl MemoryKeys {
    fn sweep(&mut self, now: Timestamp) {
        for _ in 0..SWEPT_AT_ONCE {
            match self.by_end.first_key_value() {
                Some(((expires_at, _), key)) if *expires_at <= now => {
                    let key = key.clone();
                    self.remove(&key);
                }
                _ => return,
            }
        }
    }

    /// Work in progress stays even after its lease: in one process its holder is alive.
    fn make_room(&mut self, room: MemoryCapacity) -> Result<(), DedupStoreError> {
        let MemoryCapacity { keys_max, when_full } = room;
        if self.by_key.len() < keys_max {
            return Ok(());
        }
        let oldest = match when_full {
            WhenMemoryFull::Refuse => None,
            WhenMemoryFull::ForgetOldest => self.by_end.first_key_value().map(|(_, key)| key.clone()),
        };
        self.remove(&oldest.ok_or(DedupStoreError::Full { keys_max })?);
        Ok(())
    }

    fn mark(&mut self, key: &OnceKey, lease_ends_at: Timestamp) -> FencingToken {
        self.last = FencingToken(self.last.0 + 1);
        let token = self.last;
        let (ends, _) = watch::channel(());
        self.by_key.insert(key.clone(), KeyEntry::InProgress { token, lease_ends_at, ends });
        token
    }

    fn remove(&mut self, key: &OnceKey) {
        if let Some(KeyEntry::Done { token, expires_at, .. }) = self.by_key.remove(key) {
            self.by_end.remove(&(expires_at, token));
        }
    }

    fn is_held(&self, key: &OnceKey, by: FencingToken) -> Ownership {
        match self.by_key.get(key) {
            Some(KeyEntry::InProgress { token, .. }) if *token == by => Ownership::Yes,
            Some(KeyEntry::InProgress { .. } | KeyEntry::Done { .. }) | None => Ownership::No,
        }
    }
}

impl DedupStore for MemoryDedupStore {
    fn begin<'a>(
        &'a self,
        key: &'a OnceKey,
        lease: Duration,
    ) -> BoxFuture<'a, Result<KeyState, DedupStoreError>> {
        Box::pin(async move { self.begun(key, lease) })
    }

    fn renew<'a>(
        &'a self,
        key: &'a OnceKey,
        token: FencingToken,
        lease: Duration,
    ) -> BoxFuture<'a, Result<Ownership, DedupStoreError>> {
        Box::pin(async move {
            let ends_at = self.now() + lease;
            match self.lock().by_key.get_mut(key) {
                Some(KeyEntry::InProgress { token: holder, lease_ends_at, .. }) if *holder == token => {
                    *lease_ends_at = ends_at;
                    Ok(Ownership::Yes)
                }
                Some(KeyEntry::InProgress { .. } | KeyEntry::Done { .. }) | None => Ok(Ownership::No),
            }
        })
    }

    fn finish<'a>(
        &'a self,
        key: &'a OnceKey,
        token: FencingToken,
        result: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Ownership, DedupStoreError>> {
        Box::pin(async move {
            let expires_at = self.now() + ttl;
            let mut state = self.lock();
            if state.is_held(key, token) == Ownership::No {
                return Ok(Ownership::No);
            }
            // Dropping the entry wakes the waiters, which then find the result.
            state.by_key.insert(key.clone(), KeyEntry::Done { token, result: result.to_vec(), expires_at });
            state.by_end.insert((expires_at, token), key.clone());
            Ok(Ownership::Yes)
        })
    }

    fn release(&self, key: &OnceKey, token: FencingToken) {
        let mut state = self.lock();
        if state.is_held(key, token) == Ownership::Yes {
            state.remove(key);
        }
    }

    fn forget<'a>(&'a self, key: &'a OnceKey) -> BoxFuture<'a, Result<(), DedupStoreError>> {
        Box::pin(async move {
            let mut state = self.lock();
            if matches!(state.by_key.get(key), Some(KeyEntry::Done { .. })) {
                state.remove(key);
            }
            Ok(())
        })
    }

    fn changed<'a>(&'a self, key: &'a OnceKey) -> BoxFuture<'a, ()> {
        let ended = match self.lock().by_key.get(key) {
            Some(KeyEntry::InProgress { ends, .. }) => Some(ends.subscribe()),
            Some(KeyEntry::Done { .. }) | None => None,
        };
        Box::pin(async move {
            if let Some(mut ended) = ended {
                // Nothing is ever sent: it returns an error when the sender is dropped.
                let _ = ended.changed().await;
            }
        })
    }
}

/// Shows no contents.
impl fmt::Debug for MemoryDedupStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("keys", &self.len()).finish_non_exhaustive()
    }
}
