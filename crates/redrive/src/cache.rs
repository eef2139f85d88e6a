//! A cache by key that keeps serving while values cannot be fetched.
//!
//! Each key has a [`StaleCache`]: a value is fresh for a time, is served past it while a new one is fetched or the
//! fetch fails, and failures are remembered, so that callers do not hammer a provider that is down. With
//! [`Cache::looking_up`] the absence of a value is remembered too, and ends what was served before.
//!
//! ```
//! use std::time::Duration;
//! use redrive::cache::{Cache, CachePlan};
//! use redrive::core::freshness::Lifetimes;
//! use redrive::stale::{Served, timer_clock};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let plan = CachePlan {
//!     lifetimes: Lifetimes {
//!         fresh: Duration::from_secs(60),
//!         kept: Duration::from_secs(600),
//!         failure: Duration::from_secs(5),
//!     },
//!     limit: Duration::from_secs(10),
//!     keys_max: 10_000,
//!     clock: timer_clock(),
//! };
//! let rates = Cache::new(plan, |currency: String| async move {
//!     if currency == "EUR" { Ok(1.25) } else { Err(std::io::Error::other("the bank is closed")) }
//! });
//! assert_eq!(*rates.get(&"EUR".to_owned()).await.expect("it was fetched").value, 1.25);
//! match rates.get_or(&"CHF".to_owned(), 1.0).await {
//!     Served::Fallback { value, why } => assert_eq!((*value, why.to_string()), (1.0, "the bank is closed".into())),
//!     Served::Fresh { .. } | Served::Stale { .. } => unreachable!("the bank is closed"),
//! }
//! assert_eq!(rates.counts().misses, 2);
//! # }
//! ```
//!
//! Invariants: at most `keys_max` keys, the least recently used is evicted first; one fetch per key at a time, so
//! a key being fetched is not evicted; and no caller's code runs under the lock.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redrive_core::freshness::{Freshness, Lifetimes};

use crate::stale::{self, Cached, ClockFn, FetchError, Fetching, Lookup, Missing, Served, StaleCache};

/// Settings of a cache.
pub struct CachePlan {
    /// How long values and failures are kept.
    pub lifetimes: Lifetimes,
    /// Time limit of a fetch.
    pub limit: Duration,
    /// Maximum number of keys.
    pub keys_max: usize,
    /// The clock.
    pub clock: ClockFn,
}

/// A cache by key that keeps serving during an outage; clones share their contents.
pub struct Cache<K, V, E> {
    shared: Arc<CacheInner<K, V, E>>,
}

/// Counters since the cache was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Served from memory, fresh.
    pub hits: u64,
    /// Served from memory, past its time.
    pub stale: u64,
    /// Answered from memory: known to be missing, or failed a moment ago.
    pub negative: u64,
    /// Waited for a fetch.
    pub misses: u64,
    /// Answered with the fallback.
    pub fallbacks: u64,
    /// Keys evicted to make room.
    pub evicted: u64,
    /// Refused because every key was being fetched.
    pub refused: u64,
    /// Keys in memory now.
    pub keys: usize,
}

struct CacheInner<K, V, E> {
    fetch: Arc<dyn Fn(K) -> Fetching<V, E> + Send + Sync>,
    plan: CachePlan,
    nothing: Duration,
    kept: Mutex<CacheKeys<K, V, E>>,
    tally: CacheCounters,
}

struct CacheKeys<K, V, E> {
    by_key: HashMap<Arc<K>, CacheEntry<V, E>>,
    /// Least recently used first.
    by_use: BTreeMap<UseOrder, Arc<K>>,
    last: UseOrder,
}

