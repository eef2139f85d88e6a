//! What happens when targets fail, each in its own way.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::{Value, json};

use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Call, Say, Target, book, status};

fn serving(target: &Target, more: &[&str]) -> (Folder, Server) {
    let folder = Folder::with("redrive.yaml", &book(target, more));
    let server = Server::start(&folder);
    (folder, server)
}

#[test]
fn a_transient_failure_is_tried_again_with_the_same_id() {
    let target = Target::saying(&[503, 502, 200]);
    let (_folder, server) = serving(&target, &[]);
    server.accept("orders.placed", "o-1", "");
    let delivery = server.until("o-1", "delivered");
    assert_eq!(delivery["attempts"], 3);
    let calls = target.calls();
    let seen: Vec<(u32, &str, &str)> = calls
        .iter()
        .map(|call| (call.attempt(), call.webhook_id(), call.header("idempotency-key")))
        .collect();
    let id = calls[0].webhook_id();
    assert_eq!(seen, [(1, id, id), (2, id, id), (3, id, id)]);
    server.stop().assert_calm();
}

#[test]
fn retries_end_and_a_dead_letter_says_why() {
    let target = Target::saying(&[503]);
    let (_folder, server) = serving(&target, &[]);
    server.accept("orders.placed", "o-1", "");
    let dead = server.until("o-1", "dead");
    assert_eq!((&dead["attempts"], target.count()), (&json!(4), 4));
    assert_eq!(dead["death"]["code"], "MAX_RETRIES_EXCEEDED", "{dead}");
    assert_eq!(dead["death"]["category"], "transient");
    assert_eq!(server.status()["services"][0]["dead"], 1);
    server.stop().assert_calm();
}

/// When a second call came after the first, if the target asked for two seconds' patience in that way.
fn waited_for(retry_after: impl Fn() -> &'static str + Send + Sync + 'static) -> Duration {
    let target = Target::start(move |call: &Call| match call.nth {
        1 => Say::Status(503, retry_after(), String::new()),
        _ => status(200),
    });
    let (_folder, server) = serving(&target, &[]);
    server.accept("orders.placed", "o-1", "");
    let delivery = server.until("o-1", "delivered");
    let time = |story: &Value| -> jiff::Timestamp {
        story["started_at"].as_str().expect("a time").parse().expect("a time")
    };
    let stories = delivery["stories"].as_array().expect("attempts");
    assert_eq!(stories.len(), 2, "{delivery}");
    let waited = time(&stories[1]).duration_since(time(&stories[0]));
    server.stop().assert_calm();
    waited.try_into().expect("time goes on")
}

#[test]
fn a_target_that_asks_for_patience_in_seconds_gets_it() {
    let waited = waited_for(|| "retry-after: 1\r\n");
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
}

#[test]
fn a_target_that_asks_for_patience_until_a_date_gets_it() {
    // Dates have whole seconds: one that lies two seconds ahead is more than one away.
    let waited = waited_for(|| {
        let at = jiff::Timestamp::try_from(SystemTime::now() + Duration::from_secs(2)).expect("our time");
        let date = at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        Box::leak(format!("retry-after: {date}\r\n").into_boxed_str())
    });
    assert!(waited >= Duration::from_millis(900), "{waited:?}");
}

#[test]
fn some_answers_end_it_at_once() {
    #[rustfmt::skip]
    let cases = [
        ("gone for good",           410, "permanent"),
        ("the wrong credentials",   401, "fatal"),
        ("a redirect goes nowhere", 307, "permanent"),
    ];
    let elsewhere = Target::willing();
    let location: &'static str = Box::leak(format!("location: {}\r\n", elsewhere.url()).into_boxed_str());
    for (name, said, category) in cases {
        let target = Target::start(move |_| Say::Status(said, location, "because".to_owned()));
        let (_folder, server) = serving(&target, &[]);
        server.accept("orders.placed", "o-1", "");
        let dead = server.until("o-1", "dead");
        assert_eq!(
            (&dead["death"]["category"], &dead["attempts"]),
            (&json!(category), &json!(1)),
            "{name}: {dead}"
        );
        assert_eq!(dead["stories"][0]["status"], said, "{name}");
        assert!(
            dead["stories"][0]["response"].as_str().is_some_and(|body| body.contains("because")),
            "{dead}"
        );
        assert_eq!(target.count(), 1, "{name}");
        server.stop().assert_calm();
    }
    assert_eq!(elsewhere.count(), 0, "nobody was sent there");
}

#[test]
fn an_answer_may_pause_the_service_and_nothing_is_burnt() {
    let target = Target::saying(&[410, 200]);
    let (_folder, server) = serving(&target, &["on_failure: { 410: pause }"]);
    server.accept("orders.placed", "o-1", "");
    server.err.wait_for("service paused");
    let held = server.until("o-1", "held");
    assert!(server.status()["services"][0]["paused_since"].is_string());
    assert_eq!(held["stories"][0]["verdict"]["is"], "paused", "{held}");
    server.accept("orders.placed", "o-2", "");
    assert_eq!(server.until("o-2", "held")["attempts"], 0);
    assert_eq!(target.count(), 1);
    assert_eq!(server.post("/v1/services/orders/resume", "", "").status, 200);
    // The target takes the first on its second try; the second one then meets what the first one met.
    server.until("o-1", "delivered");
    until("the second was called for", || (target.count() >= 3).then_some(()));
    server.stop().assert_calm();
}

