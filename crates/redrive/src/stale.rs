//! A cache of one thing that is fetched from elsewhere, and that goes on serving while elsewhere is away.
//!
//! What was fetched is fresh for a while. After that it is fetched anew in the background, and what there is
//! serves at once meanwhile; if fetching fails, it serves on until it is too old. Only who finds nothing at
//! all waits. A failure is remembered for a while too, so that a provider that is down is not asked by
//! everybody who comes by. What is how good is decided in [`redrive_core::freshness`].
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
//! Invariants: one fetch at a time; it is a task of its own and ends within its limit, so whoever stops
//! waiting stops nobody else; and a fetch that panics counts as one that failed.

#[cfg(feature = "node")]
pub(crate) mod outage;

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

/// Tells the time to a cache; it should not go back.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The clock of tokio's timers: nobody can set it, and where a test has paused them it stands still.
#[must_use]
pub fn timer_clock() -> Clock {
    let begun = Instant::now();
    Arc::new(move || Timestamp::EPOCH + begun.elapsed())
}

/// How a cache works.
pub struct Plan {
    /// How long what was fetched serves, and how long a failure is remembered.
    pub lifetimes: Lifetimes,
    /// The longest that a fetch may take; after that it is dropped and has failed.
    pub limit: Duration,
    /// Tells the time.
    pub clock: Clock,
}

/// Holds one thing that is fetched from elsewhere; clones hold the same.
pub struct StaleCache<T, E> {
    shared: Arc<Shared<T, E>>,
}

/// What there is.
pub struct Found<T, E> {
    /// The thing itself.
    pub value: Arc<T>,
    /// How long ago it was fetched.
    pub age: Duration,
    /// Why the last fetch failed, if no other has succeeded since.
    pub failure: Option<Arc<Trouble<E>>>,
}

/// There is nothing that may be served.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct Missing<E> {
    /// Why fetching it failed.
    pub failure: Arc<Trouble<E>>,
    /// How long ago there was something, if ever.
    pub age: Option<Duration>,
}

/// Why a fetch brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum Trouble<E> {
    /// It says so itself.
    #[error("{0}")]
    Failed(E),
    /// It took too long.
    #[error("nothing came within {}", show_duration(*.limit))]
    TimedOut {
        /// How long it was given.
        limit: Duration,
    },
    /// It ended without a word: it panicked, or its runtime is going away.
    #[error("fetching it broke off")]
    Lost,
}

/// Something that cannot be fetched, for people to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ailing {
    /// How bad it is.
    pub state: Ailment,
    /// Since when it is as bad as that, as far as anybody has asked for it.
    pub since: Timestamp,
    /// Why, in words that show nothing of what is fetched.
    pub why: String,
}

/// How bad it is that something cannot be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ailment {
    /// What was fetched before serves.
    Stale,
    /// There is nothing to serve.
    Gone,
}

impl Ailment {
    /// The word for it in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Gone => "gone",
        }
    }
}

type Fetching<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

struct Shared<T, E> {
    fetch: Box<dyn Fn() -> Fetching<T, E> + Send + Sync>,
    limit: Duration,
    clock: Clock,
    state: Mutex<State<T, E>>,
}

struct State<T, E> {
    lifetimes: Lifetimes,
    good: Option<(Arc<T>, Timestamp)>,
    /// Only as long as it is younger than what is good.
    failure: Option<(Arc<Trouble<E>>, Timestamp)>,
    /// Closed when the fetch has ended.
    flight: Option<watch::Receiver<()>>,
}

