//! Tells those who come who they are here, and what they may do.

use redrive_core::access::Permission;

use super::error::Answer;
use super::identity::Caller;
use super::shape::whoami::Whoami;
use super::{App, events};

/// Who you are here, and what you may do.
#[utoipa::path(
    get, path = "/v1/whoami", operation_id = "whoami", tag = "operating",
    responses((status = 200, description = "you", body = Whoami))
)]
pub(super) async fn whoami(app: App, caller: Caller) -> Answer {
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
    events::ok(&whoami)
}
