//! The call that is guarded: as cheap as can be, so that the guard is what is measured.

use std::hint::black_box;

/// Why the call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// Succeeds; the compiler may not know it.
#[inline(never)]
pub fn succeed(input: u64) -> Result<u64, Unavailable> {
    if black_box(true) { Ok(black_box(input)) } else { Err(Unavailable) }
}

/// Fails; the compiler may not know it.
#[inline(never)]
pub fn fail(input: u64) -> Result<u64, Unavailable> {
    if black_box(false) { Ok(black_box(input)) } else { Err(Unavailable) }
}
