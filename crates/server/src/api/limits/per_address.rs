//! Who is connected, by address: there are places for everybody, and nobody takes all of them.
//!
//! Without this, whoever opens connections fast enough from one machine keeps everybody else outside, with no
//! key and nearly no effort. A share is large enough for a proxy that brings the clients of a whole site.
//!
//! The same goes for live streams, which count by key or token where callers have one.
//!
//! Invariant: as many addresses are remembered as have connections, and those have a bound.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::api::limits::failed_logins::address_group;

/// The part of all connections that one address may take: one in so many.
const SHARE: usize = 2;

/// What each address or caller has of something; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct AddressLimiter {
    by_name: Arc<Mutex<HashMap<String, usize>>>,
    each_max: usize,
}

/// A place that counts for as long as this is there.
#[derive(Debug)]
pub(crate) struct AddressSlot {
    per_address: AddressLimiter,
    name: String,
}

impl AddressLimiter {
    /// Slots for at most so many connections.
    pub(crate) fn of(connections_max: usize) -> Self {
        Self::with_each(connections_max.div_ceil(SHARE))
    }

    /// Slots for which each has at most so many places.
    pub(crate) fn with_each(each_max: usize) -> Self {
        Self { by_name: Arc::default(), each_max }
    }

    /// One more connection of that address; none if it has its share.
    pub(crate) fn join(&self, peer: IpAddr) -> Option<AddressSlot> {
        self.join_as(address_group(Some(peer)))
    }

    /// One more place for whoever has that name; none if it has its share.
    pub(crate) fn join_as(&self, name: String) -> Option<AddressSlot> {
        let mut by_name = self.lock();
        let count = by_name.get(&name).copied().unwrap_or(0);
        if count >= self.each_max {
            return None;
        }
        by_name.insert(name.clone(), count + 1);
        Some(AddressSlot { per_address: self.clone(), name })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.by_name.lock().expect("nobody panics while counting")
    }
}

impl Drop for AddressSlot {
    fn drop(&mut self) {
        let mut by_name = self.per_address.lock();
        let left = by_name.get(&self.name).map_or(0, |count| count - 1);
        if left == 0 {
            by_name.remove(&self.name);
        } else {
            by_name.insert(self.name.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_leaves_the_rest_to_others() {
        let per_address = AddressLimiter::of(4);
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mut here: Vec<AddressSlot> = Vec::new();
        here.extend(per_address.join(address("2001:db8::1")));
        here.extend(per_address.join(address("2001:db8::2")));
        assert_eq!(here.len(), 2);
        assert!(per_address.join(address("2001:db8::3")).is_none(), "whatever it calls itself");
        assert!(per_address.join(address("192.0.2.1")).is_some(), "others have theirs");
        here.pop();
        assert!(per_address.join(address("2001:db8::3")).is_some(), "whoever leaves makes place");
        here.clear();
        assert!(per_address.lock().is_empty(), "and whoever is gone is forgotten");
    }
}
