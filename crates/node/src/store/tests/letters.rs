//! Dead letters: how they are numbered, counted, found, listed and given out.

use redrive_core::book::pattern::EventPattern;
use redrive_core::engine::{DeadLetterInfo, NextState};
use redrive_core::event::Event;
use redrive_core::event::attribute::{CorrelationId, EventSubject, EventType, SessionKey};
use redrive_core::ids::DeliveryId;
use redrive_core::letters::envelope::Tier;
use redrive_core::policy::category::{Category, FailureCode};

use super::Scenario;
use super::bench::{Bench, at, event, in_session, queue, settlement, to};
use super::desk::{death_of, events_of, everything, fails, found_by, named, poison, straight};
use crate::store::letter::{
    LetterFilter, LetterKey, LetterQuery, Poison, Selection, TREND_POINTS, TREND_SPAN,
};
use crate::store::{DeliveryFilter, DeliveryState, DeliveryStateName};

pub(super) const SCENARIOS: &[Scenario] = &[
    ("a letter is numbered by its death, and anew when it dies again", numbers),
    ("a letter shows its delivery, its death and its story", one_letter),
    ("letters that agree in all that is counted are of one kind", kinds),
    ("letters of one cause are one group, the most frequent first", groups),
    ("a trend has a point for each span of the last day", trend),
    ("a filter finds what it says, in lists, surveys and exports", filters),
    ("a filter finds texts wherever they are, whatever the case", texts),
    ("a cursor stays where it was while letters die and leave", cursors),
    ("a list of dead deliveries has holding ones too", listed_deliveries),
    ("an export gives letters whole, the oldest first", export),
    ("a survey tells what a selection comes to", survey),
    ("an overflow is a letter like any other", overflow),
];

fn numbers(bench: &mut Bench) {
    let (one, two) = (bench.accept(to("svc", event("1"))), bench.accept(to("svc", event("2"))));
    bench.wait(3);
    bench.end(one[0].id, fails("boom"));
    bench.end(two[0].id, fails("boom"));
    let letters = bench.letters(&LetterFilter::default());
    assert_eq!(events_of(&letters), ["2", "1"]);
    let nanos = at(3).as_nanos();
    assert_eq!((letters[1].number.0, letters[0].number.0), (nanos, nanos + 1), "no two are alike");
    assert_eq!((letters[0].died_at, letters[1].died_at), (at(3), at(3)));
    let replay = bench.replay(straight(named(&[one[0].id]))).id;
    bench.wait(4);
    bench.step(replay, 1);
    assert_eq!(events_of(&bench.letters(&LetterFilter::default())), ["2"], "one that is sent is none");
    bench.wait(1);
    bench.end(one[0].id, poison("boom"));
    let letters = bench.letters(&LetterFilter::default());
    assert_eq!((events_of(&letters), letters[0].number.0), (vec!["1", "2"], at(8).as_nanos()));
    assert_eq!((letters[0].died_at, letters[0].replays), (at(8), 1));
    bench.crash();
    let later = bench.settled("svc", event("3"), fails("boom"));
    assert!(bench.letters(&LetterFilter::default())[0].number > letters[0].number, "{later}");
}

fn one_letter(bench: &mut Bench) {
    let sent = Event { correlation_id: CorrelationId::new("c-1").ok(), ..in_session("1", "s") };
    let waiting = bench.accept(to("ord/x", sent.clone())).remove(0);
    bench.end(waiting.id, NextState::Due { at: at(2) });
    bench.wait(5);
    bench.end(waiting.id, fails("boom 17"));
    let letter = bench.reader().letter(&LetterKey::Delivery(waiting.id)).expect("it answers");
    let letter = letter.expect("it is dead");
    assert_eq!((*letter.event).clone(), sent, "with its data");
    assert_eq!(letter.death, death_of("boom 17"));
    assert_eq!(letter.delivery.stories.len(), 2);
    assert_eq!((letter.died_at, letter.replays, letter.claimed_by), (at(5), 0, None));
    assert_eq!((letter.holds, letter.imported_as), (None, None));
    let view = &letter.delivery;
    assert_eq!((view.id, view.attempts, &view.queue), (waiting.id, 2, &*queue("ord/x")));
    assert_eq!((view.session.as_deref(), view.correlation_id.as_deref()), (Some("s"), Some("c-1")));
    let asked = |id: DeliveryId| bench.reader().letter(&LetterKey::Delivery(id)).expect("it answers");
    let other = DeliveryId::new(waiting.id.seq(), !waiting.id.content());
    assert!(asked(other).is_none(), "the whole id counts");
    assert!(asked(DeliveryId::new(redrive_core::ids::Seq::new(99), 1)).is_none());
    let theirs = LetterKey::Imported("nobody's".to_owned());
    assert!(bench.reader().letter(&theirs).expect("it answers").is_none());
    let delivered = bench.settled("svc", event("2"), NextState::Delivered);
    assert!(bench.reader().letter(&LetterKey::Delivery(delivered)).expect("it answers").is_none());
}

