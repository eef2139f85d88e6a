//! When a schedule fires: a cron expression in a time zone, and what happens to missed fires.
//!
//! A cron names minutes in local time, and clock changes affect it:
//! - a skipped minute fires as if the clocks had not changed: 02:30 becomes 03:30 on the day on which 02:00 is
//!   followed by 03:00, 24 hours after the last fire. If the cron fires then anyway, it is one fire;
//! - a repeated minute fires the first time only, unless the cron fires in every hour: such a cron counts
//!   elapsed time, and a quarter-hourly check must not pause for an hour.
//!
//! Invariants: fires strictly increase; each is a whole second; whatever the restarts, every fire of a span is
//! in exactly one [`DueFires::fires`] or counted in one [`DueFires::lost`].

mod civil;
mod cron;
pub mod plan;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use jiff::tz::{TimeZone, TimeZoneDatabase};

use self::civil::CivilMinute;
pub use self::cron::{Cron, InvalidCron};
use crate::book::connectors::schedule::Missed;
use crate::limits;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub struct CronSchedule {
    cron: Cron,
    zone: TimeZone,
    zone_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSchedule {
    #[error("invalid cron expression `{text}`: {reason}")]
    Cron { text: String, reason: InvalidCron },
    #[error("unknown time zone `{name}`")]
    Zone { name: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatchUp {
    pub missed: Missed,
    /// Older fires are lost.
    pub within: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueFires {
    /// Oldest first.
    pub fires: Vec<Timestamp>,
    /// How many of them were missed before.
    pub caught_up: u64,
    /// Not counted beyond [`limits::FIRES_COUNTED_MAX`].
    pub lost: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalFire {
    /// Local time: `Sun 2026-03-29 03:30 CEST`.
    pub local: String,
    /// Difference from UTC: `+02:00`.
    pub offset: String,
    pub mark: Option<ClockChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockChange {
    /// The local minute does not exist; the fire is delayed by the size of the change.
    Moved,
    /// The local minute occurs twice; it fires the first time only.
    Once,
    /// The local minute occurs twice, and it fires both times; this is the first.
    FirstOfTwo,
    SecondOfTwo,
}

impl ClockChange {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::Once => "once",
            Self::FirstOfTwo => "first-of-two",
            Self::SecondOfTwo => "second-of-two",
        }
    }
}

impl fmt::Display for ClockChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Moved => "moved: clocks leave out the time that the cron names",
            Self::Once => "clocks show this time twice: it fires the first time only",
            Self::FirstOfTwo => "clocks show this time twice: the first of two fires",
            Self::SecondOfTwo => "clocks show this time twice: the second of two fires",
        })
    }
}

impl CronSchedule {
    /// By the bundled time-zone database, not the machine's.
    pub fn new(cron: &str, zone: &str) -> Result<Self, InvalidSchedule> {
        let cron =
            Cron::parse(cron).map_err(|reason| InvalidSchedule::Cron { text: cron.to_owned(), reason })?;
        let found = TimeZoneDatabase::bundled().get(zone);
        let found = found.map_err(|_| InvalidSchedule::Zone { name: zone.to_owned() })?;
        Ok(Self { cron, zone_name: found.iana_name().unwrap_or(zone).to_owned(), zone: found })
    }

    /// UTC has no clock changes.
    #[must_use]
    pub fn utc(cron: Cron) -> Self {
        Self { cron, zone: TimeZone::UTC, zone_name: "UTC".to_owned() }
    }

    #[must_use]
    pub fn cron(&self) -> &str {
        self.cron.as_str()
    }

