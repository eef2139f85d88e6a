//! Points in time that come in from outside, and their text form.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Nanoseconds since the start of 1970 in UTC, until the year 2554.
///
/// Arithmetic saturates, so no sum of a rule book's durations can panic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    pub const EPOCH: Self = Self(0);
    /// What is due then is never due.
    pub const NEVER: Self = Self(u64::MAX);

    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// As mail writes it: `Tue, 21 Oct 2025 14:30:00 +0000`.
    #[must_use]
    pub fn in_mail(self) -> String {
        let time = jiff::Timestamp::from_nanosecond(i128::from(self.0))
            .expect("2554 is before the year 9999, where that library ends");
        time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string()
    }

    /// Zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// RFC 3339 in UTC, with as many digits as needed.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = jiff::Timestamp::from_nanosecond(i128::from(self.0))
            .expect("2554 is before the year 9999, where that library ends");
        write!(f, "{time}")
    }
}

/// Also for times before 1970 or after 2554.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a timestamp such as 2026-01-31T12:00:00Z")]
pub struct InvalidTimestamp {
    text: String,
}

impl std::str::FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        let invalid = || InvalidTimestamp { text: text.to_owned() };
        let time: jiff::Timestamp = text.parse().map_err(|_| invalid())?;
        u64::try_from(time.as_nanosecond()).map(Self).map_err(|_| invalid())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_reads_as_rfc_3339_and_back() {
        #[rustfmt::skip]
        let cases = [
            ("the start",        Timestamp::EPOCH,                            "1970-01-01T00:00:00Z"),
            ("milliseconds",     Timestamp::from_millis(1_761_057_000_250),   "2025-10-21T14:30:00.25Z"),
            ("one nanosecond",   Timestamp::from_nanos(1),                    "1970-01-01T00:00:00.000000001Z"),
            ("the end of time",  Timestamp::NEVER,                            "2554-07-21T23:34:33.709551615Z"),
        ];
        for (name, time, text) in cases {
            assert_eq!(time.to_string(), text, "{name}");
            assert_eq!(text.parse(), Ok(time), "{name}");
        }
        assert!("1969-12-31T23:59:59Z".parse::<Timestamp>().is_err());
        assert!("soon".parse::<Timestamp>().is_err());
    }

    #[test]
    fn mail_has_a_form_of_its_own() {
        let time = Timestamp::from_millis(1_761_057_000_250);
        assert_eq!(time.in_mail(), "Tue, 21 Oct 2025 14:30:00 +0000");
    }

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(Timestamp::NEVER + Duration::MAX, Timestamp::NEVER);
        assert_eq!(Timestamp::EPOCH - Duration::MAX, Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::NEVER), Duration::ZERO);
    }
}
