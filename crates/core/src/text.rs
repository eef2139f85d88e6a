//! Durations, sizes, rates and shares as people write them: `30s`, `25MiB`, `20/s`, `50%`.
//!
//! A number without its unit is refused everywhere.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::limits;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuantity {
    #[error("`{text}` has no unit: write `{text}s` or `{text}ms`")]
    NoTimeUnit { text: String },
    #[error(
        "`{text}` is not a duration: write a number and a unit, such as 500ms, 30s, 5m, 24h, 7d or 1h30m"
    )]
    NoDuration { text: String },
    #[error("`{text}` is an ISO 8601 duration: write {}", example.as_deref().unwrap_or("a number and a unit, such as 10s or 1h30m"))]
    IsoDuration {
        text: String,
        /// The same as a rule book writes it, if it has no years or months.
        example: Option<String>,
    },
    #[error("`{text}` is longer than ten years")]
    TooLong { text: String },
    #[error("`{text}` has no unit: write `{text}B`, `{text}KiB` or `{text}MiB`")]
    NoSizeUnit { text: String },
    /// `MB` is 1000 × 1000 to some and 1024 × 1024 to others.
    #[error("`{text}` is ambiguous: write `{number}{unit}` for 1024s")]
    AmbiguousSize { text: String, number: String, unit: &'static str },
    #[error("`{text}` is not a size: write a whole number and a unit, such as 512B, 64KiB, 25MiB or 1GiB")]
    NoSize { text: String },
    #[error(
        "`{text}` is not a rate: write a number above 0 per second, minute or hour, such as 20/s, 10/m or 100/h"
    )]
    NoRate { text: String },
    #[error("`{text}` is not a share: write a percentage between 0% and 100%, such as 50%")]
    NoShare { text: String },
}

const NANOS: [(&str, u64); 5] = [
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
    ("d", 86_400 * 1_000_000_000),
];

/// Such as `30s`, `1.5s` or `1h30m`.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidQuantity> {
    let wrong = || InvalidQuantity::NoDuration { text: text.to_owned() };
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(InvalidQuantity::NoTimeUnit { text: text.to_owned() });
    }
    if is_iso_duration(text) {
        let example = plain_duration(&text[1..]);
        return Err(InvalidQuantity::IsoDuration { text: text.to_owned(), example });
    }
    let mut rest = text;
    let mut total_nanos: f64 = 0.0;
    let mut last_unit_nanos = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        let (_, unit_nanos) = NANOS.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        // `30m1h` or `5s5s` is a typo, not a sum.
        if unit_nanos >= last_unit_nanos || number.starts_with('.') || number.ends_with('.') {
            return Err(wrong());
        }
        last_unit_nanos = unit_nanos;
        total_nanos += number.parse::<f64>().map_err(|_| wrong())? * unit_nanos as f64;
        rest = tail;
    }
    if last_unit_nanos == u64::MAX {
        return Err(wrong());
    }
    if total_nanos > limits::DURATION_MAX.as_nanos() as f64 {
        return Err(InvalidQuantity::TooLong { text: text.to_owned() });
    }
    // Ten years are 3 × 10^17 ns: beyond what f64 holds exactly, but every unit sum below a month is exact.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded just above")]
    Ok(Duration::from_nanos(total_nanos.round() as u64))
}

/// Such as `PT10S` or `P1DT2H`.
#[must_use]
pub fn is_iso_duration(text: &str) -> bool {
    let Some(parts) = text.strip_prefix(['P', 'p']) else { return false };
    let is_part =
        |c: char| c.is_ascii_digit() || matches!(c, '.' | ',') || "ymwdths".contains(c.to_ascii_lowercase());
    parts.trim_start_matches(['T', 't']).starts_with(|c: char| c.is_ascii_digit())
        && parts.chars().all(is_part)
}

