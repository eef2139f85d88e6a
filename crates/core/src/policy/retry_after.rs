//! Reads `Retry-After`: seconds, or a date in any of the three forms of HTTP; and `retry-after-ms`, which APIs of
//! language models send beside it.
//!
//! Invariants: no header makes it panic, and no result is longer than [`limits::RETRY_AFTER_MAX`]. An
//! unreadable header is ignored; a date in the past asks for no wait.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::fmt::rfc2822;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;

use crate::limits;
use crate::time::Timestamp;

#[must_use]
pub fn parse(header: &str, now: Timestamp) -> Option<Duration> {
    let header = header.trim_matches([' ', '\t']);
    let asked_for = match seconds(header) {
        Some(seconds) => Duration::from_secs(seconds),
        None => date(header, now)?.since(now),
    };
    Some(asked_for.min(limits::RETRY_AFTER_MAX))
}

/// Milliseconds, with or without a fraction.
#[must_use]
pub fn parse_millis(header: &str) -> Option<Duration> {
    let header = header.trim_matches([' ', '\t']);
    let (whole, fraction) = header.split_once('.').unwrap_or((header, "0"));
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let millis: u64 = whole.parse().unwrap_or(u64::MAX);
    let rounded = millis.saturating_add(u64::from(fraction.bytes().any(|byte| byte != b'0')));
    Some(Duration::from_millis(rounded).min(limits::RETRY_AFTER_MAX))
}

