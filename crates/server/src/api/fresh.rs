//! Ids that nobody has used: a number drawn once for each run, and a count.
//!
//! Drawing each id from the system costs a call into the kernel for every request.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// Drawn by the system, which seeds these hashers.
static RUN: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
static COUNT: AtomicU64 = AtomicU64::new(0);

/// An id that nobody has used.
pub(crate) fn fresh_id() -> Uuid {
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut bytes = [0; 16];
    // The marks of a UUID take the first bits of the second half, which the count never reaches.
    bytes[..8].copy_from_slice(&RUN.to_be_bytes());
    bytes[8..].copy_from_slice(&count.to_be_bytes());
    Uuid::new_v8(bytes)
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
}