/// The part behind the `P` of an ISO 8601 duration, as [`parse_duration`] reads it.
fn plain_duration(iso: &str) -> Option<String> {
    let (days, time) = iso.split_once(['T', 't']).unwrap_or((iso, ""));
    let is_days = days.is_empty() || days.ends_with(['D', 'd']);
    let plain = format!("{days}{time}").to_ascii_lowercase();
    let is_number = plain.starts_with(|c: char| c.is_ascii_digit());
    (is_days && is_number && parse_duration(&plain).is_ok()).then_some(plain)
}

/// As [`parse_duration`] reads it, in the largest units that are exact; below a millisecond as a fraction of
/// one.
#[must_use]
pub fn show_duration(span: Duration) -> String {
    if span.is_zero() {
        return "0s".to_owned();
    }
    let mut nanos = span.as_nanos();
    let mut shown = String::new();
    for (unit, unit_nanos) in NANOS.into_iter().rev() {
        let unit_nanos = u128::from(unit_nanos);
        let (count, rest) = (nanos / unit_nanos, nanos % unit_nanos);
        // `100s` and `36h` read better than `1m40s` and `1d12h`; from ten minutes or two days on they do not.
        let skip = rest != 0 && (unit == "m" && span < Duration::from_secs(600) || unit == "d" && count < 2);
        if count > 0 && !skip && unit != "ms" {
            shown.push_str(&count.to_string());
            shown.push_str(unit);
            nanos = rest;
        }
    }
    if nanos > 0 {
        let (millis, fraction) = (nanos / 1_000_000, nanos % 1_000_000);
        let fraction = format!(".{fraction:06}");
        let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
        shown.push_str(&format!("{millis}{fraction}ms"));
    }
    shown
}

/// For measured durations: milliseconds below a second, whole seconds above, and from two minutes on minutes
/// and seconds.
#[must_use]
pub fn show_rounded(span: Duration) -> String {
    let millis = span.as_millis() + u128::from(span.subsec_micros() % 1_000 >= 500);
    let rounded = if millis < 1_000 { millis } else { (millis + 500) / 1_000 * 1_000 };
    match (rounded / 60_000, rounded / 1_000 % 60) {
        (minutes @ 2..10, seconds @ 1..) => format!("{minutes}m{seconds}s"),
        _ => show_duration(Duration::from_millis(u64::try_from(rounded).unwrap_or(u64::MAX))),
    }
}

/// For measured durations that are compared: as [`show_rounded`], but to hundredths of a second below ten
/// seconds.
#[must_use]
pub fn show_measured(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    match millis {
        1_000..10_000 => show_duration(Duration::from_millis((millis + 5) / 10 * 10)),
        _ => show_rounded(span),
    }
}

/// `12,480`
#[must_use]
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// `1 delivery`, `2 deliveries`, `12,480 calls`.
#[must_use]
pub fn counted(count: u64, word: &str) -> String {
    let shown = show_count(count);
    match word.strip_suffix('y') {
        _ if count == 1 => format!("{shown} {word}"),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{shown} {stem}ies"),
        Some(_) | None => format!("{shown} {word}s"),
    }
}

/// Puts a sentence that begins with `deliveries have …` into the singular for one: `delivery has …`.
#[must_use]
pub fn of_deliveries(count: u64, sentence: &str) -> String {
    const VERBS: [(&str, &str); 6] = [
        ("have", "has"),
        ("are", "is"),
        ("were", "was"),
        ("go", "goes"),
        ("wait", "waits"),
        ("share", "shares"),
    ];
    let Some(rest) = sentence.strip_prefix("deliveries ").filter(|_| count == 1) else {
        return sentence.to_owned();
    };
    let (verb, after) = rest.split_once(' ').unwrap_or((rest, ""));
    let verb = VERBS.iter().find(|(many, _)| *many == verb).map_or(verb, |(_, one)| one);
    format!("delivery {verb} {after}")
}

