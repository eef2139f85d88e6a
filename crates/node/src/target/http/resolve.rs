//! DNS lookups by the system, and in tests by a list.
//!
//! A lookup blocks a thread until it ends, even if the caller has given up, so concurrent lookups are
//! bounded.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Half of tokio's blocking threads.
const LOOKUPS_MAX: usize = 256;

#[derive(Debug)]
pub(super) enum Resolver {
    System {
        /// One permit per concurrent lookup.
        places: Arc<Semaphore>,
    },
    #[cfg(test)]
    Listed(fn(&str) -> Vec<IpAddr>),
}

impl Default for Resolver {
    fn default() -> Self {
        Self::System { places: Arc::new(Semaphore::new(LOOKUPS_MAX)) }
    }
}

impl Resolver {
    /// In the order to try them.
    pub(super) async fn addresses(
        &self,
        host: &str,
        port: u16,
    ) -> io::Result<impl Iterator<Item = SocketAddr>> {
        let addresses = match self {
            Self::System { places } => look_up(places, host, port).await?,
            #[cfg(test)]
            Self::Listed(list) => list(host).into_iter().map(|ip| SocketAddr::new(ip, port)).collect(),
        };
        Ok(addresses.into_iter())
    }
}

async fn look_up(places: &Arc<Semaphore>, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let place = Arc::clone(places).acquire_owned().await.expect("semaphore is never closed");
    let host = host.to_owned();
    let looking = spawn_blocking(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // Held until the lookup ends, even if the caller has given up.
        drop(place);
        found
    });
    looking.await.unwrap_or_else(|broken| Err(io::Error::other(broken)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn names_wait_for_a_place_and_addresses_need_none() {
        let places = Arc::new(Semaphore::new(0));
        let resolver = Resolver::System { places: Arc::clone(&places) };
        let literal = resolver.addresses("192.0.2.7", 80).await.expect("an address is known");
        assert_eq!(literal.collect::<Vec<_>>(), ["192.0.2.7:80".parse().expect("an address")]);
        let waited = timeout(Duration::from_millis(10), resolver.addresses("localhost", 80)).await;
        assert!(waited.is_err(), "there is no place");
        places.add_permits(1);
        let mut found = resolver.addresses("localhost", 80).await.expect("every system knows it");
        assert!(found.all(|address| address.ip().is_loopback() && address.port() == 80));
        assert_eq!(places.available_permits(), 1, "it is given back");
    }
}
