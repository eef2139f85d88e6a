//! What filters find, page by page, against a plain test of every letter.

use std::collections::BTreeSet;

use redrive_core::book::pattern::EventPattern;
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::replay::ReplayId;
use redrive_core::time::Timestamp;

use super::{KINDS, LETTERS, Table, of};
use crate::store::letter::{
    KindId, LetterFilter, LetterKey, LetterNumber, LetterQuery, Poison, Selection, TREND_POINTS,
};
use crate::store::{DeliveryFilter, DeliveryState, DeliveryStateName, LetterClosure, StoreReader};

type Case = (&'static str, LetterFilter, fn(u64) -> bool);

fn any() -> LetterFilter {
    LetterFilter::default()
}

#[rustfmt::skip]
fn cases() -> Vec<Case> {
    let pattern = |text| Some(EventPattern::parse(text).expect("a pattern"));
    vec![
        ("all",                   any(),                                                                   |_| true),
        ("a service, many kinds", LetterFilter { service: Some("service-1".into()), ..any() },                    |n| n % 2 == 1),
        ("nobody's",              LetterFilter { service: Some("service-3".into()), ..any() },                    |_| false),
        ("a channel",             LetterFilter { channel: Some("mail".into()), ..any() },                         |_| false),
        ("a claim",               LetterFilter { subscription: Some("claim-0".into()), ..any() },                 |n| n % 2 == 0),
        ("no such claim",         LetterFilter { subscription: Some("claim-9".into()), ..any() },                 |_| false),
        ("a category",            LetterFilter { category: Some(of::category(0)), ..any() },               |n| of::category(n) == of::category(0)),
        ("a reason",              LetterFilter { code: Some("EXHAUSTED".into()), ..any() },                       |_| true),
        ("a failure's code",      LetterFilter { code: Some("HTTP_502".into()), ..any() },                        |n| of::code(n) == "HTTP_502"),
        ("a cause, few kinds",    LetterFilter { fingerprint: Some(of::cause(7)), ..any() },               |n| of::cause(n) == of::cause(7)),
        ("a cause of another",    LetterFilter { fingerprint: Some(of::cause(7)), service: Some("service-0".into()), ..any() }, |n| of::kind(n) == 6),
        ("a type, rare",          LetterFilter { event_type: pattern("order.rare"), ..any() },             |n| of::kind(n) < 5),
        ("types",                 LetterFilter { event_type: pattern("order.*"), ..any() },                |_| true),
        ("a session",             LetterFilter { session: Some("session-4".into()), ..any() },                    |n| of::session(n).is_some_and(|key| key == "session-4")),
        ("no such session",       LetterFilter { session: Some("session-x".into()), ..any() },                    |_| false),
        ("a correlation",         LetterFilter { correlation_id: Some("correlation-8".into()), ..any() },         |n| of::correlation(n).is_some_and(|id| id == "correlation-8")),
        ("both",                  LetterFilter { session: Some("session-4".into()), correlation_id: Some("correlation-4".into()), ..any() },
            |n| of::session(n).is_some_and(|key| key == "session-4") && of::correlation(n).is_some_and(|id| id == "correlation-4")),
        ("poison",                LetterFilter { tier: Some(Tier::Poison), ..any() },                      |n| of::tier(n) == "poison"),
        ("from then on",          LetterFilter { from: Some(of::died_at(500)), ..any() },                  |n| n >= 500),
        ("until then",            LetterFilter { until: Some(of::died_at(30)), ..any() },                  |n| n < 30),
        ("a service in a time",   LetterFilter { service: Some("service-1".into()), from: Some(of::died_at(99)), until: Some(of::died_at(411)), ..any() },
            |n| n % 2 == 1 && (99..411).contains(&n)),
        ("a text of the message", LetterFilter { text: Some("CALL 59".into()), ..any() },                         |n| n == 59 || (590..600).contains(&n)),
        ("of the id",             LetterFilter { text: Some("Evt-31".into()), ..any() },                          |n| n == 31 || (310..320).contains(&n)),
        ("of the subject",        LetterFilter { text: Some("subject 3".into()), ..any() },                       |n| n % 9 == 3),
        ("of the data",           LetterFilter { text: Some("GRÖSSE\":\"17\"".into()), ..any() },                 |_| false),
        ("of the data, in any case", LetterFilter { text: Some("größe\":\"17\"".into()), ..any() },               |n| n % 30 == 17),
        ("never replayed",        LetterFilter { replays_below: Some(1), ..any() },                        |n| of::replays(n) == 0),
        ("two kinds",             LetterFilter { kinds: Some([KindId(3), KindId(8), KindId(9_999)].into()), ..any() }, |n| [2, 7].contains(&of::kind(n))),
        ("no kinds",              LetterFilter { kinds: Some(BTreeSet::new()), ..any() },                  |_| false),
    ]
}

fn selection(filter: &LetterFilter) -> Selection {
    Selection {
        filter: filter.clone(),
        letters: None,
        poison: Poison::Included,
        died_until: Timestamp::NEVER,
    }
}

fn number_of(number: LetterNumber) -> u64 {
    (number.0 - super::FIRST_AT) / super::STEP
}

/// All that a filter lists, page by page, by number.
fn listed(table: &Table, filter: &LetterFilter, rows_max: usize) -> Vec<u64> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let query = LetterQuery { filter: filter.clone(), before, rows_max };
        let page = table.reader.letters(&query).expect("it answers");
        assert!(page.letters.len() <= rows_max);
        found.extend(page.letters.iter().map(|letter| number_of(letter.number)));
        match page.next {
            Some(next) => before = Some(next),
            None => return found,
        }
    }
}

