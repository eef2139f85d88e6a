//! From names to addresses: the system's way, and in tests a list.

use std::io;
use std::net::SocketAddr;

use tokio::net::lookup_host;

/// Who knows what a name stands for.
#[derive(Debug, Default)]
pub(super) enum Resolver {
    /// The system, by whatever it is set up to ask.
    #[default]
    System,
    /// A list, which may change its mind.
    #[cfg(test)]
    Listed(fn(&str) -> Vec<std::net::IpAddr>),
}

impl Resolver {
    /// The addresses of a host, in the order in which they should be tried.
    pub(super) async fn addresses(
        &self,
        host: &str,
        port: u16,
    ) -> io::Result<impl Iterator<Item = SocketAddr>> {
        let addresses: Vec<SocketAddr> = match self {
            Self::System => lookup_host((host, port)).await?.collect(),
            #[cfg(test)]
            Self::Listed(list) => list(host).into_iter().map(|ip| SocketAddr::new(ip, port)).collect(),
        };
        Ok(addresses.into_iter())
    }
}
