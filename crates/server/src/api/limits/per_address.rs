//! Connections per address: no address may take all of them.
//!
//! Otherwise one machine could lock out all others without a key. The share is large enough for a proxy of a
//! whole site. Live streams are limited likewise, by key or token if there is one.
//!
//! Invariant: only addresses with open connections are remembered, and those are bounded.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::api::limits::failed_logins::address_group;

/// One address may take one in this many of all connections.
const SHARE: usize = 2;

#[derive(Clone, Debug)]
pub(crate) struct AddressLimiter {
    by_name: Arc<Mutex<HashMap<String, usize>>>,
    each_max: usize,
}

#[derive(Debug)]
pub(crate) struct AddressSlot {
    per_address: AddressLimiter,
    name: String,
}

impl AddressLimiter {
    pub(crate) fn of(connections_max: usize) -> Self {
        Self::with_each(connections_max.div_ceil(SHARE))
    }

    pub(crate) fn with_each(each_max: usize) -> Self {
        Self { by_name: Arc::default(), each_max }
    }

    /// `None` if the address has used its share.
    pub(crate) fn join(&self, peer: IpAddr) -> Option<AddressSlot> {
        self.join_as(address_group(Some(peer)))
    }

    /// `None` if the caller has used its share.
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
        self.by_name.lock().expect("never poisoned")
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
        assert!(per_address.join(address("2001:db8::3")).is_some(), "a closed connection frees a slot");
        here.clear();
        assert!(per_address.lock().is_empty(), "addresses without connections are forgotten");
    }
}
