//! Every alert of the catalog, just below its limit and just above it.

use std::time::Duration;

use super::{World, alerts};
use crate::alerts::catalog::{ALERTS, AT_ONCE, NAMES};
use crate::ids::DependencyName;
use crate::policy::breaker::BreakerState;
use crate::policy::category::Category;

/// What happens in the world.
#[derive(Clone, Copy, Debug)]
enum Scene {
    /// So many of so many attempts fail, of a service and of its dependency.
    Failed(Category, u64, u64),
    /// So many of so many are answered 503.
    Unavailable(u64, u64),
    /// So many of so many deliveries are tried again.
    Retried(u64, u64),
    /// So many of so many deliveries run out of retries.
    Exhausted(u64, u64),
    /// So many letters are dead.
    Letters(u64),
    /// So many letters die.
    Died(u64),
    /// The oldest died so long ago.
    Age(Duration),
    /// So many answers refuse our credentials.
    Refused(u64),
    /// So many failures are matters of configuration.
    Misconfigured(u64),
    /// So many wait.
    Waiting(u64),
    /// A breaker is open for so long.
    Open(Duration),
    /// A breaker opens and closes between two looks, so often.
    Tripped(u64),
}

impl Scene {
    fn play(self, world: &mut World) {
        let name = DependencyName::new("d").unwrap();
        let both = |world: &mut World, set: &dyn Fn(&mut crate::figures::AttemptTally)| {
            set(world.tally("s", "a"));
            set(&mut world.figures.dependencies.entry(name.clone()).or_default().tally);
        };
        match self {
            Self::Failed(category, part, whole) => both(world, &|tally| {
                tally.failed[category as usize] = part;
                tally.attempts = whole;
            }),
            Self::Unavailable(part, whole) => {
                both(world, &|tally| (tally.unavailable, tally.attempts) = (part, whole));
            }
            Self::Retried(part, whole) => both(world, &|tally| (tally.retried, tally.firsts) = (part, whole)),
            Self::Exhausted(part, whole) => {
                both(world, &|tally| {
                    (tally.exhausted, tally.dead, tally.delivered) = (part, part, whole - part);
                });
            }
            Self::Letters(count) => world.queue("s").dead = count,
            Self::Died(count) => both(world, &|tally| tally.dead = count),
            Self::Age(age) => world.queue("s").oldest_dead_at = Some(world.now - age),
            Self::Refused(count) => both(world, &|tally| tally.unauthorized = count),
            Self::Misconfigured(count) => both(world, &|tally| tally.misconfigured = count),
            Self::Waiting(count) => world.queue("s").waiting = count,
            Self::Open(span) => {
                world.breaker("d", BreakerState::Open { until: world.now });
                world.told(span.as_secs());
                world.breaker("d", BreakerState::Closed { failures: 0 });
            }
            Self::Tripped(times) => {
                world.breaker("d", BreakerState::Closed { failures: 0 });
                world.figures.dependencies.entry(name).or_default().trips = times;
            }
        }
    }
}

#[test]
fn every_alert_of_the_catalog_is_raised_above_its_limit_and_not_below() {
    use Category::{Invalid, RateLimited, Transient};
    use Scene::{
        Age, Died, Exhausted, Failed, Letters, Misconfigured, Open, Refused, Retried, Tripped, Unavailable,
        Waiting,
    };
    let secs = Duration::from_secs;
    #[rustfmt::skip]
    let cases = [
        ("high-error-rate",         Failed(Transient, 10, 1_000),    Failed(Transient, 11, 1_000)),
        ("error-rate-by-category",  Failed(Invalid, 10, 1_000),      Failed(Invalid, 11, 1_000)),
        ("critical-error-rate",     Failed(Transient, 50, 1_000),    Failed(Transient, 51, 1_000)),
        ("error-rate-over-target",  Failed(Transient, 100, 1_000),   Failed(Transient, 101, 1_000)),
        ("transient-errors",        Failed(Invalid, 500, 1_000),     Failed(RateLimited, 51, 1_000)),
        ("dependency-errors",       Failed(Transient, 50, 1_000),    Failed(Transient, 51, 1_000)),
        ("dependency-unavailable",  Unavailable(50, 100),            Unavailable(51, 100)),
        ("many-retries",            Retried(20, 100),                Retried(21, 100)),
        ("most-deliveries-retried", Retried(50, 100),                Retried(51, 100)),
        ("retries-exhausted",       Exhausted(2, 100),               Exhausted(3, 100)),
        ("breaker-opened",          Tripped(0),                      Tripped(1)),
        ("breaker-open",            Open(secs(120)),                 Open(secs(121))),
        ("breaker-stays-open",      Open(secs(600)),                 Open(secs(601))),
        ("dead-letters",            Letters(0),                      Letters(1)),
        ("dead-letters-pile-up",    Letters(100),                    Letters(101)),
        ("dead-letters-overflow",   Letters(1_000),                  Letters(1_001)),
        ("dead-letter-spike",       Died(10),                        Died(11)),
        ("dead-letters-stale",      Age(secs(48 * 3_600 - 2)),       Age(secs(48 * 3_600))),
        ("authentication-failures", Refused(10),                     Refused(11)),
        ("configuration-failures",  Misconfigured(0),                Misconfigured(1)),
        ("consumer-lag",            Waiting(10_000),                 Waiting(10_001)),
    ];
    assert_eq!(cases.map(|(name, ..)| name), ALERTS.map(|alert| alert.name), "every alert is in the table");
    for (name, below, above) in cases {
        for (scene, expected) in [(below, 0), (above, 1)] {
            let mut world = World::new(&alerts(&format!("{{ use: {name}, to: [r] }}")));
            scene.play(&mut world);
            world.look(1);
            let told = world.watch.views()[0].told;
            assert_eq!(told, expected, "{name}: {scene:?}");
        }
    }
}

#[test]
fn the_catalog_is_sorted_out() {
    for alert in ALERTS.iter().chain(&AT_ONCE) {
        assert!(alert.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", alert.name);
        assert!(
            !alert.action.ends_with('.') && alert.action.len() > 20,
            "{}: a word on what to do",
            alert.name
        );
    }
    assert!(NAMES.iter().all(|name| NAMES.iter().filter(|other| other == &name).count() == 1));
}

#[test]
fn the_docs_have_every_alert_and_every_metric_as_they_are() {
    let page = include_str!("../../../../../../docs/operations.md");
    for alert in ALERTS.iter().chain(&AT_ONCE) {
        let row = format!("| `{}` | `{}` | {} |", alert.name, alert.when, alert.severity.as_str());
        assert!(page.contains(&row), "docs/operations.md has no row {row}");
    }
    for (metric, _) in crate::book::expression::metrics() {
        assert!(page.contains(&format!("| `{metric}` |")), "docs/operations.md says nothing of {metric}");
    }
}