/// Letters that differ from the first in one thing each.
fn variety() -> Vec<(&'static str, Event, DeadLetterInfo)> {
    let of_type = |text: &str| Event { event_type: EventType::new(text).expect("a type"), ..event("type") };
    let death = || death_of("boom");
    #[rustfmt::skip]
    let variety = vec![
        ("svc",   event("first"),    death()),
        ("svc",   event("same"),     DeadLetterInfo { message: "boom, but in other words".to_owned(), ..death() }),
        ("svc",   event("cause"),    death_of("bang")),
        ("svc/x", event("channel"),  death()),
        ("other", event("service"),  death()),
        ("svc",   of_type("order.paid"), death()),
        ("svc",   event("category"), DeadLetterInfo { category: Category::Permanent, ..death() }),
        ("svc",   event("code"),     DeadLetterInfo { code: FailureCode::reported("GAVE_UP"), ..death() }),
        ("svc",   event("failure"),  DeadLetterInfo { failure_code: FailureCode::reported("TEAPOT"), ..death() }),
        ("svc",   event("tier"),     DeadLetterInfo { tier: Tier::Poison, ..death() }),
        ("svc",   event("name"),     DeadLetterInfo { name: "elsewhere".to_owned(), ..death() }),
        ("svc",   event("consumers"), DeadLetterInfo { consumer_group: "others".to_owned(), ..death() }),
    ];
    variety
}

