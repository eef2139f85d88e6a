//! Where deliveries go: one small trait, and one file for each kind of target.
//!
//! A target moves bytes and reports honestly what it saw. It never sees the store, and of the rule book
//! only the limits of the call it makes; what an answer means is decided in the core.

#[cfg(test)]
pub(crate) mod call_test;
pub mod http;
pub mod log;
pub mod registry;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redrive_core::engine::{Call, Ending};

/// Takes deliveries.
pub trait Target: Send + Sync {
    /// Makes one call, which ends within the limits of its rule whatever the other side does.
    fn call(&self, call: Arc<Call>) -> Pin<Box<dyn Future<Output = Ending> + Send + '_>>;
}
