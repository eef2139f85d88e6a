//! Layers of retries: how they multiply, and what a caller who gives up leaves behind.

use crate::simulate::report::{DependencyReport, SimulationReport};
use crate::simulate::tests::{book, play, scenario};

/// Three attempts at `api`, one second apart.
const THREE: &str = "retry_policies:\n  thrice: { delays: [1s], retries: 2, jitter: none }\ndependencies:\n  api: { kind: webhook, breaker: none, in_flight: 1000 }\n";

fn played(service: &str, dependencies: &str) -> SimulationReport {
    let text = format!(
        "duration: 10s\narrivals: [{{ type: orders.placed, rate: 10/s, spacing: even }}]\ndependencies:\n{dependencies}"
    );
    play(&scenario(&text), &book(&format!("    retry: thrice\n{service}"), THREE), 1)
}

fn of<'a>(report: &'a SimulationReport, name: &str) -> &'a DependencyReport {
    report.dependencies.iter().find(|dependency| dependency.name == name).expect("it is told of")
}

#[test]
fn retries_of_layers_multiply() {
    let report = played(
        "",
        "  api: { latency: 5ms, calls: { middle: { attempts: 3 } } }\n  middle: { latency: 5ms, calls: { database: { attempts: 3, wait: 10ms } } }\n  database: { latency: 5ms, phases: [{ at: 0s, for: 1h, is: down }] }\n",
    );
    let told = ["api", "middle", "database"].map(|name| {
        let told = of(&report, name);
        (told.calls, told.amplification, told.calls_failed)
    });
    assert_eq!(told, [(300, 3.0, 300), (900, 9.0, 900), (2_700, 27.0, 2_700)]);
    assert_eq!((report.dead, report.attempts, report.amplification), (100, 300, 3.0), "what rules do");
    let cause = &report.dead_letters[0];
    assert_eq!((cause.dependency.as_str(), cause.failure_code.as_str()), ("api", "BAD_GATEWAY"));
    assert_eq!(of(&report, "database").behind, ["middle"]);
    assert!(of(&report, "api").behind.is_empty());
    assert_eq!(of(&report, "api").troubles.len(), 1, "who calls it is in trouble with it");
}

#[test]
fn while_all_is_well_each_layer_is_called_once() {
    let report = played(
        "",
        "  api: { latency: 5ms, calls: { users: { attempts: 3 }, stock: {} } }\n  users: { latency: 5ms }\n  stock: { latency: 10ms }\n",
    );
    for dependency in &report.dependencies {
        assert_eq!((dependency.calls, dependency.amplification), (100, 1.0), "{}", dependency.name);
    }
    assert_eq!((report.delivered, report.duplicates), (100, 0));
    assert_eq!(report.latency.expect("all arrive").p50_ms, 20, "one after the other");
}

#[test]
fn a_caller_who_gives_up_leaves_the_rest_at_work() {
    // The timeout of the rule passes long before the third attempt at the database.
    let report = played(
        "    timeout: 1s\n",
        "  api: { latency: 5ms, calls: { database: { attempts: 3, timeout: 600ms } } }\n  database: { latency: 5ms, phases: [{ at: 0s, for: 1h, is: hanging }] }\n",
    );
    let (api, database) = (of(&report, "api"), of(&report, "database"));
    assert_eq!((api.calls, api.call_latency.max_ms), (300, 1_000));
    assert_eq!(report.dead_letters[0].failure_code, "NETWORK_TIMEOUT");
    // The run ends with the last delivery, and with it what nobody waits for any more.
    assert!((890..=900).contains(&database.calls), "{}: made, whoever waited for them", database.calls);
    let slow = played(
        "    timeout: 1s\n",
        "  api: { latency: 5ms, calls: { database: {} } }\n  database: { latency: 3s }\n",
    );
    assert_eq!(slow.dead, 100);
    assert!((180..=200).contains(&slow.duplicates), "{}: most took effect three times", slow.duplicates);
}
