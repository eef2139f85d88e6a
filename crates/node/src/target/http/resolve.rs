//! From names to addresses: the system's way, and in tests a list.
//!
//! The system looks a name up on a thread, and keeps that thread until it knows, whether or not anybody still
//! waits. So there is a bound: names that nobody answers for must not take the threads that others need.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Look-ups at once: half of the threads that tokio has for what blocks.
const LOOKUPS_MAX: usize = 256;

/// Who knows what a name stands for.
#[derive(Debug)]
pub(super) enum Resolver {
    /// The system, by whatever it is set up to ask.
    System {
        /// One for each look-up that may be under way.
        places: Arc<Semaphore>,
    },
    /// A list, which may change its mind.
    #[cfg(test)]
    Listed(fn(&str) -> Vec<IpAddr>),
}

impl Default for Resolver {
    fn default() -> Self {
        Self::System { places: Arc::new(Semaphore::new(LOOKUPS_MAX)) }
    }
}

impl Resolver {
    /// The addresses of a host, in the order in which they should be tried.
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
    // What is an address already needs nobody to look it up.
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let place = Arc::clone(places).acquire_owned().await.expect("nobody closes it");
    let host = host.to_owned();
    let looking = spawn_blocking(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // It is held to the end of the look-up, not of the wait for it.
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
