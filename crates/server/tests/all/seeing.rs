//! What the page asks of a real server: services, trends, the rule book, and the live stream.

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Connection;
use crate::identity::{bearer, create, get, key_on_folder};
use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Target, book, status};

/// A book with a second service whose address has a password.
fn two_services(target: &Target) -> String {
    let url = target.url().replacen("http://", "http://user:hunter2@", 1);
    book(target, &[])
        + &format!(
            "  mail:
    target: {{ http: \"{url}\" }}
    retry: standard
    order: session
    channels:
      news: {{ events: [\"news.*\"] }}
    events: [\"mail.*\"]
"
        )
}

/// Listens to the live stream with somebody's key.
fn listen(server: &Server, key: &str) -> Connection {
    listen_with(server, &bearer(key))
}

fn listen_with(server: &Server, headers: &str) -> Connection {
    let mut connection = server.client.connect().expect("it listens");
    let head = format!("GET /v1/live HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    connection.send(head.as_bytes()).expect("it is sent");
    connection
}

/// The data of the next event of that name.
#[track_caller]
fn next(connection: &mut Connection, event: &str) -> Value {
    loop {
        let line = connection.line().expect("the stream goes on");
        if line == format!("event: {event}") {
            let data = connection.line().expect("an event has data");
            let data = data.strip_prefix("data: ").unwrap_or_else(|| panic!("no data: {data}"));
            return serde_json::from_str(data).expect("JSON");
        }
    }
}

#[test]
fn services_are_told_with_their_health_and_their_rows() {
    let target = Target::saying(&[200]);
    let folder = Folder::with("redrive.yaml", &two_services(&target));
    let server = Server::start(&folder);
    server.accept("orders.placed", "1", "");
    server.until("1", "delivered");
    let services = server.get("/v1/services").json();
    let services = services["services"].as_array().expect("a list");
    let names: Vec<_> =
        services.iter().map(|shown| (shown["service"].as_str(), shown["channel"].as_str())).collect();
    assert_eq!(names, [(Some("orders"), None), (Some("mail"), None), (Some("mail"), Some("news"))]);
    let orders = &services[0];
    assert_eq!(
        (&orders["health"], &orders["delivered"], &orders["attempts"]),
        (&json!("healthy"), &json!(1), &json!(1))
    );
    assert_eq!(orders["rows"][0]["retry"], "quick: 4 tries within 60ms");
    assert_eq!((&orders["rows"][0]["type"], &orders["rows"][0]["line"]), (&json!("orders.*"), &json!(8)));
    assert!(orders["p50_ms"].is_number() && orders["p99_ms"].is_number(), "{orders}");
    let mail = services[1].to_string();
    assert!(!mail.contains("hunter2") && mail.contains("\"order\":\"session\""), "{mail}");
    assert_eq!(server.post("/v1/services/mail/pause", "", "{}").status, 200);
    let paused = server.get("/v1/services").json()["services"][1].clone();
    assert_eq!(
        (&paused["health"], paused.get("paused_since").is_some()),
        (&json!("paused"), true),
        "{paused}"
    );
    server.stop().assert_calm();
}

/// Within the bucket of a histogram that ends at 2 s, 1.1 s was shown as 1.5 s and 1.99 s.
#[test]
fn times_are_shown_to_within_three_percent_of_what_was_recorded() {
    let target = Target::start(|_| {
        std::thread::sleep(Duration::from_millis(1_100));
        status(200)
    });
    let folder = Folder::with("redrive.yaml", &two_services(&target));
    let server = Server::start(&folder);
    let ids = ["1", "2", "3", "4", "5"];
    for id in ids {
        server.accept("orders.placed", id, "");
    }
    let mut took_ms = ids.map(|id| {
        server.until(id, "delivered");
        let stories = server.delivery(id)["stories"].clone();
        assert_eq!(stories.as_array().map(Vec::len), Some(1), "{stories}");
        stories[0]["took_nanos"].as_f64().expect("a number") / 1e6
    });
    took_ms.sort_by(f64::total_cmp);
    let metrics = server.get("/v1/metrics").json();
    let trend = until("a look was taken at all of them", || {
        let points = server.get("/v1/trend?service=orders&span=3h").json()["points"].clone();
        (points[0]["delivered"] == 5).then(|| points[0].clone())
    });
    let of_orders = |list: &Value, name: &str| {
        let mut all = list.as_array().expect("a list").iter();
        all.find(|one| one[name] == "orders").cloned().unwrap_or_else(|| panic!("{list}"))
    };
    let dependencies = server.get("/v1/dependencies").json();
    let services = server.get("/v1/services").json();
    let views = [
        ("dependencies", of_orders(&dependencies["dependencies"], "name")),
        ("services", of_orders(&services["services"], "service")),
        ("metrics", of_orders(&metrics["engine"]["dependencies"], "name")),
        ("trend", trend),
    ];
    for (view, shown) in views {
        for (key, recorded) in [("p50_ms", took_ms[2]), ("p99_ms", took_ms[4])] {
            let off = (shown[key].as_f64().unwrap_or_default() - recorded).abs() / recorded;
            assert!(off <= 0.03, "{view}: {key} of {shown}, where {took_ms:?} ms were recorded");
        }
    }
    server.stop().assert_calm();
}

#[test]
fn a_trend_says_since_when_it_knows() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &two_services(&target));
    let server = Server::start(&folder);
    server.accept("orders.placed", "1", "");
    server.until("1", "delivered");
    for (query, step_ms) in [("", 5_000), ("?span=3h", 60_000), ("?span=24h", 600_000)] {
        let trend = server.get(&format!("/v1/trend{query}")).json();
        assert_eq!((&trend["step_ms"], trend["since"].is_string()), (&json!(step_ms), true), "{trend}");
    }
    until("a look was taken", || {
        let trend = server.get("/v1/trend?service=orders").json();
        (trend["points"][0]["delivered"] == 1).then_some(())
    });
    let all = server.get("/v1/trend").json()["points"][0].clone();
    assert_eq!(
        (&all["accepted"], &all["delivered"], &all["waiting"]),
        (&json!(1), &json!(1), &json!(0)),
        "{all}"
    );
    let dependency = server.get("/v1/trend?dependency=orders").json()["points"][0].clone();
    assert_eq!(
        (&dependency["attempts"], &dependency["state"]),
        (&json!(1), &json!("closed")),
        "{dependency}"
    );
    assert_eq!(server.get("/v1/trend?service=mail").status, 200);
    assert_eq!(server.get("/v1/trend?service=nobody").error(), (404, "SERVICE_NOT_FOUND".to_owned()));
    assert_eq!(server.get("/v1/trend?dependency=no").error(), (404, "DEPENDENCY_NOT_FOUND".to_owned()));
    let test = server.post("/v1/receivers/nobody/test", "content-type: application/json\r\n", "{}");
    assert_eq!(test.error(), (404, "RECEIVER_NOT_FOUND".to_owned()));
    assert_eq!(server.get("/v1/trend?span=1y").error(), (400, "VALIDATION_ERROR".to_owned()));
    server.stop().assert_calm();
}

#[test]
fn the_rule_book_is_told_without_passwords_and_with_what_follows_from_it() {
    let target = Target::willing();
    let text = two_services(&target);
    let folder = Folder::with("redrive.yaml", &text);
    let server = Server::start(&folder);
    let answer = server.get("/v1/book");
    assert!(!answer.body.contains("hunter2"), "{answer:?}");
    let shown = answer.json();
    assert_eq!(shown["path"], "redrive.yaml");
    assert_eq!(shown["text"].as_str().map(|shown| shown.lines().count()), Some(text.lines().count()));
    let quick = shown["policies"].as_array().expect("a list").iter().find(|policy| policy["name"] == "quick");
    let quick = quick.expect("the book's own policy");
    assert_eq!((&quick["line"], &quick["used_by"]), (&json!(3), &json!(["orders orders.*"])), "{quick}");
    assert_eq!(quick["gives_up_after_ms"], 60);
    assert_eq!(
        quick["steps"][2],
        json!({ "retry": 3, "delay_ms": 20.0, "min_ms": 20.0, "max_ms": 20.0, "at_min_ms": 60.0, "at_max_ms": 60.0 })
    );
    let built_in = shown["policies"].as_array().expect("a list").iter().find(|one| one.get("line").is_none());
    assert!(built_in.is_some(), "a policy of the catalog is used: {shown}");
    assert_eq!(
        shown["services"][1],
        json!({ "service": "mail", "channels": ["news"], "types": ["mail.*", "news.*"] })
    );
    let printed = folder.run(&["check", "redrive.yaml", "--format", "json"]).stdout;
    let checked: Value = serde_json::from_str(&printed).expect("JSON");
    let codes = |list: &Value| -> Vec<String> {
        list.as_array().expect("a list").iter().map(|one| one["code"].to_string()).collect()
    };
    assert_eq!(codes(&shown["findings"]), codes(&checked), "what `redrive check` finds");

    let rule = server.get("/v1/rule?service=mail&channel=news&type=news.sent").json();
    let timeout = rule["values"].as_array().expect("a list").iter().find(|value| value["name"] == "order");
    assert_eq!(timeout.map(|value| &value["value"]), Some(&json!("session")), "{rule}");
    assert!(timeout.is_some_and(|value| {
        value["from"].as_str().is_some_and(|from| from.starts_with("the service, line"))
    }));
    assert_eq!(
        server.get("/v1/rule?service=mail&type=nothing").error(),
        (409, "EVENT_NOT_WANTED".to_owned())
    );
    assert_eq!(server.get("/v1/rule?service=mail").error(), (400, "VALIDATION_ERROR".to_owned()));
    server.stop().assert_calm();
}

#[test]
fn whoever_listens_hears_a_pulse_every_second_and_what_happens() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &two_services(&target));
    let admin = key_on_folder(&folder, &["root", "--role", "admin"]);
    let server = Server::start(&folder);
    let bound = json!({ "name": "mail-team", "role": "viewer", "services": ["mail"] });
    let bound = create(&server, &admin, &bound);
    #[rustfmt::skip]
    let cases = [
        ("/v1/trend",                                     200, "its services together"),
        ("/v1/trend?service=orders",                      403, "another's"),
        ("/v1/trend?dependency=orders",                   403, "what none of its services needs"),
        ("/v1/trend?dependency=mail",                     200, "what one of them needs"),
        ("/v1/rule?service=orders&type=orders.placed",    403, "another's rule"),
        ("/v1/rule?service=mail&type=mail.sent",          200, "its own"),
        ("/v1/book",                                      403, "the book has everybody's"),
        ("/v1/services",                                  200, "its own"),
    ];
    for (path, status, why) in cases {
        assert_eq!(get(&server, path, &bound).status, status, "{why}");
    }
    let seen = get(&server, "/v1/services", &bound).json();
    let seen: Vec<_> =
        seen["services"].as_array().expect("a list").iter().map(|one| one["service"].clone()).collect();
    assert_eq!(seen, ["mail", "mail"]);
    let (mut whole, mut part) = (listen(&server, &admin), listen(&server, &bound));
    let first = next(&mut whole, "pulse");
    assert_eq!((&first["left_out"], &first["success_rate"]), (&json!(0), &Value::Null), "{first}");
    next(&mut part, "pulse");
    // More than a listener is told of in a second.
    let events: Vec<Value> = (0..200)
        .map(|n| json!({ "specversion": "1.0", "id": n.to_string(), "source": "/test", "type": "orders.placed" }))
        .collect();
    let headers = format!("{}content-type: application/cloudevents-batch+json\r\n", bearer(&admin));
    assert_eq!(server.post("/v1/events", &headers, Value::from(events).to_string()).status, 202);
    assert_eq!(next(&mut whole, "activity")["event_type"], "orders.placed");
    let (mut left_out, mut delivered) = (0, 0.0);
    until("all of it is told of or left out", || {
        let pulse = next(&mut whole, "pulse");
        left_out += pulse["left_out"].as_u64().expect("a number");
        delivered += pulse["delivered_per_s"].as_f64().expect("a number");
        (left_out > 0 && delivered > 100.0).then_some(())
    });
    let pulse = next(&mut part, "pulse");
    let services: Vec<_> =
        pulse["services"].as_array().expect("a list").iter().map(|one| &one["service"]).collect();
    assert_eq!(services, ["mail", "mail"], "nothing of others");
    assert_eq!((pulse.get("accepted_per_s"), pulse["left_out"].as_u64()), (None, Some(0)), "{pulse}");
    let path = format!("/v1/keys/{}/revoke", &bound[..11]);
    assert_eq!(server.post(&path, &bearer(&admin), "{}").status, 200);
    until("the stream ends with its key", || match part.line() {
        Ok(line) => (line == "0").then_some(()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "it neither ends nor goes on: {error}");
            Some(())
        }
    });
    assert_eq!(get(&server, "/v1/whoami", &bound).status, 401);
    drop(whole);
    server.stop().assert_calm();
}

#[test]
fn whoever_comes_between_two_pulses_is_told_the_latest() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &two_services(&target));
    let server = Server::start(&folder);
    let mut first = listen_with(&server, "");
    until("the second is told what the first was told before it came", || {
        let told = next(&mut first, "pulse")["at"].clone();
        (next(&mut listen_with(&server, ""), "pulse")["at"] == told).then_some(())
    });
    drop(first);
    server.stop().assert_calm();
}

