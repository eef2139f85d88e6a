//! Alerts in a small world whose figures are set by hand, second by second.

mod catalog;
mod incidents;
mod laws;
mod scope;
mod silence;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::super::incident::Incidents;
use super::super::notice::{AlertNotice, AlertStage, AlertSubject};
use super::super::sample::{AlertSample, LetterSample, QueueSample, SourceSample};
use super::super::view::AlertState;
use super::AlertWatch;
use crate::book::RuleBook;
use crate::book::connectors::built_in;
use crate::engine::{DependencyView, QueueName};
use crate::figures::{AttemptTally, Figures};
use crate::ids::{ChannelName, DependencyName, ServiceName};
use crate::limits;
use crate::policy::breaker::BreakerState;
use crate::policy::category::Category;
use crate::time::Timestamp;

/// Everything that alerts look at, set by hand.
struct World {
    book: RuleBook,
    watch: AlertWatch,
    figures: Figures,
    dependencies: Vec<DependencyView>,
    queues: Vec<QueueSample>,
    letters: Vec<LetterSample>,
    incidents: Incidents,
    sources: Vec<SourceSample>,
    now: Timestamp,
}

fn book(text: &str) -> RuleBook {
    let reading = crate::book::read(&format!("version: 1\n{text}"), built_in());
    reading.book.unwrap_or_else(|| panic!("no book: {:?}\n{text}", reading.problems))
}

fn queue(name: &str) -> Arc<QueueName> {
    let (service, channel) = name.split_once('/').map_or((name, None), |(name, of)| (name, Some(of)));
    Arc::new(QueueName {
        service: ServiceName::new(service).unwrap(),
        channel: channel.map(|channel| ChannelName::new(channel).unwrap()),
    })
}

impl World {
    /// A Monday at noon.
    fn new(text: &str) -> Self {
        let (book, now) = (book(text), "2026-03-02T12:00:00Z".parse().unwrap());
        let watch = AlertWatch::new(&book, now);
        let (figures, dependencies, queues, letters, incidents, sources) = Default::default();
        Self { book, watch, figures, dependencies, queues, letters, incidents, sources, now }
    }

    /// The counts of events of a type in a queue.
    fn tally(&mut self, name: &str, event_type: &str) -> &mut AttemptTally {
        self.figures.queues.entry(queue(name)).or_default().types.entry(event_type.into()).or_default()
    }

    /// Attempts of `s`, some of which failed.
    fn attempts(&mut self, failed: u64, all: u64) {
        let tally = self.tally("s", "a");
        tally.attempts += all;
        tally.failed[Category::Transient as usize] += failed;
    }

    fn queue(&mut self, name: &str) -> &mut QueueSample {
        let name = queue(name);
        if !self.queues.iter().any(|queue| queue.name == name) {
            let (waiting, dead, oldest_waiting_at, oldest_dead_at) = Default::default();
            self.queues.push(QueueSample {
                without_rule: 0,
                name: name.clone(),
                waiting,
                oldest_waiting_at,
                dead,
                oldest_dead_at,
            });
        }
        self.queues.iter_mut().find(|queue| queue.name == name).unwrap()
    }

    fn breaker(&mut self, name: &str, state: BreakerState) {
        let name = DependencyName::new(name).unwrap();
        self.dependencies.retain(|dependency| dependency.name != name);
        let view = DependencyView {
            name,
            breaker: state,
            failures: 0,
            not_closed_since: None,
            in_flight: 0,
            rate: None,
            held_until: None,
        };
        self.dependencies.push(view);
    }

    fn letter(&mut self, at: &str, event_type: &str, category: Category, fingerprint: &str, count: u64) {
        let (queue, oldest_at) = (queue(at), Some(self.now));
        let (event_type, fingerprint) = (event_type.into(), fingerprint.into());
        self.letters.push(LetterSample { queue, category, event_type, fingerprint, count, oldest_at });
    }

    /// Looks once, after so many seconds.
    fn look(&mut self, after_secs: u64) -> Vec<AlertNotice> {
        self.now = self.now + Duration::from_secs(after_secs);
        let Self { book, watch, figures, dependencies, queues, letters, incidents, sources, now } = self;
        let (incidents, letters) = (&*incidents.samples(*now), Some(&**letters));
        watch.evaluate(&AlertSample {
            at: *now,
            book,
            figures,
            dependencies,
            queues,
            letters,
            incidents,
            sources,
        })
    }

