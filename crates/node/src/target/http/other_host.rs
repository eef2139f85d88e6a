//! Hosts that speak another protocol than HTTP, with the same lookup, the same guard and the same errors.

use std::convert::identity;
use std::error::Error;
use std::io;
use std::sync::Arc;

use redrive_core::book::model::Network;
use redrive_core::engine::TargetCall;
use redrive_core::policy::answer::TargetReply;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::{ConnectionSecurity, HttpOrigin};
use super::connect;
use super::failure::CallFailure;
use super::guard::AddressPolicy;
use super::limits::{CallLimits, CallPhase};
use super::pool::Pool;

/// Of one call and its parts.
pub(crate) struct HostLimits(CallLimits);

impl HostLimits {
    pub(crate) fn of(call: &TargetCall) -> Self {
        Self(CallLimits::of(call))
    }
}

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

    pub(crate) async fn connect(&self, limits: &HostLimits) -> Result<TcpStream, TargetReply> {
        let work = connect::tcp(&self.origin, self.pool.resolver(), &limits.0);
        let connected = limits.0.wait(CallPhase::Connection, &self.origin, work).await;
        connected.and_then(identity).map_err(|failure| failure.at(&self.place).into_reply())
    }

    /// TLS from the first byte.
    pub(crate) async fn secure(
        &self,
        stream: TcpStream,
        limits: &HostLimits,
    ) -> Result<TlsStream<TcpStream>, TargetReply> {
        let origin = &self.origin;
        let name = ServerName::try_from(origin.host.clone())
            .map_err(|_| CallFailure::dns(origin, "no certificate can be for such a name").into_reply())?;
        let mut config = ClientConfig::clone(&self.pool.tls().http1);
        config.alpn_protocols.clear();
        let shaken = TlsConnector::from(Arc::new(config)).connect(name, stream);
        self.secured(limits, shaken).await?.map_err(|error| CallFailure::tls(origin, &error).into_reply())
    }

    /// Work that makes a connection private, within the limit for that.
    pub(crate) async fn secured<T>(
        &self,
        limits: &HostLimits,
        work: impl Future<Output = T>,
    ) -> Result<T, TargetReply> {
        limits.0.wait(CallPhase::Tls, &self.origin, work).await.map_err(CallFailure::into_reply)
    }

    /// Work that waits for one reply, within the limit for that.
    pub(crate) async fn answered<T>(
        &self,
        limits: &HostLimits,
        work: impl Future<Output = T>,
    ) -> Result<T, TargetReply> {
        limits.0.wait(CallPhase::Head, &self.origin, work).await.map_err(CallFailure::into_reply)
    }

    pub(crate) fn closed_early(&self) -> TargetReply {
        CallFailure::closed_early(&self.origin).into_reply()
    }

    pub(crate) fn broken(&self, error: &(dyn Error + 'static)) -> Option<TargetReply> {
        let io = std::iter::successors(Some(error), |cause| (*cause).source())
            .find_map(|cause| cause.downcast_ref::<io::Error>())?;
        Some(CallFailure::io(&self.origin, io).into_reply())
    }
}
