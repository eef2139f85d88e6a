//! New ids: UUIDs of version 7, ordered by time.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use uuid::Uuid;

static RUN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));

static COUNT: AtomicU64 = AtomicU64::new(0);

pub(crate) fn fresh_id() -> Uuid {
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
    let mut random = [0; 10];
    // Ids of one millisecond are ordered by the count, as far as 12 bits go.
    random[..2].copy_from_slice(&u16::try_from(count & 0xfff).expect("12 bits").to_be_bytes());
    random[2..].copy_from_slice(&mixed(RUN.wrapping_add(count)).to_be_bytes());
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// `SplitMix64`: maps distinct numbers to distinct ones that look random.
const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_are_the_same() {
        let ids: BTreeSet<Uuid> = (0..1_000).map(|_| fresh_id()).collect();
        assert_eq!(ids.len(), 1_000);
    }

    #[test]
    fn they_tell_when_they_were_made() {
        let millis = || {
            let id = fresh_id();
            assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
            let (seconds, nanos) = id.get_timestamp().expect("version 7 has one").to_unix();
            u128::from(seconds) * 1_000 + u128::from(nanos / 1_000_000)
        };
        let now =
            || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis();
        let (before, made, after) = (now(), millis(), now());
        assert!((before..=after).contains(&made), "{before} {made} {after}");
    }
}
