//! Those who show something bad, by the address that they come from: slowed down, and nobody else with them.
//!
//! An address that fails too often is answered 429 instead of 401. Whoever shows something good is let in all
//! the same, whatever others behind the same address do: nobody must be able to keep others out.
//!
//! Invariant: of IPv6, where everybody has more addresses than can be counted, half of one is counted, and the
//! [`Limiter`] has its own bound.

use std::net::{IpAddr, Ipv6Addr};

use redrive_core::quota::TooMany;
use redrive_core::text::Rate;
use redrive_core::time::Timestamp;

use crate::api::limits::rate::Limiter;

/// How often an address may fail.
const FAILURES_PER_MINUTE: f64 = 30.0;

/// What is remembered of them.
#[derive(Debug, Default)]
pub(crate) struct FailedLogins(Limiter);

impl FailedLogins {
    /// Somebody failed; an error if that was too often.
    pub(crate) fn note(&self, address: &str, now: Timestamp) -> Result<(), TooMany> {
        let rate = Rate::per_second(FAILURES_PER_MINUTE / 60.0).expect("a number above 0");
        self.0.check(address, rate, now).map(|_| ())
    }
}

/// Whom an address stands for: of IPv6, everybody has as many as there are behind the first half.
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
