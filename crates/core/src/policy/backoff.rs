//! How long to wait before a retry.
//!
//! `delay(n) = min(max, initial × factor^n)` for retry n = 0, 1, …, or the n-th of an explicit list, then
//! jitter. Jitter is a hash of seed, delivery and attempt, never drawn from a generator.
//!
//! Invariants, for every policy, every n and every draw:
//! - a nominal delay is never above `max`, and an exponential one never below the one before it;
//! - a delay lies within [`Backoff::range`], which `timeline` shows and `check` uses;
//! - nothing overflows: sums and products saturate at the longest span a timestamp can count, 584 years.

use std::fmt;
use std::time::Duration;

use crate::limits;
use crate::text::{InvalidQuantity, Share, parse_duration, parse_share, show_duration};

#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    schedule: DelaySchedule,
    jitter: Jitter,
    retries: u32,
    window: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RawBackoff {
    pub schedule: RawSchedule,
    pub jitter: Jitter,
    pub retries: u32,
    /// No retry starts later than this after the first failure.
    pub window: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RawSchedule {
    /// Only valid for a policy without retries.
    Never,
    /// `initial`, then `factor` times as long each time, at most `max`.
    Exponential { initial: Duration, factor: f64, max: Duration },
    /// One by one; the last repeats.
    Listed(Vec<Duration>),
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidBackoff {
    #[error("the initial delay is 0s: set a delay greater than zero")]
    ZeroInitial,
    #[error("the maximum delay {} is shorter than the initial {}", show_duration(*.max), show_duration(*.initial))]
    MaxBelowInitial { initial: Duration, max: Duration },
    #[error("the factor {given} is not a number of at least 1: delays must not get shorter")]
    FactorBelowOne { given: f64 },
    #[error("the list of delays is empty")]
    EmptyList,
    #[error("{retries} retries need delays: set an initial delay or a list")]
    NoSchedule { retries: u32 },
    #[error("{given} retries exceed the limit of {}", limits::RETRIES_MAX)]
    TooManyRetries { given: u32 },
    #[error("a window of 0s leaves no time for a retry: leave it out, or allow 0 retries")]
    ZeroWindow,
    #[error("jitter `{jitter}` has no effect: write `none` to disable jitter")]
    ZeroSpread { jitter: Jitter },
    #[error("decorrelated jitter computes its delays from `initial` and `max` and cannot use a list")]
    DecorrelatedList,
}

/// How a delay is spread, so that deliveries that failed together are not retried together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jitter {
    None,
    /// Anything from 0 to the delay.
    Full,
    /// Anything from half the delay to all of it.
    Equal,
    /// Up to this much more.
    Plus(Duration),
    /// Up to this share more or less.
    SpreadShare(Share),
    /// Up to this much more or less.
    SpreadBy(Duration),
    /// Anything from `initial` to three times the delay before, at most `max`.
    Decorrelated,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJitter {
    #[error(
        "`{text}` is not a jitter: write none, full, equal, decorrelated, plus 500ms, spread 25% or spread 100ms"
    )]
    Unknown { text: String },
    #[error("`{text}` has no valid width")]
    Width { text: String, source: InvalidQuantity },
}

impl InvalidJitter {
    #[must_use]
    pub fn help(&self) -> String {
        let Self::Width { text, source } = self else { return String::new() };
        match source {
            InvalidQuantity::NoTimeUnit { text: width } if text.starts_with("spread") => {
                format!("write `spread {width}%` for a share of the delay, or `spread {width}ms` for a time")
            }
            InvalidQuantity::NoTimeUnit { text: width } => {
                format!("write `plus {width}ms` or `plus {width}s`")
            }
            other => other.to_string(),
        }
    }
}

