//! Fingerprints: a hash that failures of one cause share, so that 10,000 dead letters read as three causes.
//!
//! A message is normalised before it is hashed: variable parts (numbers, ids, addresses, times) become
//! placeholders, and the words stay. Digits within a word go too (`s3` becomes `s<n>`): two causes that
//! differ only in a digit are rare, and their codes differ, while a remaining number would make a cause of
//! every failure.
//!
//! Invariants: fingerprints are stored, so neither the rules nor the hash may change; a test pins them. A
//! normalised message has no digit left and normalises to itself: nearly every rule requires a digit, and the
//! two that do not (mail addresses, URL queries) do not match their own placeholders. The text is read once;
//! every rule looks ahead a bounded number of bytes, or consumes what it looked at.

use std::fmt;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use crate::event::idempotency;
use crate::ids::ServiceName;
use crate::policy::category::{Category, FailureCode};
use crate::{hash, limits};

/// Only half of what is examined: a message that was cut a few bytes earlier or later must have the same
/// fingerprint.
const NORMALISED_BYTES_MAX: usize = limits::MESSAGE_BYTES_MAX / 2;

/// From this length on a random word is an id; a shorter one, often all digits, is a number.
const ID_BYTES_MIN: usize = 16;
const HEX_BYTES_MIN: usize = 6;
const LOCAL_PART_BYTES_MAX: usize = 64;
const DOMAIN_BYTES_MAX: usize = 255;
const IPV6_BYTES_MAX: usize = 45;

