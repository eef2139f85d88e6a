//! Trip expressions: the part of CEL that counts failures, translated into breaker settings.
//!
//! Dapr evaluates the expression only after a failed call, so every failure count is at least 1 and
//! `consecutiveSuccesses` is 0. An expression that compiles but fails to evaluate counts as false, so the breaker
//! never opens; such expressions are refused with the reason.
//!
//! Invariant: a translated breaker opens exactly when Dapr's does, except for a sliding instead of a tumbling window.

use super::model::TripOn;
use redrive_core::limits;

mod parse;
mod weigh;

use parse::Expression;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidTrip {
    #[error("invalid trip condition at `{rest}`")]
    Syntax { rest: String },
    #[error("the trip condition is too long or too deeply nested")]
    TooLong,
    #[error("Dapr has no count `{name}`: the condition compiles there, but the breaker never trips")]
    UnknownName { name: String },
    #[error("the trip condition is not a comparison, so in Dapr the breaker never trips")]
    NotBool,
    #[error("integer division drops the remainder, which no breaker of a book can express")]
    IntegerDivision,
    #[error("`||` joins conditions on different counts, and a breaker of a book opens by one of them")]
    TwoConditions,
    #[error("integers and fractions are mixed, which fails in Dapr, so the breaker never trips")]
    MixedNumbers,
    #[error("the trip condition is always true: in Dapr the first failure opens the breaker")]
    AlwaysTrue,
    #[error("the trip condition is never true, so the breaker never trips")]
    NeverTrue,
    #[error("the trip condition has no counterpart in a rule book")]
    NoCounterpart,
    #[error("the trip condition needs {given} calls, but a breaker counts up to {max}")]
    OutOfRange { given: u64, max: u32 },
}

