//! Names and numbers that must not be mixed up: each has a type that checks it once.

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::hash;

const NAME_BYTES_MAX: usize = 200;

/// A name from a rule book: letters, digits, `-`, `_`, `.` and `:`, at most 200 of them. `/` separates a
/// service and its channel, so no name has it.
///
/// The type parameter distinguishes the name of a service from that of a channel.
pub struct Name<Of> {
    text: Arc<str>,
    of: PhantomData<fn() -> Of>,
}

#[derive(Debug)]
pub enum ServiceMarker {}
#[derive(Debug)]
pub enum ChannelMarker {}
#[derive(Debug)]
pub enum DependencyMarker {}
#[derive(Debug)]
pub enum PolicyMarker {}
#[derive(Debug)]
pub enum BreakerMarker {}

pub type ServiceName = Name<ServiceMarker>;
pub type ChannelName = Name<ChannelMarker>;
pub type DependencyName = Name<DependencyMarker>;
pub type PolicyName = Name<PolicyMarker>;
pub type BreakerName = Name<BreakerMarker>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    #[error("a name cannot be empty")]
    Empty,
    #[error("a name has at most {NAME_BYTES_MAX} characters, this one has {length}")]
    TooLong { length: usize },
    #[error("a name cannot contain {character:?}: use letters from a to z, digits, `-`, `_`, `.` and `:`")]
    Character { character: char },
}

impl<Of> Name<Of> {
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        if text.is_empty() {
            return Err(InvalidName::Empty);
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(InvalidName::TooLong { length: text.len() });
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        match text.chars().find(|&c| !fits(c)) {
            Some(character) => Err(InvalidName::Character { character }),
            None => Ok(Self { text: text.into(), of: PhantomData }),
        }
    }

    /// Two names joined by a dot, of any length.
    #[must_use]
    pub(crate) fn joined<A, B>(first: &Name<A>, second: &Name<B>) -> Self {
        Self { text: format!("{first}.{second}").into(), of: PhantomData }
    }

    /// The same text as the name of something else.
    #[must_use]
    pub fn like<A>(other: &Name<A>) -> Self {
        Self { text: Arc::clone(&other.text), of: PhantomData }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<Of> Clone for Name<Of> {
    fn clone(&self) -> Self {
        Self { text: Arc::clone(&self.text), of: PhantomData }
    }
}

impl<Of> PartialEq for Name<Of> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<Of> Eq for Name<Of> {}

impl<Of> PartialOrd for Name<Of> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<Of> Ord for Name<Of> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl<Of> std::hash::Hash for Name<Of> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl<Of> Borrow<str> for Name<Of> {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl<Of> fmt::Debug for Name<Of> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl<Of> fmt::Display for Name<Of> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<Of> Serialize for Name<Of> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The position of an event or a delivery in the order of a store; both share one count, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(u64);

/// Odd, so that multiplication is reversible; 2^64 divided by the golden ratio, so that neighbours differ.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// The inverse of [`SPREAD`].
const GATHER: u64 = 0xf1de_83e1_9937_733d;
const _: () = assert!(SPREAD.wrapping_mul(GATHER) == 1);

impl Seq {
    pub const NONE: Self = Self(0);

    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The number as users see it: neighbours look nothing alike, and its first digits depend only on the
    /// last bits of the number, so that a few digits find it without an index.
    #[must_use]
    const fn scattered(self) -> u64 {
        self.0.wrapping_mul(SPREAD).reverse_bits()
    }

    const fn gathered(scattered: u64) -> Self {
        Self(scattered.reverse_bits().wrapping_mul(GATHER))
    }
}

/// The first digits of a [`Receipt`] or a [`DeliveryId`], as users type them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdPrefix {
    remainder: u64,
    bits: u32,
}

impl IdPrefix {
    /// Reads 1 to 16 hexadecimal digits; of more, the first 16.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.get(..text.len().min(16))?;
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let bits = 4 * u32::try_from(digits.len()).expect("at most 16");
        let value = u64::from_str_radix(digits, 16).expect("hexadecimal digits, and no more than fit");
        let remainder = Seq::gathered(value << (64 - bits)).0 & (u64::MAX >> (64 - bits));
        Some(Self { remainder, bits })
    }

    /// Every seq that begins so, latest first, up to `last`.
    pub fn places(self, last: Seq) -> impl Iterator<Item = Seq> {
        let step = 1_u64.checked_shl(self.bits);
        let first = (self.remainder <= last.0).then(|| match step {
            Some(step) => last.0 - (last.0 - self.remainder) % step,
            None => self.remainder,
        });
        let before = move |place: &u64| step.and_then(|step| place.checked_sub(step));
        std::iter::successors(first, before).filter(|place| *place > 0).map(Seq)
    }
}

/// Identifies an accepted event for its sender: 64 bits, shown as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt(u64);

impl Receipt {
    #[must_use]
    pub const fn of(event: Seq) -> Self {
        Self(event.scattered())
    }

