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
//! use redrive::stale::{StalePlan, StaleCache, timer_clock};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let plan = StalePlan {
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
pub type ClockFn = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Tokio's timer clock: monotonic, and paused where a test pauses it.
#[must_use]
pub fn timer_clock() -> ClockFn {
    let begun = Instant::now();
    Arc::new(move || Timestamp::EPOCH + begun.elapsed())
}

/// Settings of a cache.
pub struct StalePlan {
    /// How long values and failures are kept.
    pub lifetimes: Lifetimes,
    /// Time limit of a fetch.
    pub limit: Duration,
    /// The clock.
    pub clock: ClockFn,
}

/// A cache of one value that keeps serving during an outage; clones share it.
pub struct StaleCache<T, E> {
    shared: Arc<StaleInner<T, E>>,
}

/// A cached value.
#[derive(Debug)]
pub struct Cached<T, E> {
    /// The value.
    pub value: Arc<T>,
    /// Time since it was fetched.
    pub age: Duration,
    /// Whether it is fresh or stale.
    pub standing: Validity,
    /// Why the latest fetch failed, if it did.
    pub failure: Option<Arc<FetchError<E>>>,
}

/// Whether a value is within its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
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
        why: Option<Arc<FetchError<E>>>,
    },
    /// The fallback.
    Fallback {
        /// The fallback.
        value: Arc<T>,
        /// Why there is no value.
        why: Arc<FetchError<E>>,
    },
}

impl<T, E> Served<T, E> {
    /// The cached value, or `fallback`.
    pub fn of(found: Result<Cached<T, E>, Missing<E>>, fallback: T) -> Self {
        match found {
            Ok(Cached { value, age, standing: Validity::Fresh, failure: None }) => Self::Fresh { value, age },
            Ok(Cached { value, age, failure: why, .. }) => Self::Stale { value, age, why },
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
    pub failure: Arc<FetchError<E>>,
    /// Time since the last value was fetched, if there ever was one.
    pub age: Option<Duration>,
}

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError<E> {
    /// The fetch returned an error.
    #[error("{0}")]
    Failed(E),
    /// The fetch exceeded its time limit.
    #[error("no result within {}", show_duration(*.limit))]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The fetch panicked, or its runtime shut down.
    #[error("fetch was interrupted")]
    Lost,
    /// The fetch succeeded: the value does not exist.
    #[error("value does not exist")]
    Nothing,
    /// No fetch was started: every key that there is room for is being fetched.
    #[error("cache full: all {keys_max} keys are being fetched")]
    Crowded {
        /// The number of keys.
        keys_max: usize,
    },
}

impl<E> Missing<E> {
    /// Whether the value is known not to exist.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        matches!(*self.failure, FetchError::Nothing)
    }
}

/// A value that cannot be fetched, for status reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnavailableValue {
    /// Whether an old value is still served.
    pub state: Unavailability,
    /// Since when, as far as callers noticed.
    pub since: Timestamp,
    /// The reason, without any part of the value.
    pub why: String,
}

/// Whether an old value is still served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailability {
    /// The old value is served.
    Stale,
    /// There is nothing to serve.
    Gone,
}

impl Unavailability {
    /// The word in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Gone => "gone",
        }
    }
}

pub(crate) type Fetching<T, E> = Pin<Box<dyn Future<Output = Result<T, FetchError<E>>> + Send>>;

struct StaleInner<T, E> {
    fetch: Box<dyn Fn() -> Fetching<T, E> + Send + Sync>,
    limit: Duration,
    clock: ClockFn,
    /// How long the absence of a value is remembered.
    nothing: Duration,
    state: Mutex<FetchState<T, E>>,
}

struct FetchState<T, E> {
    lifetimes: Lifetimes,
    good: Option<(Arc<T>, Timestamp)>,
    /// Set only while it is newer than `good`.
    failure: Option<(Arc<FetchError<E>>, Timestamp)>,
    /// Closed when the fetch ends.
    flight: Option<watch::Receiver<()>>,
}

