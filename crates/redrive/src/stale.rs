//! A cache of one value that keeps serving while the value cannot be fetched.
//!
//! A value is fresh for a time. After that it is fetched again in the background while the old one is served; if the
//! fetch fails, the old one is served until it is too old. Callers wait only if there is nothing to serve. Failures
//! are remembered for a time, so that callers do not hammer a provider that is down. [`redrive_core::freshness`]
//! decides which of these holds.
//!
//! ```
//! use std::time::Duration;
//! use redrive::core::freshness::Lifetimes;
//! use redrive::stale::{Plan, StaleCache, timer_clock};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let plan = Plan {
//!     lifetimes: Lifetimes {
//!         fresh: Duration::from_secs(60),
//!         kept: Duration::from_secs(600),
//!         failure: Duration::from_secs(5),
//!     },
//!     limit: Duration::from_secs(10),
//!     clock: timer_clock(),
//! };
//! let rates = StaleCache::new(plan, || async { Ok::<_, std::io::Error>(vec![1.25, 0.8]) });
//! let found = rates.get().await.expect("it was fetched");
//! assert_eq!(*found.value, [1.25, 0.8]);
//! # }
//! ```
//!
//! Invariants: one fetch at a time; it runs in its own task within its time limit, so a caller that stops waiting
//! affects no other; and a fetch that panics counts as failed. [`crate::cache`] holds many values by key.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redrive_core::freshness::{Freshness, Lifetimes, Past, freshness};
use redrive_core::text::show_duration;
use redrive_core::time::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// The clock of a cache; it should not go back.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Tokio's timer clock: monotonic, and paused where a test pauses it.
#[must_use]
pub fn timer_clock() -> Clock {
    let begun = Instant::now();
    Arc::new(move || Timestamp::EPOCH + begun.elapsed())
}

/// Settings of a cache.
pub struct Plan {
    /// How long values and failures are kept.
    pub lifetimes: Lifetimes,
    /// Time limit of a fetch.
    pub limit: Duration,
    /// The clock.
    pub clock: Clock,
}

/// A cache of one value that keeps serving during an outage; clones share it.
pub struct StaleCache<T, E> {
    shared: Arc<Shared<T, E>>,
}

/// A cached value.
#[derive(Debug)]
pub struct Found<T, E> {
    /// The value.
    pub value: Arc<T>,
    /// Time since it was fetched.
    pub age: Duration,
    /// Whether it is fresh or stale.
    pub standing: Standing,
    /// Why the latest fetch failed, if it did.
    pub failure: Option<Arc<Trouble<E>>>,
}

/// Whether a value is within its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Within its time.
    Fresh,
    /// Past its time: being fetched again, or the fetch failed.
    Stale,
}

/// A value or its fallback.
#[derive(Debug)]
pub enum Served<T, E> {
    /// A fresh value.
    Fresh {
        /// The value.
        value: Arc<T>,
        /// Time since it was fetched.
        age: Duration,
    },
    /// A value past its time, or one that could not be refreshed.
    Stale {
        /// The value.
        value: Arc<T>,
        /// Time since it was fetched.
        age: Duration,
        /// Why the latest fetch failed; `None` while one is running.
        why: Option<Arc<Trouble<E>>>,
    },
    /// The fallback.
    Fallback {
        /// The fallback.
        value: Arc<T>,
        /// Why there is no value.
        why: Arc<Trouble<E>>,
    },
}

impl<T, E> Served<T, E> {
    /// The cached value, or `fallback`.
    pub fn of(found: Result<Found<T, E>, Missing<E>>, fallback: T) -> Self {
        match found {
            Ok(Found { value, age, standing: Standing::Fresh, failure: None }) => Self::Fresh { value, age },
            Ok(Found { value, age, failure: why, .. }) => Self::Stale { value, age, why },
            Err(Missing { failure: why, .. }) => Self::Fallback { value: Arc::new(fallback), why },
        }
    }