/// A number per second: `0.4`, `9.5`, `40`, `1,204`. Tenths are shown below ten only.
#[must_use]
pub fn show_per_second(count: f64) -> String {
    let tenths = (count * 10.0).round();
    if count > 0.0 && tenths < 1.0 {
        return "less than 0.1".to_owned();
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are not negative")]
    let whole = |number: f64| number.round() as u64;
    match whole(tenths) {
        tenths @ ..100 if tenths % 10 > 0 => format!("{}.{}", tenths / 10, tenths % 10),
        _ => show_count(whole(count)),
    }
}

pub fn parse_size(text: &str) -> Result<u64, InvalidQuantity> {
    let wrong = || InvalidQuantity::NoSize { text: text.to_owned() };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if !number.is_empty() && unit.is_empty() {
        return Err(InvalidQuantity::NoSizeUnit { text: text.to_owned() });
    }
    let ambiguous =
        |unit| InvalidQuantity::AmbiguousSize { text: text.to_owned(), number: number.to_owned(), unit };
    let factor: u64 = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "K" | "k" | "KB" | "kB" | "kb" => return Err(ambiguous("KiB")),
        "M" | "m" | "MB" | "mb" | "Mb" => return Err(ambiguous("MiB")),
        "G" | "g" | "GB" | "gb" | "Gb" => return Err(ambiguous("GiB")),
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(wrong)
}

/// As [`parse_size`] reads it, in the largest unit that is exact.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let whole = units.into_iter().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    let (unit, factor) = whole.unwrap_or(("B", 1_u64));
    format!("{}{unit}", bytes / factor)
}

#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    #[must_use]
    pub fn per_second(count: f64) -> Option<Self> {
        (count.is_finite() && count > 0.0).then_some(Self(count))
    }

    #[must_use]
    pub const fn as_per_second(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("s", 1.0), ("m", 60.0), ("h", 3_600.0)];
        let whole = units.into_iter().find(|(_, seconds)| {
            let count = self.0 * seconds;
            (count - count.round()).abs() < 1e-9 * count
        });
        match whole {
            Some((unit, seconds)) => write!(f, "{}/{unit}", (self.0 * seconds).round()),
            None => write!(f, "{:.3}/s", self.0),
        }
    }
}

pub fn parse_rate(text: &str) -> Result<Rate, InvalidQuantity> {
    let wrong = || InvalidQuantity::NoRate { text: text.to_owned() };
    let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
    let seconds = match unit.trim() {
        "s" | "sec" | "second" => 1.0,
        "m" | "min" | "minute" => 60.0,
        "h" | "hour" => 3_600.0,
        _ => return Err(wrong()),
    };
    let count: f64 = count.trim().parse().map_err(|_| wrong())?;
    Rate::per_second(count / seconds).ok_or_else(wrong)
}

/// From 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    pub const NONE: Self = Self(0.0);
    pub const ALL: Self = Self(1.0);

    /// `None` if it is outside 0 to 1.
    #[must_use]
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }

    /// At most 100.
    #[must_use]
    pub const fn percent(percent: u8) -> Self {
        if percent >= 100 { Self::ALL } else { Self(percent as f64 / 100.0) }
    }

    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        // Shares are read from percentages, so anything below a thousandth of one is rounding.
        write!(f, "{}%", (percent * 1_000.0).round() / 1_000.0)
    }
}

pub fn parse_share(text: &str) -> Result<Share, InvalidQuantity> {
    let wrong = || InvalidQuantity::NoShare { text: text.to_owned() };
    let number = text.strip_suffix('%').ok_or_else(wrong)?;
    let percent: f64 = number.trim().parse().map_err(|_| wrong())?;
    Share::new(percent / 100.0).ok_or_else(wrong)
}

