//! The limits that somebody is told of, and the targets beside them: as the book has them, and held against counts.

use std::time::Duration;

use pkarr_verifier::code::ErrorCode;
use pkarr_verifier::counters::{Counters, Ended, Monitor};
use redrive::Book;
use redrive::core::alerts::AlertState;
use redrive::core::alerts::notice::AlertStage;
use redrive::core::time::Timestamp;
use redrive::guard::BreakerState;

use crate::support::RULES;

const CLOSED: BreakerState = BreakerState::Closed { failures: 0 };

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000) + Duration::from_secs(seconds)
}

fn monitor() -> Monitor {
    Monitor::new(Book::parse(RULES).expect("a sound book").rules(), at(0))
}

#[test]
fn the_book_has_the_limits_and_the_targets_of_the_guide() {
    let shown: Vec<(String, Option<String>)> =
        monitor().views().into_iter().map(|view| (view.when, view.action)).collect();
    #[rustfmt::skip]
    let expected = [
        ("error_rate > 10% over 5m",    "Target: below 5 %"),
        ("transient_rate > 5% over 5m", "Target: below 3 %"),
        ("breaker_open for 2m",         "Target: closed 99 % of the time"),
        ("retry_rate > 20% over 5m",    "Target: below 10 %"),
        ("exhausted_rate > 2% over 5m", "Target: below 1 %"),
    ];
    let expected: Vec<(String, Option<String>)> =
        expected.map(|(when, action)| (when.to_owned(), Some(action.to_owned()))).into();
    // Behind those of the book are the ones that are built in.
    assert_eq!(shown[..expected.len()], expected);
}

#[test]
fn the_book_has_nothing_to_complain_of() {
    let connectors = redrive::core::book::connectors::built_in();
    assert_eq!(redrive_lab::lint::check(RULES.as_bytes(), connectors).problems, []);
}

/// Which alerts fire after so many good requests a second, and so many of those that ended otherwise.
fn firing_after(seconds: u64, odd: Option<(Ended, u64)>, breaker: BreakerState) -> Vec<String> {
    let (counters, mut monitor) = (Counters::default(), monitor());
    for second in 0..=seconds {
        monitor.look(&counters.metrics(), breaker, at(second));
        for request in 0..100 {
            let ended = match odd {
                Some((odd, in_hundred)) if request < in_hundred => odd,
                _ => Ended { error: None, retried: false },
            };
            counters.count(ended);
        }
    }
    let firing = monitor.views().into_iter().filter(|view| view.state == AlertState::Firing);
    firing.map(|view| view.when).collect()
}

#[test]
fn each_limit_fires_beyond_its_number_and_not_at_it() {
    let failed = |error| Ended { error: Some(error), retried: false };
    let retried = Ended { error: None, retried: true };
    let open = BreakerState::Open { until: at(1_000) };
    #[rustfmt::skip]
    let cases = [
        ("all is well",            None,                                            CLOSED, 400, vec![]),
        ("10 % errors",            Some((failed(ErrorCode::InvalidNip05), 10)),     CLOSED, 400, vec![]),
        ("11 % errors",            Some((failed(ErrorCode::InvalidNip05), 11)),     CLOSED, 400, vec!["error_rate > 10% over 5m"]),
        ("5 % transient errors",   Some((failed(ErrorCode::NetworkTimeout), 5)),    CLOSED, 400, vec![]),
        ("6 % transient errors",   Some((failed(ErrorCode::NetworkTimeout), 6)),    CLOSED, 400, vec!["transient_rate > 5% over 5m"]),
        ("20 % retried",           Some((retried, 20)),                             CLOSED, 400, vec![]),
        ("21 % retried",           Some((retried, 21)),                             CLOSED, 400, vec!["retry_rate > 20% over 5m"]),
        ("2 % spent",              Some((failed(ErrorCode::MaxRetriesExceeded), 2)), CLOSED, 400, vec![]),
        ("3 % spent",              Some((failed(ErrorCode::MaxRetriesExceeded), 3)), CLOSED, 400, vec!["exhausted_rate > 2% over 5m"]),
        ("open for a minute",      None,                                            open,    60, vec![]),
        ("open for two",           None,                                            open,   121, vec!["breaker_open for 2m"]),
    ];
    for (name, odd, breaker, seconds, expected) in cases {
        assert_eq!(firing_after(seconds, odd, breaker), expected, "{name}");
    }
}

#[test]
fn who_is_told_once_is_told_that_it_is_over() {
    let (counters, mut monitor) = (Counters::default(), monitor());
    let mut told = Vec::new();
    for second in 0..1_500 {
        let notices = monitor.look(&counters.metrics(), CLOSED, at(second));
        told.extend(notices.into_iter().map(|notice| (notice.receiver, notice.severity, notice.stage)));
        let error = (second < 400).then_some(ErrorCode::RecordNotFound);
        (0..10).for_each(|_| counters.count(Ended { error, retried: false }));
    }
    let to = |stage| ("operators".to_owned(), "high".to_owned(), stage);
    assert_eq!(told, [to(AlertStage::Firing), to(AlertStage::Resolved)]);
}