    /// Looks each second for a while, and says what was told: the second, the stage, to whom, and the summary.
    fn told(&mut self, secs: u64) -> Vec<String> {
        let told = (1..=secs).flat_map(|second| {
            let notices = self.look(1);
            notices.into_iter().map(move |notice| {
                let AlertNotice { stage, receiver, summary, .. } = notice;
                format!("{second}: {stage:?} {receiver}: {summary}")
            })
        });
        told.collect()
    }
}

const RECEIVERS: &str =
    "receivers: { r: { webhook: \"http://r.test/\" }, q: { webhook: \"http://q.test/\" } }\n";

fn alerts(alerts: &str) -> String {
    format!("alerts: [{alerts}]\n{RECEIVERS}")
}

#[test]
fn an_alert_is_told_once_repeated_and_resolved() {
    let mut world = World::new(&alerts("{ when: dead_letters > 5, name: many, severity: high, to: [r, q] }"));
    world.queue("s").dead = 5;
    assert_eq!(world.told(100), [""; 0]);
    world.queue("s").dead = 6;
    assert_eq!(world.told(3_600), ["1: Firing r: many: 6", "1: Firing q: many: 6"]);
    world.queue("s").dead = 7;
    let expected = ["1: Repeated r: many: 7, firing for 1h", "1: Repeated q: many: 7, firing for 1h"];
    assert_eq!(world.told(100), expected);
    world.queue("s").dead = 0;
    let expected =
        ["61: Resolved q: many resolved after 1h2m40s", "61: Resolved r: many resolved after 1h2m40s"];
    assert_eq!(world.told(4_000), expected);
}

#[test]
fn what_begins_while_it_lasts_is_told_together_and_not_at_once() {
    let mut world =
        World::new(&alerts("{ when: dead_letters > 0 by service, name: d, severity: high, to: [r] }"));
    world.queue("a").dead = 1;
    assert_eq!(world.told(2), ["1: Firing r: d: service=a is 1"]);
    for service in ["b", "c"] {
        world.queue(service).dead = 2;
    }
    assert_eq!(world.told(58), [""; 0]);
    world.queue("d").dead = 3;
    assert_eq!(world.told(60), ["1: Firing r: d: service=d is 3, and 2 more"]);
    world.queue("b").dead = 0;
    assert_eq!(world.told(600), [""; 0], "what is over for one of many is not told for itself");
    world.queue("b").dead = 4;
    assert_eq!(world.told(600), ["1: Firing r: d: service=b is 4"], "it has begun again");
}

