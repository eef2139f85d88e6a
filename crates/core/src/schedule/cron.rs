//! Cron expressions: minute, hour, day, month, weekday.
//!
//! Each field is a list of `*`, `5`, `1-5`, `*/10`, `1-30/2` and `20/10`; months and weekdays may use the first
//! three letters of their names. Days may be `L` (the last of the month) and `15W` (the working day nearest the
//! 15th, within the month); weekdays `5L` (the last Friday) and `5#3` (the third). If neither day nor weekday
//! begins with `*`, either may match; otherwise both must, as in every cron.
//!
//! Parsed here because the available libraries look at most four years ahead (too short for some leap days),
//! miss `L` in December, and use the machine's time zones. The tests compare with one of them.
//!
//! Invariants: an expression that can never fire is invalid; nothing here depends on time zones.

use jiff::civil::Date;

use super::civil::{CivilMinute, MINUTES_PER_DAY};

/// Bit set of all hours of a day.
const ALL_HOURS: u64 = (1 << 24) - 1;
/// The calendar, weekdays included, repeats after this many years.
const CALENDAR_YEARS: i16 = 400;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    months: u64,
    days: Days,
    weekdays: Weekdays,
}

/// Bit sets of days of a month.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Days {
    plain: u64,
    /// Days given as `15W`.
    nearest: u64,
    last: LastDay,
    begins: FieldStart,
}

/// Bit sets, Sunday is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Weekdays {
    plain: u64,
    /// Weekdays given as `5L`.
    last: u64,
    /// Weekdays given as `5#n`.
    nth: [u64; 5],
    begins: FieldStart,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LastDay {
    Meant,
    #[default]
    NotMeant,
}

