//! Who asks, as the server knows them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whoever shows this key or token.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Whoami {
    /// Whether anybody is asked for a key: `on` or `off`.
    #[schema(pattern = "^(on|off)$")]
    pub authentication: String,
    /// The key's name, or whom the token speaks of; `anybody` where nobody is asked.
    pub name: String,
    /// What they are trusted with.
    #[schema(pattern = "^(ingest|viewer|operator|admin)$")]
    pub role: String,
    /// What they may do: `send`, `read`, `operate`, `administer`.
    pub may: Vec<String>,
    /// The services that the key is bound to; none are all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<Vec<String>>,
    /// The server's version.
    pub version: String,
    /// Whether the server makes its own events, to be looked at.
    pub demo: bool,
}
