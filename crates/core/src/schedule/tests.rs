//! Schedules against tables, against another reader of crons, and against a walk over every minute.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::{CatchUp, ClockChange, Cron, CronSchedule, DueFires, InvalidCron};
use crate::book::connectors::schedule::Missed;
use crate::limits;
use crate::time::Timestamp;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn schedule(cron: &str, zone: &str) -> CronSchedule {
    CronSchedule::new(cron, zone).unwrap_or_else(|error| panic!("{error}"))
}

fn next(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let schedule = schedule(cron, zone);
    schedule.fires_after(at(after)).take(count).map(|fire| fire.to_string()).collect()
}

#[test]
fn a_cron_says_which_minutes_it_means() {
    #[rustfmt::skip]
    let cases = [
        ("every minute",               "* * * * *",         "2026-01-01T00:00:00Z", vec!["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]),
        ("from between two minutes",   "* * * * *",         "2026-01-01T00:00:30.5Z", vec!["2026-01-01T00:01:00Z"]),
        ("each quarter of an hour",    "*/15 * * * *",      "2026-01-01T00:44:59Z", vec!["2026-01-01T00:45:00Z", "2026-01-01T01:00:00Z"]),
        ("from a minute on",           "50/5 9 * * *",      "2026-01-01T00:00:00Z", vec!["2026-01-01T09:50:00Z", "2026-01-01T09:55:00Z", "2026-01-02T09:50:00Z"]),
        ("a range and a list",         "0 8-9,12 * * *",    "2026-01-01T00:00:00Z", vec!["2026-01-01T08:00:00Z", "2026-01-01T09:00:00Z", "2026-01-01T12:00:00Z", "2026-01-02T08:00:00Z"]),
        ("a range with a step",        "0 0-10/5 * * *",    "2026-01-01T00:00:00Z", vec!["2026-01-01T05:00:00Z", "2026-01-01T10:00:00Z", "2026-01-02T00:00:00Z"]),
        ("names, in any case",         "0 0 * FEB mon",     "2026-01-01T00:00:00Z", vec!["2026-02-02T00:00:00Z", "2026-02-09T00:00:00Z"]),
        ("working days",               "0 9 * * MON-FRI",   "2026-01-01T10:00:00Z", vec!["2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"]),
        ("a weekend that ends a week", "0 9 * * sat-sun",   "2026-01-01T10:00:00Z", vec!["2026-01-03T09:00:00Z", "2026-01-04T09:00:00Z"]),
        ("Sunday as 0",                "0 9 * * 0",         "2026-01-01T10:00:00Z", vec!["2026-01-04T09:00:00Z"]),
        ("Sunday as 7",                "0 9 * * 7",         "2026-01-01T10:00:00Z", vec!["2026-01-04T09:00:00Z"]),
        ("Friday to Sunday",           "0 9 * * 5-7",       "2026-01-01T10:00:00Z", vec!["2026-01-02T09:00:00Z", "2026-01-03T09:00:00Z", "2026-01-04T09:00:00Z"]),
        ("either day will do",         "0 0 13 * 5",        "2026-01-01T10:00:00Z", vec!["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z"]),
        ("both must, with a star",     "0 0 */2 * 5",       "2026-01-01T10:00:00Z", vec!["2026-01-09T00:00:00Z", "2026-01-23T00:00:00Z", "2026-02-13T00:00:00Z"]),
        ("months without a 31st",      "0 0 31 * *",        "2026-01-31T00:00:00Z", vec!["2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z", "2026-07-31T00:00:00Z", "2026-08-31T00:00:00Z"]),
        ("a leap day",                 "0 0 29 2 *",        "2026-01-01T00:00:00Z", vec!["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]),
        ("a century without one",      "0 0 29 2 *",        "2096-03-01T00:00:00Z", vec!["2104-02-29T00:00:00Z"]),
        ("a leap day on a Sunday",     "0 0 29 2 */7",      "2026-01-01T00:00:00Z", vec!["2032-02-29T00:00:00Z", "2060-02-29T00:00:00Z"]),
        ("the last of each month",     "0 0 L * *",         "2026-11-01T00:00:00Z", vec!["2026-11-30T00:00:00Z", "2026-12-31T00:00:00Z", "2027-01-31T00:00:00Z", "2027-02-28T00:00:00Z"]),
        ("the last Friday",            "0 0 * * 5L",        "2026-11-01T00:00:00Z", vec!["2026-11-27T00:00:00Z", "2026-12-25T00:00:00Z", "2027-01-29T00:00:00Z"]),
        ("the third Friday",           "0 0 * * fri#3",     "2026-01-01T00:00:00Z", vec!["2026-01-16T00:00:00Z", "2026-02-20T00:00:00Z"]),
        ("a fifth Friday",             "0 0 * * 5#5",       "2026-01-31T00:00:00Z", vec!["2026-05-29T00:00:00Z"]),
        ("near a Saturday",            "0 0 15W * *",       "2026-08-01T00:00:00Z", vec!["2026-08-14T00:00:00Z"]),
        ("near a Sunday",              "0 0 15W * *",       "2026-11-01T00:00:00Z", vec!["2026-11-16T00:00:00Z"]),
        ("not before the month",       "0 0 1W * *",        "2026-07-15T00:00:00Z", vec!["2026-08-03T00:00:00Z"]),
        ("not after the month",        "0 0 31W * *",       "2026-05-01T00:00:00Z", vec!["2026-05-29T00:00:00Z"]),
        ("the end of our time",        "0 0 1 1 *",         "2554-01-01T00:00:00Z", vec![]),
    ];
    for (name, cron, after, expected) in cases {
        assert_eq!(next(cron, "UTC", after, expected.len().max(1)), expected, "{name}");
    }
}

#[test]
fn what_is_no_cron_is_refused() {
    let item = |item: &str, field| InvalidCron::Item { item: item.to_owned(), field };
    let outside =
        |item: &str, field, min, max| InvalidCron::OutOfRange { item: item.to_owned(), field, min, max };
    #[rustfmt::skip]
    let cases = [
        ("nothing",                    "",                 InvalidCron::Fields { found: 0 }),
        ("four fields",                "* * * *",          InvalidCron::Fields { found: 4 }),
        ("a zone",                     "* * * * * UTC",    InvalidCron::Fields { found: 6 }),
        ("a word",                     "soon * * * *",     item("soon", "minute")),
        ("a sign",                     "+5 * * * *",       item("+5", "minute")),
        ("a hole in a list",           "1,,2 * * * *",     item("", "minute")),
        ("half a range",               "1- * * * *",       item("1-", "minute")),
        ("minute 60",                  "60 * * * *",       outside("60", "minute", 0, 59)),
        ("hour 24",                    "0 24 * * *",       outside("24", "hour", 0, 23)),
        ("day 0",                      "0 0 0 * *",        outside("0", "day of the month", 1, 31)),
        ("a huge day",                 "0 0 9999W * *",    outside("9999W", "day of the month", 1, 31)),
        ("month 13",                   "0 0 1 13 *",       outside("13", "month", 1, 12)),
        ("weekday 8",                  "0 0 * * 8",        outside("8", "weekday", 0, 7)),
        ("a month among weekdays",     "0 0 * * feb",      item("feb", "weekday")),
        ("a sixth Friday",             "0 0 * * 5#6",      item("5#6", "weekday")),
        ("backwards",                  "0 9-8 * * *",      InvalidCron::Backwards { item: "9-8".to_owned() }),
        ("no step",                    "*/0 * * * *",      InvalidCron::Step { item: "*/0".to_owned(), max: 59 }),
        ("a step too far",             "*/60 * * * *",     InvalidCron::Step { item: "*/60".to_owned(), max: 59 }),
        ("the 30th of February",       "0 0 30 2 *",       InvalidCron::Never),
        ("the 31st of short months",   "0 0 31 4,6,9,11 *", InvalidCron::Never),
    ];
    for (name, cron, expected) in cases {
        assert_eq!(Cron::parse(cron), Err(expected), "{name}");
    }
    assert!(CronSchedule::new("* * * * *", "Mars/Base").is_err());
}

#[test]
fn clocks_that_are_set_forward_move_a_fire_and_lose_none() {
    // Berlin: 02:00 is followed by 03:00 on 2026-03-29, at 01:00 UTC.
    #[rustfmt::skip]
    let cases = [
        ("in the gap",            "30 2 * * *",     "Europe/Berlin",       "2026-03-28T00:00:00Z", vec!["2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"]),
        ("where the gap begins",  "0 2 * * *",      "Europe/Berlin",       "2026-03-28T12:00:00Z", vec!["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]),
        ("where it ends",         "0 3 * * *",      "Europe/Berlin",       "2026-03-28T12:00:00Z", vec!["2026-03-29T01:00:00Z", "2026-03-30T01:00:00Z"]),
        ("both, as one",          "0 2,3 * * *",    "Europe/Berlin",       "2026-03-28T12:00:00Z", vec!["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z", "2026-03-30T01:00:00Z"]),
        ("half of them as one",   "0,30 2,3 * * *", "Europe/Berlin",       "2026-03-28T12:00:00Z", vec!["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:00:00Z"]),
        ("each half hour",        "*/30 * * * *",   "Europe/Berlin",       "2026-03-29T00:00:00Z", vec!["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-29T02:00:00Z"]),
        ("half an hour of gap",   "15 2 * * *",     "Australia/Lord_Howe", "2026-10-02T20:00:00Z", vec!["2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"]),
        ("a day of gap",          "0 9 30 12 *",    "Pacific/Apia",        "2011-01-01T00:00:00Z", vec!["2011-12-30T19:00:00Z", "2012-12-29T19:00:00Z"]),
        ("each day but that one", "0 9 * * *",      "Pacific/Apia",        "2011-12-29T00:00:00Z", vec!["2011-12-29T19:00:00Z", "2011-12-30T19:00:00Z", "2011-12-31T19:00:00Z"]),
    ];
    for (name, cron, zone, after, expected) in cases {
        assert_eq!(next(cron, zone, after, expected.len()), expected, "{name}");
    }
}

#[test]
fn clocks_that_are_set_back_repeat_no_fire_but_those_of_every_hour() {
    // Berlin: 03:00 is followed by 02:00 on 2026-10-25, at 01:00 UTC.
    #[rustfmt::skip]
    let cases = [
        ("in the overlap",        "30 2 * * *",   "Europe/Berlin",       "2026-10-24T12:00:00Z", vec!["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
        ("where it begins",       "0 2 * * *",    "Europe/Berlin",       "2026-10-24T12:00:00Z", vec!["2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z"]),
        ("where it ends",         "0 3 * * *",    "Europe/Berlin",       "2026-10-24T12:00:00Z", vec!["2026-10-25T02:00:00Z", "2026-10-26T02:00:00Z"]),
        ("some hours",            "0 */2 * * *",  "Europe/Berlin",       "2026-10-24T22:30:00Z", vec!["2026-10-25T00:00:00Z", "2026-10-25T03:00:00Z"]),
        ("each hour",             "0 * * * *",    "Europe/Berlin",       "2026-10-24T23:30:00Z", vec!["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"]),
        ("each hour, spelt out",  "0 0-23 * * *", "Europe/Berlin",       "2026-10-24T23:30:00Z", vec!["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"]),
        ("half an hour of it",    "45 1 * * *",   "Australia/Lord_Howe", "2026-04-03T20:00:00Z", vec!["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"]),
        ("asked in the overlap",  "30 2 * * *",   "Europe/Berlin",       "2026-10-25T01:10:00Z", vec!["2026-10-26T01:30:00Z"]),
    ];
    for (name, cron, zone, after, expected) in cases {
        assert_eq!(next(cron, zone, after, expected.len()), expected, "{name}");
    }
}

#[test]
fn zones_with_odd_offsets_are_kept_to_the_second() {
    #[rustfmt::skip]
    let cases = [
        ("five hours and three quarters", "0 9 * * *", "Asia/Kathmandu",  "2026-01-01T00:00:00Z", "2026-01-01T03:15:00Z"),
        ("ahead by more than a day",      "0 0 * * *", "Pacific/Chatham", "2026-01-01T00:00:00Z", "2026-01-01T10:15:00Z"),
        ("seconds",                       "0 9 * * *", "Africa/Monrovia", "1971-01-01T00:00:00Z", "1971-01-01T09:44:30Z"),
    ];
    for (name, cron, zone, after, expected) in cases {
        assert_eq!(next(cron, zone, after, 1), [expected], "{name}");
    }
}

#[test]
fn a_fire_is_shown_as_clocks_there_show_it() {
    #[rustfmt::skip]
    let cases = [
        ("as always",           "30 2 * * *", "2026-01-01T00:00:00Z", "Thu 2026-01-01 02:30 CET",  "+01:00", None),
        ("moved",               "30 2 * * *", "2026-03-29T00:00:00Z", "Sun 2026-03-29 03:30 CEST", "+02:00", Some(ClockChange::Moved)),
        ("not moved",           "30 3 * * *", "2026-03-29T00:00:00Z", "Sun 2026-03-29 03:30 CEST", "+02:00", None),
        ("before the overlap",  "59 1 * * *", "2026-10-24T22:30:00Z", "Sun 2026-10-25 01:59 CEST", "+02:00", None),
        ("once of two",         "0 2 * * *",  "2026-10-24T22:30:00Z", "Sun 2026-10-25 02:00 CEST", "+02:00", Some(ClockChange::Once)),
        ("the first of two",    "0 * * * *",  "2026-10-24T23:30:00Z", "Sun 2026-10-25 02:00 CEST", "+02:00", Some(ClockChange::FirstOfTwo)),
        ("the second of two",   "0 * * * *",  "2026-10-25T00:30:00Z", "Sun 2026-10-25 02:00 CET",  "+01:00", Some(ClockChange::SecondOfTwo)),
        ("after the overlap",   "0 * * * *",  "2026-10-25T01:30:00Z", "Sun 2026-10-25 03:00 CET",  "+01:00", None),
    ];
    for (name, cron, after, local, offset, mark) in cases {
        let schedule = schedule(cron, "Europe/Berlin");
        let shown = schedule.local(schedule.next_after(at(after)).expect("one"));
        assert_eq!(
            (shown.local.as_str(), shown.offset.as_str(), shown.mark),
            (local, offset, mark),
            "{name}"
        );
    }
}

#[test]
fn missed_fires_are_caught_up_as_the_book_says() {
    let hourly = schedule("0 * * * *", "UTC");
    let hours = Duration::from_hours;
    #[rustfmt::skip]
    let cases = [
        ("nothing was missed",         Missed::One,  hours(24), "09:00:00", "09:59:59", "",            0, 0),
        ("on time",                    Missed::None, hours(24), "08:30:00", "09:00:00", "9",           0, 0),
        ("a little late is on time",   Missed::None, hours(24), "08:30:00", "09:01:59", "9",           0, 0),
        ("and then it is missed",      Missed::None, hours(24), "08:30:00", "09:02:00", "",            0, 1),
        ("none",                       Missed::None, hours(24), "05:30:00", "09:30:00", "",            0, 4),
        ("one is the latest",          Missed::One,  hours(24), "05:30:00", "09:30:00", "9",           1, 3),
        ("one on time is enough",      Missed::One,  hours(24), "05:30:00", "09:00:10", "9",           0, 3),
        ("one, but too long ago",      Missed::One,  hours(0),  "05:30:00", "09:30:00", "",            0, 4),
        ("all",                        Missed::All,  hours(24), "05:30:00", "09:30:00", "6 7 8 9",     4, 0),
        ("all, the last one on time",  Missed::All,  hours(24), "05:30:00", "09:00:10", "6 7 8 9",     3, 0),
        ("all of a while",             Missed::All,  hours(2),  "05:30:00", "09:30:00", "8 9",         2, 2),
        ("a clock that was set back",  Missed::All,  hours(24), "09:30:00", "05:30:00", "",            0, 0),
    ];
    for (name, missed, within, since, now, fires, caught_up, lost) in cases {
        let day = |time: &str| at(&format!("2026-01-01T{time}Z"));
        let due = hourly.due(day(since), day(now), CatchUp { missed, within });
        let fires = fires.split_whitespace().map(|hour| day(&format!("{hour:0>2}:00:00"))).collect();
        assert_eq!(due, DueFires { fires, caught_up, lost }, "{name}");
    }
}

#[test]
fn a_long_absence_ends_in_bounds() {
    let every_minute = schedule("* * * * *", "Europe/Berlin");
    let (since, now) = (at("2016-01-01T00:00:00Z"), at("2026-01-01T00:00:30Z"));
    let all = CatchUp { missed: Missed::All, within: limits::DURATION_MAX };
    let due = every_minute.due(since, now, all);
    assert_eq!(due.fires.len(), limits::FIRES_CAUGHT_UP_MAX);
    assert_eq!(due.fires.last(), Some(&at("2026-01-01T00:00:00Z")));
    assert_eq!(due.fires.first(), Some(&at("2025-12-31T07:21:00Z")));
    assert_eq!(due.lost, limits::FIRES_COUNTED_MAX as u64);
    let one = CatchUp { missed: Missed::One, within: limits::DURATION_MAX };
    let yearly = schedule("0 0 29 2 *", "UTC");
    assert_eq!(yearly.due(since, now, one).fires, [at("2024-02-29T00:00:00Z")]);
}

/// Texts that are mostly crons.
fn crons() -> impl Strategy<Value = String> {
    let field = |min: u8, max: u8| {
        let value = min..=max;
        prop_oneof![
            4 => Just("*".to_owned()),
            3 => value.clone().prop_map(|value| value.to_string()),
            1 => (value.clone(), 1..=max).prop_map(|(from, step)| format!("{from}/{step}")),
            1 => (1..=max).prop_map(|step| format!("*/{step}")),
            2 => (value.clone(), value.clone())
                .prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
            1 => prop::collection::vec(value, 1..4)
                .prop_map(|list| list.iter().map(u8::to_string).collect::<Vec<_>>().join(",")),
        ]
    };
    let days = prop_oneof![4 => field(1, 31), 1 => Just("L".to_owned()), 1 => (1_u8..=31).prop_map(|d| format!("{d}W"))];
    let weekdays = prop_oneof![
        4 => field(0, 6),
        1 => (0_u8..=7).prop_map(|day| format!("{day}L")),
        1 => (0_u8..=7, 1_u8..=5).prop_map(|(day, nth)| format!("{day}#{nth}")),
    ];
    (field(0, 59), field(0, 23), days, field(1, 12), weekdays)
        .prop_map(|(minute, hour, day, month, weekday)| format!("{minute} {hour} {day} {month} {weekday}"))
}

const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Chatham",
    "Africa/Casablanca",
    "America/St_Johns",
];

/// Two years from 2025 on, in seconds.
fn seconds() -> impl Strategy<Value = u64> {
    1_735_689_600_u64..1_735_689_600 + 2 * 365 * 24 * 3_600
}

fn from_second(second: u64) -> Timestamp {
    Timestamp::from_millis(second * 1_000)
}

/// The other reader, in UTC; it cannot be asked for `L`, which it forgets in December.
fn judged(text: &str, time: Timestamp) -> bool {
    let mut options = cronexpr::ParseOptions::default();
    options.fallback_timezone_option = cronexpr::FallbackTimezoneOption::UTC;
    let cron = cronexpr::parse_crontab_with(text, options).expect("it reads what we read");
    cron.matches(time.to_string().as_str()).expect("a time")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn fires_are_those_minutes_that_another_reader_finds(text in crons(), second in seconds()) {
        let text = text.replace('L', "");
        let Ok(cron) = CronSchedule::new(&text, "UTC") else { return Ok(()) };
        let start = from_second(second / 60 * 60);
        let minutes: Vec<_> = (1..=3_000).map(|n| start + Duration::from_secs(60 * n)).collect();
        let expected: Vec<_> = minutes.iter().copied().filter(|time| judged(&text, *time)).collect();
        let end = *minutes.last().expect("many");
        prop_assert!(cron.fires_between(start, end).eq(expected), "{}", text);
        // And far away, where a walk would take too long.
        if let Some(next) = cron.next_after(end) {
            prop_assert!(judged(&text, next), "{} at {}", text, next);
        }
    }

    #[test]
    fn fires_strictly_increase_and_may_be_asked_for_from_anywhere(
        text in crons(), zone in prop::sample::select(&ZONES[..]), second in seconds(), ahead in 0_u64..10_000_000,
    ) {
        let Ok(cron) = CronSchedule::new(&text, zone) else { return Ok(()) };
        let start = from_second(second);
        let fires: Vec<_> = cron.fires_after(start).take(50).collect();
        prop_assert!(fires.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", fires);
        prop_assert!(fires.iter().all(|fire| *fire > start));
        let between = start + Duration::from_secs(ahead);
        let next = cron.next_after(between);
        match fires.iter().find(|fire| **fire > between) {
            Some(fire) => prop_assert_eq!(next, Some(*fire)),
            None => prop_assert!(next.is_none_or(|next| fires.last().is_none_or(|last| next > *last))),
        }
    }

    #[test]
    fn every_minute_on_the_wall_fires_once_whatever_clocks_do(
        text in crons(), zone in prop::sample::select(&ZONES[..]), second in seconds(),
    ) {
        let Ok(cron) = CronSchedule::new(&text, zone) else { return Ok(()) };
        let zone = jiff::tz::TimeZoneDatabase::bundled().get(zone).expect("a zone");
        let calendar = CronSchedule::new(&text, "UTC").expect("a zone");
        // Every minute of a calendar, to the instant that clocks show it at, or first, or would have.
        let (start, days) = (from_second(second / 86_400 * 86_400), 20_u64);
        let span = Duration::from_secs(days * 86_400);
        let instants: BTreeSet<Timestamp> = calendar
            .fires_between(start, start + span)
            .map(|minute| {
                let civil = jiff::Timestamp::from_nanosecond(i128::from(minute.as_nanos())).expect("in range");
                let civil = jiff::tz::TimeZone::UTC.to_datetime(civil);
                let instant = zone.to_ambiguous_timestamp(civil).compatible().expect("in range");
                Timestamp::from_nanos(u64::try_from(instant.as_nanosecond()).expect("after 1970"))
            })
            .collect();
        let day = Duration::from_secs(2 * 86_400);
        let within = |fire: &Timestamp| *fire > start + day && *fire <= start + span - day;
        let fires: BTreeSet<Timestamp> = cron.fires_between(start, start + span).filter(within).collect();
        let instants: BTreeSet<Timestamp> = instants.into_iter().filter(within).collect();
        if cron.cron.is_of_every_hour() {
            prop_assert!(instants.is_subset(&fires));
        } else {
            prop_assert_eq!(fires, instants, "{}", text);
        }
    }

    #[test]
    fn no_restart_loses_or_repeats_a_fire(
        text in crons(),
        zone in prop::sample::select(&ZONES[..]),
        second in seconds(),
        spans in prop::collection::vec(1_u64..100_000, 1..20),
        missed in prop::sample::select(&[Missed::None, Missed::One, Missed::All][..]),
        within_hours in 0_u64..48,
    ) {
        let Ok(cron) = CronSchedule::new(&text, zone) else { return Ok(()) };
        let catch_up = CatchUp { missed, within: Duration::from_hours(within_hours) };
        let start = from_second(second);
        let (mut since, mut fires, mut lost) = (start, Vec::new(), 0);
        for span in spans {
            let now = since + Duration::from_secs(span);
            let due = cron.due(since, now, catch_up);
            prop_assert!(due.fires.iter().all(|fire| *fire > since && *fire <= now));
            prop_assert!(due.caught_up <= due.fires.len() as u64);
            fires.extend(due.fires);
            lost += due.lost;
            since = now;
        }
        prop_assert!(fires.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", fires);
        let all: Vec<_> = cron.fires_between(start, since).collect();
        prop_assert!(fires.iter().all(|fire| all.contains(fire)));
        prop_assert_eq!(fires.len() as u64 + lost, all.len() as u64, "{}", text);
    }
}
