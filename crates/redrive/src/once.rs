//! Work that is done once per key, across tasks and processes.
//!
//! The first caller takes a lease on the key, does the work and records the result; later and concurrent callers get
//! the recorded result. The lease is renewed while the work runs; when its holder dies, the lease ends and another
//! caller takes over.
//!
//! ```
//! use std::time::Duration;
//! use redrive::once::{MemoryDedupStore, Once, OnceOutcome};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let once = Once::new(MemoryDedupStore::default());
//! let day = Duration::from_secs(24 * 60 * 60);
//! for expected in [OnceOutcome::First(7), OnceOutcome::Replayed(7)] {
//!     let sent = once.call("notification/n-1", day, || async { Ok::<_, std::io::Error>(7) }).await?;
//!     assert_eq!(sent, expected);
//! }
//! # Ok(()) }
//! ```
//!
//! Promised: among all users of a store, one at a time holds a key, and a recorded result is what every caller gets
//! until it expires. Not promised: a holder that is cut off from the store for longer than its lease may be overtaken
//! while it still works. It gets an error, never overwrites the other's result, and can pass its [`FencingToken`] to
//! its callees, which can then refuse it.
//!
//! Invariants: work that fails, panics or is dropped leaves no lease; only the holder's token renews, finishes or
//! releases a key; and no caller waits forever.

mod error;
mod memory;
mod store;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

pub use self::error::{OnceError, Unrecorded};
pub use self::memory::{MemoryCapacity, MemoryDedupStore, WhenMemoryFull};
pub use self::store::{DedupStore, DedupStoreError, FencingToken, InvalidKey, KeyState, OnceKey, Ownership};

/// How long a mark lasts without renewal.
const LEASE: Duration = Duration::from_secs(30);
/// Renewals per lease.
const RENEWALS_PER_LEASE: u32 = 3;
/// After a failed renewal the next comes this many times sooner.
const SOONER: u32 = 4;
/// Attempts to record a result, and the pause between them.
const FINISH_TRIES: u32 = 4;
const FINISH_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The longest wait for another caller's work.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// First and longest interval between two looks at work in progress.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(250);
/// The largest result that is kept, as JSON.
pub const RESULT_BYTES_MAX: usize = 256 * 1024;

/// Does work once per key; clones share the store.
#[derive(Clone)]
pub struct Once {
    store: Arc<dyn DedupStore>,
    lease: Duration,
    meanwhile: Meanwhile,
}

/// What a caller does while another does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    /// Wait for the result, then report that the work is still in progress.
    Wait {
        /// The longest wait.
        at_most: Duration,
    },
    /// Report at once, with the time after which to try again.
    Tell,
}

/// The result, and whether this call did the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnceOutcome<T> {
    /// This call did the work.
    First(T),
    /// The work was done before.
    Replayed(T),
}

impl<T> OnceOutcome<T> {
    /// The result.
    pub fn into_value(self) -> T {
        match self {
            Self::First(value) | Self::Replayed(value) => value,
        }
    }

    /// Whether this call did the work.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        match self {
            Self::First(_) => true,
            Self::Replayed(_) => false,
        }
    }
}

impl Once {
    /// Once-only work for all users of `store`.
    #[must_use]
    pub fn new(store: impl DedupStore + 'static) -> Self {
        Self { store: Arc::new(store), lease: LEASE, meanwhile: Meanwhile::Wait { at_most: WAIT_MAX } }
    }

