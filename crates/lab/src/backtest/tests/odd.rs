//! Records that are no plain story of one book: lives that began elsewhere or twice, dependencies that are called
//! otherwise now, and limits that changed.

use super::report::UnknownKind;
use super::*;

/// One service, `shop`, with two retries a second apart, that depends on something; `more` is said of that.
fn depending(on: &str, more: &str) -> RuleBook {
    let policy = "retry_policies:\n  few: { delays: [1s, 1s], retries: 2, jitter: none }\n";
    let dependencies = format!("dependencies:\n  {on}: {{ kind: webhook{more} }}\n");
    shop(
        &format!("    retry: few\n    depends_on: {on}\n    hold_max: 1m\n"),
        &format!("{policy}{dependencies}"),
    )
}

fn doubts(report: &BacktestReport) -> Vec<(BacktestDoubt, u64)> {
    let single = report.untold.iter().filter_map(|untold| match untold.doubt {
        UnknownKind::Delivery(doubt) => Some((doubt, untold.count)),
        UnknownKind::Whole(_) => None,
    });
    single.collect()
}

/// A record of which the breaker was open for a while, held against another book.
fn beside(new: &RuleBook, old: &RuleBook, kept: &[Kept], open: &[(&str, u64, u64)]) -> BacktestReport {
    let mut survey =
        BacktestSurvey::new(BacktestPlan { book: new, seed: SEED, since: None, until: at(1_000) });
    for (dependency, from, until) in open {
        survey.add_open(dependency, at(*from), at(*until));
    }
    read_twice(survey, old, kept)
}

#[test]
fn a_life_that_was_not_here_or_has_no_story_is_left_as_it_is() {
    let book = retries(1);
    let untried =
        |number: u128, state: RecordedState, replays: ReplayHistory, stories: Vec<AttemptRecord>| Kept {
            state,
            replays,
            stories,
            ..happens(&book, number, 0, |_| 200)
        };
    let died_elsewhere = || {
        let mut stories = happens(&book, 9, 0, |_| 503).stories;
        for story in &mut stories {
            story.book = FOREIGN;
        }
        stories
    };
    let arrived = || happens(&book, 9, 50, |_| 200).stories;
    let (dead, delivered) = (RecordedState::Dead { at: at(0) }, RecordedState::Delivered);
    #[rustfmt::skip]
    let cases = [
        ("shed",                             dead,      ReplayHistory::None,         vec![],           0, BacktestDoubt::NeverTried),
        ("shed, and replayed",               delivered, ReplayHistory::Here(1),      arrived(),        0, BacktestDoubt::NeverTried),
        ("shed, and sent to another",        delivered, ReplayHistory::Elsewhere(1), arrived(),        0, BacktestDoubt::NeverTried),
        ("from elsewhere",                   dead,      ReplayHistory::None,         died_elsewhere(), 0, BacktestDoubt::Imported),
        ("from elsewhere, replayed there",   dead,      ReplayHistory::Here(3),      died_elsewhere(), 0, BacktestDoubt::Imported),
        ("from elsewhere, and replayed",     delivered, ReplayHistory::Here(1),      [died_elsewhere(), arrived()].concat(), 0, BacktestDoubt::Imported),
        ("it died here, and was sent to another", delivered, ReplayHistory::Elsewhere(1), [happens(&book, 1, 0, |_| 503).stories, arrived()].concat(), 2, BacktestDoubt::Replayed),
    ];
    for (name, state, replays, stories, calls, doubt) in cases {
        let kept = [untried(1, state, replays, stories), happens(&book, 2, 0, |_| 200)];
        let report = test(&book, &book, &kept);
        assert_eq!((report.before.dead, report.after.dead, report.changed), (1, 1, 0), "{name}");
        assert_eq!(report.certainty.certain, 2, "{name}: {:?}", report.certainty);
        let made = report.dependencies[0].calls;
        assert_eq!((made.before, made.after), (calls + 1, calls + 1), "{name}");
        assert!(doubts(&report).contains(&(doubt, 1)), "{name}: {:?}", report.untold);
        // Whoever answered it later, or elsewhere, says nothing of what it would have met here.
        let more = test(&retries(4), &book, &kept);
        assert_eq!((more.changed, more.after.delivered), (0, 1), "{name}: {:?}", more.changes);
    }
}

