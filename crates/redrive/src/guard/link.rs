//! Keeps the breaker of one dependency in step with the shared state.
//!
//! One task per shared dependency: it reads, publishes a newer record by compare-and-set and takes over newer
//! ones ([`redrive_core::policy::breaker::BreakerRecord`]). It ends with the dependency.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use super::clock::GuardClock;
use super::dependency::GuardedDependency;
use crate::shared::{Away, SharedState, Swap};

/// How long a probe waits for the shared state.
const PATIENCE: Duration = Duration::from_millis(250);
/// Time limit of a background exchange.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(5);
/// Immediate retries of a lost compare-and-set; later the interval does it.
const ROUNDS_MAX: usize = 8;

pub(super) struct Link {
    state: Arc<dyn SharedState>,
    wake: Notify,
    /// One exchange at a time.
    exchanging: Mutex<()>,
    exchanges: AtomicU64,
    is_away: AtomicBool,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("is_away", &self.is_away).finish_non_exhaustive()
    }
}

impl Link {
    /// Links a dependency once; a second shared state is ignored.
    pub(super) fn begin(
        dependency: &Arc<GuardedDependency>,
        state: Arc<dyn SharedState>,
        every: Duration,
        clock: GuardClock,
        runtime: &Handle,
    ) {
        let link = Arc::new(Self {
            state,
            wake: Notify::new(),
            exchanging: Mutex::new(()),
            exchanges: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
        });
        if dependency.link.set(Arc::clone(&link)).is_ok() {
            runtime.spawn(run(Arc::downgrade(dependency), link, every, clock));
        }
    }

    /// Publishes a change soon.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Reads the shared state within `PATIENCE` and half of the caller's remaining time; concurrent callers
    /// share one exchange.
    pub(super) async fn refresh(
        &self,
        dependency: &GuardedDependency,
        clock: &GuardClock,
        left: Option<Duration>,
    ) {
        let patience = left.map_or(PATIENCE, |left| PATIENCE.min(left / 2));
        let before = self.exchanges.load(Ordering::Acquire);
        let exchange = async {
            let _one = self.exchanging.lock().await;
            if self.exchanges.load(Ordering::Acquire) == before {
                self.exchange(dependency, clock).await;
            }
        };
        if timeout(patience, exchange).await.is_err() {
            self.note(dependency, Err(&Away::because("no answer in time")));
        }
    }

    async fn exchange(&self, dependency: &GuardedDependency, clock: &GuardClock) {
        let outcome = self.try_exchange(dependency, clock).await;
        self.exchanges.fetch_add(1, Ordering::AcqRel);
        self.note(dependency, outcome.as_ref().map(|&()| ()));
    }

    async fn try_exchange(&self, dependency: &GuardedDependency, clock: &GuardClock) -> Result<(), Away> {
        for _ in 0..ROUNDS_MAX {
            let stored = self.state.load(&dependency.name).await?;
            let Some(ours) = dependency.meet(stored.as_ref(), clock.now()) else { return Ok(()) };
            if self.state.swap(stored.as_ref(), &ours).await? == Swap::Written {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Logs once that the shared state is unreachable, and once that it is back.
    fn note(&self, dependency: &GuardedDependency, outcome: Result<(), &Away>) {
        let was_away = self.is_away.swap(outcome.is_err(), Ordering::AcqRel);
        let dependency = &dependency.name;
        match outcome {
            Err(error) if !was_away => {
                tracing::warn!(%dependency, %error, "shared breaker state unavailable, using the local breaker");
            }
            Ok(()) if was_away => tracing::info!(%dependency, "shared breaker state available again"),
            Err(_) | Ok(()) => {}
        }
    }
}

async fn run(dependency: Weak<GuardedDependency>, link: Arc<Link>, every: Duration, clock: GuardClock) {
    loop {
        let Some(linked) = dependency.upgrade() else { return };
        let exchange = async {
            let _one = link.exchanging.lock().await;
            link.exchange(&linked, &clock).await;
        };
        if timeout(EXCHANGE_LIMIT, exchange).await.is_err() {
            link.note(&linked, Err(&Away::because("no answer in time")));
        }
        drop(linked);
        // A timeout only means that the interval is over.
        let _ = timeout(every, link.wake.notified()).await;
    }
}