const NUMBER: &str = "<n>";
const ID: &str = "<id>";
const ADDRESS: &str = "<addr>";
const TIME: &str = "<time>";
const QUERY: &str = "<query>";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    #[must_use]
    pub fn of(service: &ServiceName, category: Category, code: &FailureCode, message: &str) -> Self {
        let message = normalise(message);
        let parts = ["fingerprint", service.as_str(), category.as_str(), code.as_str(), &message];
        let hash = hash::stable_128(&idempotency::framed(&parts));
        Self((hash >> 64) as u64)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a fingerprint: expected 16 hexadecimal digits")]
pub struct InvalidFingerprint {
    text: String,
}

impl std::str::FromStr for Fingerprint {
    type Err = InvalidFingerprint;

    fn from_str(text: &str) -> Result<Self, InvalidFingerprint> {
        let invalid = || InvalidFingerprint { text: text.to_owned() };
        if text.len() != 16 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| invalid())
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The message with its variable parts replaced and its white space folded.
#[must_use]
pub fn normalise(message: &str) -> String {
    let text = head(message, limits::MESSAGE_BYTES_MAX);
    let mut normal = String::new();
    let mut gap = "";
    let mut place = TextContext::Text;
    let mut at = 0;
    while at < text.len() {
        let MessageToken { length, shown } = token_at(text, at, place);
        let piece = &text[at..at + length];
        place = place.after(piece);
        at += length;
        let room = NORMALISED_BYTES_MAX.saturating_sub(normal.len() + gap.len());
        let fitting = match shown {
            TokenForm::Gap => {
                gap = if normal.is_empty() { "" } else { " " };
                continue;
            }
            TokenForm::Plain => head(piece, room),
            TokenForm::As(placeholder) if placeholder.len() <= room => placeholder,
            // Half a placeholder would be a word.
            TokenForm::As(_) => "",
        };
        if fitting.is_empty() {
            break;
        }
        normal.push_str(std::mem::take(&mut gap));
        normal.push_str(fitting);
    }
    normal
}

struct MessageToken {
    length: usize,
    shown: TokenForm,
}

enum TokenForm {
    Gap,
    Plain,
    As(&'static str),
}

/// Whether a `?` starts a query or ends a question.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextContext {
    Text,
    Url,
}

impl TextContext {
    fn after(self, piece: &str) -> Self {
        match piece {
            "://" => Self::Url,
            _ if piece.starts_with(ends_url) => Self::Text,
            _ => self,
        }
    }
}

fn is_gap(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

/// Square brackets do not: they surround IPv6 addresses and occur in queries.
fn ends_url(c: char) -> bool {
    is_gap(c) || matches!(c, '"' | '\'' | '`' | '<' | '>' | '(' | ')')
}

fn token_at(text: &str, at: usize, place: TextContext) -> MessageToken {
    let rest = &text[at..];
    let first = rest.chars().next().expect("not called at the end");
    let before = at.checked_sub(1).map(|before| text.as_bytes()[before]);
    if is_gap(first) {
        return MessageToken { length: prefix_length(rest, is_gap), shown: TokenForm::Gap };
    }
    if place == TextContext::Url && before == Some(b'?') && !ends_url(first) {
        return MessageToken { length: prefix_length(rest, |c| !ends_url(c)), shown: TokenForm::As(QUERY) };
    }
    if let Some(length) = mail_length(rest) {
        return MessageToken { length, shown: TokenForm::As(ADDRESS) };
    }
    // `8s` is a duration and `::1` an address, but not in `k8s` and `Queue::1`.
    let starts_word = !before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b':' && first == ':');
    if let Some(token) = starts_word.then(|| variable(rest)).flatten() {
        return token;
    }
    if first.is_ascii_alphanumeric() {
        return word(rest);
    }
    let length = if rest.starts_with("://") { "://".len() } else { first.len_utf8() };
    MessageToken { length, shown: TokenForm::Plain }
}

fn variable(rest: &str) -> Option<MessageToken> {
    let found = |length: Option<usize>, placeholder| {
        let length = length.filter(|&length| ends_word(rest, length))?;
        Some(MessageToken { length, shown: TokenForm::As(placeholder) })
    };
    found(uuid_length(rest), ID)
        .or_else(|| found(ipv6_length(rest), ADDRESS))
        .or_else(|| found(ipv4_length(rest), ADDRESS))
        .or_else(|| found(timestamp_length(rest), TIME))
        .or_else(|| found(calendar_length(rest), TIME))
        .or_else(|| found(duration_length(rest), TIME))
}

/// A word of letters and digits, or the first part of one that mixes them.
fn word(rest: &str) -> MessageToken {
    let word = &rest[..prefix_length(rest, |c| c.is_ascii_alphanumeric())];
    let letters = prefix_length(word, |c| c.is_ascii_alphabetic());
    if letters == word.len() {
        return MessageToken { length: letters, shown: TokenForm::Plain };
    }
    if is_random(word) {
        let placeholder = if word.len() < ID_BYTES_MIN { NUMBER } else { ID };
        return MessageToken { length: word.len(), shown: TokenForm::As(placeholder) };
    }
    if letters > 0 {
        return MessageToken { length: letters, shown: TokenForm::Plain };
    }
    MessageToken { length: number_length(rest), shown: TokenForm::As(NUMBER) }
}

/// Whether a word with a digit looks machine-generated: `9f86d081`, `x2x9k`, `0x1f`, a long number.
fn is_random(word: &str) -> bool {
    let bytes = word.as_bytes();
    let changes =
        bytes.windows(2).filter(|pair| pair[0].is_ascii_digit() != pair[1].is_ascii_digit()).count();
    let is_hex = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_hexdigit);
    match bytes {
        [b'0', b'x' | b'X', digits @ ..] if !digits.is_empty() && is_hex(digits) => true,
        _ if changes == 0 => bytes.len() >= ID_BYTES_MIN,
        _ => changes >= 3 || is_hex(bytes) && bytes.len() >= HEX_BYTES_MIN,
    }
}

/// `1`, `1.5`, `1,000,000`, `2.14.3`
fn number_length(text: &str) -> usize {
    let mut length = digits_length(text);
    while text[length..].starts_with(['.', ',']) && digits_length(&text[length + 1..]) > 0 {
        length += 1 + digits_length(&text[length + 1..]);
    }
    length
}

/// `jane.doe@example.com`; the part after the `@` has a letter, so `left-pad@1.3.0` is none.
fn mail_length(text: &str) -> Option<usize> {
    let is_local = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '%' | '+' | '-');
    let is_domain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let local = prefix_length(head(text, LOCAL_PART_BYTES_MAX), is_local);
    if local == 0 {
        return None;
    }
    let after = text[local..].strip_prefix('@')?;
    let domain = &after[..prefix_length(head(after, DOMAIN_BYTES_MAX), is_domain)];
    let domain = domain.trim_end_matches(['.', '-']);
    domain.bytes().any(|b| b.is_ascii_alphabetic()).then_some(local + 1 + domain.len())
}