    /// The value, of whatever kind.
    #[must_use]
    pub fn value(&self) -> &Arc<T> {
        match self {
            Self::Fresh { value, .. } | Self::Stale { value, .. } | Self::Fallback { value, .. } => value,
        }
    }
}

/// No value may be served.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct Missing<E> {
    /// Why the fetch failed.
    pub failure: Arc<Trouble<E>>,
    /// Time since the last value was fetched, if there ever was one.
    pub age: Option<Duration>,
}

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub enum Trouble<E> {
    /// The fetch returned an error.
    #[error("{0}")]
    Failed(E),
    /// The fetch exceeded its time limit.
    #[error("nothing came within {}", show_duration(*.limit))]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The fetch panicked, or its runtime shut down.
    #[error("fetching it broke off")]
    Lost,
    /// The fetch succeeded: the value does not exist.
    #[error("there is no such thing")]
    Nothing,
    /// No fetch was started: every key that there is room for is being fetched.
    #[error("all {keys_max} that there is room for are being fetched")]
    Crowded {
        /// The number of keys.
        keys_max: usize,
    },
}

impl<E> Missing<E> {
    /// Whether the value is known not to exist.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        matches!(*self.failure, Trouble::Nothing)
    }
}

/// A value that cannot be fetched, for status reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ailing {
    /// Whether an old value is still served.
    pub state: Ailment,
    /// Since when, as far as callers noticed.
    pub since: Timestamp,
    /// The reason, without any part of the value.
    pub why: String,
}

/// Whether an old value is still served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ailment {
    /// The old value is served.
    Stale,
    /// There is nothing to serve.
    Gone,
}

impl Ailment {
    /// The word in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Gone => "gone",
        }
    }
}

pub(crate) type Fetching<T, E> = Pin<Box<dyn Future<Output = Result<T, Trouble<E>>> + Send>>;

struct Shared<T, E> {
    fetch: Box<dyn Fn() -> Fetching<T, E> + Send + Sync>,
    limit: Duration,
    clock: Clock,
    /// How long the absence of a value is remembered.
    nothing: Duration,
    state: Mutex<State<T, E>>,
}

struct State<T, E> {
    lifetimes: Lifetimes,
    good: Option<(Arc<T>, Timestamp)>,
    /// Set only while it is newer than `good`.
    failure: Option<(Arc<Trouble<E>>, Timestamp)>,
    /// Closed when the fetch ends.
    flight: Option<watch::Receiver<()>>,
}