    #[must_use]
    pub fn zone(&self) -> &str {
        &self.zone_name
    }

    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.fires_after(after).next()
    }

    /// All fires after a point in time, in order.
    pub fn fires_after(&self, after: Timestamp) -> impl Iterator<Item = Timestamp> {
        let from = second_of(after) + 1;
        Fires { schedule: self, spell: Spell::of(&self.zone, from), from }
    }

    /// All fires after `after`, up to and including `until`.
    pub fn fires_between(&self, after: Timestamp, until: Timestamp) -> impl Iterator<Item = Timestamp> {
        self.fires_after(after).take_while(move |fire| *fire <= until)
    }

    /// What is due now, when everything up to `since` is done.
    ///
    /// A fire within the last [`limits::FIRE_ON_TIME`] does not count as missed.
    #[must_use]
    pub fn due(&self, since: Timestamp, now: Timestamp, catch_up: CatchUp) -> DueFires {
        if since >= now {
            return DueFires::default();
        }
        let on_time_after = since.max(now - limits::FIRE_ON_TIME);
        let on_time: Vec<Timestamp> = self.fires_between(on_time_after, now).collect();
        let fires_max = match catch_up.missed {
            Missed::None => 0,
            // One fire makes up for the whole absence, and an on-time fire does so too.
            Missed::One => usize::from(on_time.is_empty()),
            Missed::All => limits::FIRES_CAUGHT_UP_MAX.saturating_sub(on_time.len()),
        };
        let not_before = since.max(now - catch_up.within).min(on_time_after);
        let missed = self.latest_between(not_before, on_time_after, fires_max);
        let lost_until = missed.front().map_or(on_time_after, |first| *first - Duration::from_nanos(1));
        let lost = self.fires_between(since, lost_until).take(limits::FIRES_COUNTED_MAX).count();
        DueFires {
            caught_up: missed.len() as u64,
            fires: missed.into_iter().chain(on_time).collect(),
            lost: lost as u64,
        }
    }

    /// The latest `max` fires of a span.
    fn latest_between(&self, after: Timestamp, until: Timestamp, fires_max: usize) -> VecDeque<Timestamp> {
        let mut latest = VecDeque::new();
        if fires_max == 0 {
            return latest;
        }
        // Doubling the span visits few fires that are not needed.
        let mut span = limits::FIRE_ON_TIME;
        loop {
            let from = after.max(until - span);
            latest.clear();
            for fire in self.fires_between(from, until) {
                if latest.len() == fires_max {
                    latest.pop_front();
                }
                latest.push_back(fire);
            }
            if latest.len() == fires_max || from == after {
                return latest;
            }
            span = span.saturating_mul(2);
        }
    }

    #[must_use]
    pub fn local(&self, fire: Timestamp) -> LocalFire {
        let second = second_of(fire);
        let spell = Spell::of(&self.zone, second);
        let time = instant(second);
        let zoned = time.to_zoned(self.zone.clone());
        LocalFire {
            local: zoned.strftime("%a %Y-%m-%d %H:%M %Z").to_string(),
            offset: zoned.strftime("%:z").to_string(),
            mark: self.mark(second, &spell),
        }
    }

    fn mark(&self, second: i64, spell: &Spell) -> Option<ClockChange> {
        let own = self.cron.has(CivilMinute::from_second(second + spell.offset));
        if spell.left_out_until().is_some_and(|until| second < until) && !own {
            return Some(ClockChange::Moved);
        }
        if spell.repeats_until().is_some_and(|until| second < until) {
            return Some(ClockChange::SecondOfTwo);
        }
        let next = Spell::of(&self.zone, spell.end);
        let is_shown_again =
            next.repeats_until().is_some_and(|until| second + (until - next.start) >= next.start);
        let mark = if self.cron.is_of_every_hour() { ClockChange::FirstOfTwo } else { ClockChange::Once };
        is_shown_again.then_some(mark)
    }
}

struct Fires<'a> {
    schedule: &'a CronSchedule,
    spell: Spell,
    from: i64,
}

impl Iterator for Fires<'_> {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        while self.from < SECOND_END {
            if let Some(fire) = self.spell.first(&self.schedule.cron, self.from) {
                self.from = fire + 1;
                return timestamp(fire);
            }
            self.from = self.spell.end;
            self.spell = Spell::of(&self.schedule.zone, self.from);
        }
        None
    }
}

/// A period without clock changes.
#[derive(Clone, Copy, Debug)]
struct Spell {
    start: i64,
    /// First second of the next period.
    end: i64,
    /// Seconds ahead of UTC.
    offset: i64,
    /// Offset of the period before.
    offset_before: i64,
}

const SECOND_END: i64 = second_of(Timestamp::NEVER) + 1;

impl Spell {
    fn of(zone: &TimeZone, second: i64) -> Self {
        let time = instant(second);
        let offset = i64::from(zone.to_offset(time).seconds());
        let start = zone.preceding(instant(second + 1)).next().map(|change| change.timestamp());
        let before = start.map(|start| zone.to_offset(instant(start.as_second() - 1)));
        let end = zone.following(time).next().map(|change| change.timestamp().as_second());
        Self {
            start: start.map_or(0, jiff::Timestamp::as_second),
            end: end.unwrap_or(SECOND_END),
            offset,
            offset_before: before.map_or(offset, |before| i64::from(before.seconds())),
        }
    }

    /// The first second at or after `from` in which the cron fires.
    fn first(&self, cron: &Cron, from: i64) -> Option<i64> {
        let repeats_until = self.repeats_until().filter(|_| !cron.is_of_every_hour());
        let own_from = from.max(repeats_until.unwrap_or(from));
        let own = fires(cron, self.offset, own_from, self.end);
        let moved = self
            .left_out_until()
            .and_then(|until| fires(cron, self.offset_before, from, until.min(self.end)));
        [own, moved].into_iter().flatten().min()
    }

    /// Until when local times repeat; `None` if clocks were not set back.
    const fn repeats_until(&self) -> Option<i64> {
        let by = self.offset_before - self.offset;
        if by > 0 { Some(self.start + by) } else { None }
    }

    /// Until when clocks that were not changed would show the skipped times; `None` if clocks were not set
    /// forward.
    const fn left_out_until(&self) -> Option<i64> {
        let by = self.offset - self.offset_before;
        if by > 0 { Some(self.start + by) } else { None }
    }
}

/// The first second of a span in which the cron fires at this UTC offset.
fn fires(cron: &Cron, offset: i64, from: i64, until: i64) -> Option<i64> {
    let civil = |second: i64| CivilMinute::from_second(second + offset);
    cron.next(civil(from), civil(until)).map(|minute| minute.as_second() - offset)
}

const fn second_of(time: Timestamp) -> i64 {
    // 584 years have fewer seconds than that.
    (time.as_nanos() / 1_000_000_000).cast_signed()
}

fn timestamp(second: i64) -> Option<Timestamp> {
    u64::try_from(second).ok()?.checked_mul(1_000_000_000).map(Timestamp::from_nanos)
}

fn instant(second: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(second).expect("2554 is before the year 9999, where that library ends")
}
