//! Work that is done once for its key, however often and from wherever it is asked for.
//!
//! The first who comes marks the key as in progress, does the work and writes down what came of it; whoever
//! comes later, or was waiting meanwhile, gets the same result replayed. The mark is a lease that is renewed
//! while the work runs: when its holder dies, the lease ends and another takes over.
//!
//! ```
//! use std::time::Duration;
//! use redrive::once::{Memory, Once, Outcome};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let once = Once::new(Memory::default());
//! let day = Duration::from_secs(24 * 60 * 60);
//! for expected in [Outcome::First(7), Outcome::Replayed(7)] {
//!     let sent = once.call("notification/n-1", day, || async { Ok::<_, std::io::Error>(7) }).await?;
//!     assert_eq!(sent, expected);
//! }
//! # Ok(()) }
//! ```
//!
//! What it promises: of all who share a store, one at a time holds a key, and a result that was written down is
//! the one that everybody gets until its time is over. What it cannot promise: a holder that is cut off from
//! the store for longer than its lease may be overtaken while it still works. It is told so, its result is
//! never written over the other's, and it can hand its [`Token`] to whoever it calls, who can then refuse it.
//!
//! Invariants: work that fails, panics or is dropped leaves no mark, so that the next may try; only who holds
//! the mark with the token it was given can renew, finish or release it; and nobody waits without an end.

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
pub use self::memory::{Memory, Room, WhenFull};
pub use self::store::{Begun, DedupStore, Held, InvalidKey, Key, StoreError, Token};

/// How long a mark holds that nobody renews.
const LEASE: Duration = Duration::from_secs(30);
/// A lease is renewed so many times before it would end.
const RENEWALS_PER_LEASE: u32 = 3;
/// After a renewal that failed the next comes so many times sooner.
const SOONER: u32 = 4;
/// So often is it tried to write a result down, and so long is it waited in between.
const FINISH_TRIES: u32 = 4;
const FINISH_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The longest that anybody waits for who was first.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Who waits looks again after this, and then ever less often, down to once in `LOOK_AGAIN_MAX`.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(250);
/// The largest result that is kept, as JSON.
pub const RESULT_BYTES_MAX: usize = 256 * 1024;

/// Does work once for each key; clones share the store.
#[derive(Clone)]
pub struct Once {
    store: Arc<dyn DedupStore>,
    lease: Duration,
    meanwhile: Meanwhile,
}

/// What becomes of who comes while the work is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    /// They wait for what comes of it; after that long they are told that it is still in progress.
    Wait {
        /// The longest that they wait.
        at_most: Duration,
    },
    /// They are told at once, with the time after which it is worth coming again.
    Tell,
}

/// What came of the work, and whether it was done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It was done now.
    First(T),
    /// It was done before: this is what came of it then.
    Replayed(T),
}

impl<T> Outcome<T> {
    /// The result, whenever it came.
    pub fn into_value(self) -> T {
        match self {
            Self::First(value) | Self::Replayed(value) => value,
        }
    }

    /// Whether the work was done now.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        match self {
            Self::First(_) => true,
            Self::Replayed(_) => false,
        }
    }
}

impl Once {
    /// Once for all who share that store.
    #[must_use]
    pub fn new(store: impl DedupStore + 'static) -> Self {
        Self { store: Arc::new(store), lease: LEASE, meanwhile: Meanwhile::Wait { at_most: WAIT_MAX } }
    }

