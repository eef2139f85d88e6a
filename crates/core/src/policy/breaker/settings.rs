//! When a breaker opens, for how long, and what closes it.
//!
//! Settings are validated on construction and never change, so the state machine has no case for a breaker
//! that could never open or never close.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::limits;
use crate::text::Share;

#[derive(Clone, Debug, PartialEq)]
pub struct BreakerSettings {
    trip: Trip,
    open: Duration,
    probes: NonZeroU32,
    close_after: NonZeroU32,
    reset: Option<Duration>,
    count: CountingUnit,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trip {
    Consecutive(NonZeroU32),
    /// That many failures within a sliding time, whatever the successes between them.
    Failures {
        count: NonZeroU32,
        within: Duration,
    },
    /// That share of the calls within a sliding time, once there are enough of them.
    FailureRate {
        share: Share,
        of_at_least: NonZeroU32,
        within: Duration,
    },
}

/// What counts as one observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountingUnit {
    Attempt,
    /// A whole retried call, once, by its last attempt.
    Call,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RawBreaker {
    pub trip: Trip,
    pub open: Duration,
    pub probes: u32,
    /// Successes in a row that close it; `None` is as many as `probes`.
    pub close_after: Option<u32>,
    /// The failures so far are forgotten after that long without another; `None` is never.
    pub reset: Option<Duration>,
    pub count: CountingUnit,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBreaker {
    #[error("`open` is 0s, so the breaker would never hold a call back")]
    ZeroOpen,
    #[error("`within` is 0s, so no two calls would ever be counted together")]
    ZeroWithin,
    #[error("`reset` is 0s, so no two failures would ever be counted together")]
    ZeroReset,
    #[error("`probes` is {given}: it must be from 1 to {max}", max = limits::PROBES_MAX)]
    ProbesOutOfRange { given: u32 },
    #[error("`close_after` is 0, so the breaker would close without a success")]
    ZeroCloseAfter,
    #[error("a trip waits for at most {max} failures, not {given}", max = limits::TRIP_FAILURES_MAX)]
    TooManyFailures { given: u32 },
    #[error("a failure rate of 0% would open the breaker without a failure")]
    ZeroShare,
}

impl BreakerSettings {
    #[must_use]
    pub const fn trip(&self) -> Trip {
        self.trip
    }

    #[must_use]
    pub const fn open(&self) -> Duration {
        self.open
    }

    #[must_use]
    pub const fn probes(&self) -> NonZeroU32 {
        self.probes
    }

    #[must_use]
    pub const fn close_after(&self) -> NonZeroU32 {
        self.close_after
    }

    #[must_use]
    pub const fn reset(&self) -> Option<Duration> {
        self.reset
    }

    #[must_use]
    pub const fn count(&self) -> CountingUnit {
        self.count
    }
}

impl TryFrom<RawBreaker> for BreakerSettings {
    type Error = InvalidBreaker;

    fn try_from(raw: RawBreaker) -> Result<Self, InvalidBreaker> {
        let RawBreaker { trip, open, probes, close_after, reset, count } = raw;
        check_trip(trip)?;
        if open.is_zero() {
            return Err(InvalidBreaker::ZeroOpen);
        }
        if reset.is_some_and(|reset| reset.is_zero()) {
            return Err(InvalidBreaker::ZeroReset);
        }
        let probes = NonZeroU32::new(probes)
            .filter(|probes| probes.get() <= limits::PROBES_MAX)
            .ok_or(InvalidBreaker::ProbesOutOfRange { given: probes })?;
        let close_after =
            close_after.map_or(Some(probes), NonZeroU32::new).ok_or(InvalidBreaker::ZeroCloseAfter)?;
        Ok(Self { trip, open, probes, close_after, reset, count })
    }
}

fn check_trip(trip: Trip) -> Result<(), InvalidBreaker> {
    match trip {
        Trip::Failures { within, .. } | Trip::FailureRate { within, .. } if within.is_zero() => {
            Err(InvalidBreaker::ZeroWithin)
        }
        Trip::Failures { count, .. } if count.get() > limits::TRIP_FAILURES_MAX => {
            Err(InvalidBreaker::TooManyFailures { given: count.get() })
        }
        Trip::FailureRate { share, .. } if share.get() <= 0.0 => Err(InvalidBreaker::ZeroShare),
        Trip::Consecutive(_) | Trip::Failures { .. } | Trip::FailureRate { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn raw() -> RawBreaker {
        RawBreaker {
            trip: Trip::Consecutive(NonZeroU32::MIN),
            open: SECOND,
            probes: 3,
            close_after: None,
            reset: None,
            count: CountingUnit::Attempt,
        }
    }

    fn failures(count: u32, within: Duration) -> Trip {
        Trip::Failures { count: NonZeroU32::new(count).expect("not 0"), within }
    }

    fn rate(share: f64, within: Duration) -> Trip {
        let share = Share::new(share).expect("a share");
        Trip::FailureRate { share, of_at_least: NonZeroU32::MIN, within }
    }

    #[test]
    fn settings_are_checked() {
        use InvalidBreaker::*;
        #[rustfmt::skip]
        let cases = [
            ("a plain one",            raw(),                                                         Ok(3)),
            ("its own close_after",    RawBreaker { close_after: Some(9), ..raw() },                  Ok(9)),
            ("the most probes",        RawBreaker { probes: 1_000, ..raw() },                         Ok(1_000)),
            ("the most failures",      RawBreaker { trip: failures(10_000, SECOND), ..raw() },        Ok(3)),
            ("all calls",              RawBreaker { trip: rate(1.0, SECOND), ..raw() },               Ok(3)),
            ("open for no time",       RawBreaker { open: Duration::ZERO, ..raw() },                  Err(ZeroOpen)),
            ("failures in no time",    RawBreaker { trip: failures(5, Duration::ZERO), ..raw() },     Err(ZeroWithin)),
            ("a rate in no time",      RawBreaker { trip: rate(0.5, Duration::ZERO), ..raw() },       Err(ZeroWithin)),
            ("reset at once",          RawBreaker { reset: Some(Duration::ZERO), ..raw() },           Err(ZeroReset)),
            ("no probes",              RawBreaker { probes: 0, ..raw() },                             Err(ProbesOutOfRange { given: 0 })),
            ("too many probes",        RawBreaker { probes: 1_001, ..raw() },                         Err(ProbesOutOfRange { given: 1_001 })),
            ("closes after nothing",   RawBreaker { close_after: Some(0), ..raw() },                  Err(ZeroCloseAfter)),
            ("too many failures",      RawBreaker { trip: failures(10_001, SECOND), ..raw() },        Err(TooManyFailures { given: 10_001 })),
            ("a rate of nothing",      RawBreaker { trip: rate(0.0, SECOND), ..raw() },               Err(ZeroShare)),
        ];
        for (name, raw, expected) in cases {
            let close_after = BreakerSettings::try_from(raw).map(|settings| settings.close_after().get());
            assert_eq!(close_after, expected, "{name}");
        }
    }
}
