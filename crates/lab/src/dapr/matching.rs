//! Lists of HTTP statuses in Dapr's `matching`, as disjoint ranges. Only failures matter: Dapr treats 200 to 399 as
//! success.

use redrive_core::policy::rule::StatusRange;

pub(super) const FAILURES: StatusRange = StatusRange { first: 400, last: 599 };

/// Retries nothing; an empty list would retry everything.
const NO_FAILURE: &str = "100";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidCodes {
    #[error("the list of codes contains a space, so Dapr refuses the resource")]
    Space,
    #[error("`{item}` is not a code from {first} to {last} or a range of them")]
    Item { item: String, first: u16, last: u16 },
}

pub(super) fn parse(text: &str, within: StatusRange) -> Result<Vec<StatusRange>, InvalidCodes> {
    if text.contains(char::is_whitespace) {
        return Err(InvalidCodes::Space);
    }
    let code = |text: &str| text.parse::<u16>().ok().filter(|code| within.contains(*code));
    let items = text.split(',').filter(|item| !item.is_empty());
    items
        .map(|item| {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            match (code(first), code(last)) {
                (Some(first), Some(last)) if first <= last => Ok(StatusRange { first, last }),
                _ => {
                    Err(InvalidCodes::Item { item: item.to_owned(), first: within.first, last: within.last })
                }
            }
        })
        .collect()
}

pub(super) fn failures(ranges: &[StatusRange]) -> Vec<StatusRange> {
    of_failures(|status| ranges.iter().any(|range| range.contains(status)))
}

pub(super) fn others(ranges: &[StatusRange]) -> Vec<StatusRange> {
    of_failures(|status| !ranges.iter().any(|range| range.contains(status)))
}

pub(super) fn of_failures(is_chosen: impl Fn(u16) -> bool) -> Vec<StatusRange> {
    let mut ranges: Vec<StatusRange> = Vec::new();
    for status in (FAILURES.first..=FAILURES.last).filter(|status| is_chosen(*status)) {
        match ranges.last_mut() {
            Some(range) if range.last + 1 == status => range.last = status,
            _ => ranges.push(StatusRange { first: status, last: status }),
        }
    }
    ranges
}

pub(super) fn show(ranges: &[StatusRange]) -> String {
    match ranges {
        [] => NO_FAILURE.to_owned(),
        ranges => ranges.iter().map(StatusRange::to_string).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTTP: StatusRange = StatusRange { first: 100, last: 599 };

    #[test]
    fn lists_are_read_and_shown() {
        #[rustfmt::skip]
        let cases = [
            ("one",                    "503",               Ok("503")),
            ("a range",                "500-599",           Ok("500-599")),
            ("in any order, joined",   "503,429,500-502",   Ok("429,500-503")),
            ("empty items are passed", ",503,,",            Ok("503")),
            ("no failures",            "200-299",           Ok("100")),
            ("a space",                "500, 503",          Err(InvalidCodes::Space)),
            ("a gRPC code",            "14",                Err(InvalidCodes::Item { item: "14".to_owned(), first: 100, last: 599 })),
            ("backwards",              "599-500",           Err(InvalidCodes::Item { item: "599-500".to_owned(), first: 100, last: 599 })),
            ("a word",                 "5xx",               Err(InvalidCodes::Item { item: "5xx".to_owned(), first: 100, last: 599 })),
        ];
        for (name, text, expected) in cases {
            let shown = parse(text, HTTP).map(|ranges| show(&failures(&ranges)));
            assert_eq!(shown, expected.map(str::to_owned), "{name}");
        }
        let chosen = parse("429,500-599", HTTP).expect("a list");
        assert_eq!(show(&others(&chosen)), "400-428,430-499");
    }
}
