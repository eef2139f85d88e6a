//! Storage for work in progress and results.
//!
//! Invariants of every store: a key has one holder at a time, and each holder a higher token than the one
//! before; a token other than the holder's changes nothing; a result stays until it expires or is forgotten.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::BoxFuture;

const KEY_BYTES_MAX: usize = 1_000;

/// Identifies a piece of work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OnceKey(Arc<str>);

/// The text is not a valid key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// Empty.
    #[error("key is empty")]
    Empty,
    /// Too long.
    #[error("key has {bytes} bytes, the limit is {KEY_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

impl OnceKey {
    /// Checks the text.
    pub fn new(text: &str) -> Result<Self, InvalidKey> {
        match text.len() {
            0 => Err(InvalidKey::Empty),
            1..=KEY_BYTES_MAX => Ok(Self(text.into())),
            bytes => Err(InvalidKey::TooLong { bytes }),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for OnceKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OnceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A fencing token: later holders have higher ones, also after a restart that lost the work in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub u64);

/// The state of a key when work is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Free: the caller holds it now, with this token.
    Yours(FencingToken),
    /// Another caller holds it.
    InProgress {
        /// Time until its lease ends.
        lease_left: Duration,
    },
    /// Done.
    Done {
        /// The recorded result.
        result: Vec<u8>,
    },
}

/// Whether the caller still holds the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Yes, and the change was made.
    Yes,
    /// No; nothing was changed.
    No,
}

/// The store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DedupStoreError {
    /// It could not be reached, read or written.
    #[error("dedup store unavailable: {reason}")]
    Away {
        /// The cause.
        reason: String,
    },
    /// It has no room for another key.
    #[error("dedup store full: it holds {keys_max} keys")]
    Full {
        /// Its capacity.
        keys_max: usize,
    },
}

/// A store for once-only work.
pub trait DedupStore: Send + Sync {
    /// Takes the key for the caller, or reports its state.
    fn begin<'a>(
        &'a self,
        key: &'a OnceKey,
        lease: Duration,
    ) -> BoxFuture<'a, Result<KeyState, DedupStoreError>>;

    /// Restarts the holder's lease, also one that has ended if no other caller took over.
    fn renew<'a>(
        &'a self,
        key: &'a OnceKey,
        token: FencingToken,
        lease: Duration,
    ) -> BoxFuture<'a, Result<Ownership, DedupStoreError>>;

    /// Records the holder's result for `ttl`.
    fn finish<'a>(
        &'a self,
        key: &'a OnceKey,
        token: FencingToken,
        result: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Ownership, DedupStoreError>>;

    /// Releases the holder's key without waiting, since it is called from `drop`; if it gets lost, the lease
    /// ends by itself.
    fn release(&self, key: &OnceKey, token: FencingToken);

    /// Forgets a result; work in progress stays.
    fn forget<'a>(&'a self, key: &'a OnceKey) -> BoxFuture<'a, Result<(), DedupStoreError>>;

    /// Resolves when a key may have been released, in stores that can signal it; may resolve without cause.
    fn changed<'a>(&'a self, _key: &'a OnceKey) -> BoxFuture<'a, ()> {
        Box::pin(std::future::pending())
    }
}

impl<S: DedupStore + ?Sized> DedupStore for Arc<S> {
    fn begin<'a>(
        &'a self,
        key: &'a OnceKey,
        lease: Duration,
    ) -> BoxFuture<'a, Result<KeyState, DedupStoreError>> {
        (**self).begin(key, lease)
    }

    fn renew<'a>(
        &'a self,
        key: &'a OnceKey,
        token: FencingToken,
        lease: Duration,
    ) -> BoxFuture<'a, Result<Ownership, DedupStoreError>> {
        (**self).renew(key, token, lease)
    }

    fn finish<'a>(
        &'a self,
        key: &'a OnceKey,
        token: FencingToken,
        result: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Ownership, DedupStoreError>> {
        (**self).finish(key, token, result, ttl)
    }

    fn release(&self, key: &OnceKey, token: FencingToken) {
        (**self).release(key, token);
    }

    fn forget<'a>(&'a self, key: &'a OnceKey) -> BoxFuture<'a, Result<(), DedupStoreError>> {
        (**self).forget(key)
    }

    fn changed<'a>(&'a self, key: &'a OnceKey) -> BoxFuture<'a, ()> {
        (**self).changed(key)
    }
}