    /// With a lease of that length instead of 30 seconds: how long it takes until another takes over from one
    /// that has died. It should be much longer than a store that is busy takes to answer.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        assert!(!lease.is_zero(), "a lease that has ended when it begins keeps nobody out");
        Self { lease, ..self }
    }

    /// What becomes of who comes while the work is in progress; without this they wait for up to a minute.
    #[must_use]
    pub fn meanwhile(self, meanwhile: Meanwhile) -> Self {
        Self { meanwhile, ..self }
    }

    /// Does the work, unless it was done for that key before; what comes of it is replayed for as long as `ttl`.
    pub async fn call<T, E, F>(
        &self,
        key: &str,
        ttl: Duration,
        work: impl FnOnce() -> F,
    ) -> Result<Outcome<T>, OnceError<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, E>>,
    {
        self.call_fenced(key, ttl, |_| work()).await
    }

    /// The same for work that hands its token on: the later holder of a key has the higher one, so who
    /// remembers the highest it has seen can refuse one that was overtaken.
    pub async fn call_fenced<T, E, F>(
        &self,
        key: &str,
        ttl: Duration,
        work: impl FnOnce(Token) -> F,
    ) -> Result<Outcome<T>, OnceError<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, E>>,
    {
        let key = Key::new(key)?;
        let mark = match self.begin(&key).await? {
            Beginning::Ours(mark) => mark,
            Beginning::InProgress { retry_after } => return Err(OnceError::InProgress { retry_after }),
            Beginning::Done { result } => {
                let value = serde_json::from_slice(&result);
                return value.map(Outcome::Replayed).map_err(OnceError::Unreadable);
            }
        };
        let value = mark.hold(self.lease, work(mark.token)).await?;
        mark.finish(value, ttl).await
    }

    /// Drops what came of a key's work, so that the next does it again; work in progress goes on.
    pub async fn forget(&self, key: &str) -> Result<(), ForgetError> {
        let key = Key::new(key)?;
        Ok(self.store.forget(&key).await?)
    }

    /// Marks the key, or says what there is, as late as the caller wants to know.
    async fn begin<T, E>(&self, key: &Key) -> Result<Beginning, OnceError<T, E>> {
        let patience = match self.meanwhile {
            Meanwhile::Wait { at_most } => at_most,
            Meanwhile::Tell => Duration::ZERO,
        };
        let came = Instant::now();
        let mut pause = LOOK_AGAIN;
        loop {
            let lease_left = match self.store.begin(key, self.lease).await? {
                Begun::Yours(token) => {
                    let store = Arc::clone(&self.store);
                    return Ok(Beginning::Ours(Mark { store, key: key.clone(), token, is_held: true }));
                }
                Begun::Done { result } => return Ok(Beginning::Done { result }),
                Begun::InProgress { lease_left } => lease_left,
            };
            let left = patience.saturating_sub(came.elapsed());
            if left.is_zero() {
                return Ok(Beginning::InProgress { retry_after: lease_left });
            }
            // A store that can tell of the end does so; the others are looked at again and again.
            let _ = timeout(pause.min(lease_left).min(left), self.store.changed(key)).await;
            pause = (pause * 2).min(LOOK_AGAIN_MAX);
        }
    }
}

/// What a caller finds who has waited as long as it wants to.
enum Beginning {
    Ours(Mark),
    InProgress { retry_after: Duration },
    Done { result: Vec<u8> },
}

/// Why what came of a key could not be dropped.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    /// It is no key.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The mark of who does the work; dropping it lets the next try.
struct Mark {
    store: Arc<dyn DedupStore>,
    key: Key,
    token: Token,
    is_held: bool,
}

impl Mark {
    /// Does the work, and renews the lease meanwhile. Who is overtaken stops: the work is another's by then.
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
                Ok(Held::Yes) => usual,
                Ok(Held::No) => return,
                // Nobody can overtake through a store that is away; what is finished will tell.
                Err(error) => {
                    tracing::warn!(key = %self.key, %error, "a lease could not be renewed");
                    usual / SOONER
                }
            };
        }
    }

    /// Writes down what came of the work.
    async fn finish<T: Serialize, E>(
        mut self,
        value: T,
        ttl: Duration,
    ) -> Result<Outcome<T>, OnceError<T, E>> {
        let why = match encoded(&value) {
            Err(why) => why,
            Ok(result) => match self.write_down(&result, ttl).await {
                Ok(Held::Yes) => {
                    self.is_held = false;
                    return Ok(Outcome::First(value));
                }
                Ok(Held::No) => Unrecorded::Overtaken,
                Err(error) => Unrecorded::Store(error),
            },
        };
        Err(OnceError::Unrecorded { value, why })
    }

    /// A store that is away for a moment is asked again, for what is not written down is done again.
    async fn write_down(&self, result: &[u8], ttl: Duration) -> Result<Held, StoreError> {
        for _ in 1..FINISH_TRIES {
            match self.store.finish(&self.key, self.token, result, ttl).await {
                Err(error) => {
                    tracing::warn!(key = %self.key, %error, "a result could not be written down");
                    sleep(FINISH_AGAIN_AFTER).await;
                }
                held => return held,
            }
        }
        self.store.finish(&self.key, self.token, result, ttl).await
    }
}

impl Drop for Mark {
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