fn exported(table: &Table, selection: &Selection, rows_max: usize) -> Vec<u64> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = table.reader.export(selection, after, rows_max).expect("it answers");
        assert!(page.letters.len() <= rows_max);
        for letter in &page.letters {
            let n = number_of(letter.number);
            assert_eq!(*letter.event, of::event(n), "an export is whole");
            found.push(n);
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return found,
        }
    }
}

#[test]
fn a_filter_finds_all_that_fits_and_nothing_else_either_way() {
    let table = Table::new();
    for (name, filter, fits) in cases() {
        let forth: Vec<u64> = (0..LETTERS).filter(|n| fits(*n)).collect();
        let back: Vec<u64> = forth.iter().rev().copied().collect();
        for rows_max in [7, 1_000] {
            assert_eq!(listed(&table, &filter, rows_max), back, "{name}, {rows_max} a page");
            assert_eq!(exported(&table, &selection(&filter), rows_max), forth, "{name}, {rows_max} a page");
        }
    }
}

#[test]
fn a_page_ends_where_the_letters_do() {
    let table = Table::new();
    let query = |rows_max| LetterQuery { filter: any(), before: None, rows_max };
    let all = usize::try_from(LETTERS).expect("a few");
    let next = |rows_max| table.reader.letters(&query(rows_max)).expect("it answers").next;
    assert_eq!(next(all), None, "exactly all");
    assert_eq!(next(all - 1).map(number_of), Some(1), "one is left");
    assert_eq!(next(0), None, "none wanted");
}

#[test]
fn a_survey_counts_what_a_selection_comes_to() {
    let table = Table::new();
    // An open replay has claimed two letters, and one that is over has claimed a third.
    table.run(
        "INSERT INTO replays VALUES (1, 2, 'w', NULL, '', '', '', NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
        INSERT INTO replays VALUES (2, 5, 'w', NULL, '', '', '', NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2);
        UPDATE letters SET claim = 1 WHERE delivery IN (4, 6);
        UPDATE letters SET claim = 2 WHERE delivery = 8;
        UPDATE deliveries SET state = -1 WHERE seq IN (10, 12);
        INSERT INTO held VALUES (1, 10, 5, 3);",
    );
    for (name, filter, fits) in cases() {
        for (poison, died_until) in [(Poison::Left, of::died_at(450)), (Poison::Included, Timestamp::NEVER)] {
            let selection = Selection { filter: filter.clone(), letters: None, poison, died_until };
            let survey = table.reader.survey(&selection).expect("it answers");
            let all = (0..LETTERS).filter(|n| fits(*n) && of::died_at(*n) <= died_until);
            let is_left = |n: &u64| of::tier(*n) == "poison" && poison == Poison::Left;
            let (left, rest): (Vec<u64>, Vec<u64>) = all.partition(is_left);
            let (claimed, rest): (Vec<u64>, Vec<u64>) = rest.into_iter().partition(|n| [1, 2].contains(n));
            let sessions: BTreeSet<_> =
                rest.iter().filter_map(|n| Some((of::kind(*n) % 2, of::session(*n)?))).collect();
            assert_eq!(survey.letters, rest.len() as u64, "{name}");
            assert_eq!(survey.poison_left, left.len() as u64, "{name}");
            assert_eq!(
                survey.claimed.get(&ReplayId(1)).copied().unwrap_or(0),
                claimed.len() as u64,
                "{name}"
            );
            assert_eq!(survey.sessions, sessions.len() as u64, "{name}");
            assert_eq!(survey.holding, u64::from(rest.contains(&4)), "{name}: the other waits for its turn");
            assert_eq!(survey.by_cause.values().sum::<u64>(), survey.letters, "{name}");
            assert_eq!(survey.by_type.values().sum::<u64>(), survey.letters, "{name}");
            for n in rest {
                assert!(survey.by_cause.contains_key(&(of::cause(n), of::queue(n))), "{name}");
                assert!(survey.by_type.contains_key(&(of::queue(n), of::event_type(n))), "{name}");
            }
        }
    }
}

