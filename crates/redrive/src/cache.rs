//! A cache by key of things that are fetched from elsewhere, and that go on serving while elsewhere is away.
//!
//! Each key has a [`StaleCache`] of its own: what it holds is fresh for a while, serves on past its time while
//! it is fetched anew or cannot be, and a failure is remembered, so that who is down is not asked by everybody
//! who comes by. That there is no such thing ([`Cache::looking_up`]) is an answer too: it is remembered for a
//! time of its own, and what was there before it serves no more.
//!
//! ```
//! use std::time::Duration;
//! use redrive::cache::{Cache, Plan};
//! use redrive::core::freshness::Lifetimes;
//! use redrive::stale::{Served, timer_clock};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let plan = Plan {
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
//! Invariants: there are never more than `keys_max` keys, and the one that was least recently asked for goes
//! first; for each key one fetch is under way at a time, so a key that is being fetched does not go unless
//! somebody forgets it; and nothing of a caller's runs while the keys are locked.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redrive_core::freshness::{Freshness, Lifetimes};

use crate::stale::{self, Asked, Clock, Fetching, Found, Missing, Served, StaleCache, Trouble};

/// How a cache works.
pub struct Plan {
    /// How long what was fetched serves, and how long a failure is remembered.
    pub lifetimes: Lifetimes,
    /// The longest that a fetch may take; after that it is dropped and has failed.
    pub limit: Duration,
    /// The most keys that are kept.
    pub keys_max: usize,
    /// Tells the time.
    pub clock: Clock,
}

/// Holds things that are fetched from elsewhere, by key; clones hold the same.
pub struct Cache<K, V, E> {
    shared: Arc<Shared<K, V, E>>,
}

/// How often a cache could help, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Served at once, and fresh.
    pub hits: u64,
    /// Served at once, and past its time.
    pub stale: u64,
    /// Answered at once from memory: there is no such thing, or it could not be fetched a moment ago.
    pub negative: u64,
    /// Had to wait for a fetch.
    pub misses: u64,
    /// Got what was given in place of the thing, for one of the reasons above.
    pub fallbacks: u64,
    /// Keys that went to make room for others.
    pub evicted: u64,
    /// Refused, since all keys that there is room for were being fetched.
    pub refused: u64,
    /// Keys that are kept now.
    pub keys: usize,
}

struct Shared<K, V, E> {
    fetch: Arc<dyn Fn(K) -> Fetching<V, E> + Send + Sync>,
    plan: Plan,
    nothing: Duration,
    kept: Mutex<Kept<K, V, E>>,
    tally: Tally,
}

/// The keys, and in which order they were asked for.
struct Kept<K, V, E> {
    by_key: HashMap<Arc<K>, Entry<V, E>>,
    /// The least recently used comes first.
    by_use: BTreeMap<Turn, Arc<K>>,
    last: Turn,
}

struct Entry<V, E> {
    thing: StaleCache<V, E>,
    used: Turn,
}

/// The place of a use among all uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Turn(u64);