/// Masks passwords in URLs, such as `https://ann:******@example.com`: one star for each byte, so that no
/// position moves.
#[must_use]
pub fn hide_passwords(text: &str) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(text);
    for (scheme, _) in text.match_indices("://") {
        let start = scheme + "://".len();
        let is_end = |c: char| matches!(c, '/' | '?' | '#' | '"' | '\'' | ',') || c.is_whitespace();
        let authority = &text[start..text[start..].find(is_end).map_or(text.len(), |length| start + length)];
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        let Some((name, password)) = user.and_then(|user| user.split_once(':')) else { continue };
        let from = start + name.len() + ":".len();
        shown.to_mut().replace_range(from..from + password.len(), &"*".repeat(password.len()));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_told_in_the_plural() {
        #[rustfmt::skip]
        let cases = [
            (1, "delivery", "1 delivery"), (2, "delivery", "2 deliveries"), (1, "retry", "1 retry"), (0, "retry", "0 retries"),
            (3, "replay", "3 replays"), (12_480, "call", "12,480 calls"),
        ];
        for (count, word, expected) in cases {
            assert_eq!(counted(count, word), expected);
        }
        assert_eq!(of_deliveries(1, "deliveries have another breaker"), "delivery has another breaker");
        assert_eq!(
            of_deliveries(1, "deliveries failed while others did not"),
            "delivery failed while others did not"
        );
        assert_eq!(of_deliveries(2, "deliveries have another breaker"), "deliveries have another breaker");
    }

    #[test]
    fn what_is_compared_is_told_to_hundredths_of_a_second() {
        for (millis, expected) in
            [(1_180, "1s180ms"), (1_184, "1s180ms"), (999, "999ms"), (12_400, "12s"), (9_996, "10s")]
        {
            assert_eq!(show_measured(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn durations_are_read_and_shown() {
        #[rustfmt::skip]
        let cases = [
            ("milliseconds",       "500ms",   Duration::from_millis(500),    "500ms"),
            ("seconds",            "30s",     Duration::from_secs(30),       "30s"),
            ("two minutes",        "120s",    Duration::from_mins(2),        "2m"),
            ("under ten minutes",  "100s",    Duration::from_secs(100),      "100s"),
            ("minutes",            "30m",     Duration::from_mins(30),       "30m"),
            ("a day",              "24h",     Duration::from_hours(24),      "1d"),
            ("days",               "7d",      Duration::from_hours(168),     "7d"),
            ("a sum",              "1h30m",   Duration::from_mins(90),       "1h30m"),
            ("a fraction",         "1.6s",    Duration::from_millis(1_600),  "1s600ms"),
            ("nothing at all",     "0s",      Duration::ZERO,                "0s"),
            ("below a millisecond", "0.5ms",  Duration::from_micros(500),    "0.5ms"),
            ("and above",          "1.5ms",   Duration::from_micros(1_500),  "1.5ms"),
            ("to the nanosecond",  "1s0.000001ms", Duration::from_nanos(1_000_000_001), "1s0.000001ms"),
            ("a day and a half",   "36h",     Duration::from_secs(129_600),  "36h"),
        ];
        for (name, text, span, shown) in cases {
            assert_eq!(parse_duration(text), Ok(span), "{name}");
            assert_eq!(show_duration(span), shown, "{name}");
            assert_eq!(parse_duration(shown), Ok(span), "{name} shown");
        }
    }

    #[test]
    fn what_was_measured_is_shown_as_people_read_it() {
        #[rustfmt::skip]
        let cases = [
            ("no time",           0,                  "0s"),
            ("hardly any",        400_000,            "0s"),
            ("milliseconds",      107_587_757,        "108ms"),
            ("nearly a second",   999_600_000,        "1s"),
            ("seconds",           11_213_844_504,     "11s"),
            ("below two minutes", 119_400_000_000,    "119s"),
            ("two minutes",       119_600_000_000,    "2m"),
            ("minutes and more",  403_200_000_000,    "6m43s"),
            ("whole minutes",     240_000_000_000,    "4m"),
            ("ten of them",       599_700_000_000,    "10m"),
            ("and on",            602_000_000_000,    "10m2s"),
            ("minutes",           1_800_400_000_000,  "30m"),
            ("hours",             5_402_000_000_000,  "1h30m2s"),
        ];
        for (name, nanos, expected) in cases {
            assert_eq!(show_rounded(Duration::from_nanos(nanos)), expected, "{name}");
        }
    }

    #[test]
    fn counts_are_shown_in_groups_of_three() {
        let cases = [(0, "0"), (999, "999"), (1_000, "1,000"), (12_480, "12,480"), (1_000_000, "1,000,000")];
        for (count, expected) in cases {
            assert_eq!(show_count(count), expected);
        }
    }

    #[test]
    fn rates_have_a_fraction_only_where_it_matters() {
        #[rustfmt::skip]
        let cases = [
            (0.0, "0"), (0.004, "less than 0.1"), (0.05, "0.1"), (0.44, "0.4"), (1.0, "1"), (9.94, "9.9"), (9.96, "10"),
            (10.4, "10"), (44.0, "44"), (1_203.6, "1,204"),
        ];
        for (count, expected) in cases {
            assert_eq!(show_per_second(count), expected, "{count}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "s",
            "5x",
            "-5s",
            "5s5s",
            "30m1h",
            "5 s",
            ".5s",
            "5.s",
            "1e3s",
            "ms",
            "５s",
            "PP",
            "P",
            "PT",
            "Patient",
            "permanent",
        ] {
            assert!(matches!(parse_duration(text), Err(InvalidQuantity::NoDuration { .. })), "{text:?}");
        }
        assert!(matches!(parse_duration("30"), Err(InvalidQuantity::NoTimeUnit { .. })));
        #[rustfmt::skip]
        let iso = [
            ("PT10S",            "`PT10S` is an ISO 8601 duration: write 10s"),
            ("P1DT2H",           "`P1DT2H` is an ISO 8601 duration: write 1d2h"),
            ("P3M",              "`P3M` is an ISO 8601 duration: write a number and a unit, such as 10s or 1h30m"),
            ("pt1.5h",           "`pt1.5h` is an ISO 8601 duration: write 1.5h"),
        ];
        for (text, message) in iso {
            assert_eq!(parse_duration(text).map_err(|error| error.to_string()), Err(message.to_owned()));
        }
        assert!(matches!(parse_duration("99999d"), Err(InvalidQuantity::TooLong { .. })));
        assert!(matches!(parse_duration(&"9".repeat(400)), Err(InvalidQuantity::NoTimeUnit { .. })));
    }

    #[test]
    fn sizes_rates_and_shares_are_read() {
        assert_eq!(parse_size("25MiB"), Ok(25 << 20));
        for text in ["0B", "1B", "1023B", "1KiB", "1536KiB", "25MiB", "64GiB"] {
            assert_eq!(parse_size(text).map(show_size).as_deref(), Ok(text), "shown as it is written");
        }
        assert!(matches!(parse_size("25MB"), Err(InvalidQuantity::AmbiguousSize { unit: "MiB", .. })));
        assert!(matches!(parse_size("25"), Err(InvalidQuantity::NoSizeUnit { .. })));
        assert!(matches!(parse_size("99999999999GiB"), Err(InvalidQuantity::NoSize { .. })));
        assert_eq!(parse_rate("20/s").map(Rate::as_per_second), Ok(20.0));
        assert_eq!(parse_rate("10/m").map(|rate| rate.to_string()), Ok("10/m".to_owned()));
        for text in ["20", "0/s", "-1/s", "x/s", "1/d", "NaN/s", "inf/s"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        assert_eq!(parse_share("50%").map(|share| share.to_string()), Ok("50%".to_owned()));
        for text in ["50", "101%", "-1%", "%", "NaN%"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn passwords_in_addresses_are_hidden_and_nothing_moves() {
        #[rustfmt::skip]
        let cases = [
            ("http://ann:hunter2@a.test/x",                "http://ann:*******@a.test/x"),
            ("s: { http: \"http://ann:a@b@c.test\" }",     "s: { http: \"http://ann:***@c.test\" }"),
            ("[smtp://:pw@a.test, redis://b:ü@b.test:1]",  "[smtp://:**@a.test, redis://b:**@b.test:1]"),
            ("http://ann@a.test/b:c@d",                    "http://ann@a.test/b:c@d"),
            ("http://a.test:80/?x=ann:pw@b",               "http://a.test:80/?x=ann:pw@b"),
            ("http://ann:@a.test :// x://",                "http://ann:@a.test :// x://"),
            ("time: 12:30 @ noon",                         "time: 12:30 @ noon"),
        ];
        for (text, expected) in cases {
            let shown = hide_passwords(text);
            assert_eq!((&*shown, shown.len()), (expected, text.len()), "{text}");
        }
    }
}