#[test]
fn what_was_never_tried_is_unknown_if_the_new_book_lets_deliveries_start_otherwise() {
    let old = depending("api", "");
    let mut waiting = happens(&old, 1, 5, |_| 200);
    waiting.stories = Vec::new();
    let kept = [waiting, happens(&old, 2, 0, |_| 200), happens(&old, 3, 9, |_| 200)];
    let strict = "    order: session-strict\n    retry: few\n    depends_on: api\n    hold_max: 1m\n";
    let strict = shop(
        strict,
        "retry_policies:\n  few: { delays: [1s, 1s], retries: 2, jitter: none }\ndependencies:\n  api: { kind: webhook }\n",
    );
    #[rustfmt::skip]
    let cases = [
        ("the same",               depending("api", ""),                  0),
        ("another name",           depending("till", ""),                 0),
        ("no breaker",             depending("api", ", breaker: none"),   1),
        ("fewer calls at once",    depending("api", ", in_flight: 1"),    1),
        ("another way back",       depending("api", ", ramp: 0s"),        1),
        ("behind others",          strict,                                1),
    ];
    for (name, new, unknown) in cases {
        let report = test(&new, &old, &kept);
        assert_eq!((report.changed, report.certainty.unknown), (0, unknown), "{name}");
        assert!(doubts(&report).contains(&(BacktestDoubt::NotYetTried, 1)), "{name}: {:?}", report.untold);
    }
}

#[test]
fn a_breaker_is_what_it_was_whatever_its_dependency_is_called_now() {
    let old = depending("api", "");
    let kept = steady(&old, 40, down(5, 20));
    let patient = |on: &str| {
        let policy = "retry_policies:\n  few: { delays: [2s, 2s], retries: 2, jitter: none }\n";
        let dependencies = format!("dependencies:\n  {on}: {{ kind: webhook }}\n");
        shop(
            &format!("    retry: few\n    depends_on: {on}\n    hold_max: 1m\n"),
            &format!("{policy}{dependencies}"),
        )
    };
    let open = [("api", 6, 26)];
    let (same_name, other_name) =
        (beside(&patient("api"), &old, &kept, &open), beside(&patient("till"), &old, &kept, &open));
    assert_eq!((same_name.after.dead, same_name.after.delivered), (0, 40), "they wait for it");
    assert_eq!(other_name.after, same_name.after);
    assert_eq!(other_name.changes, same_name.changes);
    // When each of them has its turn is not known.
    assert!(
        doubts(&same_name).iter().any(|(doubt, _)| *doubt == BacktestDoubt::Ramp),
        "{:?}",
        same_name.untold
    );
    assert!(
        !doubts(&other_name).iter().any(|(doubt, _)| *doubt == BacktestDoubt::Breaker),
        "a name is no breaker"
    );
}

#[test]
fn other_limits_another_way_back_and_dependencies_put_together_are_told() {
    let old = depending("api", "");
    let kept = steady(&old, 20, down(5, 4));
    let spans = [("api", 6, 9)];
    let open = |is_there: &str| if is_there == "open" { &spans[..] } else { &[] };
    #[rustfmt::skip]
    let cases = [
        ("the same",                "open",   "",                     vec![],                    20),
        ("a rate",                  "closed", ", rate: 1/s",          vec![(BacktestDoubt::Limits, 20)], 0),
        ("calls at once",           "closed", ", in_flight: 1",       vec![(BacktestDoubt::Limits, 20)], 0),
        ("a ramp after an outage",  "open",   ", ramp: 1m",           vec![(BacktestDoubt::Ramp, 20)],   0),
        ("a ramp without one",      "closed", ", ramp: 1m",           vec![],                    20),
    ];
    for (name, is_open, more, expected, certain) in cases {
        let report = beside(&depending("api", more), &old, &kept, open(is_open));
        assert_eq!(doubts(&report), expected, "{name}");
        assert_eq!((report.changed, report.certainty.certain), (0, certain), "{name}");
    }

    let two = |first: &str, second: &str| {
        let service = |name: &str, on: &str| {
            format!(
                "  {name}:\n    target: {{ http: \"http://127.0.0.1:9000/\" }}\n    retry: few\n    depends_on: {on}\n    events: [\"orders.*\"]\n"
            )
        };
        read(&format!(
            "version: 1\nretry_policies:\n  few: {{ delays: [1s, 1s], retries: 2, jitter: none }}\ndependencies: {{ {} }}\nservices:\n{}{}",
            ["api", "bank", "web", "money"].map(|name| format!("{name}: {{ kind: webhook }}")).join(", "),
            service("shop", first),
            service("till", second)
        ))
    };
    let apart = two("api", "bank");
    let mut kept = steady(&apart, 20, down(5, 4));
    let mut others = kept.clone();
    for (kept, number) in others.iter_mut().zip(100_u128..) {
        kept.id = DeliveryId(number);
        kept.queue.service = Name::new("till").expect("a name");
    }
    kept.extend(others);
    #[rustfmt::skip]
    let cases = [
        ("as they were",        two("api", "bank"),  false),
        ("called otherwise",    two("web", "money"), false),
        ("the other way round", two("bank", "api"),  false),
        ("put together",        two("api", "api"),   true),
    ];
    for (name, new, is_other) in cases {
        let report = beside(&new, &apart, &kept, &[]);
        let is_told = doubts(&report).iter().any(|(doubt, _)| *doubt == BacktestDoubt::Breaker);
        assert_eq!(is_told, is_other, "{name}: {:?}", report.untold);
    }
}

