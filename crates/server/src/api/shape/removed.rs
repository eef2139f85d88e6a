//! Services and rows that the rule book has no more, as they are shown.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All of them that deliveries wait for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RemovedFound {
    pub removed: Vec<RemovedShown>,
}

/// A service, or one of its channels, that the rule book has no more, or that has no row for what waits.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct RemovedShown {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Deliveries that wait for it.
    pub waiting: u64,
    /// The rule book has the service: only rows of it are gone, and these deliveries are of their events.
    #[serde(default)]
    pub in_book: bool,
}

/// What became of deliveries that waited for a removed service.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReassignedShown {
    /// Dead letters now, or on their way to the other service.
    pub done: u64,
    /// Deliveries that still wait for the removed service.
    pub left: u64,
    /// Those of them that the other service takes no events of.
    pub unwanted: u64,
    /// Those of them whose attempts are running, or that an open replay sends.
    pub busy: u64,
}