#[test]
fn only_so_many_listen_at_once_of_whom_nobody_takes_more_than_a_share() {
    let folder = Folder::new();
    let admin = key_on_folder(&folder, &["root", "--role", "admin"]);
    let server = Server::run(crate::server::serve(&folder, &[]));
    let keys: Vec<String> = (0..5)
        .map(|number| create(&server, &admin, &json!({ "name": format!("v{number}"), "role": "viewer" })))
        .collect();
    for path in ["/v1/live", "/v1/activity"] {
        let listen = |key: &str| {
            let mut connection = server.client.connect().expect("it listens");
            let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{}\r\n", bearer(key));
            connection.send(head.as_bytes()).expect("it is sent");
            let status = connection.line().expect("it answers");
            (status.contains(" 200 "), connection)
        };
        let refused = |key: &str, count: &str| {
            let refused = get(&server, path, key);
            assert_eq!(refused.error(), (503, "SERVICE_UNAVAILABLE".to_owned()), "{path}");
            assert!(refused.body.contains(count), "it says why: {refused:?}");
        };
        let mut places = Vec::new();
        for key in &keys[..4] {
            places.extend((0..16).map(|_| listen(key)));
            assert!(places.iter().all(|(is_heard, _)| *is_heard), "{path}: others find room");
            refused(key, "16");
        }
        refused(&keys[4], "64");
        places.pop();
        until("the place is free", || listen(&keys[4]).0.then_some(()));
    }
    server.stop().assert_calm();
}