impl<T, E> StaleCache<T, E>
where
    T: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    /// An empty cache that fills itself with `fetch`.
    pub fn new<F>(plan: Plan, fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let fetch = move || {
            let fetched = fetch();
            Box::pin(async move { fetched.await.map_err(Trouble::Failed) }) as Fetching<T, E>
        };
        // This fetch never reports `NotFound`.
        Self::looking_up(plan, Duration::ZERO, Box::new(fetch))
    }

    /// The same for a value that may not exist; `nothing` is how long its absence is remembered.
    pub(crate) fn looking_up(
        plan: Plan,
        nothing: Duration,
        fetch: Box<dyn Fn() -> Fetching<T, E> + Send + Sync>,
    ) -> Self {
        let Plan { lifetimes, limit, clock } = plan;
        let state = State { lifetimes, good: None, failure: None, flight: None };
        Self { shared: Arc::new(Shared { fetch, limit, clock, nothing, state: Mutex::new(state) }) }
    }

    /// Replaces the lifetimes, also for the value in memory.
    pub fn change(&self, lifetimes: Lifetimes) {
        self.shared.lock().lifetimes = lifetimes;
    }

    /// The value: from memory if one may be served, else after a fetch.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime if a fetch is needed.
    pub async fn get(&self) -> Result<Found<T, E>, Missing<E>> {
        self.asked().wait().await
    }

    /// The value, or `fallback` if there is none.
    pub async fn get_or(&self, fallback: T) -> Served<T, E> {
        Served::of(self.get().await, fallback)
    }

    /// Looks the value up and starts a fetch if one is due.
    pub(crate) fn asked(&self) -> Asked<T, E> {
        let asked_at = self.shared.now();
        let mut state = self.shared.lock();
        let freshness = state.freshness(self.shared.nothing, asked_at);
        let boarded = match freshness {
            Freshness::Fresh | Freshness::Stale | Freshness::NotYet => None,
            Freshness::Refresh | Freshness::Gone => Some(self.board(&mut state)),
        };
        let told = state.told(freshness, asked_at);
        drop(state);
        let come = match boarded.map(Boarded::take_off) {
            Some(flight) if freshness == Freshness::Gone => {
                Come::Later { cache: self.clone(), flight, asked_at }
            }
            Some(_) | None => Come::Now(told),
        };
        Asked { freshness, come }
    }

    pub(crate) fn is_fetching(&self) -> bool {
        self.shared.lock().flight.is_some()
    }

    /// Fetches the value again, unless a fetch ended within `unless_within`. If it fails, the old value is
    /// served by its age.
    pub async fn renewed(&self, unless_within: Duration) -> Result<Found<T, E>, Missing<E>> {
        let asked_at = self.shared.now();
        let boarded = {
            let mut state = self.shared.lock();
            let Past { fetched_at, failed_at } = state.past();
            let tried_at = fetched_at.max(failed_at);
            if tried_at.is_some_and(|at| asked_at.since(at) < unless_within) {
                return state.told(state.freshness(self.shared.nothing, asked_at), asked_at);
            }
            self.board(&mut state)
        };
        self.landed(boarded.take_off(), asked_at).await
    }

    /// The value in memory, without a fetch.
    #[must_use]
    pub fn known(&self) -> Option<Found<T, E>> {
        let (state, now) = (self.shared.lock(), self.shared.now());
        state.told(state.freshness(self.shared.nothing, now), now).ok()
    }

    /// Joins the running fetch or prepares one, which starts after the lock is released.
    fn board(&self, state: &mut State<T, E>) -> Boarded<T, E> {
        if let Some(flight) = &state.flight {
            return Boarded { flight: flight.clone(), landing: None };
        }
        let (landing, flight) = watch::channel(());
        state.flight = Some(flight.clone());
        let landing =
            Landing { shared: Arc::clone(&self.shared), brought: Err(Trouble::Lost), _wakes: landing };
        Boarded { flight, landing: Some(landing) }
    }

    /// The state after a fetch ended. A value fetched after the call counts as fresh, however short the
    /// lifetimes.
    async fn landed(
        &self,
        mut flight: watch::Receiver<()>,
        asked_at: Timestamp,
    ) -> Result<Found<T, E>, Missing<E>> {
        // Nothing is ever sent: it returns an error when the sender is dropped.
        let _ = flight.changed().await;
        let (state, now) = (self.shared.lock(), self.shared.now());
        match &state.good {
            Some((_, fetched_at)) if *fetched_at >= asked_at => Ok(state.found(Standing::Fresh, now)),
            _ => state.told(state.freshness(self.shared.nothing, now), now),
        }
    }
}

struct Boarded<T, E> {
    flight: watch::Receiver<()>,
    /// Set if the fetch has not started.
    landing: Option<Landing<T, E>>,
}

impl<T, E> Boarded<T, E>
where
    T: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    /// Starts the fetch without holding the lock: a runtime that has shut down drops the task at once, which
    /// locks the state.
    fn take_off(self) -> watch::Receiver<()> {
        if let Some(mut landing) = self.landing {
            tokio::spawn(async move {
                let limit = landing.shared.limit;
                landing.bring(match timeout(limit, (landing.shared.fetch)()).await {
                    Ok(Ok(value)) => Ok(Arc::new(value)),
                    Ok(Err(trouble)) => Err(trouble),
                    Err(_) => Err(Trouble::TimedOut { limit }),
                });
            });
        }
        self.flight
    }
}