impl<T, E> StaleCache<T, E>
where
    T: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    /// An empty cache, and how it is filled.
    pub fn new<F>(plan: Plan, fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let Plan { lifetimes, limit, clock } = plan;
        let state = State { lifetimes, good: None, failure: None, flight: None };
        let fetch = Box::new(move || Box::pin(fetch()) as Fetching<T, E>);
        Self { shared: Arc::new(Shared { fetch, limit, clock, state: Mutex::new(state) }) }
    }

    /// Other lifetimes hold from now on, for what is there too.
    pub fn change(&self, lifetimes: Lifetimes) {
        self.shared.lock().lifetimes = lifetimes;
    }

    /// The thing: at once if there is anything that may be served, else when it has been fetched.
    pub async fn get(&self) -> Result<Found<T, E>, Missing<E>> {
        let asked_at = self.shared.now();
        let flight = {
            let mut state = self.shared.lock();
            match freshness(state.past(), &state.lifetimes, asked_at) {
                Freshness::Fresh | Freshness::Stale | Freshness::NotYet => return state.told(asked_at),
                Freshness::Refresh => {
                    self.take_off(&mut state);
                    return state.told(asked_at);
                }
                Freshness::Gone => self.take_off(&mut state),
            }
        };
        self.landed(flight, asked_at).await
    }

    /// The thing as it is now: fetched anew, unless that was tried within that span. If it fails, what there
    /// is serves on by its age.
    pub async fn renewed(&self, unless_within: Duration) -> Result<Found<T, E>, Missing<E>> {
        let asked_at = self.shared.now();
        let flight = {
            let mut state = self.shared.lock();
            let Past { fetched_at, failed_at } = state.past();
            let tried_at = fetched_at.max(failed_at);
            if tried_at.is_some_and(|at| asked_at.since(at) < unless_within) {
                return state.told(asked_at);
            }
            self.take_off(&mut state)
        };
        self.landed(flight, asked_at).await
    }

    /// What may be served now, without fetching anything.
    #[must_use]
    pub fn known(&self) -> Option<Found<T, E>> {
        self.shared.lock().told(self.shared.now()).ok()
    }

    /// The fetch that is under way, or a new one.
    fn take_off(&self, state: &mut State<T, E>) -> watch::Receiver<()> {
        if let Some(flight) = &state.flight {
            return flight.clone();
        }
        let (landing, flight) = watch::channel(());
        state.flight = Some(flight.clone());
        let mut landing =
            Landing { shared: Arc::clone(&self.shared), brought: Err(Trouble::Lost), _wakes: landing };
        tokio::spawn(async move {
            let limit = landing.shared.limit;
            landing.bring(match timeout(limit, (landing.shared.fetch)()).await {
                Ok(Ok(value)) => Ok(Arc::new(value)),
                Ok(Err(error)) => Err(Trouble::Failed(error)),
                Err(_) => Err(Trouble::TimedOut { limit }),
            });
        });
        flight
    }

    /// What there is once a fetch has ended; what it brought is good for whoever waited for it, however short
    /// the lifetimes are.
    async fn landed(
        &self,
        mut flight: watch::Receiver<()>,
        asked_at: Timestamp,
    ) -> Result<Found<T, E>, Missing<E>> {
        // Nothing is ever sent: it ends with an error when the other end is dropped.
        let _ = flight.changed().await;
        let state = self.shared.lock();
        match &state.good {
            Some((_, fetched_at)) if *fetched_at >= asked_at => Ok(state.found(self.shared.now())),
            _ => state.told(self.shared.now()),
        }
    }
}

impl<T, E> Clone for StaleCache<T, E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// Nothing of what it holds.
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

    /// What may be served by its age, or why there is nothing.
    fn told(&self, now: Timestamp) -> Result<Found<T, E>, Missing<E>> {
        match freshness(self.past(), &self.lifetimes, now) {
            Freshness::Fresh | Freshness::Refresh | Freshness::Stale => Ok(self.found(now)),
            Freshness::Gone | Freshness::NotYet => Err(Missing {
                failure: self
                    .failure
                    .as_ref()
                    .map_or_else(|| Arc::new(Trouble::Lost), |(failure, _)| Arc::clone(failure)),
                age: self.good.as_ref().map(|(_, at)| now.since(*at)),
            }),
        }
    }

    fn found(&self, now: Timestamp) -> Found<T, E> {
        let (value, fetched_at) = self.good.as_ref().expect("what has an age is there");
        Found {
            value: Arc::clone(value),
            age: now.since(*fetched_at),
            failure: self.failure.as_ref().map(|(failure, _)| Arc::clone(failure)),
        }
    }
}

/// Writes down what a fetch brought when it ends, in whatever way that is, and then wakes all who wait.
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
            Err(trouble) => state.failure = Some((Arc::new(trouble), now)),
        }
    }
}

#[cfg(test)]
mod tests;