impl Jitter {
    pub fn parse(text: &str) -> Result<Self, InvalidJitter> {
        let width = |source| InvalidJitter::Width { text: text.to_owned(), source };
        let mut words = text.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("none"), None, None) => Ok(Self::None),
            (Some("full"), None, None) => Ok(Self::Full),
            (Some("equal"), None, None) => Ok(Self::Equal),
            (Some("decorrelated"), None, None) => Ok(Self::Decorrelated),
            (Some("plus"), Some(by), None) => parse_duration(by).map(Self::Plus).map_err(width),
            (Some("spread"), Some(by), None) if by.ends_with('%') => {
                parse_share(by).map(Self::SpreadShare).map_err(width)
            }
            (Some("spread"), Some(by), None) => parse_duration(by).map(Self::SpreadBy).map_err(width),
            _ => Err(InvalidJitter::Unknown { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Full => f.pad("full"),
            Self::Equal => f.pad("equal"),
            Self::Plus(by) => f.pad(&format!("plus {}", show_duration(*by))),
            Self::SpreadShare(share) => f.pad(&format!("spread {share}")),
            Self::SpreadBy(by) => f.pad(&format!("spread {}", show_duration(*by))),
            Self::Decorrelated => f.pad("decorrelated"),
        }
    }
}

impl TryFrom<RawBackoff> for Backoff {
    type Error = InvalidBackoff;

    fn try_from(raw: RawBackoff) -> Result<Self, InvalidBackoff> {
        let RawBackoff { schedule, jitter, retries, window } = raw;
        if retries > limits::RETRIES_MAX && retries != Self::UNLIMITED {
            return Err(InvalidBackoff::TooManyRetries { given: retries });
        }
        if window.is_some_and(|window| window.is_zero()) {
            return Err(InvalidBackoff::ZeroWindow);
        }
        let width_is_zero = match jitter {
            Jitter::Plus(by) | Jitter::SpreadBy(by) => by.is_zero(),
            Jitter::SpreadShare(share) => share.get() <= 0.0,
            Jitter::None | Jitter::Full | Jitter::Equal | Jitter::Decorrelated => false,
        };
        if width_is_zero {
            return Err(InvalidBackoff::ZeroSpread { jitter });
        }
        if matches!((&schedule, jitter), (RawSchedule::Listed(_), Jitter::Decorrelated)) {
            return Err(InvalidBackoff::DecorrelatedList);
        }
        if schedule == RawSchedule::Never && retries > 0 {
            return Err(InvalidBackoff::NoSchedule { retries });
        }
        Ok(Self { schedule: DelaySchedule::try_from(schedule)?, jitter, retries, window })
    }
}

