//! Limits failed authentications per address.
//!
//! An address that fails too often gets 429 instead of 401. Valid credentials always pass, so that others
//! behind the same address are not locked out.
//!
//! Invariant: IPv6 is counted by its first half (a client has a whole /64), and the [`Limiter`] has its own
//! bound.

use std::net::{IpAddr, Ipv6Addr};

use redrive_core::quota::TooMany;
use redrive_core::text::Rate;
use redrive_core::time::Timestamp;

use crate::api::limits::rate::Limiter;

const FAILURES_PER_MINUTE: f64 = 30.0;

#[derive(Debug, Default)]
pub(crate) struct FailedLogins(Limiter);

impl FailedLogins {
    pub(crate) fn note(&self, address: &str, now: Timestamp) -> Result<(), TooMany> {
        let rate = Rate::per_second(FAILURES_PER_MINUTE / 60.0).expect("a number above 0");
        self.0.check(address, rate, now).map(|_| ())
    }
}

pub(crate) fn address_group(peer: Option<IpAddr>) -> String {
    match peer.map(|address| address.to_canonical()) {
        None => "an unknown address".to_owned(),
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stands_for_whoever_can_choose_it() {
        #[rustfmt::skip]
        let cases = [
            ("192.0.2.7",               "192.0.2.7"),
            ("::ffff:192.0.2.7",        "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6",    "2001:db8:1:2::/64"),
            ("2001:db8:1:2:ffff::",     "2001:db8:1:2::/64"),
        ];
        for (address, expected) in cases {
            assert_eq!(address_group(Some(address.parse().expect("an address"))), expected);
        }
    }
}