fn kill_all(bench: &mut Bench, letters: Vec<(&'static str, Event, DeadLetterInfo)>) -> Vec<DeliveryId> {
    let kill = |(name, event, death): (&str, Event, DeadLetterInfo)| {
        bench.wait(1);
        bench.settled(name, event, NextState::Dead(Box::new(death)))
    };
    letters.into_iter().map(kill).collect()
}

fn kinds(bench: &mut Bench) {
    let letters = kill_all(bench, variety());
    let kinds = bench.reader().kinds(&LetterFilter::default()).expect("it answers");
    assert_eq!(kinds.len(), letters.len() - 1, "all but one make a kind of their own");
    let many = kinds.iter().find(|kind| kind.count == 2).expect("two agree");
    assert_eq!((many.first_at, many.last_at), (at(1), at(2)));
    assert_eq!((many.name.as_str(), many.event_type.as_str()), ("_q.deadletter", "order.placed"));
    let of_cause =
        LetterFilter { fingerprint: Some(death_of("bang").fingerprint), ..LetterFilter::default() };
    let found = bench.reader().kinds(&of_cause).expect("it answers");
    assert_eq!((found.len(), found[0].count), (1, 1));
    let by_letter = LetterFilter { session: Some("nobody's".to_owned()), ..LetterFilter::default() };
    assert_eq!(bench.reader().kinds(&by_letter).expect("it answers").len(), kinds.len());
    let replay = bench.replay(straight(named(&letters[..1]))).id;
    bench.step(replay, 1);
    let kinds = bench.reader().kinds(&LetterFilter::default()).expect("it answers");
    let kind = kinds.iter().find(|kind| kind.id == many.id).expect("one is left");
    assert_eq!((kind.count, kind.first_at, kind.last_at), (1, at(2), at(2)));
    bench.audit();
    bench.purge(&everything(), 100);
    let kinds = bench.reader().kinds(&LetterFilter::default()).expect("it answers");
    assert_eq!(kinds.iter().map(|kind| kind.tier).collect::<Vec<_>>(), [Tier::Poison], "no letters, no kind");
}

fn groups(bench: &mut Bench) {
    kill_all(bench, variety());
    bench.pile("svc", 100..103);
    bench.wait(1);
    let bang = bench.settled("svc/x", event("200"), fails("bang"));
    let groups = bench.reader().groups(&LetterFilter::default(), bench.now, 10).expect("it answers");
    let [boom, bangs] = &groups[..] else { panic!("two causes: {groups:#?}") };
    assert_eq!((boom.count, boom.poison, boom.first_at, boom.last_at), (14, 1, at(1), at(15)));
    assert_eq!((bangs.count, bangs.poison, bangs.first_at, bangs.last_at), (2, 0, at(3), at(16)));
    assert_eq!((bangs.sample.delivery.id, bangs.fingerprint), (bang, death_of("bang").fingerprint));
    assert_eq!((bangs.category, &bangs.code), (Category::Transient, &death_of("bang").failure_code));
    assert_eq!(boom.queues, [(queue("svc"), 12), (queue("svc/x"), 1), (queue("other"), 1)].map(owned).into());
    let types = [("order.placed".to_owned(), 13), ("order.paid".to_owned(), 1)];
    assert_eq!(boom.event_types, types.into());
    assert_eq!(bench.reader().groups(&LetterFilter::default(), bench.now, 1).expect("it answers").len(), 1);
    #[rustfmt::skip]
    let cases = [
        ("of a channel", LetterFilter { channel: Some("x".to_owned()), ..LetterFilter::default() }, vec![1, 1]),
        ("of a tier",    LetterFilter { tier: Some(Tier::Poison), ..LetterFilter::default() },      vec![1]),
        ("of a time",    LetterFilter { from: Some(at(13)), until: Some(at(16)), ..LetterFilter::default() }, vec![3]),
        ("with a text",  LetterFilter { text: Some("other words".to_owned()), ..LetterFilter::default() }, vec![1]),
        ("of nobody",    LetterFilter { service: Some("nobody".to_owned()), ..LetterFilter::default() }, vec![]),
    ];
    for (name, filter, expected) in cases {
        let groups = bench.reader().groups(&filter, bench.now, 10).expect("it answers");
        assert_eq!(groups.iter().map(|group| group.count).collect::<Vec<_>>(), expected, "{name}");
    }
}

fn owned<T: Clone>((name, count): (std::sync::Arc<T>, u64)) -> (T, u64) {
    ((*name).clone(), count)
}

fn trend(bench: &mut Bench) {
    let span = TREND_SPAN.as_secs();
    let shown = |bench: &Bench| {
        let groups = bench.reader().groups(&LetterFilter::default(), bench.now, 10).expect("it answers");
        let points = groups.into_iter().next().expect("one cause").trend;
        assert_eq!(points.len(), TREND_POINTS);
        let last = points.iter().enumerate().filter(|(_, deaths)| **deaths > 0);
        last.map(|(index, deaths)| (TREND_POINTS - 1 - index, *deaths)).collect::<Vec<_>>()
    };
    // A span begins with it.
    bench.now = at(span - at(0).as_millis() / 1_000 % span);
    bench.settled("svc", event("1"), fails("boom"));
    bench.settled("svc/x", event("2"), fails("boom"));
    assert_eq!(shown(bench), [(0, 2)], "deaths of both kinds, in the span that goes on");
    bench.wait(span - 1);
    assert_eq!(shown(bench), [(0, 2)]);
    bench.wait(1);
    assert_eq!(shown(bench), [(1, 2)]);
    let third = bench.settled("svc", event("3"), fails("boom"));
    let replay = bench.replay(straight(named(&[third]))).id;
    bench.step(replay, 1);
    bench.end(third, NextState::Delivered);
    assert_eq!(shown(bench), [(1, 2), (0, 1)], "a death stays one, whatever becomes of the letter");
    bench.wait(span * (TREND_POINTS as u64 - 2));
    assert_eq!(shown(bench), [(TREND_POINTS - 1, 2), (TREND_POINTS - 2, 1)]);
    bench.wait(span);
    assert_eq!(shown(bench), [(TREND_POINTS - 1, 1)], "a day is all that is shown");
}

fn filters(bench: &mut Bench) {
    kill_all(bench, variety());
    let session = |key: &str| SessionKey::new(key).ok();
    bench.wait(8);
    let marked =
        Event { session: session("s-1"), correlation_id: CorrelationId::new("c-1").ok(), ..event("marked") };
    bench.settled("ord", marked, fails("boom"));
    bench.wait(1);
    let again = bench.settled("svc", event("again"), fails("boom"));
    let replay = bench.replay(straight(named(&[again]))).id;
    bench.step(replay, 1);
    bench.wait(1);
    bench.end(again, fails("boom"));
    let all = bench.letters(&LetterFilter::default()).len();
    let kinds = bench.reader().kinds(&LetterFilter { tier: Some(Tier::Poison), ..LetterFilter::default() });
    let kinds = Some(kinds.expect("it answers").iter().map(|kind| kind.id).collect());
    let filter = LetterFilter::default;
    let text = |text: &str| Some(text.to_owned());
    let pattern = |text: &str| Some(EventPattern::parse(text).expect("a pattern"));
    #[rustfmt::skip]
    let cases = [
        ("none",            filter(),                                                     all),
        ("service",         LetterFilter { service: text("svc"), ..filter() },            all - 2),
        ("channel",         LetterFilter { channel: text("x"), ..filter() },              1),
        ("its channel",     LetterFilter { service: text("svc"), channel: text("x"), ..filter() }, 1),
        ("another's",       LetterFilter { service: text("other"), channel: text("x"), ..filter() }, 0),
        ("unknown service", LetterFilter { service: text("nobody"), ..filter() },         0),
        ("no name at all",  LetterFilter { service: text("not a name!"), ..filter() },    0),
        ("queue's name",    LetterFilter { name: text("elsewhere"), ..filter() },         1),
        ("no such name",    LetterFilter { name: text("_svc.deadletter"), ..filter() },   0),
        ("subscription",    LetterFilter { subscription: text("other wants it"), ..filter() }, 1),
        ("nobody's claim",  LetterFilter { subscription: text("nobody wants it"), ..filter() }, 0),
        ("category",        LetterFilter { category: Some(Category::Permanent), ..filter() }, 1),
        ("code",            LetterFilter { code: text("GAVE_UP"), ..filter() },           1),
        ("failure's code",  LetterFilter { code: text("TEAPOT"), ..filter() },            1),
        ("unknown code",    LetterFilter { code: text("NO_SUCH_CODE"), ..filter() },      0),
        ("cause",           LetterFilter { fingerprint: Some(death_of("bang").fingerprint), ..filter() }, 1),
        ("event type",      LetterFilter { event_type: pattern("order.paid"), ..filter() }, 1),
        ("pattern",         LetterFilter { event_type: pattern("order.*"), ..filter() },  all),
        ("no such pattern", LetterFilter { event_type: pattern("todo.*"), ..filter() },   0),
        ("session",         LetterFilter { session: text("s-1"), ..filter() },            1),
        ("no such session", LetterFilter { session: text("s-2"), ..filter() },            0),
        ("correlation",     LetterFilter { correlation_id: text("c-1"), ..filter() },     1),
        ("no correlation",  LetterFilter { correlation_id: text("s-1"), ..filter() },     0),
        ("poison",          LetterFilter { tier: Some(Tier::Poison), ..filter() },        1),
        ("no poison",       LetterFilter { tier: Some(Tier::Dead), ..filter() },          all - 1),
        ("from",            LetterFilter { from: Some(at(12)), ..filter() },              3),
        ("until",           LetterFilter { until: Some(at(2)), ..filter() },              1),
        ("between",         LetterFilter { from: Some(at(2)), until: Some(at(4)), ..filter() }, 2),
        ("an empty time",   LetterFilter { from: Some(at(4)), until: Some(at(4)), ..filter() }, 0),
        ("a time and more", LetterFilter { from: Some(at(12)), service: text("ord"), ..filter() }, 1),
        ("kinds",           LetterFilter { kinds, ..filter() },                           1),
        ("no kinds",        LetterFilter { kinds: Some([].into()), ..filter() },          0),
        ("never replayed",  LetterFilter { replays_below: Some(1), ..filter() },          all - 1),
        ("replayed once",   LetterFilter { replays_below: Some(2), ..filter() },          all),
        ("a session's time", LetterFilter { session: text("s-1"), from: Some(at(21)), ..filter() }, 0),
        ("a text of it",    LetterFilter { session: text("s-1"), text: text("BOOM"), ..filter() }, 1),
    ];
    for (name, filter, expected) in cases {
        assert_eq!(bench.letters(&filter).len(), expected, "{name}");
        let selection = Selection { poison: Poison::Included, ..found_by(filter) };
        assert_eq!(bench.export(&selection).len(), expected, "{name}, exported");
        let survey = bench.reader().survey(&selection).expect("it answers");
        assert_eq!(survey.letters, expected as u64, "{name}, surveyed");
        let groups = bench.reader().groups(&selection.filter, bench.now, 100).expect("it answers");
        assert_eq!(groups.iter().map(|group| group.count).sum::<u64>(), expected as u64, "{name}, grouped");
    }
}

fn texts(bench: &mut Bench) {
    let subject = Event { subject: EventSubject::new("Büro 7").ok(), ..event("by-subject") };
    bench.settled("svc", subject, fails("one"));
    bench.settled("svc", Event { data: "{\"a\":\"GRÜN\"}".into(), ..event("by-data") }, fails("two"));
    bench.settled("svc", event("By-Id"), fails("three"));
    bench.settled(
        "svc",
        Event { data: vec![255, 0, b'X', b'y'].into(), ..event("raw") },
        fails("100% broken_"),
    );
    #[rustfmt::skip]
    let cases = [
        ("büro",     vec!["by-subject"]),
        ("grün",     vec!["by-data"]),
        ("BY-ID",    vec!["By-Id"]),
        ("xY",       vec!["raw"]),
        ("by-",      vec!["By-Id", "by-data", "by-subject"]),
        ("100%",     vec!["raw"]),
        ("n_",       vec!["raw"]),
        ("t%o",      vec![]),
        ("t_o",      vec![]),
    ];
    for (text, expected) in cases {
        let filter = LetterFilter { text: Some(text.to_owned()), ..LetterFilter::default() };
        assert_eq!(events_of(&bench.letters(&filter)), expected, "{text}");
    }
}

fn cursors(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..10);
    for filter in [
        LetterFilter::default(),
        LetterFilter { service: Some("svc".to_owned()), ..LetterFilter::default() },
        LetterFilter { from: Some(at(0)), ..LetterFilter::default() },
        LetterFilter { text: Some("boom".to_owned()), ..LetterFilter::default() },
    ] {
        let query = LetterQuery { filter, before: None, rows_max: 4 };
        let first = bench.reader().letters(&query).expect("it answers");
        assert_eq!(events_of(&first.letters), ["9", "8", "7", "6"]);
        let next = LetterQuery { before: first.next, rows_max: 100, ..query };
        let rest = bench.reader().letters(&next).expect("it answers");
        assert_eq!(events_of(&rest.letters), ["5", "4", "3", "2", "1", "0"]);
        assert!(next.before.is_some() && rest.next.is_none());
    }
    let query = LetterQuery { filter: LetterFilter::default(), before: None, rows_max: 4 };
    let first = bench.reader().letters(&query).expect("it answers");
    // The one that the cursor stands on leaves, one beyond it too, and more die.
    let replay = bench.replay(straight(named(&[letters[6], letters[3]]))).id;
    bench.step(replay, 2);
    bench.pile("svc", 20..23);
    let rest = bench.reader().letters(&LetterQuery { before: first.next, rows_max: 100, ..query.clone() });
    assert_eq!(events_of(&rest.expect("it answers").letters), ["5", "4", "2", "1", "0"]);
    bench.end(letters[3], fails("boom"));
    let rest = bench.reader().letters(&LetterQuery { before: first.next, rows_max: 100, ..query.clone() });
    assert_eq!(events_of(&rest.expect("it answers").letters), ["5", "4", "2", "1", "0"], "it died anew");
    let latest = bench.reader().letters(&query).expect("it answers");
    assert_eq!(events_of(&latest.letters), ["3", "22", "21", "20"]);
    let none = bench.reader().letters(&LetterQuery { rows_max: 0, ..query }).expect("it answers");
    assert!(none.letters.is_empty());
}