#[test]
fn letters_that_are_named_are_chosen_only_if_they_fit() {
    let table = Table::new();
    let stranger = redrive_core::ids::DeliveryId::new(of::place(3), 99);
    let letters = Some(vec![of::delivery(9), of::delivery(3), of::delivery(9), of::delivery(20), stranger]);
    let named =
        |filter, poison| Selection { filter, letters: letters.clone(), poison, died_until: Timestamp::NEVER };
    let odd = LetterFilter { service: Some("service-1".into()), ..any() };
    for (name, selection, expected) in [
        ("all of them", named(any(), Poison::Included), vec![3, 9, 20]),
        ("without poison", named(any(), Poison::Left), vec![3, 9]),
        ("of a service", named(odd, Poison::Included), vec![3, 9]),
    ] {
        assert_eq!(exported(&table, &selection, 2), expected, "{name}");
        let survey = table.reader.survey(&selection).expect("it answers");
        assert_eq!(survey.letters, expected.len() as u64, "{name}");
    }
}

#[test]
fn groups_count_what_the_filter_finds() {
    let table = Table::new();
    for (name, filter, fits) in cases() {
        let groups = table.reader.groups(&filter, of::died_at(LETTERS), 1_000).expect("it answers");
        let causes: BTreeSet<_> = (0..LETTERS).filter(|n| fits(*n)).map(of::cause).collect();
        let found: BTreeSet<_> = groups.iter().map(|group| group.fingerprint).collect();
        assert_eq!(found, causes, "{name}");
        assert!(
            groups.is_sorted_by_key(|group| (std::cmp::Reverse(group.count), group.fingerprint)),
            "{name}"
        );
        for group in groups {
            let of_it: Vec<u64> =
                (0..LETTERS).filter(|n| fits(*n) && of::cause(*n) == group.fingerprint).collect();
            let (first, last) = (of_it[0], of_it[of_it.len() - 1]);
            assert_eq!(group.count, of_it.len() as u64, "{name}");
            assert_eq!((group.first_at, group.last_at), (of::died_at(first), of::died_at(last)), "{name}");
            assert_eq!(number_of(group.sample.number), last, "{name}");
            assert_eq!(group.category, of::category(last), "{name}");
            assert_eq!(group.queues.values().sum::<u64>(), group.count, "{name}");
            assert_eq!(group.event_types.values().sum::<u64>(), group.count, "{name}");
            let poison = of_it.iter().filter(|n| of::tier(**n) == "poison").count();
            assert_eq!(group.poison, poison as u64, "{name}");
        }
    }
    let few = table.reader.groups(&any(), of::died_at(LETTERS), 3).expect("it answers");
    assert_eq!(few.len(), 3);
    assert_eq!(table.reader.groups(&any(), of::died_at(LETTERS), 0).expect("it answers").len(), 0);
}

