//! What an alert looks at: what its level covers, told apart by what it says.

use super::{World, alerts, queue};
use crate::figures::{OTHER, Sketch};
use crate::ids::DependencyName;
use crate::limits;
use crate::policy::breaker::BreakerState;
use crate::policy::category::Category;
use std::time::Duration;

/// Two services, one with a channel; three rows that call three dependencies.
fn book_with(level: &str, alert: &str) -> String {
    let list = format!("alerts: [{alert}]");
    let at = |wanted: &str| if level == wanted { format!(", {list}") } else { String::new() };
    let of_book = if level == "book" { list.clone() } else { String::new() };
    format!(
        "{of_book}
dependencies: {{ one: {{ kind: webhook{dependency} }}, two: {{ kind: webhook }}, three: {{ kind: webhook }} }}
services:
  s:
    target: {{ log: stdout }}
    events: [{{ type: a.*, depends_on: one{row} }}, {{ type: a.b, depends_on: two }}]
    channels: {{ c: {{ depends_on: three, events: [a.b]{channel} }} }}{service}
  t: {{ target: {{ log: stdout }}, depends_on: one, events: [a.b] }}
receivers: {{ r: {{ webhook: \"http://r.test/\" }} }}
",
        dependency = at("dependency"),
        row = at("row"),
        channel = at("channel"),
        service = if level == "service" { format!("\n    {list}") } else { String::new() },
    )
}

/// Ten failures, letters and waiting deliveries in each cell, times a different power of two.
fn fill(world: &mut World) {
    let source = |name: &str, lag| super::SourceSample { name: name.to_owned(), lag };
    world.sources = vec![source("spool", 6), source("quick", 1)];
    let cells =
        [("s", "a.x", "one", 1), ("s", "a.b", "two", 2), ("s/c", "a.b", "three", 4), ("t", "a.b", "one", 8)];
    for (place, event_type, dependency, times) in cells {
        let failed = 10 * times;
        let tally = world.tally(place, event_type);
        tally.attempts = 1_000;
        tally.failed[Category::Transient as usize] = failed;
        tally.unauthorized = failed;
        let dependencies = &mut world.figures.dependencies;
        let of = dependencies.entry(DependencyName::new(dependency).unwrap()).or_default();
        of.tally.attempts += 1_000;
        of.tally.failed[Category::Transient as usize] += failed;
        of.tally.unauthorized += failed;
        let mut took = Sketch::default();
        // Enough of them to be no chance.
        (0..limits::ALERT_TIMES_OF_MIN).for_each(|_| took.add(Duration::from_secs(times)));
        of.took_finely.merge(&took);
        world.figures.queues.get_mut(&queue(place)).unwrap().took_finely.merge(&took);
        world.queue(place).dead += failed;
        world.queue(place).waiting += failed;
        let category = if times > 2 { Category::Invalid } else { Category::Transient };
        world.letter(place, event_type, category, &format!("f{}", times.min(4)), failed);
        world.breaker(dependency, BreakerState::Open { until: world.now });
    }
    // Deliveries of notifications count in no alert.
    world.tally("redrive-alerts/r", "redrive.alert.firing").unauthorized = 1_000_000;
    world.queue("redrive-alerts/r").dead = 1_000_000;
    world.breaker("redrive-alerts:r", BreakerState::Open { until: world.now });
}

fn found(level: &str, when: &str) -> Vec<String> {
    let mut world = World::new(&book_with(level, &format!("{{ when: {when}, severity: high, to: [r] }}")));
    fill(&mut world);
    let mut notices = world.look(1);
    let subjects = if notices.is_empty() { Vec::new() } else { notices.remove(0).subjects };
    let mut shown: Vec<String> = subjects
        .iter()
        .map(|subject| format!("{} {}", subject.of, subject.value).trim().to_owned())
        .collect();
    shown.sort();
    shown
}

#[test]
fn a_level_covers_what_stands_below_it() {
    #[rustfmt::skip]
    let cases = [
        ("book",       "auth_failures > 1/m",   vec!["150/m"]),
        ("service",    "auth_failures > 1/m",   vec!["70/m"]),
        ("channel",    "auth_failures > 1/m",   vec!["40/m"]),
        ("row",        "auth_failures > 1/m",   vec!["10/m"]),
        ("dependency", "auth_failures > 1/m",   vec!["90/m"]),
        ("book",       "dead_letters > 1",      vec!["150"]),
        ("service",    "dead_letters > 1",      vec!["70"]),
        ("channel",    "dead_letters > 1",      vec!["40"]),
        ("row",        "dead_letters > 1",      vec!["10"]),
        ("dependency", "dead_letters > 1",      vec!["90"]),
        ("service",    "consumer_lag > 1",      vec!["70"]),
        ("channel",    "consumer_lag > 1",      vec!["40"]),
        ("book",       "breaker_opened",        vec!["dependency=one open", "dependency=three open", "dependency=two open"]),
        ("service",    "breaker_opened",        vec!["dependency=one open", "dependency=three open", "dependency=two open"]),
        ("channel",    "breaker_opened",        vec!["dependency=three open"]),
        ("row",        "breaker_opened",        vec!["dependency=one open"]),
        ("dependency", "breaker_opened",        vec!["dependency=one open"]),
    ];
    for (level, when, expected) in cases {
        assert_eq!(found(level, when), expected, "{level}: {when}");
    }
}

#[test]
fn figures_are_told_apart_by_what_the_alert_says() {
    #[rustfmt::skip]
    let cases = [
        ("book",       "error_rate > 0.1% over 5m by service",     vec!["service=s 2.3%", "service=t 8%"]),
        ("book",       "error_rate > 0.1% over 5m by channel",     vec!["channel=s 1.5%", "channel=s/c 4%", "channel=t 8%"]),
        ("book",       "error_rate > 0.1% over 5m by dependency",  vec!["dependency=one 4.5%", "dependency=three 4%", "dependency=two 2%"]),
        ("book",       "error_rate > 0.1% over 5m by event_type",  vec!["event_type=a.b 4.7%", "event_type=a.x 1%"]),
        ("book",       "error_rate > 0.1% over 5m by category",    vec!["category=transient 3.8%"]),
        ("service",    "error_rate > 0.1% over 5m by dependency",  vec!["dependency=one 1%", "dependency=three 4%", "dependency=two 2%"]),
        ("dependency", "error_rate > 0.1% over 5m by service",     vec!["service=s 1%", "service=t 8%"]),
        ("dependency", "error_rate > 0.1% over 5m by category",    vec!["category=transient 4.5%"]),
        ("book",       "dead_letters > 1 by service",              vec!["service=s 70", "service=t 80"]),
        ("book",       "dead_letters > 1 by dependency",           vec!["dependency=one 90", "dependency=three 40", "dependency=two 20"]),
        ("book",       "dead_letters > 1 by category",             vec!["category=invalid 120", "category=transient 30"]),
        ("book",       "dead_letters > 1 by event_type",           vec!["event_type=a.b 140", "event_type=a.x 10"]),
        ("book",       "dead_letters > 1 by fingerprint",          vec!["fingerprint=f1 10", "fingerprint=f2 20", "fingerprint=f4 120"]),
        ("book",       "consumer_lag > 1 by source",               vec!["source=spool 6"]),
        ("book",       "consumer_lag > 1 by channel",              vec!["channel=s 30", "channel=s/c 40", "channel=t 80"]),
        ("book",       "latency_p99 > 1ms by dependency",          vec!["dependency=one 8s70ms", "dependency=three 4s40ms", "dependency=two 2s20ms"]),
        ("dependency", "latency_p99 > 1ms",                        vec!["8s70ms"]),
    ];
    for (level, when, expected) in cases {
        assert_eq!(found(level, when), expected, "{level}: {when}");
    }
}

#[test]
fn what_finds_no_place_is_counted_together() {
    let mut world =
        World::new(&alerts("{ when: auth_failures > 1/m by event_type, name: x, severity: high, to: [r] }"));
    for place in 0..limits::ALERT_GROUPS_MAX + 5 {
        world.tally("s", &format!("t{place:04}")).unauthorized = 2;
    }
    let notices = world.look(1);
    assert_eq!(notices.len(), 1);
    assert_eq!(notices[0].subjects[0].of, OTHER);
    assert_eq!(notices[0].subjects[0].value, "10/m");
    assert_eq!(notices[0].more, (limits::ALERT_GROUPS_MAX + 1 - notices[0].subjects.len()) as u64);
    for _ in 0..100 {
        world.look(1);
    }
    assert_eq!(world.watch.views()[0].more, (limits::ALERT_GROUPS_MAX + 1 - 20) as u64);
}

#[test]
fn what_was_not_looked_up_changes_nothing() {
    let mut world =
        World::new(&alerts("{ when: dead_letters > 1 by fingerprint, name: x, severity: high, to: [r] }"));
    assert!(world.watch.needs().letters);
    world.letter("s", "a", Category::Invalid, "f", 5);
    assert_eq!(world.told(1), ["1: Firing r: x: fingerprint=f is 5"]);
    for _ in 0..100 {
        world.now = world.now + Duration::from_secs(1);
        let World { book, watch, figures, dependencies, queues, now, .. } = &mut world;
        let sample = super::AlertSample {
            at: *now,
            book,
            figures,
            dependencies,
            queues,
            letters: None,
            incidents: &[],
            sources: &[],
        };
        assert_eq!(watch.evaluate(&sample), []);
    }
    world.letters.clear();
    assert_eq!(world.told(100), ["61: Resolved r: x resolved after 2m41s"]);
}