/// `550e8400-e29b-41d4-a716-446655440000`
fn uuid_length(text: &str) -> Option<usize> {
    let length = shape_length(text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")?;
    has_digit(&text[..length]).then_some(length)
}

/// `fe80::1`
fn ipv6_length(text: &str) -> Option<usize> {
    let run =
        prefix_length(head(text, IPV6_BYTES_MAX + 1), |c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'));
    let is_address = |run: &str| has_digit(run) && run.parse::<Ipv6Addr>().is_ok();
    // A sentence may continue with a colon or end with a full stop.
    let shorter = text[..run].strip_suffix([':', '.']).map(str::len);
    [Some(run), shorter].into_iter().flatten().find(|&length| is_address(&text[..length]))
}

/// `10.0.0.7` or `10.0.0.7:5432`
fn ipv4_length(text: &str) -> Option<usize> {
    let mut length = 0;
    for part in 0..4 {
        if part > 0 {
            length += text[length..].strip_prefix('.').map(|_| 1)?;
        }
        let digits = digits_length(head(&text[length..], 4));
        text[length..length + digits].parse::<u8>().ok()?;
        length += digits;
    }
    let port = text[length..].strip_prefix(':').map_or(0, |port| digits_length(head(port, 6)));
    Some(if port > 0 { length + 1 + port } else { length })
}

/// `2026-01-31`, `2026-01-31T12:00:00.5Z`, `2026/01/31 12:00:00` or `12:00:00`
fn timestamp_length(text: &str) -> Option<usize> {
    let date = ["dddd-dd-dd", "dddd/dd/dd"].into_iter().find_map(|shape| shape_length(text, shape));
    let Some(date) = date else {
        return clock_length(text);
    };
    let clock = text[date..].strip_prefix(['T', 't', ' ', '_']).and_then(|clock| {
        let length = clock_length(clock).or_else(|| {
            let minutes = shape_length(clock, "dd:dd")?;
            Some(minutes + zone_length(&clock[minutes..]))
        })?;
        ends_word(clock, length).then_some(1 + length)
    });
    Some(date + clock.unwrap_or(0))
}

/// `12:00:00`, `12:00:00,123` or `12:00:00+01:00`
fn clock_length(text: &str) -> Option<usize> {
    let mut length = shape_length(text, "dd:dd:dd")?;
    if text[length..].starts_with(['.', ',']) && digits_length(&text[length + 1..]) > 0 {
        length += 1 + digits_length(&text[length + 1..]);
    }
    Some(length + zone_length(&text[length..]))
}

/// `Z`, `+01:00`, `+0100` or nothing
fn zone_length(text: &str) -> usize {
    let offset = |text| {
        ["dd:dd", "dddd"]
            .into_iter()
            .filter_map(|shape| shape_length(text, shape))
            .find(|&length| ends_word(text, length))
    };
    match text.as_bytes() {
        [b'Z' | b'z', ..] => 1,
        [b'+' | b'-', ..] => offset(&text[1..]).map_or(0, |length| 1 + length),
        _ => 0,
    }
}

/// `31 Jan 2026`, `Sat, 31 Jan 2026 12:00:00 +0100` or `Saturday, 31-Jan-26 12:00:00 GMT`
fn calendar_length(text: &str) -> Option<usize> {
    let weekday = weekday_length(text);
    let mut length = weekday;
    let day = digits_length(&text[length..]);
    length += (1..=2).contains(&day).then_some(day)?;
    length += text[length..].starts_with([' ', '-']).then_some(1)?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    length += months.into_iter().find(|month| text[length..].starts_with(month))?.len();
    length += text[length..].starts_with([' ', '-']).then_some(1)?;
    let year = digits_length(&text[length..]);
    length += matches!(year, 2 | 4).then_some(year)?;
    if let Some(clock) = text[length..].strip_prefix(' ').and_then(clock_length) {
        length += 1 + clock;
        let zone = text[length..].strip_prefix(' ').map_or(0, |zone| match zone.get(..3) {
            Some("GMT" | "UTC") => 3,
            _ => zone_length(zone),
        });
        length += if zone > 0 { 1 + zone } else { 0 };
    }
    Some(length)
}

/// `Sat, ` or `Saturday, ` or nothing
fn weekday_length(text: &str) -> usize {
    let names = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let length = |name: &'static str| {
        let written = [name, &name[..3]].into_iter().find(|written| text.starts_with(written))?;
        text[written.len()..].starts_with(", ").then_some(written.len() + ", ".len())
    };
    names.into_iter().find_map(length).unwrap_or(0)
}

/// `10s`, `3000ms`, `1.5s` or `1h30m`
fn duration_length(text: &str) -> Option<usize> {
    // A unit precedes its own prefixes.
    let units = ["ns", "us", "µs", "μs", "ms", "mins", "min", "secs", "sec", "hrs", "hr", "s", "m", "h", "d"];
    let mut length = 0;
    while text[length..].starts_with(|c: char| c.is_ascii_digit()) {
        length += number_length(&text[length..]);
        length += units.into_iter().find(|unit| text[length..].starts_with(unit))?.len();
    }
    (length > 0).then_some(length)
}

/// `d` is a digit, `x` a hexadecimal one, the rest itself.
fn shape_length(text: &str, shape: &str) -> Option<usize> {
    let start = text.as_bytes().get(..shape.len())?;
    let fits = start.iter().zip(shape.bytes()).all(|(byte, wanted)| match wanted {
        b'd' => byte.is_ascii_digit(),
        b'x' => byte.is_ascii_hexdigit(),
        _ => *byte == wanted,
    });
    fits.then_some(shape.len())
}

fn prefix_length(text: &str, fits: impl Fn(char) -> bool) -> usize {
    text.find(|c| !fits(c)).unwrap_or(text.len())
}

fn digits_length(text: &str) -> usize {
    prefix_length(text, |c| c.is_ascii_digit())
}

fn has_digit(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_digit())
}

