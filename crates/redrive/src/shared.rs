//! Circuit breakers shared by several processes, so that each learns from the others' failures.
//!
//! A shared state keeps one [`BreakerRecord`] per dependency and writes it by compare-and-set; [`MemorySharedState`] serves several books
//! of one process. Pass one to `shared` of a [`crate::Book`] or [`crate::Guard`]. Breakers synchronise after each change
//! of their own, before the first call that probes an open one, and every second.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use redrive::Book;
//! use redrive::shared::MemorySharedState;
//!
//! let state = Arc::new(MemorySharedState::new());
//! let book = Book::parse("version: 1\ndependencies: { ntfy: { kind: ntfy } }\n")?.shared(state);
//! let ntfy = book.guard("ntfy")?;
//! # drop(ntfy); Ok(()) }
//! ```
//!
//! Invariants:
//! - only a call that is about to probe waits for the shared state, and not for long;
//! - while the shared state is unreachable, each breaker decides by what it has seen itself;
//! - records are only replaced by newer ones, so all processes converge, whatever the order of writes.

#[cfg(test)]
pub(crate) mod contract;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use redrive_core::ids::DependencyName;
pub use redrive_core::policy::breaker::BreakerRecord;

use crate::BoxFuture;

/// Storage for the breaker records of several processes.
pub trait SharedState: Send + Sync {
    /// The record of a dependency.
    fn load<'a>(
        &'a self,
        dependency: &'a DependencyName,
    ) -> BoxFuture<'a, Result<Option<BreakerRecord>, Away>>;

    /// Writes `record` if the stored one still has the generation and state of `expected`, or is still
    /// missing if `expected` is `None`.
    fn swap<'a>(
        &'a self,
        expected: Option<&'a BreakerRecord>,
        record: &'a BreakerRecord,
    ) -> BoxFuture<'a, Result<Swap, Away>>;
}

/// The result of a compare-and-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// Stored.
    Written,
    /// Another process wrote first: load again.
    Beaten,
}

/// The shared state is unreachable.
#[derive(Debug, thiserror::Error)]
#[error("shared state unavailable: {reason}")]
pub struct Away {
    /// The reason.
    pub reason: String,
    /// The underlying error.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Away {
    /// An error with this reason.
    #[must_use]
    pub fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), source: None }
    }
}

/// Whether two records describe the same state, as compared by compare-and-set.
#[must_use]
pub fn is_same(stored: Option<&BreakerRecord>, expected: Option<&BreakerRecord>) -> bool {
    let key = |record: &BreakerRecord| (record.generation, record.state, record.opened_at);
    stored.map(key) == expected.map(key)
}

/// Shared state in the memory of one process.
#[derive(Default)]
pub struct MemorySharedState {
    records: Mutex<BTreeMap<DependencyName, BreakerRecord>>,
}

impl MemorySharedState {
    /// An empty state.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl fmt::Debug for MemorySharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl SharedState for MemorySharedState {
    fn load<'a>(
        &'a self,
        dependency: &'a DependencyName,
    ) -> BoxFuture<'a, Result<Option<BreakerRecord>, Away>> {
        let found = self.records.lock().unwrap_or_else(PoisonError::into_inner).get(dependency).cloned();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn swap<'a>(
        &'a self,
        expected: Option<&'a BreakerRecord>,
        record: &'a BreakerRecord,
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