    #[must_use]
    pub const fn seq(self) -> Seq {
        Seq::gathered(self.0)
    }

    /// Reads all 16 digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_one = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_one.then(|| u64::from_str_radix(text, 16).ok().map(Self))?
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One delivery of one event to one service: 128 bits, shown as 32 hexadecimal digits.
///
/// The first half is its seq, so that it is found without an index; the second half is a hash of its content,
/// so that two stores never give one id to different things.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(pub u128);

impl DeliveryId {
    #[must_use]
    pub const fn new(seq: Seq, content: u64) -> Self {
        Self((seq.scattered() as u128) << 64 | content as u128)
    }

    #[must_use]
    pub const fn seq(self) -> Seq {
        Seq::gathered((self.0 >> 64) as u64)
    }

    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub const fn content(self) -> u64 {
        self.0 as u64
    }

    /// Reads all 32 digits, with or without the prefix of a `webhook-id`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("msg_").unwrap_or(text);
        let is_one = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_one.then(|| u128::from_str_radix(text, 16).ok().map(Self))?
    }
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(NonZeroU32);

impl Attempt {
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Saturates.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Makes one run's randomness differ from another's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// Depends on the seed, the delivery and the attempt and on nothing else, so one extra event changes no
    /// other's delays.
    #[must_use]
    #[inline]
    pub fn draw(self, delivery: DeliveryId, attempt: Attempt) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "one half after the other")]
        let (low, high) = (delivery.0 as u64, (delivery.0 >> 64) as u64);
        // A step through all 64-bit numbers, so that attempts of one delivery never collide.
        let step = u64::from(attempt.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash::stable_64_of(low ^ self.0, high ^ step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        #[rustfmt::skip]
        let cases = [
            ("a plain name",       "orders-svc",             Ok(())),
            ("a stream's name",    "engineering:queue",      Ok(())),
            ("nothing",            "",                       Err(InvalidName::Empty)),
            ("a space",            "orders svc",             Err(InvalidName::Character { character: ' ' })),
            ("a control character", "a\u{7}",                Err(InvalidName::Character { character: '\u{7}' })),
        ];
        for (name, text, expected) in cases {
            assert_eq!(ServiceName::new(text).map(|_| ()), expected, "{name}");
        }
        assert_eq!(ServiceName::new(&"x".repeat(201)), Err(InvalidName::TooLong { length: 201 }));
    }

    #[test]
    fn a_place_is_found_again_by_a_few_digits() {
        let last = Seq::new(100_000);
        for number in [1, 2, 3, 4_095, 65_536, 99_999, 100_000] {
            let seq = Seq::new(number);
            let id = DeliveryId::new(seq, 0xabc);
            assert_eq!((id.seq(), id.content()), (seq, 0xabc));
            assert_eq!(DeliveryId::parse(&format!("msg_{id}")), Some(id));
            assert_eq!(Receipt::parse(&Receipt::of(seq).to_string()).map(Receipt::seq), Some(seq));
            for digits in 1..=32 {
                let shown = id.to_string();
                let prefix = IdPrefix::parse(&shown[..digits]).expect("digits");
                let found: Vec<Seq> = prefix.places(last).collect();
                assert!(found.contains(&seq), "{digits} digits of {shown}");
                let fits = |place: &Seq| {
                    DeliveryId::new(*place, 0).to_string().starts_with(&shown[..digits.min(16)])
                };
                assert!(found.iter().all(fits), "{digits} digits of {shown}");
                assert_eq!(found.len() == 1, digits > 4 || found.len() == 1);
            }
        }
        assert_eq!(IdPrefix::parse(""), None);
        assert_eq!(IdPrefix::parse("xyz"), None);
    }

    #[test]
    fn a_draw_depends_on_all_it_is_given() {
        let draw = |seed, delivery, attempt| {
            Seed(seed).draw(DeliveryId(delivery), Attempt::new(attempt).expect("not 0"))
        };
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        assert_ne!(draw(1, 2, 3), draw(2, 2, 3));
        assert_ne!(draw(1, 2, 3), draw(1, 3, 3));
        assert_ne!(draw(1, 2, 3), draw(1, 2, 4));
    }
}
