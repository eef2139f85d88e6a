//! Hashes that must be the same on every machine and in every release.
//!
//! XXH3 is a published, frozen algorithm, so fingerprints and jitter survive an upgrade. The maps here trust
//! their keys (names of a rule book); they are not for keys that outsiders choose.

use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

/// A hash map without a random hasher; for lookups only, since its order is arbitrary.
#[expect(clippy::disallowed_types, reason = "this is the one place that swaps the hasher")]
pub type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<StableHasher>>;

/// A hash set without a random hasher; for lookups only.
#[expect(clippy::disallowed_types, reason = "this is the one place that swaps the hasher")]
pub type Set<K> = std::collections::HashSet<K, BuildHasherDefault<StableHasher>>;

#[derive(Default)]
pub struct StableHasher(u64);

impl Hasher for StableHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    // `str` ends its hash with one byte that only matters for tuples of strings.
    fn write_u8(&mut self, byte: u8) {
        self.0 = self.0.rotate_left(5) ^ u64::from(byte);
    }
}

/// For ids and fingerprints that are stored.
#[must_use]
pub fn stable_128(bytes: &[u8]) -> u128 {
    xxh3_128(bytes)
}

/// `wyhash64`, published and frozen too, at a tenth of the cost.
#[must_use]
#[inline]
pub fn stable_64_of(first: u64, second: u64) -> u64 {
    const SECRET: [u64; 2] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db];
    let (low, high) = product(first ^ SECRET[0], second ^ SECRET[1]);
    let (low, high) = product(low ^ SECRET[0], high ^ SECRET[1]);
    low ^ high
}

#[expect(clippy::cast_possible_truncation, reason = "one half after the other")]
fn product(first: u64, second: u64) -> (u64, u64) {
    let product = u128::from(first) * u128::from(second);
    (product as u64, (product >> 64) as u64)
}

#[must_use]
pub fn stable_64(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_of_two_numbers_is_frozen() {
        #[rustfmt::skip]
        let cases = [
            ("nothing",     (0, 0),               0x60c0_6e5a_a671_6029),
            ("two numbers", (1, 2),               0x12f6_3380_7d6d_d48c),
            ("the ends",    (u64::MAX, u64::MAX), 0x8de3_8748_e71c_42a8),
        ];
        for (name, (first, second), expected) in cases {
            assert_eq!(stable_64_of(first, second), expected, "{name}");
        }
    }
}