fn listed_deliveries(bench: &mut Bench) {
    bench.settled("svc", event("1"), fails("boom"));
    bench.settled("strict", in_session("2", "s"), super::desk::holds("boom"));
    bench.settled("svc", event("3"), NextState::Delivered);
    let filter =
        DeliveryFilter { state: Some(DeliveryStateName::Dead), rows_max: 10, ..DeliveryFilter::default() };
    let listed = bench.reader().list(&filter).expect("it answers").deliveries;
    assert_eq!(listed.iter().map(|view| view.event_id.as_str()).collect::<Vec<_>>(), ["2", "1"]);
    let filter = DeliveryFilter { service: Some("strict".to_owned()), ..filter };
    assert_eq!(bench.reader().list(&filter).expect("it answers").deliveries.len(), 1);
    let closed =
        DeliveryFilter { state: Some(DeliveryStateName::Closed), rows_max: 10, ..DeliveryFilter::default() };
    assert!(bench.reader().list(&closed).expect("it answers").deliveries.is_empty());
    bench.purge(&everything(), 10);
    let listed = bench.reader().list(&closed).expect("it answers").deliveries;
    assert_eq!(listed.iter().map(|view| view.event_id.as_str()).collect::<Vec<_>>(), ["2", "1"]);
    assert!(listed.iter().all(|view| matches!(view.state, DeliveryState::Closed { .. })));
}