#[test]
fn deliveries_are_found_by_what_their_events_say() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &two_services(&target));
    let server = Server::start(&folder);
    server.accept("orders.placed", "1", "customer-7");
    server.accept("orders.paid", "2", "customer-8");
    server.accept("news.sent", "3", "customer-7");
    let headers = "x-correlation-id: trace-me\r\nidempotency-key: 4\r\n";
    assert_eq!(server.post("/v1/events/mail.sent", headers, "{}").status, 202);
    for id in ["1", "2", "3", "4"] {
        server.until(id, "delivered");
    }
    #[rustfmt::skip]
    let cases: [(&str, &[&str]); 8] = [
        ("type=orders.paid",                      &["2"]),
        ("type=orders.*",                         &["2", "1"]),
        ("session=customer-7",                    &["3", "1"]),
        ("session=customer-7&type=news.*",        &["3"]),
        ("session=customer",                      &[]),
        ("correlation=trace-me",                  &["4"]),
        ("service=mail",                          &["4", "3"]),
        ("service=mail/news&state=delivered",     &["3"]),
    ];
    for (query, expected) in cases {
        let found = server.get(&format!("/v1/deliveries?{query}")).json();
        let list = found["deliveries"].as_array().expect("a list");
        let ids: Vec<_> = list.iter().map(|one| one["event_id"].as_str().expect("an id")).collect();
        assert_eq!(ids, expected, "{query}");
        assert_eq!((found["looked_at"].as_u64(), found.get("next")), (Some(4), None), "{query}");
    }
    let first = server.get("/v1/deliveries?type=*&limit=3").json();
    let next = first["next"].as_str().expect("there is more");
    let rest = server.get(&format!("/v1/deliveries?type=*&limit=3&before={next}")).json();
    assert_eq!((&rest["deliveries"][0]["event_id"], rest.get("next")), (&json!("1"), None), "{rest}");
    server.stop().assert_calm();
}
