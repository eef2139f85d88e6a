//! Who is connected, by address: there are places for everybody, and nobody takes all of them.
//!
//! Without this, whoever opens connections fast enough from one machine keeps everybody else outside, with no
//! key and nearly no effort. A share is large enough for a proxy that brings the clients of a whole site.
//!
//! Invariant: as many addresses are remembered as have connections, and those have a bound.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use super::strangers::neighbourhood;

/// The part of all places that one address may take: one in so many.
const SHARE: usize = 2;

/// The connections of each address; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    by_address: Arc<Mutex<HashMap<String, usize>>>,
    each_max: usize,
}

/// A connection that counts for as long as this is there.
#[derive(Debug)]
pub(super) struct Member {
    crowd: Crowd,
    address: String,
}

impl Crowd {
    /// A crowd of at most so many connections.
    pub(super) fn of(connections_max: usize) -> Self {
        Self { by_address: Arc::default(), each_max: connections_max.div_ceil(SHARE) }
    }

    /// One more connection of that address; none if it has its share.
    pub(super) fn join(&self, peer: IpAddr) -> Option<Member> {
        let address = neighbourhood(Some(peer));
        let mut by_address = self.lock();
        let count = by_address.get(&address).copied().unwrap_or(0);
        if count >= self.each_max {
            return None;
        }
        by_address.insert(address.clone(), count + 1);
        Some(Member { crowd: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.by_address.lock().expect("nobody panics while counting")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut by_address = self.crowd.lock();
        let left = by_address.get(&self.address).map_or(0, |count| count - 1);
        if left == 0 {
            by_address.remove(&self.address);
        } else {
            by_address.insert(self.address.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_leaves_the_rest_to_others() {
        let crowd = Crowd::of(4);
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mut here: Vec<Member> = Vec::new();
        here.extend(crowd.join(address("2001:db8::1")));
        here.extend(crowd.join(address("2001:db8::2")));
        assert_eq!(here.len(), 2);
        assert!(crowd.join(address("2001:db8::3")).is_none(), "whatever it calls itself");
        assert!(crowd.join(address("192.0.2.1")).is_some(), "others have theirs");
        here.pop();
        assert!(crowd.join(address("2001:db8::3")).is_some(), "whoever leaves makes place");
        here.clear();
        assert!(crowd.lock().is_empty(), "and whoever is gone is forgotten");
    }
}