#[test]
fn nothing_is_certain_of_what_another_breaker_hold_or_limit_would_have_done() {
    let book = |more: &str| {
        let policy = "retry_policies:\n  few: { delays: [1s, 1s], retries: 2, jitter: none }\n";
        shop(&format!("    retry: few\n{more}"), policy)
    };
    let old = book("    breaker: none\n");
    let (failing, well) = (steady(&old, 40, down(5, 20)), steady(&old, 40, |_| 200));
    #[rustfmt::skip]
    let cases = [
        ("the same",                       "    breaker: none\n",                      &failing, (40, 0)),
        ("a breaker where calls failed",   "",                                         &failing, (0, 20)),
        ("a breaker where none failed",    "",                                         &well,    (40, 0)),
        ("another hold",                   "    breaker: none\n    hold_max: 7m\n",    &failing, (0, 0)),
        ("another hold, and none failed",  "    breaker: none\n    hold_max: 7m\n",    &well,    (40, 0)),
    ];
    for (name, more, kept, expected) in cases {
        let report = test(&book(more), &old, kept);
        let certainty = report.certainty;
        assert_eq!((certainty.certain, certainty.unknown), expected, "{name}: {certainty:?}");
        let calls = &report.dependencies[0];
        assert_eq!(calls.certainty, certainty, "{name}: the number of calls is as certain as the outcomes");
        assert_eq!(calls.certainty.worst() == Certainty::Certain, certainty.certain == 40, "{name}");
    }
}

#[test]
fn what_shares_a_dependency_with_them_is_not_certain_while_calls_fail() {
    let book = |hold: &str| {
        let row = |event: &str, says: &str| format!("      - {{ type: {event}{says} }}\n");
        read(&format!(
            "version: 1\nretry_policies:\n  few: {{ delays: [1s, 1s], retries: 2, jitter: none }}\nservices:\n  shop:\n    target: {{ http: \"http://127.0.0.1:9000/\" }}\n    retry: few\n    breaker: none\n    events:\n{}{}",
            row("orders.placed", hold),
            row("orders.paid", "")
        ))
    };
    let old = book("");
    let mut kept = steady(&old, 40, down(5, 10));
    let mut others = kept.clone();
    for (kept, number) in others.iter_mut().zip(100_u128..) {
        kept.id = DeliveryId(number);
        kept.event_type = "orders.paid".to_owned();
    }
    kept.extend(others);
    let report = test(&book(", hold_max: 7m"), &old, &kept);
    assert!(
        doubts(&report).iter().any(|(doubt, count)| *doubt == BacktestDoubt::Shared && *count > 9),
        "{:?}",
        report.untold
    );
    let before_and_after = report.certainty.certain;
    assert!((20..=31).contains(&before_and_after), "of those that met no failure: {:?}", report.certainty);
}

#[test]
fn what_nobody_routed_would_have_gone_to_nobody_else() {
    let book = retries(1);
    let new = read(
        "version: 1\nservices:\n  all:\n    target: { http: \"http://127.0.0.1:9000/\" }\n    events: [\"*\"]\n",
    );
    let named = |number: u128, service: &str, event_type: &str| Kept {
        queue: QueueName { service: Name::new(service).expect("a name"), channel: None },
        event_type: event_type.to_owned(),
        ..happens(&book, number, 0, |_| 200)
    };
    let mut foreign = named(3, "gone", "letters.imported");
    foreign.stories[0].book = FOREIGN;
    let kept =
        [named(1, "shop", "orders.placed"), named(2, "redrive-alerts", "redrive.alert.raised"), foreign];
    let routes = test(&new, &book, &kept).newly_routed;
    let routes: Vec<_> =
        routes.iter().map(|r| (r.service.as_str(), r.event_type.as_str(), r.events)).collect();
    assert_eq!(routes, [("all", "orders.placed", 1)]);
}

#[test]
fn what_is_older_than_what_arrived_is_kept_says_so() {
    let keeping = |time: &str| {
        let policy = "retry_policies:\n  few: { delays: [1s], retries: 1, jitter: none }\n";
        shop(
            "    retry: few\n    breaker: none\n",
            &format!("{policy}defaults: {{ keep_delivered: {time} }}\n"),
        )
    };
    // The record ends 1,000 seconds after the first of them was accepted.
    for (kept_for, expected) in [("1h", vec![]), ("995s", vec![(BacktestDoubt::Retention, 5)])] {
        let old = keeping(kept_for);
        let report = beside(&old, &old, &steady(&old, 20, |_| 200), &[]);
        assert_eq!((doubts(&report), report.changed), (expected, 0), "{kept_for}");
    }
}