#[test]
fn a_trend_is_a_day_of_deaths_up_to_now() {
    let table = Table::new();
    let now = of::died_at(LETTERS);
    let span = i64::try_from(now.as_nanos() / 300_000_000_000).expect("a span");
    let oldest = span - i64::try_from(TREND_POINTS).expect("a few") + 1;
    // Kinds 7 and 8 have the same cause.
    table.run(&format!(
        "INSERT INTO trend VALUES (7, {span}, 3), (8, {span}, 4), (7, {oldest}, 2), (7, {oldest} - 1, 50), (9, {span}, 60)"
    ));
    let filter = LetterFilter { fingerprint: Some(of::cause(6)), ..any() };
    let groups = table.reader.groups(&filter, now, 10).expect("it answers");
    let trend = &groups[0].trend;
    assert_eq!((trend.len(), trend[0], trend[1], trend[TREND_POINTS - 1]), (TREND_POINTS, 2, 0, 7));
}

#[test]
fn kinds_are_those_that_have_letters() {
    let table = Table::new();
    table.run("UPDATE kinds SET count = 0 WHERE id = 4");
    let kinds = table.reader.kinds(&any()).expect("it answers");
    assert_eq!(kinds.len() as u64, KINDS - 1);
    let filter = LetterFilter {
        session: Some("session-x".into()),
        kinds: Some([KindId(4), KindId(5)].into()),
        ..any()
    };
    let kinds = table.reader.kinds(&filter).expect("it answers");
    let [kind] = &kinds[..] else { panic!("{kinds:?}") };
    assert_eq!((kind.id, &kind.queue, kind.subscription.as_str()), (KindId(5), &of::queue(4), "claim-0"));
    assert_eq!((kind.first_at, kind.last_at), (of::died_at(4), of::died_at(404)));
}

