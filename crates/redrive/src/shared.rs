//! Breakers that several processes share: what one has learnt the hard way, the others need not.
//!
//! A shared state keeps one [`Record`] for each dependency and writes by compare-and-set; [`Memory`] is one for
//! several books in one process. Give one to a [`crate::Book`] or a [`crate::Guard`] by its `shared`, and the
//! breakers behind it tell each other of every change: after each of their own, before the first call that
//! tries an open one anew, and every second in between.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use redrive::Book;
//! use redrive::shared::Memory;
//!
//! let state = Arc::new(Memory::new());
//! let book = Book::parse("version: 1\ndependencies: { ntfy: { kind: ntfy } }\n")?.shared(state);
//! let ntfy = book.guard("ntfy")?;
//! # drop(ntfy); Ok(()) }
//! ```
//!
//! Invariants:
//! - no call waits for the shared state, but the one that is about to probe, and that one not for long;
//! - while the shared state is away each breaker decides by what it has seen itself;
//! - records are only ever replaced by newer ones, so all end up with the same state, whoever writes when.

#[cfg(test)]
pub(crate) mod contract;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use redrive_core::ids::DependencyName;
pub use redrive_core::policy::breaker::Record;

use crate::BoxFuture;

/// Where processes leave word of their breakers.
pub trait SharedState: Send + Sync {
    /// What is known of that dependency's breaker.
    fn load<'a>(&'a self, dependency: &'a DependencyName) -> BoxFuture<'a, Result<Option<Record>, Away>>;

    /// Writes the record if what is stored under its name still has the generation and the state of what was
    /// expected, or is still missing where nothing was.
    fn swap<'a>(
        &'a self,
        expected: Option<&'a Record>,
        record: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, Away>>;
}

/// What became of a record that was to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// It is stored.
    Written,
    /// Somebody else wrote first: read again.
    Beaten,
}

/// The shared state cannot be reached now.
#[derive(Debug, thiserror::Error)]
#[error("the shared state is away: {reason}")]
pub struct Away {
    /// Why, in words.
    pub reason: String,
    /// The error behind it.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Away {
    /// For that reason.
    #[must_use]
    pub fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), source: None }
    }
}

/// Whether two records tell of the same state: what a compare-and-set compares.
#[must_use]
pub fn is_same(stored: Option<&Record>, expected: Option<&Record>) -> bool {
    let key = |record: &Record| (record.generation, record.state, record.opened_at);
    stored.map(key) == expected.map(key)
}

/// A shared state in the memory of one process.
#[derive(Default)]
pub struct Memory {
    records: Mutex<BTreeMap<DependencyName, Record>>,
}

impl Memory {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl SharedState for Memory {
    fn load<'a>(&'a self, dependency: &'a DependencyName) -> BoxFuture<'a, Result<Option<Record>, Away>> {
        let found = self.records.lock().unwrap_or_else(PoisonError::into_inner).get(dependency).cloned();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn swap<'a>(
        &'a self,
        expected: Option<&'a Record>,
        record: &'a Record,
    ) -> BoxFuture<'a, Result<Swap, Away>> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let swap = if is_same(records.get(&record.service_name), expected) {
            records.insert(record.service_name.clone(), record.clone());
            Swap::Written
        } else {
            Swap::Beaten
        };
        Box::pin(std::future::ready(Ok(swap)))
    }
}