#[derive(Default)]
struct Tally {
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
    /// An empty cache, and how a thing is fetched.
    pub fn new<F>(plan: Plan, fetch: impl Fn(K) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<V, E>> + Send + 'static,
    {
        let fetch = move |key| {
            let fetched = fetch(key);
            Box::pin(async move { fetched.await.map_err(Trouble::Failed) }) as Fetching<V, E>
        };
        // Such a fetch never says that there is nothing.
        Self::of(plan, Duration::ZERO, Arc::new(fetch))
    }

    /// The same for things that may not be there: that there is none is remembered for so long.
    pub fn looking_up<F>(
        plan: Plan,
        nothing: Duration,
        fetch: impl Fn(K) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Option<V>, E>> + Send + 'static,
    {
        let fetch = move |key| {
            let fetched = fetch(key);
            Box::pin(async move { fetched.await.map_err(Trouble::Failed)?.ok_or(Trouble::Nothing) })
                as Fetching<V, E>
        };
        Self::of(plan, nothing, Arc::new(fetch))
    }

    fn of(plan: Plan, nothing: Duration, fetch: Arc<dyn Fn(K) -> Fetching<V, E> + Send + Sync>) -> Self {
        assert!(plan.keys_max > 0, "a cache without room for a key would refuse everything");
        let kept = Kept { by_key: HashMap::new(), by_use: BTreeMap::new(), last: Turn::default() };
        let shared = Shared { fetch, plan, nothing, kept: Mutex::new(kept), tally: Tally::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The thing of a key: at once if there is anything that may be served, else when it has been fetched.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, where something is to be fetched.
    pub async fn get(&self, key: &K) -> Result<Found<V, E>, Missing<E>> {
        let tally = &self.shared.tally;
        let Some(asked) = self.shared.asked(key) else {
            count(&tally.refused);
            let keys_max = self.shared.plan.keys_max;
            return Err(Missing { failure: Arc::new(Trouble::Crowded { keys_max }), age: None });
        };
        count(match asked.freshness {
            Freshness::Fresh => &tally.hits,
            Freshness::Refresh | Freshness::Stale => &tally.stale,
            Freshness::NotYet => &tally.negative,
            Freshness::Gone => &tally.misses,
        });
        asked.wait().await
    }

    /// The thing of a key, or what is given here if there is none.
    pub async fn get_or(&self, key: &K, fallback: V) -> Served<V, E> {
        let found = self.get(key).await;
        if found.is_err() {
            count(&self.shared.tally.fallbacks);
        }
        Served::of(found, fallback)
    }

    /// What may be served now, without fetching anything and without counting as a use.
    #[must_use]
    pub fn known(&self, key: &K) -> Option<Found<V, E>> {
        let thing = self.shared.lock().by_key.get(key).map(|entry| entry.thing.clone());
        thing?.known()
    }

    /// Drops what is known of a key: the next who asks for it waits for what is fetched then, whatever is on
    /// its way by now.
    pub fn forget(&self, key: &K) {
        let forgotten = self.shared.lock().remove(key);
        drop(forgotten);
    }

    /// How often it could help.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Tally { hits, stale, negative, misses, fallbacks, evicted, refused } = &self.shared.tally;
        Counts {
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

/// Nothing of what it holds.
impl<K, V, E> fmt::Debug for Cache<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("keys_max", &self.shared.plan.keys_max).finish_non_exhaustive()
    }
}

impl<K, V, E> Shared<K, V, E> {
    fn lock(&self) -> MutexGuard<'_, Kept<K, V, E>> {
        // What may panic is a fetch that finds no runtime, and then the keys are whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V, E> Shared<K, V, E>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    /// What there is of a key and is still to come, or none if there is no room for it. A fetch begins before
    /// anybody else sees the key, who might make it go.
    fn asked(&self, key: &K) -> Option<Asked<V, E>> {
        let mut kept = self.lock();
        if let Some(thing) = kept.touch(key) {
            return Some(thing.asked());
        }
        let gone = if kept.by_key.len() < self.plan.keys_max {
            None
        } else {
            let gone = kept.evict()?;
            count(&self.tally.evicted);
            Some(gone)
        };
        let thing = self.empty(key);
        let asked = thing.asked();
        kept.insert(Arc::new(key.clone()), thing);
        drop(kept);
        drop(gone);
        Some(asked)
    }

    fn empty(&self, key: &K) -> StaleCache<V, E> {
        let Plan { lifetimes, limit, clock, keys_max: _ } = &self.plan;
        let plan = stale::Plan { lifetimes: *lifetimes, limit: *limit, clock: Arc::clone(clock) };
        let (fetch, key) = (Arc::clone(&self.fetch), key.clone());
        StaleCache::looking_up(plan, self.nothing, Box::new(move || fetch(key.clone())))
    }
}

impl<K, V, E> Kept<K, V, E>
where
    K: Eq + Hash,
    V: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    fn next_turn(&mut self) -> Turn {
        self.last = Turn(self.last.0 + 1);
        self.last
    }

    /// What there is of a key, which is the most recently used from now on.
    fn touch(&mut self, key: &K) -> Option<&StaleCache<V, E>> {
        let turn = self.next_turn();
        let entry = self.by_key.get_mut(key)?;
        let before = std::mem::replace(&mut entry.used, turn);
        let key = self.by_use.remove(&before).expect("each key has its turn");
        self.by_use.insert(turn, key);
        Some(&entry.thing)
    }

    fn insert(&mut self, key: Arc<K>, thing: StaleCache<V, E>) {
        let used = self.next_turn();
        self.by_use.insert(used, Arc::clone(&key));
        self.by_key.insert(key, Entry { thing, used });
    }

    fn remove(&mut self, key: &K) -> Option<StaleCache<V, E>> {
        let entry = self.by_key.remove(key)?;
        self.by_use.remove(&entry.used);
        Some(entry.thing)
    }

    /// Lets the least recently used key go; none if all are being fetched. One that is being fetched is in
    /// use, so it goes to the end of the line, and the next time others are looked at first.
    fn evict(&mut self) -> Option<StaleCache<V, E>> {
        for _ in 0..self.by_use.len() {
            let (_, key) = self.by_use.pop_first()?;
            let turn = self.next_turn();
            let entry = self.by_key.get_mut(&key).expect("each turn has its key");
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