/// Of two headers the longer wait, unless the seconds are the milliseconds rounded up.
#[must_use]
pub fn combined(seconds: Option<Duration>, millis: Option<Duration>) -> Option<Duration> {
    match (seconds, millis) {
        (Some(seconds), Some(millis)) => {
            let is_rounded = seconds >= millis && seconds < millis + Duration::from_secs(1);
            Some(if is_rounded { millis } else { seconds.max(millis) })
        }
        (one, other) => one.or(other),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whole seconds; a fraction, which is not standard but occurs, rounds up.
fn seconds(header: &str) -> Option<u64> {
    let (whole, fraction) = header.split_once('.').unwrap_or((header, "0"));
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    // Digits that do not fit are far above the longest wait.
    let whole: u64 = whole.parse().unwrap_or(u64::MAX);
    Some(whole.saturating_add(u64::from(fraction.bytes().any(|b| b != b'0'))))
}

/// The weekday is ignored: it adds nothing, and servers get it wrong.
fn date(header: &str, now: Timestamp) -> Option<Timestamp> {
    with_offset(header).or_else(|| {
        let date = imf_fixdate(header).or_else(|| rfc_850(header, now)).or_else(|| asctime(header))?;
        // jiff reads negative years, which HTTP does not have.
        let date = Some(date).filter(|date| date.year() >= 0)?;
        // The last hours of the year 9999 are a date there but no point in time: treat them as "never".
        Some(date.to_zoned(TimeZone::UTC).map_or(Timestamp::NEVER, |zoned| nearest(zoned.timestamp())))
    })
}

/// `Sun, 06 Nov 1994 09:49:37 +0100`, which is mail's form and not HTTP's, but occurs.
fn with_offset(header: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(header).ok().map(nearest)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(header: &str) -> Option<DateTime> {
    let (_weekday, date) = header.split_once(", ")?;
    BrokenDownTime::parse("%d %b %Y %H:%M:%S GMT", date).ok()?.to_datetime().ok()
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc_850(header: &str, now: Timestamp) -> Option<DateTime> {
    let (_weekday, date) = header.split_once(", ")?;
    let mut parts = BrokenDownTime::parse("%d-%b-%y %H:%M:%S GMT", date).ok()?;
    // Two digits mean the year that lies at most 50 years ahead (RFC 9110, 5.6.7).
    let this_year = jiff::Timestamp::from_nanosecond(i128::from(now.as_nanos()))
        .expect("2554 is before the year 9999, where that library ends")
        .to_zoned(TimeZone::UTC)
        .year();
    let earliest = this_year - 49;
    let year = earliest + (parts.year()? - earliest).rem_euclid(100);
    parts.set_year(Some(year)).ok()?;
    parts.to_datetime().ok()
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(header: &str) -> Option<DateTime> {
    let (_weekday, date) = header.split_once(' ')?;
    BrokenDownTime::parse("%b %e %H:%M:%S %Y", date).ok()?.to_datetime().ok()
}

fn nearest(time: jiff::Timestamp) -> Timestamp {
    let since_1970 = time.as_nanosecond().max(0);
    u64::try_from(since_1970).map_or(Timestamp::NEVER, Timestamp::from_nanos)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn every_form_is_read() {
        let now = at("1994-11-06T08:49:00Z");
        let s = Duration::from_secs;
        #[rustfmt::skip]
        let cases = [
            ("seconds",                       "120",                             Some(s(120))),
            ("no seconds",                    "0",                               Some(s(0))),
            ("spaces around",                 " 5\t",                            Some(s(5))),
            ("leading zeros",                 "007",                             Some(s(7))),
            ("a fraction rounds up",          "1.25",                            Some(s(2))),
            ("a fraction of nothing",         "3.00",                            Some(s(3))),
            ("the longest wait",              "86400",                           Some(s(86_400))),
            ("a longer one is cut",           "86401",                           Some(s(86_400))),
            ("more than fits a number",       "99999999999999999999999999",      Some(s(86_400))),
            ("a fraction at the very end",    "18446744073709551615.5",          Some(s(86_400))),
            ("a date",                        "Sun, 06 Nov 1994 08:49:37 GMT",   Some(s(37))),
            ("a date in the old form",        "Sunday, 06-Nov-94 08:49:37 GMT",  Some(s(37))),
            ("a date in C's form",            "Sun Nov  6 08:49:37 1994",        Some(s(37))),
            ("C's form, a day of two digits", "Sun Nov 06 08:49:37 1994",        Some(s(37))),
            ("a wrong weekday",               "Mon, 06 Nov 1994 08:49:37 GMT",   Some(s(37))),
            ("a wrong weekday, old form",     "Monday, 06-Nov-94 08:49:37 GMT",  Some(s(37))),
            ("a date with an offset",         "Sun, 06 Nov 1994 09:49:37 +0100", Some(s(37))),
            ("a date that has passed",        "Sun, 06 Nov 1994 08:48:59 GMT",   Some(s(0))),
            ("a date long past",              "Thu, 01 Jan 1900 00:00:00 GMT",   Some(s(0))),
            ("a date far ahead is cut",       "Sun, 06 Nov 2094 08:49:37 GMT",   Some(s(86_400))),
            ("a date past our last one",      "Fri, 31 Dec 9999 23:59:59 GMT",   Some(s(86_400))),
            ("C's form, past our last date",  "Fri Dec 31 23:59:59 9999",        Some(s(86_400))),
            ("a year before Christ",          "Fri Dec 31 23:59:59 -9999",       None),
            ("two digits, ahead",             "Sunday, 06-Nov-44 08:49:37 GMT",  Some(s(86_400))),
            ("two digits, behind",            "Sunday, 06-Nov-45 08:49:37 GMT",  Some(s(0))),
            ("nothing",                       "",                                None),
            ("a negative number",             "-5",                              None),
            ("a plus",                        "+5",                              None),
            ("a unit",                        "5s",                              None),
            ("half a fraction",               "5.",                              None),
            ("a word",                        "soon",                            None),
            ("digits of another script",      "５",                              None),
            ("no such day",                   "Sun, 31 Feb 1994 08:49:37 GMT",   None),
            ("no such hour",                  "Sunday, 06-Nov-94 25:49:37 GMT",  None),
            ("an ISO date",                   "1994-11-06T08:49:37Z",            None),
        ];
        for (name, header, expected) in cases {
            assert_eq!(parse(header, now), expected, "{name}");
        }
    }

    #[test]
    fn milliseconds_are_read_and_combined() {
        let ms = |ms| Some(Duration::from_millis(ms));
        #[rustfmt::skip]
        let cases = [
            ("1500",      ms(1_500)),
            (" 20.5 ",    ms(21)),
            ("0",         ms(0)),
            ("99999999999999999999", Some(limits::RETRY_AFTER_MAX)),
            ("",          None),
            ("-5",        None),
            ("1s",        None),
        ];
        for (header, expected) in cases {
            assert_eq!(parse_millis(header), expected, "{header}");
        }
        #[rustfmt::skip]
        let cases = [
            ("neither",                  None,        None,       None),
            ("seconds",                  ms(2_000),   None,       ms(2_000)),
            ("milliseconds",             None,        ms(1_500),  ms(1_500)),
            ("both, rounded up",         ms(2_000),   ms(1_500),  ms(1_500)),
            ("more seconds",             ms(60_000),  ms(1_500),  ms(60_000)),
            ("more milliseconds",        ms(1_000),   ms(1_500),  ms(1_500)),
        ];
        for (name, seconds, millis, expected) in cases {
            assert_eq!(combined(seconds, millis), expected, "{name}");
        }
    }

    #[test]
    fn two_digit_years_turn_with_the_century() {
        let soon = Some(Duration::from_mins(1));
        assert_eq!(parse("Friday, 01-Jan-00 00:00:00 GMT", at("2099-12-31T23:59:00Z")), soon);
        assert_eq!(parse("Wednesday, 01-Jan-70 00:00:00 GMT", at("2069-12-31T23:59:00Z")), soon);
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic_or_wait_too_long(
            header in prop_oneof![
                any::<String>(),
                "[0-9.+-]{0,30}",
                "(Sun|Sunday|Xyz)?,? ?[0-9]{0,3}[ -](Nov|nov|Feb|[a-z]{3})[ -][0-9]{0,5} [0-9]{1,2}:[0-9]{1,3}:[0-9]{2}( GMT| [+-][0-9]{4})?",
                "[A-Z][a-z]{2} (Nov|Feb) {0,2}[0-9]{1,2} [0-9]{2}:[0-9]{2}:[0-9]{2} -?[0-9]{1,6}",
            ],
            now in any::<u64>(),
        ) {
            if let Some(wait) = parse(&header, Timestamp::from_nanos(now)) {
                prop_assert!(wait <= limits::RETRY_AFTER_MAX);
            }
        }

        #[test]
        fn all_three_forms_of_a_date_mean_the_same(now_s in 0_u64..18_000_000_000, ahead_s in 0_u64..86_400) {
            let now = Timestamp::from_millis(now_s * 1_000);
            let then = jiff::Timestamp::from_second(i64::try_from(now_s + ahead_s).expect("fits")).expect("fits");
            for form in ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%C GMT", "%a %b %e %H:%M:%S %Y"] {
                let year = then.to_zoned(TimeZone::UTC).year().rem_euclid(100);
                let form = form.replace("%C", &format!("{year:02} %H:%M:%S"));
                let header = then.strftime(&form).to_string();
                prop_assert_eq!(parse(&header, now), Some(Duration::from_secs(ahead_s)), "{}", header);
            }
        }
    }
}
