//! Those who came with a bad key: told of, but not so often that the telling itself does harm.
//!
//! An address that fails too often is answered 429 instead of 401. A key that is good is let in all the same,
//! whatever others behind the same address do: keys are too long to be guessed, and nobody must be able to
//! keep others out.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::Duration;

use redrive::core::text::Rate;
use redrive::core::time::Timestamp;
use redrive::happening::What;
use redrive::node::Node;

use crate::api::error::ApiError;
use crate::api::rate::{self, Limiter};

/// How often an address may fail.
const FAILURES_PER_MINUTE: f64 = 30.0;
/// How often it is told that somebody failed, at most.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// What is remembered of them.
#[derive(Debug, Default)]
pub(super) struct Failed {
    addresses: Limiter,
    telling: Mutex<Telling>,
}

/// Tells of many as of one.
#[derive(Debug, Default)]
struct Telling {
    told_at: Option<Timestamp>,
    untold: u64,
}

impl Failed {
    /// Somebody failed; an error if that was too often.
    pub(super) fn note(&self, node: &Node, peer: Option<IpAddr>, now: Timestamp) -> Result<(), ApiError> {
        let address = peer.map_or_else(|| "an unknown address".to_owned(), neighbourhood);
        if let Some(count) = self.telling.lock().expect("nobody panics while counting").count(now) {
            tracing::warn!(count, address, "bad keys were shown");
            let attempts =
                if count == 1 { "a bad key was".to_owned() } else { format!("{count} bad keys were") };
            node.announce(What::Security, format!("{attempts} shown, the last one by {address}"));
        }
        let rate = Rate::per_second(FAILURES_PER_MINUTE / 60.0).expect("a number above 0");
        self.addresses.check(&address, rate, now).map(|_| ()).map_err(|too_many| rate::refusal(&too_many))
    }
}

impl Telling {
    /// One more; how many there were since the last time, if it is time to tell.
    fn count(&mut self, now: Timestamp) -> Option<u64> {
        self.untold += 1;
        if self.told_at.is_some_and(|at| now.since(at) < TELL_EVERY) {
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

/// Whom an address stands for: of IPv6, everybody has as many as there are behind the first half.
fn neighbourhood(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_are_told_as_one_with_their_number() {
        let at = |millis: u64| Timestamp::from_millis(10_000 + millis);
        let mut telling = Telling::default();
        let cases = [(0, Some(1)), (1, None), (999, None), (1_000, Some(3)), (5_000, Some(1))];
        for (millis, expected) in cases {
            assert_eq!(telling.count(at(millis)), expected, "after {millis} ms");
        }
    }

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
            assert_eq!(neighbourhood(address.parse().expect("an address")), expected);
        }
    }
}
