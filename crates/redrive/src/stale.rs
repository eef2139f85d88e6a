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
//! waiting stops nobody else; and a fetch that panics counts as one that failed. [`crate::cache`] keeps many
//! such things, by key.

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
#[derive(Debug)]
pub struct Found<T, E> {
    /// The thing itself.
    pub value: Arc<T>,
    /// How long ago it was fetched.
    pub age: Duration,
    /// Whether it is within its time, or serves for want of something better.
    pub standing: Standing,
    /// Why the last fetch failed, if no other has succeeded since.
    pub failure: Option<Arc<Trouble<E>>>,
}

/// Whether a thing is within its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is.
    Fresh,
    /// It is past it: it is being fetched anew, or could not be.
    Stale,
}

/// What is served to who always wants something.
#[derive(Debug)]
pub enum Served<T, E> {
    /// The thing, as new as it should be.
    Fresh {
        /// The thing itself.
        value: Arc<T>,
        /// How long ago it was fetched.
        age: Duration,
    },
    /// The thing as it was: past its time, or nothing newer could be fetched.
    Stale {
        /// The thing itself.
        value: Arc<T>,
        /// How long ago it was fetched.
        age: Duration,
        /// Why there is nothing newer; none while it is being fetched.
        why: Option<Arc<Trouble<E>>>,
    },
    /// What was given in place of the thing.
    Fallback {
        /// What was given.
        value: Arc<T>,
        /// Why the thing itself is not to be had.
        why: Arc<Trouble<E>>,
    },
}

impl<T, E> Served<T, E> {
    /// What was found, or what is given in its place.
    pub fn of(found: Result<Found<T, E>, Missing<E>>, fallback: T) -> Self {
        match found {
            Ok(Found { value, age, standing: Standing::Fresh, failure: None }) => Self::Fresh { value, age },
            Ok(Found { value, age, failure: why, .. }) => Self::Stale { value, age, why },
            Err(Missing { failure: why, .. }) => Self::Fallback { value: Arc::new(fallback), why },
        }
    }

    /// What is served, whatever it is.
    #[must_use]
    pub fn value(&self) -> &Arc<T> {
        match self {
            Self::Fresh { value, .. } | Self::Stale { value, .. } | Self::Fallback { value, .. } => value,
        }
    }
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
    /// It went well, and there is no such thing.
    #[error("there is no such thing")]
    Nothing,
    /// It was not begun: everything that a cache has room for is being fetched.
    #[error("all {keys_max} that there is room for are being fetched")]
    Crowded {
        /// How many that is.
        keys_max: usize,
    },
}

impl<E> Missing<E> {
    /// Whether it is known that there is no such thing, rather than unknown what there is.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        matches!(*self.failure, Trouble::Nothing)
    }
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

/// A fetch, and how it ended.
pub(crate) type Fetching<T, E> = Pin<Box<dyn Future<Output = Result<T, Trouble<E>>> + Send>>;

struct Shared<T, E> {
    fetch: Box<dyn Fn() -> Fetching<T, E> + Send + Sync>,
    limit: Duration,
    clock: Clock,
    /// How long it is remembered that there is nothing.
    nothing: Duration,
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
        let fetch = move || {
            let fetched = fetch();
            Box::pin(async move { fetched.await.map_err(Trouble::Failed) }) as Fetching<T, E>
        };
        // Such a fetch never says that there is nothing.
        Self::looking_up(plan, Duration::ZERO, Box::new(fetch))
    }

    /// The same for a thing that may not be there, which is remembered for that long.
    pub(crate) fn looking_up(
        plan: Plan,
        nothing: Duration,
        fetch: Box<dyn Fn() -> Fetching<T, E> + Send + Sync>,
    ) -> Self {
        let Plan { lifetimes, limit, clock } = plan;
        let state = State { lifetimes, good: None, failure: None, flight: None };
        Self { shared: Arc::new(Shared { fetch, limit, clock, nothing, state: Mutex::new(state) }) }
    }

    /// Other lifetimes hold from now on, for what is there too.
    pub fn change(&self, lifetimes: Lifetimes) {
        self.shared.lock().lifetimes = lifetimes;
    }

    /// The thing: at once if there is anything that may be served, else when it has been fetched.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, where something is to be fetched.
    pub async fn get(&self) -> Result<Found<T, E>, Missing<E>> {
        self.asked().wait().await
    }

    /// The thing, or what is given here if there is none.
    pub async fn get_or(&self, fallback: T) -> Served<T, E> {
        Served::of(self.get().await, fallback)
    }

    /// What there is now, and what is still to come; a fetch has begun where one was due.
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

    /// Whether a fetch is under way.
    pub(crate) fn is_fetching(&self) -> bool {
        self.shared.lock().flight.is_some()
    }

    /// The thing as it is now: fetched anew, unless that was tried within that span. If it fails, what there
    /// is serves on by its age.
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

    /// What may be served now, without fetching anything.
    #[must_use]
    pub fn known(&self) -> Option<Found<T, E>> {
        let (state, now) = (self.shared.lock(), self.shared.now());
        state.told(state.freshness(self.shared.nothing, now), now).ok()
    }

    /// The fetch that is under way, or a new one, which begins when the state is free again.
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

    /// What there is once a fetch has ended; what it brought is good for whoever waited for it, however short
    /// the lifetimes are.
    async fn landed(
        &self,
        mut flight: watch::Receiver<()>,
        asked_at: Timestamp,
    ) -> Result<Found<T, E>, Missing<E>> {
        // Nothing is ever sent: it ends with an error when the other end is dropped.
        let _ = flight.changed().await;
        let (state, now) = (self.shared.lock(), self.shared.now());
        match &state.good {
            Some((_, fetched_at)) if *fetched_at >= asked_at => Ok(state.found(Standing::Fresh, now)),
            _ => state.told(state.freshness(self.shared.nothing, now), now),
        }
    }
}

/// A fetch to wait for.
struct Boarded<T, E> {
    flight: watch::Receiver<()>,
    /// Of one that has not begun.
    landing: Option<Landing<T, E>>,
}

impl<T, E> Boarded<T, E>
where
    T: Send + Sync + 'static,
    E: Send + Sync + 'static,
{
    /// Begins the fetch. Nobody holds the state by then: a runtime that has ended drops what it is given at
    /// once, and that lands.
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

/// What there was for who asked, and what they wait for.
pub(crate) struct Asked<T, E> {
    /// How good it was at that moment.
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

    /// How good it is now, where it is remembered for so long that there is nothing.
    fn freshness(&self, nothing: Duration, now: Timestamp) -> Freshness {
        let failure = match &self.failure {
            Some((failure, _)) if matches!(**failure, Trouble::Nothing) => nothing,
            _ => self.lifetimes.failure,
        };
        freshness(self.past(), &Lifetimes { failure, ..self.lifetimes }, now)
    }

    /// What may be served when it is as good as that, or why there is nothing.
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
            // What was there is no more: it must not serve on as if nobody knew.
            Err(Trouble::Nothing) => {
                (state.good, state.failure) = (None, Some((Arc::new(Trouble::Nothing), now)));
            }
            Err(trouble) => state.failure = Some((Arc::new(trouble), now)),
        }
    }
}

#[cfg(test)]
mod tests;