fn export(bench: &mut Bench) {
    let letters = bench.pile("svc", 0..20);
    bench.wait(1);
    let claimed = bench.replay(straight(named(&letters[5..6]))).id;
    bench.settled("svc", event("poison"), poison("boom"));
    let exported = bench.export(&everything());
    let expected: Vec<String> = (0..20).map(|id| id.to_string()).collect();
    assert_eq!(events_of(&exported), expected, "claimed ones too");
    assert!(exported.iter().all(|letter| letter.delivery.stories.len() == 1));
    assert!(exported.iter().all(|letter| letter.event.data == letter.event.id.as_str()));
    assert_eq!(exported[5].claimed_by, Some(claimed));
    let with_poison = Selection { poison: Poison::Included, ..everything() };
    assert_eq!(bench.export(&with_poison).len(), 21);
    let early = Selection { died_until: at(3), ..everything() };
    assert_eq!(events_of(&bench.export(&early)), ["0", "1", "2"]);
    let two = named(&[letters[7], letters[2]]);
    assert_eq!(events_of(&bench.export(&two)), ["2", "7"], "by age, however they were named");
    let page = bench.reader().export(&everything(), None, 3).expect("it answers");
    assert_eq!((page.letters.len(), page.next), (3, Some(page.letters[2].number)));
}