fn head(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

fn ends_word(text: &str, length: usize) -> bool {
    !text[length..].starts_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn variable_parts_give_way() {
        #[rustfmt::skip]
        let cases = [
            ("plain words stay",       "Connection reset by peer",                    "Connection reset by peer"),
            ("a duration",             "Connection timeout after 10s",                "Connection timeout after <time>"),
            ("a longer one",           "Connection timeout after 1m30.5s",            "Connection timeout after <time>"),
            ("milliseconds",           "timeout of 3000ms exceeded",                  "timeout of <time> exceeded"),
            ("microseconds",           "took 15µs, 16μs",                             "took <time>, <time>"),
            ("a duration in words",    "gave up after 30 seconds",                    "gave up after <n> seconds"),
            ("an address and port",    "connect ECONNREFUSED 10.0.0.7:5432",          "connect ECONNREFUSED <addr>"),
            ("an address in a sentence", "no route to 10.0.0.7.",                     "no route to <addr>."),
            ("IPv6",                   "dial tcp [2001:db8::7]:443: refused",         "dial tcp [<addr>]:<n>: refused"),
            ("IPv6, shortest",         "connect ECONNREFUSED ::1:5432",               "connect ECONNREFUSED <addr>"),
            ("IPv6, then a colon",     "fe80::1: down",                               "<addr>: down"),
            ("a path is no address",   "std::io::Error in Queue::7",                  "std::io::Error in Queue::<n>"),
            ("a number",               "user 4711 not found",                         "user <n> not found"),
            ("numbers with marks",     "got 1,048,576 of 2.5 (-3%)",                  "got <n> of <n> (-<n>%)"),
            ("a list",                 "partitions [1,2,3]",                          "partitions [<n>]"),
            ("a status",               "503 Service Unavailable (HTTP/1.1)",          "<n> Service Unavailable (HTTP/<n>)"),
            ("a UUID",                 "order 550e8400-e29b-41d4-a716-446655440000 is locked", "order <id> is locked"),
            ("a UUID of digits",       "order 12345678-1234-1234-1234-123456789012 is locked", "order <id> is locked"),
            ("a hash",                 "blob 9f86d081884c7d659a2feaa0c55ad015 missing",        "blob <id> missing"),
            ("a short hash",           "commit 9f86d081 not found",                   "commit <n> not found"),
            ("a short hash of digits", "commit 12345678 not found",                   "commit <n> not found"),
            ("a ULID",                 "event 01ARZ3NDEKTSV4RRFFQ69G5FAV",            "event <id>"),
            ("a prefixed id",          "no such charge: ch_1NXkLs2eZvKYlo2C",         "no such charge: ch_<id>"),
            ("a snowflake",            "message 175928847299117063",                  "message <id>"),
            ("a pointer",              "segfault at 0x7ffc12 ip 0X1F",                "segfault at <n> ip <n>"),
            ("a pod",                  "pod orders-7d9f8b6c5-x2x9k evicted",          "pod orders-<n>-<n> evicted"),
            ("a host with a number",   "worker12.internal and ip-10-0-0-7",           "worker<n>.internal and ip-<n>-<n>-<n>-<n>"),
            ("a word with digits",     "utf8 in s3 of k8s",                           "utf<n> in s<n> of k<n>s"),
            ("words of hex letters",   "facade of a decade, deadbeef",                "facade of a decade, deadbeef"),
            ("a place in a file",      "at /app/src/main.rs:120:5",                   "at /app/src/main.rs:<n>:<n>"),
            ("an offset",              "unexpected token } in JSON at position 17",   "unexpected token } in JSON at position <n>"),
            ("a timestamp",            "expired at 2026-01-31T12:00:00.123Z",         "expired at <time>"),
            ("a timestamp, an offset", "expired at 2026-01-31T12:00:00+01:00",        "expired at <time>"),
            ("a timestamp, minutes",   "expired at 2026-01-31T12:00Z",                "expired at <time>"),
            ("a log's timestamp",      "[2026-01-31 12:00:00,123] ERROR",             "[<time>] ERROR"),
            ("Go's timestamp",         "2026/01/31 12:00:00 dial failed",             "<time> dial failed"),
            ("a date",                 "no rates for 2026-01-31",                     "no rates for <time>"),
            ("a clock",                "since 12:00:00.5",                            "since <time>"),
            ("a mail's date",          "sent Sat, 31 Jan 2026 12:00:00 GMT twice",    "sent <time> twice"),
            ("a mail's date, offset",  "sent 1 Feb 2026 12:00:00 +0100",              "sent <time>"),
            ("an old date",            "until Saturday, 31-Jan-26 12:00:00 GMT",      "until <time>"),
            ("a mail address",         "<jane.doe+x@example.com>: unknown user",      "<<addr>>: unknown user"),
            ("a mail address at the end", "no mailbox bob@example.com.",              "no mailbox <addr>."),
            ("a package",              "left-pad@1.3.0 is gone",                      "left-pad@<n> is gone"),
            ("a URL",                  "GET https://api.example.com/v1/orders/4711?token=abc&x=é failed", "GET https://api.example.com/v<n>/orders/<n>?<query> failed"),
            ("a URL in quotes",        "\"http://a/b?c=d\"?",                         "\"http://a/b?<query>\"?"),
            ("a filter in a URL",      "http://[::1]:80/a?f[id]=7 gone",              "http://[<addr>]:<n>/a?<query> gone"),
            ("a question",             "really?yes",                                  "really?yes"),
            ("credentials in a URL",   "postgres://app:secret@db:5432/shop",          "postgres://app:<addr>:<n>/shop"),
            ("PostgreSQL",             "duplicate key value violates unique constraint \"x_pkey\" Detail: Key (id)=(123) already exists",
                                       "duplicate key value violates unique constraint \"x_pkey\" Detail: Key (id)=(<n>) already exists"),
            ("white space",            "\n a \t\u{a0} b\r\n\u{0}",                    "a b"),
            ("another script",         "ошибка 5: нет связи с узлом12",               "ошибка <n>: нет связи с узлом<n>"),
            ("nothing",                "",                                            ""),
        ];
        for (name, message, expected) in cases {
            assert_eq!(normalise(message), expected, "{name}");
            assert_eq!(normalise(expected), expected, "{name}, again");
        }
    }

    fn fingerprint(service: &str, category: Category, code: &'static str, message: &str) -> Fingerprint {
        Fingerprint::of(
            &ServiceName::new(service).expect("a name"),
            category,
            &FailureCode::of(code),
            message,
        )
    }

    /// These values are stored: a changed row means that known causes appear as new ones.
    #[test]
    fn fingerprints_never_change() {
        use Category::{Invalid, Permanent, Transient};
        #[rustfmt::skip]
        let cases = [
            ("049e2726c2dc21ae", "orders",  Transient, "NETWORK_TIMEOUT", "Connection timeout after 10s"),
            ("049e2726c2dc21ae", "orders",  Transient, "NETWORK_TIMEOUT", "Connection timeout after 12s"),
            ("38681403b90950ce", "billing", Transient, "NETWORK_TIMEOUT", "Connection timeout after 10s"),
            ("348d00889562fe63", "orders",  Transient, "NETWORK_TIMEOUT", "Connection reset"),
            ("ac589589d007bd77", "orders",  Permanent, "NETWORK_TIMEOUT", "Connection reset"),
            ("ad42d3ba04f74f69", "orders",  Permanent, "NOT_FOUND",       "user 4711 not found"),
            ("4421f3eec3d0023c", "orders",  Permanent, "NOT_FOUND",       "order 550e8400-e29b-41d4-a716-446655440000 not found"),
            ("90edfda9294d7955", "orders",  Invalid,   "SCHEMA_VIOLATION", "в поле «сумма» нет числа"),
            ("246cb9a46abe2024", "orders",  Invalid,   "SCHEMA_VIOLATION", ""),
        ];
        let distinct: std::collections::BTreeSet<_> = cases.iter().map(|case| case.0).collect();
        assert_eq!(distinct.len(), cases.len() - 1, "only the two timeouts have one cause");
        for (expected, service, category, code, message) in cases {
            assert_eq!(fingerprint(service, category, code, message).to_string(), expected, "{message}");
        }
    }

    #[test]
    fn a_fingerprint_reads_back() {
        let shown = Fingerprint(0xf00d);
        assert_eq!(shown.to_string(), "000000000000f00d");
        assert_eq!(shown.to_string().parse(), Ok(shown));
        assert_eq!(serde_json::to_string(&shown).expect("JSON"), "\"000000000000f00d\"");
        assert_eq!(
            serde_json::from_str::<Fingerprint>("\"000000000000F00D\"").expect("a fingerprint"),
            shown
        );
        for text in
            ["", "f00d", "000000000000f00g", "+00000000000f00d", "0000000000000f00d", "00000000000000é"]
        {
            assert!(text.parse::<Fingerprint>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_long_message_is_bounded_and_the_place_of_the_cut_does_not_show() {
        let trace = |id: &str| format!("worker {id} failed {}", "at frame 7 of the stack, ".repeat(300));
        assert!(normalise(&trace("1")).len() <= NORMALISED_BYTES_MAX);
        assert_eq!(normalise(&trace("1")), normalise(&trace("1234567")));
        assert_eq!(normalise(&"é".repeat(5_000)), "é".repeat(NORMALISED_BYTES_MAX / 2));
        assert_eq!(normalise(&"x".repeat(5_000)), "x".repeat(NORMALISED_BYTES_MAX));
        assert_eq!(normalise(&"7 ".repeat(5_000)), "<n> ".repeat(NORMALISED_BYTES_MAX / 4).trim_end());
    }

    fn scrap() -> impl Strategy<Value = String> {
        #[rustfmt::skip]
        let scraps = vec![
            "a", "f", "z", "Z", "0", "1", "12", "255", "2026", "deadbeef", "0x", "e5", ".", ",", ":", "::", "-", "_", "+", "/",
            "@", "?", "://", "<", ">", "<n>", "<id>", "<addr>", "<time>", "<query>", "(", "]", "\"", " ", "\t", "\u{0}", "é", "µs", "５",
            "s", "ms", "T", "Mon, ", "Jan", " GMT", "12:30:45", "2026-01-31", "10.0.0.7", "fe80::1", "x@y.z",
            "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "550e8400-e29b-41d4-a716-446655440000",
        ];
        prop_oneof![
            8 => prop::sample::select(scraps).prop_map(str::to_owned),
            1 => any::<char>().prop_map(String::from),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn what_is_normal_stays_as_it_is(scraps in prop::collection::vec(scrap(), 0..16)) {
            check_normal(&scraps.concat())?;
        }
    }

    proptest! {
        #[test]
        fn what_is_normal_stays_as_it_is_when_cut(
            start in prop::collection::vec(scrap(), 0..4),
            repeated in prop::collection::vec(scrap(), 1..6),
        ) {
            let repeated = repeated.concat();
            check_normal(&(start.concat() + &repeated.repeat(5_000 / repeated.len())))?;
        }

        #[test]
        fn no_message_makes_it_panic(message in any::<String>()) {
            check_normal(&message)?;
        }
    }

    fn check_normal(message: &str) -> Result<(), TestCaseError> {
        let once = normalise(message);
        prop_assert!(once.len() <= NORMALISED_BYTES_MAX);
        prop_assert!(!has_digit(&once), "{:?}", once);
        prop_assert_eq!(&normalise(&once), &once);
        Ok(())
    }
}