struct CacheEntry<V, E> {
    thing: StaleCache<V, E>,
    used: UseOrder,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct UseOrder(u64);

#[derive(Default)]
struct CacheCounters {
    hits: AtomicU64,
    stale: AtomicU64,
    negative: AtomicU64,
    misses: AtomicU64,
    fallbacks: AtomicU64,
    evicted: AtomicU64,
    refused: AtomicU64,
}

impl<K, V, E> Cache<K, V, E>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    /// An empty cache that fills itself with `fetch`.
    pub fn new<F>(plan: CachePlan, fetch: impl Fn(K) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<V, E>> + Send + 'static,
    {
        let fetch = move |key| {
            let fetched = fetch(key);
            Box::pin(async move { fetched.await.map_err(FetchError::Failed) }) as Fetching<V, E>
        };
        // This fetch never reports `NotFound`.
        Self::of(plan, Duration::ZERO, Arc::new(fetch))
    }

    /// The same for values that may not exist; `nothing` is how long their absence is remembered.
    pub fn looking_up<F>(
        plan: CachePlan,
        nothing: Duration,
        fetch: impl Fn(K) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Option<V>, E>> + Send + 'static,
    {
        let fetch = move |key| {
            let fetched = fetch(key);
            Box::pin(async move { fetched.await.map_err(FetchError::Failed)?.ok_or(FetchError::Nothing) })
                as Fetching<V, E>
        };
        Self::of(plan, nothing, Arc::new(fetch))
    }

    fn of(plan: CachePlan, nothing: Duration, fetch: Arc<dyn Fn(K) -> Fetching<V, E> + Send + Sync>) -> Self {
        assert!(plan.keys_max > 0, "a cache without room for a key would refuse everything");
        let kept = CacheKeys { by_key: HashMap::new(), by_use: BTreeMap::new(), last: UseOrder::default() };
        let shared =
            CacheInner { fetch, plan, nothing, kept: Mutex::new(kept), tally: CacheCounters::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The value of a key: from memory if one may be served, else after a fetch.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime if a fetch is needed.
    pub async fn get(&self, key: &K) -> Result<Cached<V, E>, Missing<E>> {
        let tally = &self.shared.tally;
        let Some(look_up) = self.shared.look_up(key) else {
            count(&tally.refused);
            let keys_max = self.shared.plan.keys_max;
            return Err(Missing { failure: Arc::new(FetchError::Crowded { keys_max }), age: None });
        };
        count(match look_up.freshness {
            Freshness::Fresh => &tally.hits,
            Freshness::Refresh | Freshness::Stale => &tally.stale,
            Freshness::NotYet => &tally.negative,
            Freshness::Gone => &tally.misses,
        });
        look_up.wait().await
    }

    /// The value of a key, or `fallback` if there is none.
    pub async fn get_or(&self, key: &K, fallback: V) -> Served<V, E> {
        let found = self.get(key).await;
        if found.is_err() {
            count(&self.shared.tally.fallbacks);
        }
        Served::of(found, fallback)
    }

    /// The value in memory, without a fetch and without counting as a use.
    #[must_use]
    pub fn known(&self, key: &K) -> Option<Cached<V, E>> {
        let thing = self.shared.lock().by_key.get(key).map(|entry| entry.thing.clone());
        thing?.known()
    }

    /// Drops a key: the next caller waits for a fetch that starts after this call.
    pub fn forget(&self, key: &K) {
        let forgotten = self.shared.lock().remove(key);
        drop(forgotten);
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let CacheCounters { hits, stale, negative, misses, fallbacks, evicted, refused } = &self.shared.tally;
        CacheCounts {
            hits: read(hits),
            stale: read(stale),
            negative: read(negative),
            misses: read(misses),
            fallbacks: read(fallbacks),
            evicted: read(evicted),
            refused: read(refused),
            keys: self.shared.lock().by_key.len(),
        }
    }
}

fn count(tally: &AtomicU64) {
    tally.fetch_add(1, Ordering::Relaxed);
}

impl<K, V, E> Clone for Cache<K, V, E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// Shows no values.
impl<K, V, E> fmt::Debug for Cache<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("keys_max", &self.shared.plan.keys_max).finish_non_exhaustive()
    }
}

impl<K, V, E> CacheInner<K, V, E> {
    fn lock(&self) -> MutexGuard<'_, CacheKeys<K, V, E>> {
        // Only a fetch outside a runtime panics, and it leaves the map intact.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V, E> CacheInner<K, V, E>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    /// Looks a key up, or `None` if there is no room for it. The fetch starts under the lock, so that the key
    /// cannot be evicted before.
    fn look_up(&self, key: &K) -> Option<Lookup<V, E>> {
        let mut kept = self.lock();
        if let Some(thing) = kept.touch(key) {
            return Some(thing.look_up());
        }
        let gone = if kept.by_key.len() < self.plan.keys_max {
            None
        } else {
            let gone = kept.evict()?;
            count(&self.tally.evicted);
            Some(gone)
        };
        let thing = self.empty(key);
        let look_up = thing.look_up();
        kept.insert(Arc::new(key.clone()), thing);
        drop(kept);
        drop(gone);
        Some(look_up)
    }

    fn empty(&self, key: &K) -> StaleCache<V, E> {
        let CachePlan { lifetimes, limit, clock, keys_max: _ } = &self.plan;
        let plan = stale::StalePlan { lifetimes: *lifetimes, limit: *limit, clock: Arc::clone(clock) };
        let (fetch, key) = (Arc::clone(&self.fetch), key.clone());
        StaleCache::looking_up(plan, self.nothing, Box::new(move || fetch(key.clone())))
    }
}

impl<K, V, E> CacheKeys<K, V, E>
where
    K: Eq + Hash,
    V: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    fn next_turn(&mut self) -> UseOrder {
        self.last = UseOrder(self.last.0 + 1);
        self.last
    }

    /// Looks a key up and marks it as most recently used.
    fn touch(&mut self, key: &K) -> Option<&StaleCache<V, E>> {
        let turn = self.next_turn();
        let entry = self.by_key.get_mut(key)?;
        let before = std::mem::replace(&mut entry.used, turn);
        let key = self.by_use.remove(&before).expect("each key has a use");
        self.by_use.insert(turn, key);
        Some(&entry.thing)
    }

    fn insert(&mut self, key: Arc<K>, thing: StaleCache<V, E>) {
        let used = self.next_turn();
        self.by_use.insert(used, Arc::clone(&key));
        self.by_key.insert(key, CacheEntry { thing, used });
    }

    fn remove(&mut self, key: &K) -> Option<StaleCache<V, E>> {
        let entry = self.by_key.remove(key)?;
        self.by_use.remove(&entry.used);
        Some(entry.thing)
    }

    /// Evicts the least recently used key, or `None` if all are being fetched. Keys being fetched move to the
    /// end of the queue.
    fn evict(&mut self) -> Option<StaleCache<V, E>> {
        for _ in 0..self.by_use.len() {
            let (_, key) = self.by_use.pop_first()?;
            let turn = self.next_turn();
            let entry = self.by_key.get_mut(&key).expect("each use has a key");
            if !entry.thing.is_fetching() {
                return self.by_key.remove(&key).map(|entry| entry.thing);
            }
            entry.used = turn;
            self.by_use.insert(turn, key);
        }
        None
    }
}

#[cfg(test)]
mod tests;
