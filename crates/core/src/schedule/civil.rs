//! Minutes of a calendar in local time, without a zone.

use jiff::ToSpan;
use jiff::civil::{Date, date};

pub(super) const MINUTES_PER_DAY: u32 = 24 * 60;
const SECONDS_PER_MINUTE: i64 = 60;
const DAY: i64 = MINUTES_PER_DAY as i64;

/// Counted from the start of 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CivilMinute(i64);

impl CivilMinute {
    /// The first minute that begins at or after this second.
    pub(super) const fn from_second(second: i64) -> Self {
        Self(-(-second).div_euclid(SECONDS_PER_MINUTE))
    }

    /// Its first second.
    pub(super) const fn as_second(self) -> i64 {
        self.0 * SECONDS_PER_MINUTE
    }

    pub(super) fn start_of(date: Date) -> Self {
        let days = (date - EPOCH).get_days();
        Self(i64::from(days) * DAY)
    }

    pub(super) fn date(self) -> Date {
        let days = self.0.div_euclid(DAY);
        EPOCH.saturating_add(days.days())
    }

    pub(super) const fn start_of_day(self) -> Self {
        Self(self.0.div_euclid(DAY) * DAY)
    }

    pub(super) fn minute_of_day(self) -> u32 {
        u32::try_from(self.0.rem_euclid(DAY)).expect("a day has fewer minutes than that")
    }

    pub(super) const fn plus(self, minutes: i64) -> Self {
        Self(self.0 + minutes)
    }

    pub(super) fn plus_days(self, days: u32) -> Self {
        Self(self.0 + i64::from(days) * DAY)
    }
}

const EPOCH: Date = date(1970, 1, 1);
