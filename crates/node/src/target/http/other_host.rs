//! Hosts that speak another protocol than HTTP, with the same lookup, the same guard and the same errors.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use redrive_core::book::model::Network;
use redrive_core::policy::answer::TargetReply;

use super::address::{ConnectionSecurity, HttpOrigin};
use super::connect;
use super::failure::CallFailure;
use super::guard::AddressPolicy;
use super::pool::Pool;

pub(crate) struct OtherHost {
    origin: HttpOrigin,
    place: String,
    pool: Arc<Pool>,
}

impl OtherHost {
    pub(crate) fn new(host: &str, port: u16, network: Network, place: String, pool: Arc<Pool>) -> Self {
        let host = host.to_ascii_lowercase();
        let leave = AddressPolicy::of(&host, network);
        let security = ConnectionSecurity::Plain;
        Self { origin: HttpOrigin { security, host, port, leave, identity: None }, place, pool }
    }

    pub(crate) async fn addresses(&self) -> Result<Vec<SocketAddr>, TargetReply> {
        let found = connect::addresses(&self.origin, self.pool.resolver()).await;
        let found = found.map_err(|failure| failure.at(&self.place).into_reply())?;
        if found.is_empty() {
            return Err(CallFailure::dns(&self.origin, "it has no address").into_reply());
        }
        Ok(found)
    }

    pub(crate) fn broken(&self, error: &(dyn Error + 'static)) -> Option<TargetReply> {
        let io = std::iter::successors(Some(error), |cause| (*cause).source())
            .find_map(|cause| cause.downcast_ref::<io::Error>())?;
        Some(CallFailure::io(&self.origin, io).into_reply())
    }
}
