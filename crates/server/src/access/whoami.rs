//! `GET /v1/whoami`: the caller and its permissions.

use redrive_core::access::Permission;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::caller::ApiCaller;
use crate::api::error::ApiResult;
use crate::api::{App, reply};

/// The caller.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Whoami {
    /// Whether authentication is required: `on` or `off`.
    #[schema(pattern = "^(on|off)$")]
    pub authentication: String,
    /// The key's name or the token's subject; `anonymous` without authentication.
    pub name: String,
    /// The caller's role.
    #[schema(pattern = "^(ingest|viewer|operator|admin)$")]
    pub role: String,
    /// Permissions: `send`, `read`, `operate`, `administer`.
    pub may: Vec<String>,
    /// Services that the key is bound to; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<Vec<String>>,
    /// The server's version.
    pub version: String,
    /// Whether the server generates demo events.
    pub demo: bool,
}

/// The caller and its permissions.
#[utoipa::path(
    get, path = "/v1/whoami", operation_id = "whoami", tag = "operating",
    responses((status = 200, description = "you", body = Whoami))
)]
pub(crate) async fn whoami(app: App, caller: ApiCaller) -> ApiResult {
    let may = Permission::ALL.into_iter().filter(|permission| caller.may(*permission));
    let whoami = Whoami {
        authentication: if app.access.is_on() { "on" } else { "off" }.to_owned(),
        name: caller.name(),
        role: caller.role().as_str().to_owned(),
        may: may.map(|permission| permission.as_str().to_owned()).collect(),
        services: caller.services().map(<[String]>::to_vec),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        demo: app.demo.is_some(),
    };
    reply::ok(&whoami)
}