impl InvalidTrip {
    pub(super) const fn help(&self) -> &'static str {
        match self {
            Self::UnknownName { .. } => {
                "the names are requests, totalSuccesses, totalFailures, consecutiveSuccesses and consecutiveFailures"
            }
            Self::IntegerDivision | Self::MixedNumbers => {
                "multiply instead: `requests >= 20 && totalFailures * 100 >= requests * 50`"
            }
            Self::TwoConditions => "keep one of the conditions, or give the services separate breakers",
            Self::AlwaysTrue => "write `consecutiveFailures >= 1` if that is intended",
            Self::Syntax { .. }
            | Self::TooLong
            | Self::NotBool
            | Self::NeverTrue
            | Self::NoCounterpart
            | Self::OutOfRange { .. } => {
                "write `consecutiveFailures >= 5`, `totalFailures >= 5` with an interval, or `requests >= 20 && totalFailures * 100 >= requests * 50`"
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TripMeaning {
    pub(super) trip: TripOn,
    pub(super) share: ShareBound,
}

/// Whether the breaker opens at the share or above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShareBound {
    /// As in a rule book, or there is no share.
    Reached,
    Exceeded,
}

const CONSECUTIVE_MAX: u32 = 1_000_000;

pub(super) fn read(text: &str) -> Result<TripMeaning, InvalidTrip> {
    let expression = Expression::parse(text)?;
    if expression.type_of()? != parse::ValueType::Bool {
        return Err(InvalidTrip::NotBool);
    }
    let meaning = weigh::weigh(&expression)?;
    let (given, max) = match meaning.trip {
        TripOn::Consecutive(count) => (count, CONSECUTIVE_MAX),
        TripOn::Failures(count) => (count, limits::TRIP_FAILURES_MAX),
        TripOn::FailureRate { of_at_least, .. } => (of_at_least, CONSECUTIVE_MAX),
    };
    if given > max {
        return Err(InvalidTrip::OutOfRange { given: u64::from(given), max });
    }
    Ok(meaning)
}

/// Whole numbers only and no division: safe in Dapr.
pub(super) fn show(trip: TripOn) -> String {
    match trip {
        TripOn::Consecutive(count) => format!("consecutiveFailures >= {count}"),
        TripOn::Failures(count) => format!("totalFailures >= {count}"),
        TripOn::FailureRate { thousandths, of_at_least } => {
            let (mut share, mut whole) = (thousandths, 100_000);
            while whole > 100 && share % 10 == 0 {
                (share, whole) = (share / 10, whole / 10);
            }
            format!("requests >= {of_at_least} && totalFailures * {whole} >= requests * {share}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use InvalidTrip::{AlwaysTrue, IntegerDivision, MixedNumbers, NeverTrue, NoCounterpart, NotBool};
    use TripOn::{Consecutive, Failures};
    use proptest::prelude::*;

    fn rate(percent: u32, of_at_least: u32) -> TripOn {
        TripOn::FailureRate { thousandths: percent * 1_000, of_at_least }
    }

    #[test]
    fn conditions_are_understood() {
        #[rustfmt::skip]
        let cases = [
            ("more than",                  "consecutiveFailures > 5",                               Consecutive(6)),
            ("at least",                   "consecutiveFailures >= 5",                              Consecutive(5)),
            ("the other way round",        "5 < consecutiveFailures",                               Consecutive(6)),
            ("exactly: it opens there",    "consecutiveFailures == 5",                              Consecutive(5)),
            ("no spaces",                  "consecutiveFailures>5",                                Consecutive(6)),
            ("brackets",                   "((consecutiveFailures) > (5))",                         Consecutive(6)),
            ("a sum",                      "consecutiveFailures + 1 > 2 * 3",                       Consecutive(6)),
            ("a difference",               "consecutiveFailures - 5 > 0",                           Consecutive(6)),
            ("the first failure",          "consecutiveFailures >= 1",                              Consecutive(1)),
            ("in all",                     "totalFailures >= 5",                                    Failures(5)),
            ("a share",                    "requests >= 20 && totalFailures * 100 >= requests * 50", rate(50, 20)),
            ("a share, turned",            "totalFailures * 2 >= requests && requests > 19",        rate(50, 20)),
            ("a share of any calls",       "totalFailures * 100 >= requests * 60",                  rate(60, 1)),
            ("a share of fractions",       "requests >= 3 && double(totalFailures) / double(requests) >= 0.6", rate(60, 3)),
            ("true beside it",             "consecutiveFailures > 5 && true",                       Consecutive(6)),
            ("false beside it",            "consecutiveFailures > 5 || false",                      Consecutive(6)),
            ("the earlier of two",         "consecutiveFailures > 5 || consecutiveFailures > 3",    Consecutive(4)),
            ("the later of two",           "consecutiveFailures > 5 && consecutiveFailures > 3",    Consecutive(6)),
            ("enough calls anyway",        "requests >= 3 && consecutiveFailures >= 5",             Consecutive(5)),
            ("successes in a row are 0",   "consecutiveFailures > 5 && consecutiveSuccesses == 0",  Consecutive(6)),
            ("a share in whole percent",   "requests >= 20 && totalFailures * 100 / requests >= 60", rate(60, 20)),
            ("more than whole percent",    "requests >= 20 && totalFailures * 100 / requests > 59", rate(60, 20)),
            ("whole percent, turned",      "60 <= totalFailures * 100 / requests && requests >= 20", rate(60, 20)),
            ("all of them",                "totalFailures / requests >= 1",                         rate(100, 1)),
            ("half of a count",            "consecutiveFailures / 2 >= 3",                          Consecutive(6)),
            ("the lower of two shares",    "totalFailures * 2 >= requests || totalFailures * 4 >= requests * 3", rate(50, 1)),
            ("any failure in all is more", "totalFailures >= 3 || consecutiveFailures >= 5",        Failures(3)),
        ];
        for (name, text, expected) in cases {
            assert_eq!(read(text), Ok(TripMeaning { trip: expected, share: ShareBound::Reached }), "{name}");
        }
        let exceeded = TripMeaning { trip: rate(50, 20), share: ShareBound::Exceeded };
        assert_eq!(read("requests >= 20 && totalFailures * 100 > requests * 50"), Ok(exceeded));
    }

    #[test]
    fn conditions_that_hurt_are_named() {
        let unknown = |name: &str| InvalidTrip::UnknownName { name: name.to_owned() };
        let syntax = |rest: &str| InvalidTrip::Syntax { rest: rest.to_owned() };
        #[rustfmt::skip]
        let cases = [
            ("a typo",                     "consecutiveFailure > 5",                     unknown("consecutiveFailure")),
            ("upper case",                 "ConsecutiveFailures > 5",                    unknown("ConsecutiveFailures")),
            ("a number",                   "consecutiveFailures",                        NotBool),
            ("numbers joined",             "requests && totalFailures > 1",              NotBool),
            ("division and a fraction",    "totalFailures / requests > 0.5",             MixedNumbers),
            ("integer division in a sum",  "totalFailures / 2 + 1 > 3",                  IntegerDivision),
            ("exactly so many whole times", "totalFailures * 10 / requests == 5",        IntegerDivision),
            ("less than whole percent",    "totalFailures * 100 / requests < 50",        IntegerDivision),
            ("a remainder",                "totalFailures % 5 == 0",                     NoCounterpart),
            ("a fraction",                 "totalFailures * 1.5 >= requests",            MixedNumbers),
            ("compared with a fraction",   "consecutiveFailures > 5.0",                  MixedNumbers),
            ("always",                     "true",                                       AlwaysTrue),
            ("always, in numbers",         "consecutiveFailures >= 0",                   AlwaysTrue),
            ("always, in calls",           "requests > 0",                               AlwaysTrue),
            ("never",                      "false",                                      NeverTrue),
            ("never, in numbers",          "consecutiveFailures < 1",                    NeverTrue),
            ("more than all",              "totalFailures > requests * 2",               NeverTrue),
            ("two conditions",             "consecutiveFailures > 5 || totalFailures > 9", InvalidTrip::TwoConditions),
            ("a share or a count",         "consecutiveFailures > 5 || totalFailures * 2 >= requests", InvalidTrip::TwoConditions),
            ("only calls",                 "requests > 100",                             NoCounterpart),
            ("successes",                  "totalSuccesses < 3",                         NoCounterpart),
            ("backwards",                  "consecutiveFailures < 5",                    NoCounterpart),
            ("a product of counts",        "totalFailures * requests > 5",               NoCounterpart),
            ("a function",                 "size(requests) > 5",                         NoCounterpart),
            ("more than is counted",       "totalFailures > 10000",                      InvalidTrip::OutOfRange { given: 10_001, max: 10_000 }),
            ("nothing after",              "consecutiveFailures >",                      syntax("")),
            ("one equals sign",            "consecutiveFailures = 5",                    syntax("= 5")),
            ("words",                      "five in a row",                              syntax("row")),
            ("nothing at all",             "",                                           syntax("")),
            ("a bracket left open",        "(consecutiveFailures > 5",                   syntax("")),
        ];
        for (name, text, expected) in cases {
            assert_eq!(read(text), Err(expected), "{name}");
        }
        assert_eq!(read(&"(".repeat(5_000)), Err(InvalidTrip::TooLong));
        assert_eq!(read(&"(".repeat(900)), Err(InvalidTrip::TooLong));
        assert_eq!(read(&"!".repeat(900)), Err(InvalidTrip::TooLong));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(trip in trips()) {
            prop_assert_eq!(read(&show(trip)), Ok(TripMeaning { trip, share: ShareBound::Reached }));
        }

        #[test]
        fn any_text_is_read_or_not(text in "\\PC{0,60}|([a-z ]{0,9}|[0-9.]{0,4}|[()!<>=&|*+/%-]{0,3}| |requests|totalFailures){0,12}") {
            let _ = read(&text);
        }
    }

    fn trips() -> impl Strategy<Value = TripOn> {
        prop_oneof![
            (1..1_000_000_u32).prop_map(Consecutive),
            (1..10_000_u32).prop_map(Failures),
            (1..=100_000_u32, 1..100_000_u32)
                .prop_map(|(thousandths, of_at_least)| TripOn::FailureRate { thousandths, of_at_least }),
        ]
    }
}
