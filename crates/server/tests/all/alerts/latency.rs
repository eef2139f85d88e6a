//! Latency: a limit is compared with what attempts really took, and the probes of an open breaker change nothing.

use std::time::Duration;

use redrive_core::text::parse_duration;
use serde_json::{Value, json};

use super::{shown, stages, url_of};
use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Target, status};

/// How long the slow target takes: within the bucket of a histogram that ends at 5 s.
const TAKES: Duration = Duration::from_millis(2_200);
/// As many attempts as an alert needs, after which the breaker opens.
const ATTEMPTS: usize = 5;

fn book(slow: &Target, quick: &Target, desk: &Target) -> String {
    format!(
        "version: 1
breakers:
  soon: {{ trip: {{ consecutive: {ATTEMPTS} }}, open: 1s }}
receivers:
  hook: {{ webhook: \"{}\" }}
alerts:
  - {{ name: above, when: latency_p99 > 2100ms over 60s by service, severity: high, to: [hook], repeat: 24h }}
  - {{ name: below, when: latency_p99 > 4500ms over 60s by service, severity: high, to: [hook], repeat: 24h }}
services:
  slow:
    target: {{ http: \"{}\" }}
    retry: patient
    breaker: soon
    events: [\"orders.*\"]
  quick:
    target: {{ http: \"{}\" }}
    events: [\"stock.*\"]
",
        desk.url(),
        slow.url(),
        quick.url()
    )
}

#[test]
fn a_slow_service_is_named_with_its_own_value_and_probes_do_not_make_it_flap() {
    let slow = Target::start(|_| {
        std::thread::sleep(TAKES);
        status(503)
    });
    let (quick, desk) = (Target::willing(), Target::willing());
    let folder = Folder::with("redrive.yaml", &book(&slow, &quick, &desk));
    let server = Server::start(&folder);
    for number in 0..2 * ATTEMPTS {
        server.accept("orders.placed", &format!("order-{number}"), "");
        server.accept("stock.low", &format!("stock-{number}"), "");
    }
    let alert = |name: &str| -> Value {
        let alerts = shown(&server)["alerts"].as_array().expect("a list").clone();
        alerts.into_iter().find(|alert| alert["name"] == name).expect("the book has it")
    };
    until("it fires", || (alert("above")["state"] == "firing").then_some(()));
    let before = slow.count();
    until("the breaker has let three probes through", || (slow.count() >= before + 3).then_some(()));

    let firing = alert("above");
    let subjects = firing["subjects"].as_array().expect("a list");
    assert_eq!(subjects.len(), 1, "{firing}");
    assert_eq!((&firing["state"], &subjects[0]["of"]), (&json!("firing"), &json!("service=slow")));
    let value = subjects[0]["value"].as_str().expect("a value");
    let latency = parse_duration(value).expect("a duration");
    // The sketch is right to within 2.5 %, whatever the machine made of the time that the target takes.
    let recorded: Vec<Duration> = (0..2 * ATTEMPTS)
        .flat_map(|number| {
            let stories = server.delivery(&format!("order-{number}"))["stories"].clone();
            stories.as_array().cloned().unwrap_or_default()
        })
        .filter(|story| story["end"] == "failed")
        .map(|story| Duration::from_nanos(story["took_nanos"].as_u64().expect("a number")))
        .collect();
    let is_near = |took: &Duration| latency.abs_diff(*took) <= *took * 3 / 100;
    assert!(recorded.iter().any(is_near), "{firing}, where {recorded:?} were recorded");
    if recorded.iter().all(|took| *took < Duration::from_millis(4_300)) {
        assert_eq!(alert("below")["state"], "quiet", "no bound of a bucket is compared");
    }
    assert_eq!(stages(&desk), ["firing"], "it is told once, however often a probe is made");

    let status = folder.run(&["status", "--server", &url_of(&server)]);
    assert!(status.stdout.contains("latency_p99 > 2"), "{status:?}");
    assert!(status.stdout.contains(", service=slow is "), "{status:?}");
    assert!(!status.stdout.contains("service=quick"), "{status:?}");
    server.stop().assert_calm();
}