/// Whether a field begins with `*`, which decides how days and weekdays combine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FieldStart {
    WithStar,
    #[default]
    Otherwise,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCron {
    #[error("it has {found} fields")]
    Fields { found: usize },
    #[error("invalid {field} `{item}`")]
    Item { item: String, field: &'static str },
    #[error("the {field} `{item}` is out of range: {min} to {max}")]
    OutOfRange { item: String, field: &'static str, min: u8, max: u8 },
    #[error("the range `{item}` runs backwards")]
    Backwards { item: String },
    #[error("the step of `{item}` is out of range: 1 to {max}")]
    Step { item: String, max: u8 },
    #[error("it never fires: no month has such a day")]
    Never,
}

struct CronField {
    name: &'static str,
    min: u8,
    max: u8,
    /// Names of the values, from the smallest.
    names: &'static [&'static str],
}

const MINUTE: CronField = CronField { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: CronField = CronField { name: "hour", min: 0, max: 23, names: &[] };
const DAY: CronField = CronField { name: "day of the month", min: 1, max: 31, names: &[] };
const MONTH: CronField = CronField {
    name: "month",
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAY: CronField =
    CronField { name: "weekday", min: 0, max: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };
/// Sunday may be 7.
const SUNDAY_AGAIN: u8 = 7;

impl Cron {
    pub fn parse(text: &str) -> Result<Self, InvalidCron> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(InvalidCron::Fields { found: fields.len() });
        };
        let cron = Self {
            text: fields.join(" "),
            minutes: MINUTE.set(minutes)?,
            hours: HOUR.set(hours)?,
            months: MONTH.set(months)?,
            days: Days::parse(days)?,
            weekdays: Weekdays::parse(weekdays)?,
        };
        let years = 2000..2000 + CALENDAR_YEARS;
        let mut months = years.flat_map(|year| (1..=12).map(move |month| (year, month)));
        if months.any(|(year, month)| cron.days_of(year, month) != 0) {
            Ok(cron)
        } else {
            Err(InvalidCron::Never)
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it fires in every hour of its days: such a cron counts elapsed time rather than local time.
    pub(super) const fn is_of_every_hour(&self) -> bool {
        self.hours == ALL_HOURS
    }

    pub(super) fn has(&self, minute: CivilMinute) -> bool {
        self.next(minute, minute.plus(1)) == Some(minute)
    }

    pub(super) fn next(&self, from: CivilMinute, until: CivilMinute) -> Option<CivilMinute> {
        let first = from.date();
        let (mut year, mut month) = (first.year(), first.month());
        let mut days_from = first.day();
        let mut minute_from = from.minute_of_day();
        loop {
            let start = Date::new(year, month, 1).ok().map(CivilMinute::start_of)?;
            if start >= until {
                return None;
            }
            let mut days = self.days_of(year, month) & !below(days_from);
            while days != 0 {
                let day = days.trailing_zeros();
                let is_first = start.plus_days(day - 1) == from.start_of_day();
                let at_least = if is_first { minute_from } else { 0 };
                if let Some(minute) = self.time_from(at_least) {
                    let found = start.plus_days(day - 1).plus(i64::from(minute));
                    return (found < until).then_some(found);
                }
                days &= days - 1;
            }
            (days_from, minute_from) = (1, 0);
            (year, month) = if month == 12 { (year.checked_add(1)?, 1) } else { (year, month + 1) };
        }
    }

    /// The first minute of a day in which it fires, at or after this one.
    fn time_from(&self, at_least: u32) -> Option<u32> {
        debug_assert!(at_least < MINUTES_PER_DAY);
        let (hour, minute) = (at_least / 60, at_least % 60);
        let rest_of_hour = self.minutes & (u64::MAX << minute);
        if self.hours >> hour & 1 == 1 && rest_of_hour != 0 {
            return Some(hour * 60 + rest_of_hour.trailing_zeros());
        }
        let later = self.hours & (u64::MAX << (hour + 1));
        (later != 0).then(|| later.trailing_zeros() * 60 + self.minutes.trailing_zeros())
    }

    fn days_of(&self, year: i16, month: i8) -> u64 {
        if self.months >> month & 1 == 0 {
            return 0;
        }
        let first = Date::new(year, month, 1).expect("years far within the library's, and real months");
        let length = first.days_in_month().unsigned_abs();
        let weekday = first.weekday().to_sunday_zero_offset().unsigned_abs();
        let month = Month { length, first_weekday: weekday };
        let (days, weekdays) = (self.days.of(&month), self.weekdays.of(&month));
        match (self.days.begins, self.weekdays.begins) {
            (FieldStart::Otherwise, FieldStart::Otherwise) => days | weekdays,
            (FieldStart::WithStar, _) | (_, FieldStart::WithStar) => days & weekdays,
        }
    }
}

const fn below(bit: i8) -> u64 {
    (1 << bit) - 1
}

struct Month {
    length: u8,
    first_weekday: u8,
}

impl Month {
    fn days(&self) -> impl Iterator<Item = u8> {
        1..=self.length
    }

    /// Sunday is 0.
    const fn weekday(&self, day: u8) -> u8 {
        (self.first_weekday + day - 1) % 7
    }

    /// Within the month.
    const fn nearest_working_day(&self, day: u8) -> u8 {
        match self.weekday(day) {
            6 if day == 1 => 3,
            6 => day - 1,
            0 if day == self.length => day - 2,
            0 => day + 1,
            _ => day,
        }
    }
}

impl Days {
    fn parse(text: &str) -> Result<Self, InvalidCron> {
        let mut days = Self { begins: FieldStart::of(text), ..Self::default() };
        for item in text.split(',') {
            if item.eq_ignore_ascii_case("l") {
                days.last = LastDay::Meant;
            } else if let Some(day) = item.strip_suffix(['W', 'w']) {
                days.nearest |= 1 << DAY.value(day, item)?;
            } else {
                days.plain |= DAY.item(item)?;
            }
        }
        Ok(days)
    }

    fn of(&self, month: &Month) -> u64 {
        let mut set = self.plain;
        if self.last == LastDay::Meant {
            set |= 1 << month.length;
        }
        for day in month.days().filter(|day| self.nearest >> day & 1 == 1) {
            set |= 1 << month.nearest_working_day(day);
        }
        set & ((1 << (month.length + 1)) - 1)
    }
}

impl Weekdays {
    fn parse(text: &str) -> Result<Self, InvalidCron> {
        let mut weekdays = Self { begins: FieldStart::of(text), ..Self::default() };
        for item in text.split(',') {
            let set = |day: &str| Ok(folded(1 << WEEKDAY.value(day, item)?));
            if let Some(day) = item.strip_suffix(['L', 'l']) {
                weekdays.last |= set(day)?;
            } else if let Some((day, nth)) = item.split_once('#') {
                let nth: usize = nth
                    .parse()
                    .ok()
                    .filter(|nth| (1..=5).contains(nth))
                    .ok_or_else(|| InvalidCron::Item { item: item.to_owned(), field: WEEKDAY.name })?;
                weekdays.nth[nth - 1] |= set(day)?;
            } else {
                weekdays.plain |= folded(WEEKDAY.item(item)?);
            }
        }
        Ok(weekdays)
    }

    fn of(&self, month: &Month) -> u64 {
        let fits = |day: &u8| {
            let bit = |set: u64| set >> month.weekday(*day) & 1 == 1;
            let nth = usize::from((day - 1) / 7);
            bit(self.plain) || bit(self.nth[nth]) || (bit(self.last) && day + 7 > month.length)
        };
        month.days().filter(fits).fold(0, |set, day| set | 1 << day)
    }
}

/// Folds Sunday as 7 into 0.
const fn folded(set: u64) -> u64 {
    (set | set >> SUNDAY_AGAIN) & 0b111_1111
}

impl FieldStart {
    fn of(text: &str) -> Self {
        if text.starts_with('*') { Self::WithStar } else { Self::Otherwise }
    }
}

impl CronField {
    fn set(&self, text: &str) -> Result<u64, InvalidCron> {
        text.split(',').try_fold(0, |set, item| Ok(set | self.item(item)?))
    }

    /// `*`, a value or a range, with an optional step.
    fn item(&self, item: &str) -> Result<u64, InvalidCron> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (item, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (self.min, self.max),
            Some((from, to)) => (self.value(from, item)?, self.range_end(to, item)?),
            None => {
                let from = self.value(range, item)?;
                (from, if step.is_some() { self.max } else { from })
            }
        };
        if to < from {
            return Err(InvalidCron::Backwards { item: item.to_owned() });
        }
        let step = match step {
            None => 1,
            Some(step) => self.step(step, item)?,
        };
        Ok((from..=to).step_by(step).fold(0, |set, value| set | 1 << value))
    }

    fn step(&self, text: &str, item: &str) -> Result<usize, InvalidCron> {
        let step = text.parse::<u8>().ok().filter(|step| (1..=self.max).contains(step));
        step.map(usize::from)
            .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or_else(|| InvalidCron::Step { item: item.to_owned(), max: self.max })
    }

    /// After Saturday (6) comes Sunday (7).
    fn range_end(&self, text: &str, item: &str) -> Result<u8, InvalidCron> {
        match self.value(text, item)? {
            0 if self.max == SUNDAY_AGAIN && text.eq_ignore_ascii_case("sun") => Ok(SUNDAY_AGAIN),
            value => Ok(value),
        }
    }

    fn value(&self, text: &str, item: &str) -> Result<u8, InvalidCron> {
        if let Some(place) = self.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            let place = u8::try_from(place).expect("there are a dozen names at most");
            return Ok(self.min + place);
        }
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number {
            return Err(InvalidCron::Item { item: item.to_owned(), field: self.name });
        }
        let value = text.parse::<u8>().ok().filter(|value| (self.min..=self.max).contains(value));
        value.ok_or_else(|| InvalidCron::OutOfRange {
            item: item.to_owned(),
            field: self.name,
            min: self.min,
            max: self.max,
        })
    }
}