pub(crate) struct Asked<T, E> {
    pub(crate) freshness: Freshness,
    come: Come<T, E>,
}

enum Come<T, E> {
    Now(Result<Found<T, E>, Missing<E>>),
    Later { cache: StaleCache<T, E>, flight: watch::Receiver<()>, asked_at: Timestamp },
}

impl<T, E> Asked<T, E>
where
    T: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    pub(crate) async fn wait(self) -> Result<Found<T, E>, Missing<E>> {
        match self.come {
            Come::Now(told) => told,
            Come::Later { cache, flight, asked_at } => cache.landed(flight, asked_at).await,
        }
    }
}

impl<T, E> Clone for StaleCache<T, E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// Shows no value.
impl<T, E> fmt::Debug for StaleCache<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaleCache").field("limit", &self.shared.limit).finish_non_exhaustive()
    }
}

impl<T, E> Shared<T, E> {
    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    fn lock(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock().expect("nothing panics while it holds the state")
    }
}

impl<T, E> State<T, E> {
    fn past(&self) -> Past {
        Past {
            fetched_at: self.good.as_ref().map(|(_, at)| *at),
            failed_at: self.failure.as_ref().map(|(_, at)| *at),
        }
    }

    fn freshness(&self, nothing: Duration, now: Timestamp) -> Freshness {
        let failure = match &self.failure {
            Some((failure, _)) if matches!(**failure, Trouble::Nothing) => nothing,
            _ => self.lifetimes.failure,
        };
        freshness(self.past(), &Lifetimes { failure, ..self.lifetimes }, now)
    }

    fn told(&self, freshness: Freshness, now: Timestamp) -> Result<Found<T, E>, Missing<E>> {
        match freshness {
            Freshness::Fresh => Ok(self.found(Standing::Fresh, now)),
            Freshness::Refresh | Freshness::Stale => Ok(self.found(Standing::Stale, now)),
            Freshness::Gone | Freshness::NotYet => Err(Missing {
                failure: self
                    .failure
                    .as_ref()
                    .map_or_else(|| Arc::new(Trouble::Lost), |(failure, _)| Arc::clone(failure)),
                age: self.good.as_ref().map(|(_, at)| now.since(*at)),
            }),
        }
    }

    fn found(&self, standing: Standing, now: Timestamp) -> Found<T, E> {
        let (value, fetched_at) = self.good.as_ref().expect("what has an age is there");
        Found {
            value: Arc::clone(value),
            age: now.since(*fetched_at),
            standing,
            failure: self.failure.as_ref().map(|(failure, _)| Arc::clone(failure)),
        }
    }
}

/// Records the result of a fetch when it is dropped, in whatever way the fetch ended, and wakes the waiters.
struct Landing<T, E> {
    shared: Arc<Shared<T, E>>,
    brought: Result<Arc<T>, Trouble<E>>,
    _wakes: watch::Sender<()>,
}

impl<T, E> Landing<T, E> {
    fn bring(&mut self, brought: Result<Arc<T>, Trouble<E>>) {
        self.brought = brought;
    }
}

impl<T, E> Drop for Landing<T, E> {
    fn drop(&mut self) {
        let now = self.shared.now();
        let brought = std::mem::replace(&mut self.brought, Err(Trouble::Lost));
        let mut state = self.shared.lock();
        state.flight = None;
        match brought {
            Ok(value) => (state.good, state.failure) = (Some((value, now)), None),
            // The old value must not be served any more.
            Err(Trouble::Nothing) => {
                (state.good, state.failure) = (None, Some((Arc::new(Trouble::Nothing), now)));
            }
            Err(trouble) => state.failure = Some((Arc::new(trouble), now)),
        }
    }
}

#[cfg(test)]
mod tests;
