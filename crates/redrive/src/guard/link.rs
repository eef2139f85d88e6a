//! Keeps the breaker of one dependency in step with the shared state.
//!
//! One task for each dependency that is shared. It goes by what [`redrive_core::policy::breaker::Record`] asks of those who
//! publish: read, write what is newer on the condition that nobody wrote meanwhile, take over what others know.
//! It ends with the dependency.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use super::clock::Clock;
use super::dependency::Dependency;
use crate::shared::{Away, SharedState, Swap};

/// How long a probe waits for the shared state before it goes by what is known here.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long an exchange in the background may take.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(5);
/// How often one who was beaten tries again at once; later the interval does it.
const ROUNDS_MAX: usize = 8;

/// The way from one dependency to the shared state.
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
    /// Links a dependency, once and for all: a second state for it is not heard.
    pub(super) fn begin(
        dependency: &Arc<Dependency>,
        state: Arc<dyn SharedState>,
        every: Duration,
        clock: Clock,
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

    /// The breaker has changed: tell the others.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Hears what the others know, unless that takes too long; whoever waits together is served by one exchange.
    /// Of what is left to the caller it takes half at most, or there would be no time to probe.
    pub(super) async fn refresh(&self, dependency: &Dependency, clock: &Clock, left: Option<Duration>) {
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

    async fn exchange(&self, dependency: &Dependency, clock: &Clock) {
        let outcome = self.try_exchange(dependency, clock).await;
        self.exchanges.fetch_add(1, Ordering::AcqRel);
        self.note(dependency, outcome.as_ref().map(|&()| ()));
    }

    async fn try_exchange(&self, dependency: &Dependency, clock: &Clock) -> Result<(), Away> {
        for _ in 0..ROUNDS_MAX {
            let stored = self.state.load(&dependency.name).await?;
            let Some(ours) = dependency.meet(stored.as_ref(), clock.now()) else { return Ok(()) };
            if self.state.swap(stored.as_ref(), &ours).await? == Swap::Written {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Says once that the shared state is away, and once that it is back.
    fn note(&self, dependency: &Dependency, outcome: Result<(), &Away>) {
        let was_away = self.is_away.swap(outcome.is_err(), Ordering::AcqRel);
        let dependency = &dependency.name;
        match outcome {
            Err(error) if !was_away => {
                tracing::warn!(%dependency, %error, "shared breaker state is away: the local breaker decides");
            }
            Ok(()) if was_away => tracing::info!(%dependency, "shared breaker state is back"),
            Err(_) | Ok(()) => {}
        }
    }
}

async fn run(dependency: Weak<Dependency>, link: Arc<Link>, every: Duration, clock: Clock) {
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
        // Whichever comes first; an error only says that the interval is over.
        let _ = timeout(every, link.wake.notified()).await;
    }
}