impl From<&Backoff> for RawBackoff {
    fn from(backoff: &Backoff) -> Self {
        let Backoff { schedule, jitter, retries, window } = backoff;
        let schedule = match schedule {
            DelaySchedule::Never => RawSchedule::Never,
            DelaySchedule::Exponential(Exponential { initial, factor, max, capped_from: _, first: _ }) => {
                RawSchedule::Exponential { initial: *initial, factor: *factor, max: *max }
            }
            DelaySchedule::Listed(delays) => RawSchedule::Listed(delays.to_vec()),
        };
        Self { schedule, jitter: *jitter, retries: *retries, window: *window }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryStep {
    pub retry: u32,
    pub nominal: Duration,
    pub min: Duration,
    pub max: Duration,
    pub cumulative: Duration,
}

#[must_use]
pub fn timeline(backoff: &Backoff) -> Vec<RetryStep> {
    let mut cumulative = Duration::ZERO;
    let retries = backoff.retries.min(limits::TIMELINE_STEPS_MAX);
    let step = |n| {
        let (min, max) = backoff.range(n);
        // Decorrelated delays grow at their own pace; a large factor would exceed their range.
        let nominal = backoff.nominal(n).clamp(min, max);
        cumulative = cumulative.saturating_add(nominal);
        RetryStep { retry: n + 1, nominal, min, max, cumulative }
    };
    (0..retries).map(step).collect()
}

impl Backoff {
    pub const UNLIMITED: u32 = u32::MAX;

    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.retries == Self::UNLIMITED
    }

    #[must_use]
    pub const fn none() -> Self {
        Self { schedule: DelaySchedule::Never, jitter: Jitter::None, retries: 0, window: None }
    }

    #[must_use]
    pub const fn retries(&self) -> u32 {
        self.retries
    }

    #[must_use]
    pub const fn window(&self) -> Option<Duration> {
        self.window
    }

    #[must_use]
    pub const fn jitter(&self) -> Jitter {
        self.jitter
    }

    #[must_use]
    pub fn initial(&self) -> Duration {
        self.nominal(0)
    }

    #[must_use]
    pub fn max(&self) -> Duration {
        match &self.schedule {
            DelaySchedule::Never => Duration::ZERO,
            DelaySchedule::Exponential(schedule) => schedule.max,
            DelaySchedule::Listed(delays) => delays.iter().copied().max().unwrap_or_default(),
        }
    }

    #[must_use]
    pub const fn factor(&self) -> Option<f64> {
        match &self.schedule {
            DelaySchedule::Exponential(schedule) => Some(schedule.factor),
            DelaySchedule::Never | DelaySchedule::Listed(_) => None,
        }
    }

    #[must_use]
    pub fn listed(&self) -> Option<&[Duration]> {
        match &self.schedule {
            DelaySchedule::Listed(delays) => Some(delays),
            DelaySchedule::Never | DelaySchedule::Exponential(_) => None,
        }
    }

    #[must_use]
    pub fn nominal(&self, n: u32) -> Duration {
        Duration::from_nanos(self.nominal_nanos(n))
    }

    /// The shortest and the longest delay after jitter, whatever the previous delay.
    #[must_use]
    pub fn range(&self, n: u32) -> (Duration, Duration) {
        let (min, max) = self.bounds(n, None);
        (Duration::from_nanos(min), Duration::from_nanos(max))
    }

    /// The delay before retry n = 0, 1, …; only decorrelated jitter uses `previous`.
    #[must_use]
    pub fn delay(&self, n: u32, draw: u64, previous: Option<Duration>) -> Duration {
        Duration::from_nanos(self.delay_nanos(n, draw, previous.map(nanos)))
    }

    #[inline]
    pub(crate) fn delay_nanos(&self, n: u32, draw: u64, previous: Option<u64>) -> u64 {
        let (min, max) = self.bounds(n, previous);
        // The high half of the product is uniform over `min..=max`, without division and without floats.
        let product = u128::from(draw) * (u128::from(max - min) + 1);
        min + (product >> 64) as u64
    }

    #[must_use]
    pub fn wait_min_total(&self) -> Duration {
        self.total(|n| self.range(n).0)
    }

    #[must_use]
    pub fn wait_max_total(&self) -> Duration {
        self.total(|n| self.range(n).1)
    }

    fn total(&self, of: impl Fn(u32) -> Duration) -> Duration {
        let varied = self.retries.min(self.steady_from());
        let same = self.retries - varied;
        let sum = (0..varied).map(&of).fold(Duration::ZERO, Duration::saturating_add);
        sum.saturating_add(of(varied).saturating_mul(same))
    }

    #[inline]
    fn nominal_nanos(&self, n: u32) -> u64 {
        match &self.schedule {
            DelaySchedule::Never => 0,
            DelaySchedule::Exponential(schedule) => schedule.nominal_nanos(n),
            DelaySchedule::Listed(delays) => {
                nanos(*delays.get(n as usize).unwrap_or(&delays[delays.len() - 1]))
            }
        }
    }

    fn steady_from(&self) -> u32 {
        match &self.schedule {
            DelaySchedule::Never => 0,
            DelaySchedule::Exponential(_) if self.jitter == Jitter::Decorrelated => TRIPLINGS_MAX,
            DelaySchedule::Exponential(schedule) => schedule.capped_from,
            DelaySchedule::Listed(delays) => u32::try_from(delays.len()).unwrap_or(u32::MAX),
        }
    }

    #[inline]
    fn bounds(&self, n: u32, previous: Option<u64>) -> (u64, u64) {
        let delay = self.nominal_nanos(n);
        match self.jitter {
            Jitter::None => (delay, delay),
            Jitter::Full => (0, delay),
            Jitter::Equal => (delay / 2, delay),
            Jitter::Plus(by) => (delay, delay.saturating_add(nanos(by))),
            Jitter::SpreadShare(share) => {
                let by = rounded(delay as f64 * share.get()).min(delay);
                (delay - by, delay.saturating_add(by))
            }
            Jitter::SpreadBy(by) => {
                let by = nanos(by);
                (delay.saturating_sub(by), delay.saturating_add(by))
            }
            Jitter::Decorrelated => self.decorrelated_bounds(n, previous),
        }
    }

    /// The previous delay may be another policy's, so it cannot widen what n allows.
    fn decorrelated_bounds(&self, n: u32, previous: Option<u64>) -> (u64, u64) {
        let initial = nanos(self.initial());
        let tripled = 3_u64.saturating_pow(n.saturating_add(1));
        let reachable = initial.saturating_mul(tripled).min(nanos(self.max()));
        let highest = previous.map_or(reachable, |previous| previous.saturating_mul(3).min(reachable));
        (initial, highest.max(initial))
    }
}

/// 3^41 nanoseconds exceed a `u64`.
const TRIPLINGS_MAX: u32 = 41;

#[derive(Clone, Debug, PartialEq)]
enum DelaySchedule {
    Never,
    Exponential(Exponential),
    Listed(Box<[Duration]>),
}

#[derive(Clone, Debug, PartialEq)]
struct Exponential {
    initial: Duration,
    factor: f64,
    max: Duration,
    capped_from: u32,
    first: Box<[u64]>,
}

const FIRST_DELAYS: u32 = 32;

impl TryFrom<RawSchedule> for DelaySchedule {
    type Error = InvalidBackoff;

