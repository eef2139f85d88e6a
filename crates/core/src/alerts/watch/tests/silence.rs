//! Alerts whose figure falls silent, because a breaker lets nothing through or nothing comes: one lasting incident
//! is told once.

use std::time::Duration;

use serde_json::{Value, json};

use super::{AlertWatch, World, alerts, queue};
use crate::figures::Figures;
use crate::limits;
use crate::policy::breaker::BreakerState;
use crate::policy::category::Category;

const SERVICES: &str = "dependencies: { d: { kind: webhook } }
services:
  s: { target: { log: stdout }, depends_on: d, events: [a] }
  t: { target: { log: stdout }, events: [a] }
";

fn world(alert: &str) -> World {
    World::new(&format!("{SERVICES}{}", alerts(&format!("{{ {alert}, name: x, severity: high, to: [r] }}"))))
}

/// Attempts of a service that fail and take so long.
fn slow(world: &mut World, service: &str, count: u64, millis: u64) {
    let tally = world.tally(service, "a");
    tally.attempts += count;
    tally.failed[Category::Transient as usize] += count;
    took(world, service, count, millis);
}

/// Attempts of a service that arrive and take so long.
fn took(world: &mut World, service: &str, count: u64, millis: u64) {
    let times = &mut world.figures.queues.entry(queue(service)).or_default().took_finely;
    (0..count).for_each(|_| times.add(Duration::from_millis(millis)));
}

/// A target slows down, its breaker opens, and every minute one probe finds it slow; then it is well again.
fn outage(world: &mut World, minutes: u64) -> Vec<String> {
    slow(world, "s", 20, 2_000);
    let mut told = world.told(5);
    for _ in 0..minutes {
        world.breaker("d", BreakerState::Open { until: world.now });
        told.extend(world.told(59));
        world.breaker("d", BreakerState::HalfOpen { probes_out: 1, successes: 0 });
        told.extend(world.told(1));
        slow(world, "s", 1, 2_000);
    }
    world.breaker("d", BreakerState::Closed { failures: 0 });
    for _ in 0..300 {
        took(world, "s", 1, 20);
        world.tally("s", "a").attempts += 1;
        told.extend(world.told(1));
    }
    told
}

#[test]
fn one_lasting_trouble_behind_a_breaker_is_told_once_and_ends_once() {
    for alert in [
        "when: latency_p99 > 1s over 30s by service, repeat: 24h",
        "when: latency_p99 > 1s over 30s, repeat: 24h",
        "when: error_rate > 50% over 30s by service, repeat: 24h",
        "when: error_rate > 50% over 2m by channel, repeat: 24h",
    ] {
        // Longer than silence alone would be borne with.
        let told = outage(&mut world(alert), 30);
        let stages: Vec<&str> = told.iter().filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(stages, ["Firing", "Resolved"], "{alert}: {told:?}");
    }
}

#[test]
fn a_breaker_that_stays_open_for_long_ends_nothing() {
    let mut world = world("when: latency_p99 > 1s over 30s by service, repeat: 24h");
    slow(&mut world, "s", 20, 2_000);
    world.breaker("d", BreakerState::Open { until: world.now });
    assert_eq!(world.told(2 * limits::ALERT_SILENT_FOR.as_secs()).len(), 1);
    // Once it is closed and nothing comes, there is an end to it.
    world.breaker("d", BreakerState::Closed { failures: 0 });
    assert_eq!(world.told(limits::ALERT_SILENT_FOR.as_secs() - 1), [""; 0]);
    assert_eq!(world.told(5).len(), 1);
}

#[test]
fn a_breaker_of_another_service_bars_nothing() {
    let mut world = world("when: latency_p99 > 1s over 30s by service, repeat: 24h");
    slow(&mut world, "t", 20, 2_000);
    world.breaker("d", BreakerState::Open { until: world.now });
    assert_eq!(world.told(30 + limits::ALERT_SILENT_FOR.as_secs() + 5).len(), 2);
}

#[test]
fn a_few_long_times_raise_nothing_and_a_few_short_ones_end_it() {
    let mut world = world("when: latency_p99 > 1s over 30s, repeat: 24h");
    slow(&mut world, "s", limits::ALERT_TIMES_OF_MIN - 1, 2_000);
    assert_eq!(world.told(100), [""; 0]);
    slow(&mut world, "s", limits::ALERT_TIMES_OF_MIN, 2_000);
    assert_eq!(world.told(60).len(), 1);
    took(&mut world, "s", 1, 20);
    let told = world.told(40);
    assert!(told.len() == 1 && told[0].starts_with("31: Resolved"), "{told:?}");
}

#[test]
fn a_limit_is_held_against_the_time_itself_and_not_against_a_bound() {
    #[rustfmt::skip]
    let cases = [
        ("latency_p99 > 1500ms over 1m", 1_100, false),
        ("latency_p99 > 1500ms over 1m", 1_600, true),
        ("latency_p99 > 3s over 1m",     2_000, false),
        ("latency_p99 > 1s over 1m",     1_040, true),
        ("latency_p99 > 1s over 1m",     960,   false),
        ("latency_p99 < 1s over 1m",     960,   true),
    ];
    for (when, millis, expected) in cases {
        let mut world = world(&format!("when: {when}"));
        slow(&mut world, "s", 100, millis);
        assert_eq!(!world.told(3).is_empty(), expected, "{when} with {millis} ms");
    }
}

#[test]
fn what_fires_shows_its_own_value() {
    let mut world = world("when: latency_p99 > 1s over 30s by service, repeat: 24h");
    slow(&mut world, "s", 20, 1_600);
    took(&mut world, "t", 20, 70);
    world.breaker("d", BreakerState::Open { until: world.now });
    world.told(20);
    for _ in 0..60 {
        // The other service goes on, while nothing is let through to this one.
        took(&mut world, "t", 5, 70);
        world.told(1);
    }
    let view = world.watch.views().remove(0);
    assert_eq!(view.subjects.len(), 1);
    let (of, value) = (view.subjects[0].of.as_str(), view.subjects[0].value.as_str());
    assert_eq!((of, Some(value)), ("service=s", view.value.as_deref()));
    assert!(value.starts_with("1s6") || value.starts_with("1s5"), "1.6 s are not shown as 2s: {value}");
}

#[test]
fn what_an_older_build_remembered_of_times_is_read_and_left() {
    let mut world = world("when: latency_p99 > 1s over 30s by service, repeat: 24h");
    slow(&mut world, "s", 20, 2_000);
    assert_eq!(world.told(5).len(), 1);
    let mut saved: Value = serde_json::to_value(world.watch.save()).unwrap();
    let memory = &mut saved["alerts"]["x"]["memory"];
    memory.as_object_mut().unwrap().remove("times");
    // One count for each of twenty ranges, at each of two moments.
    let counts = [0_u64; 20];
    let steps = json!([{ "at": world.now, "counts": counts }, { "at": world.now, "counts": counts }]);
    memory["series"] = json!({ "service=s": { "before": [], "steps": steps, "last": counts } });
    world.watch = AlertWatch::new(&world.book, world.now);
    world.watch.restore(serde_json::from_value(saved).unwrap());
    world.figures = Figures::default();
    assert_eq!(world.told(60), [""; 0], "it still fires, and nobody is told again");
    took(&mut world, "s", 20, 20);
    let told = world.told(60);
    assert!(told.len() == 1 && told[0].starts_with("31: Resolved"), "{told:?}");
}
