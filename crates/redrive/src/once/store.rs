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
pub struct Key(Arc<str>);

/// The text is not a valid key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// Empty.
    #[error("a key cannot be empty")]
    Empty,
    /// Too long.
    #[error("a key has at most {KEY_BYTES_MAX} bytes, this one has {bytes}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

impl Key {
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

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A fencing token: later holders have higher ones, also after a restart that lost the work in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// The state of a key when work is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Free: the caller holds it now, with this token.
    Yours(Token),
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
pub enum Held {
    /// Yes, and the change was made.
    Yes,
    /// No; nothing was changed.
    No,
}

/// The store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It could not be reached, read or written.
    #[error("the store of what was done is away: {reason}")]
    Away {
        /// The cause.
        reason: String,
    },
    /// It has no room for another key.
    #[error("the store of what was done is full: it holds {keys_max} keys")]
    Full {
        /// Its capacity.
        keys_max: usize,
    },
}

/// A store for once-only work.
pub trait DedupStore: Send + Sync {
    /// Takes the key for the caller, or reports its state.
    fn begin<'a>(&'a self, key: &'a Key, lease: Duration) -> BoxFuture<'a, Result<Begun, StoreError>>;

    /// Restarts the holder's lease, also one that has ended if no other caller took over.
    fn renew<'a>(
        &'a self,
        key: &'a Key,
        token: Token,
        lease: Duration,
    ) -> BoxFuture<'a, Result<Held, StoreError>>;

    /// Records the holder's result for `ttl`.
    fn finish<'a>(
        &'a self,
        key: &'a Key,
        token: Token,
        result: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Held, StoreError>>;

    /// Releases the holder's key without waiting, since it is called from `drop`; if it gets lost, the lease
    /// ends by itself.
    fn release(&self, key: &Key, token: Token);

    /// Forgets a result; work in progress stays.
    fn forget<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Resolves when a key may have been released, in stores that can signal it; may resolve without cause.
    fn changed<'a>(&'a self, _key: &'a Key) -> BoxFuture<'a, ()> {
        Box::pin(std::future::pending())
    }
}

impl<S: DedupStore + ?Sized> DedupStore for Arc<S> {
    fn begin<'a>(&'a self, key: &'a Key, lease: Duration) -> BoxFuture<'a, Result<Begun, StoreError>> {
        (**self).begin(key, lease)
    }

    fn renew<'a>(
        &'a self,
        key: &'a Key,
        token: Token,
        lease: Duration,
    ) -> BoxFuture<'a, Result<Held, StoreError>> {
        (**self).renew(key, token, lease)
    }

    fn finish<'a>(
        &'a self,
        key: &'a Key,
        token: Token,
        result: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Held, StoreError>> {
        (**self).finish(key, token, result, ttl)
    }

    fn release(&self, key: &Key, token: Token) {
        (**self).release(key, token);
    }

    fn forget<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), StoreError>> {
        (**self).forget(key)
    }

    fn changed<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, ()> {
        (**self).changed(key)
    }
}