    fn try_from(raw: RawSchedule) -> Result<Self, InvalidBackoff> {
        match raw {
            RawSchedule::Never => Ok(Self::Never),
            RawSchedule::Exponential { initial, factor, max } => {
                if initial.is_zero() {
                    return Err(InvalidBackoff::ZeroInitial);
                }
                if max < initial {
                    return Err(InvalidBackoff::MaxBelowInitial { initial, max });
                }
                if !factor.is_finite() || factor < 1.0 {
                    return Err(InvalidBackoff::FactorBelowOne { given: factor });
                }
                Ok(Self::Exponential(Exponential::new(initial, factor, max)))
            }
            RawSchedule::Listed(delays) if delays.is_empty() => Err(InvalidBackoff::EmptyList),
            RawSchedule::Listed(delays) => Ok(Self::Listed(delays.into())),
        }
    }
}

impl Exponential {
    fn new(initial: Duration, factor: f64, max: Duration) -> Self {
        let last = grown(initial, factor, limits::RETRIES_MAX, max);
        // Delays never shrink, so bisection finds the first of the longest ones.
        let (mut below, mut at_most) = (0, limits::RETRIES_MAX);
        while below < at_most {
            let middle = u32::midpoint(below, at_most);
            if grown(initial, factor, middle, max) < last {
                below = middle + 1;
            } else {
                at_most = middle;
            }
        }
        let capped_from = at_most;
        let first = (0..=capped_from.min(FIRST_DELAYS)).map(|n| nanos(grown(initial, factor, n, max)));
        Self { initial, factor, max, capped_from, first: first.collect() }
    }

    #[inline]
    fn nominal_nanos(&self, n: u32) -> u64 {
        let n = n.min(self.capped_from);
        match self.first.get(n as usize) {
            Some(known) => *known,
            None => nanos(grown(self.initial, self.factor, n, self.max)),
        }
    }
}

/// `first × factor^n`, at most `max`, never shrinking with n; a factor below 1 counts as 1.
pub(crate) fn grown(first: Duration, factor: f64, n: u32, max: Duration) -> Duration {
    let (first, max) = (nanos(first), nanos(max));
    let grown = rounded(first as f64 * power(factor, n));
    // A float holds 53 bits: rounding down must not fall below the first delay.
    Duration::from_nanos(grown.max(first).min(max))
}

/// A product of plain multiplications, so it is the same on every machine, which `powf` is not.
///
/// From the highest bit of n down: p(2m) = p(m)², p(2m+1) = p(m)² × factor. With the relative error of p(m)
/// below m × 2^-52, p never shrinks as n grows if the factor is further from 1 than that error; a factor as
/// near to 1 as [`GROWTH_MIN`] grows by less than a thousandth in all.
fn power(factor: f64, n: u32) -> f64 {
    if factor.is_nan() || factor < GROWTH_MIN {
        return 1.0;
    }
    let n = n.min(limits::RETRIES_MAX);
    let mut power = 1.0;
    for bit in (0..u32::BITS - n.leading_zeros()).rev() {
        power *= power;
        if n >> bit & 1 == 1 {
            power *= factor;
        }
    }
    power
}

const GROWTH_MIN: f64 = 1.0 + 1e-9;

#[must_use]
pub fn nanos(span: Duration) -> u64 {
    span.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(span.subsec_nanos()))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` stops at both ends")]
fn rounded(nanos: f64) -> u64 {
    (nanos + 0.5) as u64
}

#[cfg(test)]
mod tests;