#[test]
fn a_target_that_is_not_there_is_called_again() {
    let target = Target::willing();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let rules = book(&target, &["breaker: none"]).replace(&target.address.to_string(), &gone.to_string());
    let folder = Folder::with("redrive.yaml", &rules.replace("retries: 3", "retries: unlimited"));
    let server = Server::start(&folder);
    server.accept("orders.placed", "o-1", "");
    until("it was tried", || (server.delivery("o-1")["attempts"].as_u64() > Some(1)).then_some(()));
    let delivery = server.delivery("o-1");
    assert_eq!(delivery["stories"][0]["category"], "transient", "{delivery}");
    // The target moves, and the book says so.
    folder.write("redrive.yaml", book(&target, &["breaker: none"]));
    server.signal("HUP");
    server.until("o-1", "delivered");
    server.stop().assert_calm();
}

#[test]
fn only_what_failed_in_a_batch_is_sent_again() {
    let target = Target::start(|call: &Call| {
        let events = call.json();
        let failed: Vec<Value> = events
            .as_array()
            .expect("a list")
            .iter()
            .filter(|event| event["id"] == "o-2" && event["redriveattempt"] == 1)
            .map(|event| json!({ "itemIdentifier": event["webhookid"] }))
            .collect();
        Say::Status(200, "", json!({ "batchItemFailures": failed }).to_string())
    });
    let rules = book(&target, &["on_failure: { unknown: quick }"])
        .replace(" }\n    retry", ", format: batch }\n    retry");
    let folder = Folder::with("redrive.yaml", &rules);
    let server = Server::start(&folder);
    assert_eq!(server.post("/v1/services/orders/pause", "", "").status, 200);
    for number in 0..5 {
        server.accept("orders.placed", &format!("o-{number}"), "");
    }
    assert_eq!(server.post("/v1/services/orders/resume", "", "").status, 200);
    for number in 0..5 {
        let delivery = server.until(&format!("o-{number}"), "delivered");
        assert_eq!(delivery["attempts"], if number == 2 { 2 } else { 1 }, "{delivery}");
    }
    let mut times = std::collections::BTreeMap::<String, u32>::new();
    let mut sizes = Vec::new();
    for call in target.calls() {
        let events = call.json();
        let events = events.as_array().expect("a list");
        sizes.push(events.len());
        for event in events {
            *times.entry(event["id"].as_str().expect("an id").to_owned()).or_default() += 1;
        }
    }
    assert_eq!(times.values().sum::<u32>(), 6, "{times:?}");
    assert_eq!(times["o-2"], 2);
    assert!(sizes.iter().any(|size| *size > 1), "they went out together: {sizes:?}");
    server.stop().assert_calm();
}

#[test]
fn calls_are_signed_as_standard_webhooks_says() {
    let target = Target::willing();
    let rules = book(&target, &[]).replace(" }\n    retry", ", secret: key }\n    retry");
    let folder = Folder::with("redrive.yaml", &format!("{rules}secrets: {{ key: {{ file: key.txt }} }}\n"));
    let (new, old) = ("whsec_bmV3IG9uZQ==", "whsec_b2xkIG9uZQ==");
    folder.write("key.txt", format!("{new}\n{old}\n"));
    let server = Server::start(&folder);
    server.accept("orders.placed", "o-1", "");
    let call = target.until(1).remove(0);
    let signed =
        [call.webhook_id().as_bytes(), b".", call.header("webhook-timestamp").as_bytes(), b".", &call.body]
            .concat();
    let signatures: Vec<&str> = call.header("webhook-signature").split(' ').collect();
    assert_eq!(signatures.len(), 2, "one for each secret");
    for (signature, secret) in signatures.iter().zip([new, old]) {
        let bytes = |text: &str| STANDARD.decode(text).expect("base64");
        let key = hmac::Key::new(hmac::HMAC_SHA256, &bytes(&secret["whsec_".len()..]));
        let signature = bytes(signature.strip_prefix("v1,").expect("the first version"));
        hmac::verify(&key, &signed, &signature).expect("the signature is right");
    }
    assert!(!server.err.so_far().contains("bmV3"), "no secret is logged");
    server.until("o-1", "delivered");
    server.stop().assert_calm();
}

#[test]
fn sessions_keep_their_order_while_the_target_fails() {
    const EVENTS: usize = 60;
    // Every third delivery fails twice before it is taken.
    let target = Target::start(|call: &Call| {
        let number: usize = call.event_id()[2..].parse().expect("o-NUMBER");
        if number.is_multiple_of(3) && call.nth <= 2 { status(503) } else { status(200) }
    });
    let (_folder, server) = serving(&target, &["order: session", "breaker: none"]);
    for number in 0..EVENTS {
        server.accept("orders.placed", &format!("o-{number}"), &format!("customer-{}", number % 5));
    }
    for number in 0..EVENTS {
        server.until(&format!("o-{number}"), "delivered");
    }
    for session in 0..5 {
        let calls = target.calls();
        let of_session =
            calls.iter().filter(|call| call.header("ce-partitionkey") == format!("customer-{session}"));
        let places: Vec<(u64, u32)> = of_session
            .map(|call| (call.header("redrive-sequence").parse().expect("a number"), call.attempt()))
            .collect();
        assert!(places.is_sorted() && places.len() > EVENTS / 5, "{places:?}");
        let mut unique = places.clone();
        unique.dedup();
        assert_eq!(unique, places, "no attempt was made twice");
    }
    server.stop().assert_calm();
}
