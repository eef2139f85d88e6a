//! An in-memory store for one process.
//!
//! Invariants: at most `keys_max` keys; work in progress is never evicted; expired results go first.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redrive_core::time::Timestamp;
use tokio::sync::watch;

use super::store::{Begun, DedupStore, Held, Key, StoreError, Token};
use crate::BoxFuture;
use crate::clock::wall_clock;
use crate::stale::{Clock, timer_clock};

const KEYS_MAX: usize = 100_000;
/// Expired entries removed per call.
const SWEPT_AT_ONCE: usize = 16;

/// An in-memory store; clones share it.
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

/// The capacity of a store in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Maximum number of keys.
    pub keys_max: usize,
    /// What to do when it is reached.
    pub when_full: WhenFull,
}

/// What to do with a new key when the store is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Refuse it, so that no work is repeated within its time.
    Refuse,
    /// Forget the result that expires first; its work may then be repeated.
    ForgetOldest,
}

struct Shared {
    room: Room,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_key: HashMap<Key, Entry>,
    by_end: BTreeMap<(Timestamp, Token), Key>,
    last: Token,
}

enum Entry {
    InProgress {
        token: Token,
        lease_ends_at: Timestamp,
        /// Closed when the lease ends.
        ends: watch::Sender<()>,
    },
    Done {
        token: Token,
        result: Vec<u8>,
        expires_at: Timestamp,
    },
}

/// Holds 100,000 keys and refuses more.
impl Default for Memory {
    fn default() -> Self {
        Self::new(Room { keys_max: KEYS_MAX, when_full: WhenFull::Refuse })
    }
}

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new(room: Room) -> Self {
        Self::with_clock(room, timer_clock())
    }

    pub(super) fn with_clock(room: Room, clock: Clock) -> Self {
        assert!(room.keys_max > 0, "a store without room for a key would refuse everything");
        // Tokens must be higher than those of an earlier process.
        let last = Token(wall_clock().as_nanos() / 1_000);
        let state = State { last, ..State::default() };
        Self { shared: Arc::new(Shared { room, clock, state: Mutex::new(state) }) }
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("nothing panics while it holds the keys")
    }

    fn now(&self) -> Timestamp {
        (self.shared.clock)()
    }

    fn begun(&self, key: &Key, lease: Duration) -> Result<Begun, StoreError> {
        let now = self.now();
        let mut state = self.lock();
        state.sweep(now);
        match state.by_key.get(key) {
            Some(Entry::InProgress { lease_ends_at, .. }) if now < *lease_ends_at => {
                return Ok(Begun::InProgress { lease_left: lease_ends_at.since(now) });
            }
            Some(Entry::Done { result, expires_at, .. }) if now < *expires_at => {
                return Ok(Begun::Done { result: result.clone() });
            }
            Some(Entry::InProgress { .. } | Entry::Done { .. }) => state.remove(key),
            None => state.make_room(self.shared.room)?,
        }
        Ok(Begun::Yours(state.mark(key, now + lease)))
    }
}

impl State {
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
    fn make_room(&mut self, room: Room) -> Result<(), StoreError> {
        let Room { keys_max, when_full } = room;
        if self.by_key.len() < keys_max {
            return Ok(());
        }
        let oldest = match when_full {
            WhenFull::Refuse => None,
            WhenFull::ForgetOldest => self.by_end.first_key_value().map(|(_, key)| key.clone()),
        };
        self.remove(&oldest.ok_or(StoreError::Full { keys_max })?);
        Ok(())
    }

    fn mark(&mut self, key: &Key, lease_ends_at: Timestamp) -> Token {
        self.last = Token(self.last.0 + 1);
        let token = self.last;
        let (ends, _) = watch::channel(());
        self.by_key.insert(key.clone(), Entry::InProgress { token, lease_ends_at, ends });
        token
    }

    fn remove(&mut self, key: &Key) {
        if let Some(Entry::Done { token, expires_at, .. }) = self.by_key.remove(key) {
            self.by_end.remove(&(expires_at, token));
        }
    }

    fn is_held(&self, key: &Key, by: Token) -> Held {
        match self.by_key.get(key) {
            Some(Entry::InProgress { token, .. }) if *token == by => Held::Yes,
            Some(Entry::InProgress { .. } | Entry::Done { .. }) | None => Held::No,
        }
    }
}

impl DedupStore for Memory {
    fn begin<'a>(&'a self, key: &'a Key, lease: Duration) -> BoxFuture<'a, Result<Begun, StoreError>> {
        Box::pin(async move { self.begun(key, lease) })
    }

    fn renew<'a>(
        &'a self,
        key: &'a Key,
        token: Token,
        lease: Duration,
    ) -> BoxFuture<'a, Result<Held, StoreError>> {
        Box::pin(async move {
            let ends_at = self.now() + lease;
            match self.lock().by_key.get_mut(key) {
                Some(Entry::InProgress { token: holder, lease_ends_at, .. }) if *holder == token => {
                    *lease_ends_at = ends_at;
                    Ok(Held::Yes)
                }
                Some(Entry::InProgress { .. } | Entry::Done { .. }) | None => Ok(Held::No),
            }
        })
    }

    fn finish<'a>(
        &'a self,
        key: &'a Key,
        token: Token,
        result: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Held, StoreError>> {
        Box::pin(async move {
            let expires_at = self.now() + ttl;
            let mut state = self.lock();
            if state.is_held(key, token) == Held::No {
                return Ok(Held::No);
            }
            // Dropping the entry wakes the waiters, which then find the result.
            state.by_key.insert(key.clone(), Entry::Done { token, result: result.to_vec(), expires_at });
            state.by_end.insert((expires_at, token), key.clone());
            Ok(Held::Yes)
        })
    }

    fn release(&self, key: &Key, token: Token) {
        let mut state = self.lock();
        if state.is_held(key, token) == Held::Yes {
            state.remove(key);
        }
    }

    fn forget<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut state = self.lock();
            if matches!(state.by_key.get(key), Some(Entry::Done { .. })) {
                state.remove(key);
            }
            Ok(())
        })
    }

    fn changed<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, ()> {
        let ended = match self.lock().by_key.get(key) {
            Some(Entry::InProgress { ends, .. }) => Some(ends.subscribe()),
            Some(Entry::Done { .. }) | None => None,
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
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("keys", &self.len()).finish_non_exhaustive()
    }
}