#[test]
fn a_letter_is_shown_whole_by_its_id_here_or_elsewhere() {
    let table = Table::new();
    table.run(
        "INSERT INTO imported VALUES ('theirs', 16);
        UPDATE deliveries SET state = -1, lane = 5 WHERE seq IN (16, 18);
        INSERT INTO held VALUES (5, 16, 1, 4);
        INSERT INTO replays VALUES (1, 2, 'w', NULL, '', '', '', NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
        INSERT INTO replays VALUES (2, 4, 'w', NULL, '', '', '', NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
        UPDATE letters SET claim = 1 WHERE delivery = 16;
        UPDATE letters SET claim = 2 WHERE delivery = 18;",
    );
    let letter = |key| table.reader.letter(&key).expect("it answers");
    let theirs = letter(LetterKey::Imported("theirs".into())).expect("it is there");
    assert_eq!(theirs.delivery.id, of::delivery(7));
    assert_eq!((theirs.imported_as.as_deref(), theirs.claimed_by), (Some("theirs"), Some(ReplayId(1))));
    assert_eq!((theirs.holds, theirs.replays, theirs.died_at), (Some(4), 1, of::died_at(7)));
    assert_eq!(*theirs.event, of::event(7));
    assert_eq!((theirs.death.name.as_str(), theirs.death.message), ("_service-1.deadletter", of::message(7)));
    let next = letter(LetterKey::Delivery(of::delivery(8))).expect("it is there");
    assert_eq!(
        (next.holds, next.claimed_by),
        (Some(0), None),
        "its turn has not come, and the replay is over"
    );
    let other = letter(LetterKey::Delivery(of::delivery(9))).expect("it is there");
    assert_eq!(other.holds, None);
    let wrong = redrive_core::ids::DeliveryId::new(of::place(7), 0);
    assert!(letter(LetterKey::Delivery(wrong)).is_none());
    assert!(letter(LetterKey::Imported("nobody's".into())).is_none());
}

#[test]
fn deliveries_show_what_became_of_their_letters() {
    let table = Table::new();
    table.run(
        "UPDATE deliveries SET state = -1 WHERE seq = 2;
        UPDATE deliveries SET state = 5 WHERE seq = 4;
        UPDATE deliveries SET state = 6, linked = 77 WHERE seq = 6;
        UPDATE deliveries SET state = 7 WHERE seq = 8;
        UPDATE deliveries SET state = 0, replay = 3, replays = 2, linked = 78 WHERE seq = 10;
        DELETE FROM letters WHERE delivery IN (4, 6, 8, 10);",
    );
    let list = |state| {
        let filter = DeliveryFilter { state: Some(state), rows_max: 1_000, ..DeliveryFilter::default() };
        table.reader.list(&filter).expect("it answers").deliveries
    };
    let dead: Vec<_> = list(DeliveryStateName::Dead).iter().map(|view| view.id).collect();
    let expected: Vec<_> = (0..LETTERS).rev().filter(|n| !(1..=4).contains(n)).map(of::delivery).collect();
    assert_eq!(dead, expected, "those that hold are dead too");
    let closed: Vec<_> = list(DeliveryStateName::Closed).into_iter().map(|view| view.state).collect();
    let by = redrive_core::ids::Receipt::of(redrive_core::ids::Seq::new(77));
    let expected =
        [(3, LetterClosure::Purged), (2, LetterClosure::Superseded { by }), (1, LetterClosure::Skipped)];
    let expected = expected.map(|(n, how)| DeliveryState::Closed { at: of::died_at(n), how });
    assert_eq!(closed, expected);
    let ready = list(DeliveryStateName::Ready);
    assert_eq!((ready[0].replaying, ready[0].replays), (Some(ReplayId(3)), 2));
    let supersedes = redrive_core::ids::Receipt::of(redrive_core::ids::Seq::new(78));
    assert_eq!(ready[0].supersedes, Some(supersedes));
}

#[test]
fn held_sessions_are_told_from_the_oldest() {
    let table = Table::new();
    table.run("INSERT INTO held VALUES (9, 16, 30, 4), (-8, 18, 20, 5), (7, 22, 20, 6)");
    let held = |rows_max| table.reader.held_sessions(rows_max).expect("it answers");
    let letters: Vec<_> = held(10).iter().map(|session| (session.letter, session.behind)).collect();
    assert_eq!(letters, [(of::delivery(8), 5), (of::delivery(10), 6), (of::delivery(7), 4)]);
    let first = &held(1)[0];
    assert_eq!(first.session, of::session(8).expect("it has one"));
    assert_eq!((&first.queue, &first.event_type), (&of::queue(8), &of::event_type(8)));
    assert_eq!(held(2).len(), 2);
}

#[test]
fn replays_and_records_are_listed_from_the_latest() {
    let table = Table::new();
    table.run(
        r#"INSERT INTO replays VALUES (1, 3, 'one', 'why', '{"filter":{"service":"billing"}}',
            '{"rate":2.0,"concurrency":5,"manner":"canary"}', '"operator"',
            '{"service":"mail","channel":null,"order":"none"}',
            '{"replay":1,"fingerprint":"00000000000000ff","delivery":"00000000000000000000000000000001"}',
            2, 10, 6, 3, 2, 1, 4, 100, 200, 0, 1);
        INSERT INTO replays VALUES (2, 1, 'two', NULL, '{}', '{"rate":null,"concurrency":5,"manner":"straight"}',
            '{"automatic":{"times_max":3}}', NULL, NULL, 3, 0, 0, 0, 0, 0, 0, 100, 200, 0, 1);
        INSERT INTO audit VALUES (1, 5, 'purge', 'all', 7, 'why', NULL), (2, 6, 'skip', 'one', 1, NULL, 'me');"#,
    );
    let ids = |before, rows_max| -> Vec<u64> {
        let replays = table.reader.replays(before, rows_max).expect("it answers");
        replays.iter().map(|replay| replay.id.0).collect()
    };
    assert_eq!((ids(None, 10), ids(None, 1), ids(Some(ReplayId(2)), 10)), (vec![2, 1], vec![2], vec![1]));
    let one = table.reader.replay(ReplayId(1)).expect("it answers").expect("it is there");
    assert_eq!((one.tally.total, one.tally.left, one.claimed_by_others), (10, 1, 4));
    assert_eq!(one.service.as_deref(), Some("billing"));
    assert_eq!(one.to.expect("it goes elsewhere").to_string(), "mail");
    assert_eq!(one.stop.expect("it has stopped").fingerprint.0, 255);
    assert_eq!(table.reader.replay(ReplayId(3)).expect("it answers"), None);
    let audit = |before| table.reader.audit(before, 10).expect("it answers");
    assert_eq!(audit(None).iter().map(|record| record.number).collect::<Vec<_>>(), [2, 1]);
    assert_eq!((audit(Some(2))[0].act.as_str(), audit(Some(2))[0].letters), ("purge", 7));
}
