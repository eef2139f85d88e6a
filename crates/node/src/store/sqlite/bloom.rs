//! A blocked Bloom filter: rules out most keys that are not in a run with one memory access.
//!
//! Invariant: no false negatives. Filters are stored, so key placement never changes.

use redrive_core::hash;

/// About 0.5 % false positives.
const BITS_PER_KEY: usize = 12;
const BITS_SET: u32 = 7;
/// One cache line.
const BLOCK_WORDS: usize = 8;
const BLOCK_BITS: usize = BLOCK_WORDS * 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BloomFilter(Vec<[u64; BLOCK_WORDS]>);

/// A hashed key, computed once for many filters.
#[derive(Clone, Copy, Debug)]
pub(super) struct BloomKey {
    scattered: u64,
    bits: [u64; BLOCK_WORDS],
}

impl BloomKey {
    pub(super) fn new(key: u64) -> Self {
        let mut places = hash::stable_64_of(key, 1);
        let mut bits = [0; BLOCK_WORDS];
        for _ in 0..BITS_SET {
            let place = usize::try_from(places % BLOCK_BITS as u64).expect("less than a block");
            bits[place / 64] |= 1 << (place % 64);
            places /= BLOCK_BITS as u64;
        }
        Self { scattered: hash::stable_64_of(key, 0), bits }
    }
}

impl BloomFilter {
    pub(super) fn with_room_for(keys: usize) -> Self {
        let blocks = (keys * BITS_PER_KEY).div_ceil(BLOCK_BITS).max(1);
        Self(vec![[0; BLOCK_WORDS]; blocks])
    }

    pub(super) const fn room(&self) -> usize {
        self.0.len() * BLOCK_BITS / BITS_PER_KEY
    }

    pub(super) fn add(&mut self, key: u64) {
        let key = BloomKey::new(key);
        let block = self.block_of(&key);
        for (word, bits) in self.0[block].iter_mut().zip(key.bits) {
            *word |= bits;
        }
    }

    pub(super) fn may_have(&self, key: &BloomKey) -> bool {
        self.0[self.block_of(key)].iter().zip(key.bits).all(|(word, bits)| word & bits == bits)
    }

    /// Maps the hash to a block by multiplication, without a division.
    fn block_of(&self, key: &BloomKey) -> usize {
        let block = (u128::from(key.scattered) * self.0.len() as u128) >> 64;
        usize::try_from(block).expect("less than there are blocks")
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flatten().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// `None` if the length is wrong.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (blocks, []) = bytes.as_chunks::<{ BLOCK_BITS / 8 }>() else { return None };
        let block = |bytes: &[u8; BLOCK_BITS / 8]| {
            let mut words = [0; BLOCK_WORDS];
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            words
        };
        (!blocks.is_empty()).then(|| Self(blocks.iter().map(block).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_denied_and_few_strangers_are_let_through() {
        for count in [0, 1, 100, 20_000_u64] {
            let mut filter = BloomFilter::with_room_for(usize::try_from(count).expect("few"));
            (0..count).for_each(|key| filter.add(key));
            assert!((0..count).all(|key| filter.may_have(&BloomKey::new(key))), "{count}");
            let strangers =
                (count..count + 20_000).filter(|key| filter.may_have(&BloomKey::new(*key))).count();
            assert!(count < 100 || strangers < 200, "{count}: {strangers} of 20,000");
            assert!(filter.room() as u64 >= count && filter.room() as u64 <= count + 50);
            assert_eq!(BloomFilter::from_bytes(&filter.to_bytes()), Some(filter), "{count}");
        }
        assert_eq!(BloomFilter::from_bytes(&[]), None);
        assert_eq!(BloomFilter::from_bytes(&[0; 65]), None);
    }

    /// Filters are stored: a key must be found where an earlier release has put it.
    #[test]
    fn keys_stay_where_they_are() {
        let mut filter = BloomFilter::with_room_for(1_000);
        (0..1_000).for_each(|key| filter.add(key * 7));
        assert_eq!(hash::stable_64(&filter.to_bytes(), 0), 5_703_298_293_845_539_129);
    }
}
