//! Where deliveries go: one small trait, and one file for each kind of target.
//!
//! A target moves bytes and reports honestly what it saw. It never sees the store, and of the rule book
//! only the limits of the call it makes; what an answer means is decided in the core.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod call_test;
#[cfg(any(test, feature = "testing"))]
pub mod contract;
#[cfg(test)]
mod contract_test;
pub(crate) mod exec;
pub mod http;
pub mod log;
pub mod registry;

use std::sync::Arc;
use std::time::Duration;

use redrive_core::engine::{Call, Ending};

use crate::connectors::Doing;

/// What a call may take beyond its limit, to say so.
const LIMIT_MARGIN: Duration = Duration::from_secs(1);

/// Takes deliveries.
pub trait Target: Send + Sync {
    /// Makes one call, which ends within the limits of its rule whatever the other side does.
    fn call(&self, call: Arc<Call>) -> Doing<'_, Ending>;

    /// When a call with that limit must have ended: it keeps its limit by itself, and one that does not is cut
    /// off then.
    fn ends_within(&self, limit: Duration) -> Duration {
        limit + LIMIT_MARGIN
    }
}