#[test]
fn whoever_keeps_a_record_of_each_is_told_all_and_which_have_ended() {
    let text = "alerts: [{ when: dead_letters > 0 by service, name: d, severity: high, to: [am] }]
receivers: { am: { alertmanager: \"http://am.test/\" } }\n";
    let mut world = World::new(text);
    let names = |subjects: &[AlertSubject]| subjects.iter().map(|of| of.of.clone()).collect::<BTreeSet<_>>();
    for service in 0..30 {
        world.queue(&format!("s{service:02}")).dead = 1 + service;
    }
    let began = world.look(1).remove(0);
    assert_eq!((began.subjects.len(), began.more), (30, 0));
    world.queue("s07").dead = 0;
    let told: Vec<AlertNotice> = (0..200).flat_map(|_| world.look(1)).collect();
    let [part] = told.as_slice() else { panic!("one message, not {told:?}") };
    assert_eq!((part.stage, part.subjects.len()), (AlertStage::Firing, 29));
    assert_eq!(names(&part.ended), BTreeSet::from(["service=s07".to_owned()]));
    // Then it ends for all.
    for service in 0..30 {
        world.queue(&format!("s{service:02}")).dead = 0;
    }
    let told: Vec<AlertNotice> = (0..200).flat_map(|_| world.look(1)).collect();
    let [over] = told.as_slice() else { panic!("one message, not {told:?}") };
    assert_eq!((over.stage, names(&over.subjects)), (AlertStage::Resolved, names(&part.subjects)));
}

#[test]
fn a_message_names_some_and_counts_the_rest() {
    let mut world =
        World::new(&alerts("{ when: dead_letters > 0 by service, name: d, severity: high, to: [r] }"));
    for service in 0..50 {
        world.queue(&format!("s{service:02}")).dead = 1 + service;
    }
    let notices = world.look(1);
    let [notice] = notices.as_slice() else { panic!("one message, not {}", notices.len()) };
    assert_eq!(notice.subjects.len(), limits::ALERT_SUBJECTS_SHOWN_MAX);
    assert_eq!((notice.subjects[0].of.as_str(), notice.subjects[0].value.as_str()), ("service=s49", "50"));
    assert_eq!(notice.more, 30);
    assert_eq!(notice.summary, "d: service=s49 is 50, and 49 more");
}

#[test]
fn a_storm_is_a_few_messages_a_minute_and_nothing_is_lost() {
    let many: Vec<String> = (0..40)
        .map(|n| {
            let severity = if n == 39 { "critical" } else { "warning" };
            format!("{{ when: dead_letters > {n}, name: n{n}, severity: {severity}, to: [r] }}")
        })
        .collect();
    let mut world = World::new(&alerts(&many.join(", ")));
    world.queue("s").dead = 1_000;
    let first = world.told(1);
    assert_eq!(first.len(), limits::ALERT_NOTICES_MAX);
    assert_eq!(first[0], "1: Firing r: n39: 1000", "the most urgent comes first");
    assert_eq!(world.told(58), [""; 0]);
    assert_eq!(world.told(121).len(), 2 * limits::ALERT_NOTICES_MAX);
    // Ten have not been told yet that it began; they are told that it was.
    world.queue("s").dead = 0;
    let over = world.told(600);
    assert_eq!(over.iter().filter(|line| line.contains("Resolved")).count(), 40);
    assert_eq!(world.told(600), [""; 0]);
}

#[test]
fn whoever_is_away_is_told_when_they_are_back_if_it_still_fires() {
    let text = "alerts: [{ when: dead_letters > 0, name: d, severity: warning, to: [office] }]
receivers: { office: { webhook: \"http://r.test/\", hours: \"Mon-Fri 09:00-17:00 UTC\" } }\n";
    let mut world = World::new(text);
    world.now = "2026-03-02T17:30:00Z".parse().unwrap();
    world.queue("s").dead = 1;
    assert_eq!(world.look(1), []);
    world.now = "2026-03-03T08:59:58Z".parse().unwrap();
    assert_eq!(world.told(5), ["2: Firing office: d: 1"]);
    // It is over at night, and told in the morning; what begins and ends at night is not told at all.
    world.now = "2026-03-03T20:00:00Z".parse().unwrap();
    world.queue("s").dead = 0;
    assert_eq!(world.told(100), [""; 0]);
    world.now = "2026-03-04T08:59:58Z".parse().unwrap();
    assert_eq!(world.told(5), ["2: Resolved office: d resolved after 26h31m"]);
    world.now = "2026-03-04T20:00:00Z".parse().unwrap();
    world.queue("s").dead = 1;
    assert_eq!(world.told(100), [""; 0]);
    world.queue("s").dead = 0;
    assert_eq!(world.told(100), [""; 0]);
    world.now = "2026-03-05T09:00:00Z".parse().unwrap();
    assert_eq!(world.told(100), [""; 0]);
}

#[test]
fn what_is_not_over_in_time_goes_to_the_next() {
    let text =
        "alerts: [{ when: dead_letters > 0, name: d, severity: critical, to: [a], escalate: [b, c, mild] }]
receivers:
  a: { webhook: \"http://r.test/\" }
  b: { webhook: \"http://r.test/\" }
  c: { webhook: \"http://r.test/\", severity: critical }
  mild: { webhook: \"http://r.test/\" }\n";
    let mut world = World::new(text);
    world.queue("s").dead = 1;
    let told = world.told(1_802);
    let expected = [
        "1: Firing a: d: 1",
        "901: Repeated a: d: 1, firing for 15m",
        "901: Firing b: d: 1",
        "1801: Repeated a: d: 1, firing for 30m",
        "1801: Repeated b: d: 1, firing for 30m",
        "1801: Firing c: d: 1",
    ];
    assert_eq!(told, expected);
    world.queue("s").dead = 0;
    let over: Vec<String> = world.told(100).iter().map(|line| line.chars().take(14).collect()).collect();
    assert_eq!(
        over,
        ["61: Resolved a", "61: Resolved b", "61: Resolved c"],
        "all who were told, and no other"
    );
}

#[test]
fn a_receiver_is_told_from_its_severity_on() {
    let text = "alerts:
  - { when: dead_letters > 0, name: d, severity: high, to: [loud, all] }
receivers: { loud: { webhook: \"http://r.test/\", severity: critical }, all: { webhook: \"http://r.test/\" } }\n";
    let mut world = World::new(text);
    world.queue("s").dead = 1;
    assert_eq!(world.told(5), ["1: Firing all: d: 1"]);
}

#[test]
fn a_share_of_few_says_nothing_unless_many_of_them_failed() {
    #[rustfmt::skip]
    let cases = [
        ("nothing at all",              0,  0,   false),
        ("one of one",                  1,  1,   false),
        ("four of four",                4,  4,   false),
        ("five of five",                5,  5,   true),
        ("five of nineteen",            5,  19,  true),
        ("one of nineteen",             1,  19,  false),
        ("one of twenty is 5 %",        1,  20,  false),
        ("two of twenty",               2,  20,  true),
    ];
    for (name, failed, all, expected) in cases {
        let mut world = World::new(&alerts("{ when: error_rate > 5% over 5m, severity: high, to: [r] }"));
        world.attempts(failed, all);
        assert_eq!(!world.told(3).is_empty(), expected, "{name}");
    }
}

#[test]
fn a_window_forgets() {
    let mut world =
        World::new(&alerts("{ when: error_rate > 10% over 5m, name: e, severity: high, to: [r] }"));
    world.attempts(20, 100);
    assert_eq!(world.told(200), ["1: Firing r: e: 20%"]);
    world.attempts(0, 100);
    assert_eq!(world.told(100), ["61: Resolved r: e resolved after 4m20s"]);
    assert_eq!(world.told(1_000), [""; 0]);
}

#[test]
fn views_say_how_things_stand() {
    let mut world =
        World::new(&alerts("{ when: breaker_open for 2m, name: b, severity: high, to: [r], action: look }"));
    let shown = |world: &World| {
        let view = world.watch.views().remove(0);
        let subjects: Vec<String> = view.subjects.iter().map(|s| format!("{} {}", s.of, s.value)).collect();
        (view.state, view.value.unwrap_or_default(), subjects, view.told)
    };
    world.breaker("d", BreakerState::Closed { failures: 0 });
    world.told(1);
    assert_eq!(shown(&world), (AlertState::Quiet, "closed".to_owned(), vec![], 0));
    world.breaker("d", BreakerState::Open { until: world.now });
    world.told(100);
    let subjects = vec!["dependency=d open".to_owned()];
    assert_eq!(shown(&world), (AlertState::Pending, "open".to_owned(), subjects.clone(), 0));
    world.breaker("d", BreakerState::HalfOpen { probes_out: 1, successes: 0 });
    world.told(30);
    assert_eq!(shown(&world), (AlertState::Firing, "open".to_owned(), subjects, 1));
}

#[test]
fn a_breaker_that_has_closed_again_is_not_called_open() {
    let mut world =
        World::new(&alerts("{ when: breaker_opened, name: b, severity: high, to: [r], action: look }"));
    let shown = |world: &World| world.watch.views().remove(0).value.unwrap_or_default();
    let trips = |world: &mut World, trips: u64| {
        world.figures.dependencies.entry(DependencyName::new("d").unwrap()).or_default().trips = trips;
    };
    world.breaker("d", BreakerState::Closed { failures: 0 });
    trips(&mut world, 0);
    world.told(1);
    assert_eq!(shown(&world), "closed");
    trips(&mut world, 1);
    world.told(1);
    assert_eq!(shown(&world), "opened within 1m");
    world.breaker("d", BreakerState::Open { until: world.now });
    world.told(1);
    assert_eq!(shown(&world), "open");
}

#[test]
fn another_book_keeps_what_stays_and_ends_what_goes() {
    let mut world = World::new(&alerts(
        "{ when: dead_letters > 0, name: d, severity: high, to: [r] }, { when: error_rate > 5% over 5m, name: e, severity: high, to: [r] }",
    ));
    world.queue("s").dead = 1;
    world.attempts(50, 100);
    assert_eq!(world.told(10).len(), 2);
    let change = |world: &mut World, text: &str| {
        world.book = book(text);
        world.watch.change(&world.book);
    };
    change(&mut world, &alerts("{ when: dead_letters > 0, name: d, severity: high, to: [r] }"));
    assert_eq!(world.told(10), ["1: Resolved r: e resolved after 10s"]);
    // What is new counts from when it came.
    change(
        &mut world,
        &alerts(
            "{ when: dead_letters > 0, name: d, severity: high, to: [r] }, { when: error_rate > 5% over 5m, name: e, severity: high, to: [r] }",
        ),
    );
    assert_eq!(world.told(10), [""; 0]);
    world.attempts(30, 100);
    assert_eq!(world.told(10), ["1: Firing r: e: 30%"]);
    // Another limit is another condition, and the same incident.
    change(&mut world, &alerts("{ when: dead_letters > 9, name: d, severity: high, to: [r] }"));
    let expected = ["1: Resolved r: d resolved after 40s", "1: Resolved r: e resolved after 10s"];
    assert_eq!(world.told(10), expected);
}

#[test]
fn a_restart_neither_repeats_nor_forgets() {
    let text = alerts(
        "{ when: dead_letters > 0, name: d, severity: high, to: [r] }, { when: error_rate > 5% over 5m for 1m, name: e, severity: high, to: [r] }",
    );
    let mut world = World::new(&text);
    world.queue("s").dead = 1;
    world.attempts(20, 100);
    assert_eq!(world.told(30), ["1: Firing r: d: 1"]);
    let saved = serde_json::to_string(&world.watch.save()).unwrap();
    world.watch = AlertWatch::new(&world.book, world.now);
    world.watch.restore(serde_json::from_str(&saved).unwrap());
    world.figures = Figures::default();
    assert_eq!(world.told(200), ["31: Firing r: e: 20%"], "what was pending goes on");
    world.queue("s").dead = 0;
    let saved = serde_json::to_string(&world.watch.save()).unwrap();
    // The other process has a book without either.
    world.book = book(RECEIVERS);
    world.watch = AlertWatch::new(&world.book, world.now);
    world.watch.restore(serde_json::from_str(&saved).unwrap());
    let told: Vec<String> = world.told(100).iter().map(|line| line.chars().take(16).collect()).collect();
    assert_eq!(told, ["1: Resolved r: d", "1: Resolved r: e"]);
}

#[test]
fn the_inflow_that_a_level_states_is_an_alert_for_everybody() {
    let text = format!(
        "services: {{ s: {{ target: {{ log: stdout }}, dead_letter: {{ alert: 5/m }}, events: [a] }} }}\n{RECEIVERS}"
    );
    let mut world = World::new(&text);
    world.tally("s", "a").dead = 5;
    world.tally("t", "a").dead = 50;
    assert_eq!(world.told(10), [""; 0]);
    world.tally("s", "a").dead = 6;
    let expected = [
        "1: Firing q: dead-letter-inflow of service s: 6/m",
        "1: Firing r: dead-letter-inflow of service s: 6/m",
    ];
    assert_eq!(world.told(10), expected);
}

#[test]
fn two_alerts_of_one_name_are_told_apart() {
    let same = "{ when: dead_letters > 0, severity: high, to: [r] }";
    let mut world = World::new(&alerts(&format!("{same}, {same}")));
    world.queue("s").dead = 1;
    let notices = world.look(1);
    let names: Vec<&str> = notices.iter().map(|notice| notice.alert.as_str()).collect();
    assert_eq!(names, ["dead_letters > 0", "dead_letters > 0 (2)"]);
    assert_ne!(notices[0].id(), notices[1].id());
}