    /// Replaces the lease of 30 seconds. After a holder dies, another takes over when its lease ends; it
    /// should be much longer than a busy store takes to answer.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        assert!(!lease.is_zero(), "a lease must be longer than zero");
        Self { lease, ..self }
    }

    /// Replaces the default, which waits up to a minute.
    #[must_use]
    pub fn meanwhile(self, meanwhile: Meanwhile) -> Self {
        Self { meanwhile, ..self }
    }

    /// Does the work unless it was done for `key` within `ttl`; then returns the recorded result.
    pub async fn call<T, E, F>(
        &self,
        key: &str,
        ttl: Duration,
        work: impl FnOnce() -> F,
    ) -> Result<OnceOutcome<T>, OnceError<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, E>>,
    {
        self.call_fenced(key, ttl, |_| work()).await
    }

    /// The same with a fencing token: a later holder of a key has a higher token, so a callee that remembers
    /// the highest one can refuse a holder that was overtaken.
    pub async fn call_fenced<T, E, F>(
        &self,
        key: &str,
        ttl: Duration,
        work: impl FnOnce(FencingToken) -> F,
    ) -> Result<OnceOutcome<T>, OnceError<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, E>>,
    {
        let key = OnceKey::new(key)?;
        let mark = match self.begin(&key).await? {
            CallStart::Ours(mark) => mark,
            CallStart::InProgress { retry_after } => return Err(OnceError::InProgress { retry_after }),
            CallStart::Done { result } => {
                let value = serde_json::from_slice(&result);
                return value.map(OnceOutcome::Replayed).map_err(OnceError::Unreadable);
            }
        };
        let value = mark.hold(self.lease, work(mark.token)).await?;
        mark.finish(value, ttl).await
    }

    /// Forgets a result, so that the next call does the work again; work in progress continues.
    pub async fn forget(&self, key: &str) -> Result<(), ForgetError> {
        let key = OnceKey::new(key)?;
        Ok(self.store.forget(&key).await?)
    }

    async fn begin<T, E>(&self, key: &OnceKey) -> Result<CallStart, OnceError<T, E>> {
        let patience = match self.meanwhile {
            Meanwhile::Wait { at_most } => at_most,
            Meanwhile::Tell => Duration::ZERO,
        };
        let came = Instant::now();
        let mut pause = LOOK_AGAIN;
        loop {
            let lease_left = match self.store.begin(key, self.lease).await? {
                KeyState::Yours(token) => {
                    let store = Arc::clone(&self.store);
                    return Ok(CallStart::Ours(KeyLease { store, key: key.clone(), token, is_held: true }));
                }
                KeyState::Done { result } => return Ok(CallStart::Done { result }),
                KeyState::InProgress { lease_left } => lease_left,
            };
            let left = patience.saturating_sub(came.elapsed());
            if left.is_zero() {
                return Ok(CallStart::InProgress { retry_after: lease_left });
            }
            // Stores that can signal the end do; the others are polled.
            let _ = timeout(pause.min(lease_left).min(left), self.store.changed(key)).await;
            pause = (pause * 2).min(LOOK_AGAIN_MAX);
        }
    }
}

enum CallStart {
    Ours(KeyLease),
    InProgress { retry_after: Duration },
    Done { result: Vec<u8> },
}

/// A result could not be forgotten.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    /// The key is invalid.
    #[error(transparent)]
    OnceKey(#[from] InvalidKey),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] DedupStoreError),
}

/// The lease of the caller that does the work; dropping it releases the key.
struct KeyLease {
    store: Arc<dyn DedupStore>,
    key: OnceKey,
    token: FencingToken,
    is_held: bool,
}

impl KeyLease {
    /// Does the work while renewing the lease, and stops if another caller took over.
    async fn hold<T, E>(
        &self,
        lease: Duration,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, OnceError<T, E>> {
        let (work, overtaken) = (pin!(work), pin!(self.renew_until_overtaken(lease)));
        tokio::select! {
            biased;
            done = work => done.map_err(OnceError::Failed),
            () = overtaken => Err(OnceError::Overtaken),
        }
    }

    async fn renew_until_overtaken(&self, lease: Duration) {
        let usual = lease / RENEWALS_PER_LEASE;
        let mut pause = usual;
        loop {
            sleep(pause).await;
            pause = match self.store.renew(&self.key, self.token, lease).await {
                Ok(Ownership::Yes) => usual,
                Ok(Ownership::No) => return,
                // Without the store no other caller can take over either; recording the result will show.
                Err(error) => {
                    tracing::warn!(key = %self.key, %error, "lease renewal failed");
                    usual / SOONER
                }
            };
        }
    }

    async fn finish<T: Serialize, E>(
        mut self,
        value: T,
        ttl: Duration,
    ) -> Result<OnceOutcome<T>, OnceError<T, E>> {
        let why = match encoded(&value) {
            Err(why) => why,
            Ok(result) => match self.write_down(&result, ttl).await {
                Ok(Ownership::Yes) => {
                    self.is_held = false;
                    return Ok(OnceOutcome::First(value));
                }
                Ok(Ownership::No) => Unrecorded::Overtaken,
                Err(error) => Unrecorded::Store(error),
            },
        };
        Err(OnceError::Unrecorded { value, why })
    }

    /// Retries, because a result that is not recorded means that the work is done again.
    async fn write_down(&self, result: &[u8], ttl: Duration) -> Result<Ownership, DedupStoreError> {
        for _ in 1..FINISH_TRIES {
            match self.store.finish(&self.key, self.token, result, ttl).await {
                Err(error) => {
                    tracing::warn!(key = %self.key, %error, "recording a result failed, retrying");
                    sleep(FINISH_AGAIN_AFTER).await;
                }
                held => return held,
            }
        }
        self.store.finish(&self.key, self.token, result, ttl).await
    }
}

impl Drop for KeyLease {
    fn drop(&mut self) {
        if self.is_held {
            self.store.release(&self.key, self.token);
        }
    }
}

fn encoded<T: Serialize>(value: &T) -> Result<Vec<u8>, Unrecorded> {
    let bytes = serde_json::to_vec(value).map_err(Unrecorded::NotJson)?;
    if bytes.len() > RESULT_BYTES_MAX { Err(Unrecorded::TooLarge { bytes: bytes.len() }) } else { Ok(bytes) }
}

#[cfg(test)]
pub(crate) mod contract;
#[cfg(test)]
mod tests;