fn survey(bench: &mut Bench) {
    for (id, key) in [("1", "s"), ("2", "s"), ("3", "t")] {
        bench.wait(1);
        bench.settled("ord", in_session(id, key), fails("boom"));
    }
    let letters = bench.pile("svc", 10..14);
    bench.wait(1);
    bench.settled("svc", event("bang"), fails("bang"));
    bench.settled("svc", event("poison"), poison("boom"));
    bench.settled("strict", in_session("holds", "s"), super::desk::holds("boom"));
    let claimed = bench.replay(straight(named(&letters[..2]))).id;
    let survey = bench.reader().survey(&everything()).expect("it answers");
    assert_eq!((survey.letters, survey.poison_left, survey.holding, survey.sessions), (7, 1, 1, 3));
    assert_eq!(survey.claimed, [(claimed, 2)].into());
    let cause = |cause: &str, name: &str| (death_of(cause).fingerprint, (*queue(name)).clone());
    let by_cause = [
        (cause("boom", "ord"), 3),
        (cause("boom", "svc"), 2),
        (cause("bang", "svc"), 1),
        (cause("boom", "strict"), 1),
    ];
    assert_eq!(survey.by_cause, by_cause.into());
    let of_type = |name: &str| ((*queue(name)).clone(), "order.placed".to_owned());
    assert_eq!(survey.by_type, [(of_type("ord"), 3), (of_type("svc"), 3), (of_type("strict"), 1)].into());
    let poison = Selection { poison: Poison::Included, ..everything() };
    assert_eq!(bench.reader().survey(&poison).expect("it answers").letters, 8);
    let early = Selection { died_until: at(2), ..everything() };
    let survey = bench.reader().survey(&early).expect("it answers");
    assert_eq!((survey.letters, survey.sessions), (2, 1));
    let some = bench.reader().survey(&named(&letters[1..3])).expect("it answers");
    assert_eq!((some.letters, some.claimed), (1, [(claimed, 1)].into()));
}

fn overflow(bench: &mut Bench) {
    let tight = crate::store::WaitingBound {
        deliveries_max: 0,
        when_full: crate::store::OverflowPolicy::DeadLetter,
        ..super::bench::ROOMY
    };
    bench.wait(1);
    bench.take(&[super::bench::bounded(to("svc/x", event("1")), tight)]);
    let letters =
        bench.letters(&LetterFilter { code: Some("BACKLOG_FULL".to_owned()), ..LetterFilter::default() });
    assert_eq!((letters.len(), letters[0].died_at), (1, at(1)));
    let death = &letters[0].death;
    assert_eq!((death.name.as_str(), death.consumer_group.as_str()), ("_svc/x.deadletter", "svc/x"));
    let replay = bench.replay(straight(everything())).id;
    let waiting = bench.step(replay, 1);
    let delivered = settlement(waiting[0].id, 0, NextState::Delivered, bench.now);
    bench.settle(delivered);
    assert_eq!(bench.now_at(waiting[0].id).state.name(), DeliveryStateName::Delivered);
}
