//! Targets of deliveries: one small trait, and one file per kind.
//!
//! A target makes the call and reports the outcome honestly. It does not see the store or the rule book, only
//! the limits of its call; core decides what an answer means.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod call_test;
pub(crate) mod container;
#[cfg(any(test, feature = "testing"))]
pub mod contract;
#[cfg(test)]
mod contract_test;
pub(crate) mod exec;
pub mod http;
pub mod log;
pub(crate) mod ntfy;
pub mod registry;
pub(crate) mod smtp;

use std::sync::Arc;
use std::time::Duration;

use redrive_core::engine::{Ending, TargetCall};

use crate::connectors::ConnectorFuture;

/// Time beyond a call's limit to report its end.
const LIMIT_MARGIN: Duration = Duration::from_secs(1);

pub trait Target: Send + Sync {
    /// Makes one call, which ends within its limits whatever the other side does.
    fn call(&self, call: Arc<TargetCall>) -> ConnectorFuture<'_, Ending>;

    /// When a call with that limit is cut off, if it has not ended by itself.
    fn ends_within(&self, limit: Duration) -> Duration {
        limit + LIMIT_MARGIN
    }
}