impl<T, E> StaleCache<T, E>
where
    T: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    /// An empty cache that fills itself with `fetch`.
    pub fn new<F>(plan: StalePlan, fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let fetch = move || {
            let fetched = fetch();
            Box::pin(async move { fetched.await.map_err(FetchError::Failed) }) as Fetching<T, E>
        };
        // This fetch never reports `NotFound`.
        Self::looking_up(plan, Duration::ZERO, Box::new(fetch))
    }

    /// The same for a value that may not exist; `nothing` is how long its absence is remembered.
    pub(crate) fn looking_up(
        plan: StalePlan,
        nothing: Duration,
        fetch: Box<dyn Fn() -> Fetching<T, E> + Send + Sync>,
    ) -> Self {
        let StalePlan { lifetimes, limit, clock } = plan;
        let state = FetchState { lifetimes, good: None, failure: None, flight: None };
        Self { shared: Arc::new(StaleInner { fetch, limit, clock, nothing, state: Mutex::new(state) }) }
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
    pub async fn get(&self) -> Result<Cached<T, E>, Missing<E>> {
        self.look_up().wait().await
    }

    /// The value, or `fallback` if there is none.
    pub async fn get_or(&self, fallback: T) -> Served<T, E> {
        Served::of(self.get().await, fallback)
    }

    /// Looks the value up and starts a fetch if one is due.
    pub(crate) fn look_up(&self) -> Lookup<T, E> {
        let asked_at = self.shared.now();
        let mut state = self.shared.lock();
        let freshness = state.freshness(self.shared.nothing, asked_at);
        let joined = match freshness {
            Freshness::Fresh | Freshness::Stale | Freshness::NotYet => None,
            Freshness::Refresh | Freshness::Gone => Some(self.join_fetch(&mut state)),
        };
        let served = state.served(freshness, asked_at);
        drop(state);
        let come = match joined.map(FetchHandle::start) {
            Some(flight) if freshness == Freshness::Gone => {
                LookupResult::Later { cache: self.clone(), flight, asked_at }
            }
            Some(_) | None => LookupResult::Now(served),
        };
        Lookup { freshness, come }
    }

    pub(crate) fn is_fetching(&self) -> bool {
        self.shared.lock().flight.is_some()
    }

    /// Fetches the value again, unless a fetch ended within `unless_within`. If it fails, the old value is
    /// served by its age.
    pub async fn renewed(&self, unless_within: Duration) -> Result<Cached<T, E>, Missing<E>> {
        let asked_at = self.shared.now();
        let joined = {
            let mut state = self.shared.lock();
            let Past { fetched_at, failed_at } = state.past();
            let tried_at = fetched_at.max(failed_at);
            if tried_at.is_some_and(|at| asked_at.since(at) < unless_within) {
                return state.served(state.freshness(self.shared.nothing, asked_at), asked_at);
            }
            self.join_fetch(&mut state)
        };
        self.after_fetch(joined.start(), asked_at).await
    }

    /// The value in memory, without a fetch.
    #[must_use]
    pub fn known(&self) -> Option<Cached<T, E>> {
        let (state, now) = (self.shared.lock(), self.shared.now());
        state.served(state.freshness(self.shared.nothing, now), now).ok()
    }

    /// Joins the running fetch or prepares one, which starts after the lock is released.
    fn join_fetch(&self, state: &mut FetchState<T, E>) -> FetchHandle<T, E> {
        if let Some(flight) = &state.flight {
            return FetchHandle { flight: flight.clone(), recorder: None };
        }
        let (recorder, flight) = watch::channel(());
        state.flight = Some(flight.clone());
        let recorder = FetchRecorder {
            shared: Arc::clone(&self.shared),
            result: Err(FetchError::Lost),
            _wakes: recorder,
        };
        FetchHandle { flight, recorder: Some(recorder) }
    }

    /// The state after a fetch ended. A value fetched after the call counts as fresh, however short the
    /// lifetimes.
    async fn after_fetch(
        &self,
        mut flight: watch::Receiver<()>,
        asked_at: Timestamp,
    ) -> Result<Cached<T, E>, Missing<E>> {
        // Nothing is ever sent: it returns an error when the sender is dropped.
        let _ = flight.changed().await;
        let (state, now) = (self.shared.lock(), self.shared.now());
        match &state.good {
            Some((_, fetched_at)) if *fetched_at >= asked_at => Ok(state.found(Validity::Fresh, now)),
            _ => state.served(state.freshness(self.shared.nothing, now), now),
        }
    }
}

struct FetchHandle<T, E> {
    flight: watch::Receiver<()>,
    /// Set if the fetch has not started.
    recorder: Option<FetchRecorder<T, E>>,
}

