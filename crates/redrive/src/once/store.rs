//! Where it is kept which work is in progress and what came of what was done.
//!
//! Invariants that every store keeps: of all who ask for a key one holds it at a time, and each holder has a
//! higher token than the one before; a token that is not the holder's changes nothing; a result is there until
//! its time is over, unless somebody has it forgotten.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::BoxFuture;

/// The longest key, in bytes.
const KEY_BYTES_MAX: usize = 1_000;

/// Says which work is the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// The text is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// Nothing there.
    #[error("a key cannot be empty")]
    Empty,
    /// Too long.
    #[error("a key has at most {KEY_BYTES_MAX} bytes, this one has {bytes}")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
}

impl Key {
    /// Checks the text and makes it a key.
    pub fn new(text: &str) -> Result<Self, InvalidKey> {
        match text.len() {
            0 => Err(InvalidKey::Empty),
            1..=KEY_BYTES_MAX => Ok(Self(text.into())),
            bytes => Err(InvalidKey::TooLong { bytes }),
        }
    }

    /// The key as text.
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

/// Tells one holder of a key from all others that it ever had: the later has the higher, also after a restart
/// that has lost what was in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What there is of a key for who would begin its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Nothing: it is theirs now, with this token.
    Yours(Token),
    /// Another holds it.
    InProgress {
        /// Unless it is renewed, for so long.
        lease_left: Duration,
    },
    /// It was done.
    Done {
        /// What came of it.
        result: Vec<u8>,
    },
}

/// Whether who asked still holds the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It does, and what it asked for was done.
    Yes,
    /// Another has it, or had it; nothing was changed.
    No,
}

/// Why a store could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It could not be reached, read or written.
    #[error("the store of what was done is away: {reason}")]
    Away {
        /// Why.
        reason: String,
    },
    /// It has no room for another key.
    #[error("the store of what was done is full: it holds {keys_max} keys")]
    Full {
        /// How many it holds.
        keys_max: usize,
    },
}

/// Where it is kept which work was done.
pub trait DedupStore: Send + Sync {
    /// Marks a key as in progress for who asks, or says what there is.
    fn begin<'a>(&'a self, key: &'a Key, lease: Duration) -> BoxFuture<'a, Result<Begun, StoreError>>;

    /// Lets the lease of that holder run from now on again. One that has ended is renewed too, as long as
    /// nobody has taken over.
    fn renew<'a>(
        &'a self,
        key: &'a Key,
        token: Token,
        lease: Duration,
    ) -> BoxFuture<'a, Result<Held, StoreError>>;

    /// Writes down what came of the work of that holder, to be kept for as long as `ttl`.
    fn finish<'a>(
        &'a self,
        key: &'a Key,
        token: Token,
        result: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Held, StoreError>>;

    /// Takes the mark of that holder away, so that the next may try. It waits for nothing, since it is called
    /// where work was dropped; one that gets lost ends with its lease.
    fn release(&self, key: &Key, token: Token);

    /// Drops what came of a key's work; a mark stays.
    fn forget<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Ends when a mark may have ended, where a store can tell that; it may end for nothing.
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
