//! One hash for everything that must come out the same on every machine and in every release.
//!
//! XXH3 is a published, frozen algorithm, so fingerprints and jitter survive an upgrade. The maps
//! here trust their keys (names of a rule book); they are not for keys that strangers choose.

use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

/// A hash map without a random hasher; for lookups only, since its order means nothing.
#[expect(clippy::disallowed_types, reason = "this is the one place that swaps the hasher")]
pub type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<StableHasher>>;

/// Feeds [`Map`] with XXH3.
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

/// A 128-bit hash of the bytes: for ids and fingerprints that are stored.
#[must_use]
pub fn stable_128(bytes: &[u8]) -> u128 {
    xxh3_128(bytes)
}

/// A 64-bit hash of the bytes under a seed.
#[must_use]
pub fn stable_64(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}