impl<T, E> FetchHandle<T, E>
where
    T: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    /// Starts the fetch without holding the lock: a runtime that has shut down drops the task at once, which
    /// locks the state.
    fn start(self) -> watch::Receiver<()> {
        if let Some(mut recorder) = self.recorder {
            tokio::spawn(async move {
                let limit = recorder.shared.limit;
                recorder.record(match timeout(limit, (recorder.shared.fetch)()).await {
                    Ok(Ok(value)) => Ok(Arc::new(value)),
                    Ok(Err(trouble)) => Err(trouble),
                    Err(_) => Err(FetchError::TimedOut { limit }),
                });
            });
        }
        self.flight
    }
}

pub(crate) struct Lookup<T, E> {
    pub(crate) freshness: Freshness,
    come: LookupResult<T, E>,
}

enum LookupResult<T, E> {
    Now(Result<Cached<T, E>, Missing<E>>),
    Later { cache: StaleCache<T, E>, flight: watch::Receiver<()>, asked_at: Timestamp },
}

impl<T, E> Lookup<T, E>
where
    T: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    pub(crate) async fn wait(self) -> Result<Cached<T, E>, Missing<E>> {
        match self.come {
            LookupResult::Now(served) => served,
            LookupResult::Later { cache, flight, asked_at } => cache.after_fetch(flight, asked_at).await,
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

impl<T, E> StaleInner<T, E> {
    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    fn lock(&self) -> MutexGuard<'_, FetchState<T, E>> {
        self.state.lock().expect("nothing panics while it holds the state")
    }
}

impl<T, E> FetchState<T, E> {
    fn past(&self) -> Past {
        Past {
            fetched_at: self.good.as_ref().map(|(_, at)| *at),
            failed_at: self.failure.as_ref().map(|(_, at)| *at),
        }
    }

    fn freshness(&self, nothing: Duration, now: Timestamp) -> Freshness {
        let failure = match &self.failure {
            Some((failure, _)) if matches!(**failure, FetchError::Nothing) => nothing,
            _ => self.lifetimes.failure,
        };
        freshness(self.past(), &Lifetimes { failure, ..self.lifetimes }, now)
    }

    fn served(&self, freshness: Freshness, now: Timestamp) -> Result<Cached<T, E>, Missing<E>> {
        match freshness {
            Freshness::Fresh => Ok(self.found(Validity::Fresh, now)),
            Freshness::Refresh | Freshness::Stale => Ok(self.found(Validity::Stale, now)),
            Freshness::Gone | Freshness::NotYet => Err(Missing {
                failure: self
                    .failure
                    .as_ref()
                    .map_or_else(|| Arc::new(FetchError::Lost), |(failure, _)| Arc::clone(failure)),
                age: self.good.as_ref().map(|(_, at)| now.since(*at)),
            }),
        }
    }

    fn found(&self, standing: Validity, now: Timestamp) -> Cached<T, E> {
        let (value, fetched_at) = self.good.as_ref().expect("a value with an age exists");
        Cached {
            value: Arc::clone(value),
            age: now.since(*fetched_at),
            standing,
            failure: self.failure.as_ref().map(|(failure, _)| Arc::clone(failure)),
        }
    }
}

/// Records the result of a fetch when it is dropped, in whatever way the fetch ended, and wakes the waiters.
struct FetchRecorder<T, E> {
    shared: Arc<StaleInner<T, E>>,
    result: Result<Arc<T>, FetchError<E>>,
    _wakes: watch::Sender<()>,
}

impl<T, E> FetchRecorder<T, E> {
    fn record(&mut self, result: Result<Arc<T>, FetchError<E>>) {
        self.result = result;
    }
}

impl<T, E> Drop for FetchRecorder<T, E> {
    fn drop(&mut self) {
        let now = self.shared.now();
        let result = std::mem::replace(&mut self.result, Err(FetchError::Lost));
        let mut state = self.shared.lock();
        state.flight = None;
        match result {
            Ok(value) => (state.good, state.failure) = (Some((value, now)), None),
            // The old value must not be served any more.
            Err(FetchError::Nothing) => {
                (state.good, state.failure) = (None, Some((Arc::new(FetchError::Nothing), now)));
            }
            Err(trouble) => state.failure = Some((Arc::new(trouble), now)),
        }
    }
}

#[cfg(test)]
mod tests;
