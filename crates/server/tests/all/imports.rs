//! What letters from elsewhere may claim, with a running server: they keep nothing out that is sent, called or
//! due, and say of themselves where they come from.

use serde_json::{Value, json};

use crate::hooks::{SECRET, github, issue};
use crate::identity::{bearer, get, key_on_folder};
use crate::run::Folder;
use crate::schedules::{AnHourAgo, remember};
use crate::server::{Server, until};
use crate::target::Target;

fn book(target: &Target, cron: &str) -> String {
    format!(
        r#"version: 1
secrets: {{ shared: {{ file: secret }} }}
sources:
  github: {{ webhook: {{ scheme: github, secret: shared }}, type: "github.{{header.x-github-event}}" }}
  nightly: {{ schedule: {{ cron: "{cron}" }}, type: report.nightly }}
services:
  a: {{ target: {{ http: "{0}" }}, events: ["github.*", report.nightly] }}
  b: {{ target: {{ http: "{0}" }}, events: ["shop.*"] }}
"#,
        target.url()
    )
}

fn line(service: &str, source: &str, id: &str) -> Value {
    json!({ "service": service, "type": "github.push", "source": source, "id": id, "data": {}, "error": "x", "key": id })
}

#[test]
fn letters_from_elsewhere_keep_nothing_out_and_stay_within_the_bounds_of_their_key() {
    let ago = AnHourAgo::new();
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &ago.cron));
    folder.write("secret", format!("{SECRET}\n"));
    let admin = key_on_folder(&folder, &["root", "--role", "admin"]);
    let bound = key_on_folder(&folder, &["team", "--role", "operator", "--service", "a"]);
    let shops =
        key_on_folder(&folder, &["shop", "--role", "operator", "--service", "a", "--source", "/shop"]);
    let sourced = key_on_folder(&folder, &["src", "--role", "operator", "--source", "/shop"]);
    let server = Server::start(&folder);
    let import =
        |key: &str, letter: &Value| server.post("/v1/dead-letters/import", &bearer(key), letter.to_string());
    let fire = ago.event_id();
    #[rustfmt::skip]
    let cases = [
        ("a webhook's source",          &bound, "a", "/v1/hooks/github",   "forged",     200),
        ("an id that GitHub will use",  &bound, "a", "/v1/hooks/github",   "gd-77",      200),
        ("a fire that is to come",      &bound, "a", "/schedules/nightly", &fire,        200),
        ("a source of others",          &bound, "a", "/shop",              "order-1001", 403),
        ("a service of others",         &bound, "b", "/imported",          "order-1001", 403),
        ("its own source",              &shops, "a", "/shop",              "order-1000", 200),
        ("another source",              &shops, "a", "/shop/2",            "order-1001", 403),
        ("its source, no service",      &sourced, "b", "/shop",            "order-1000", 200),
        ("its source, none of others",  &sourced, "b", "/till",            "order-1002", 403),
        ("by a key that is not bound",  &admin, "a", "/shop",              "order-1001", 200),
        ("a source that is too long",   &admin, "a", &format!("/workers/{}", "x".repeat(2_035)), "long", 400),
    ];
    for (name, key, service, source, id, expected) in cases {
        let answer = import(key, &line(service, source, id));
        assert_eq!(answer.status, expected, "{name}: {answer:?}");
    }

    let wish = json!({ "letters": ["forged"] });
    assert_eq!(server.post("/v1/replays", &bearer(&bound), wish.to_string()).status, 201);
    let forged = &target.until(1)[0];
    assert_eq!((forged.event_id(), forged.header("ce-source")), ("forged", "/imported/v1/hooks/github"));

    let body = issue(7);
    let called = server.post("/v1/hooks/github", &github("push", "gd-77", &body), &body);
    assert_eq!((called.status, &called.json()["duplicate"]), (202, &json!(false)), "{called:?}");
    assert_eq!(target.until(2)[1].header("ce-source"), "/v1/hooks/github");

    let kind = "content-type: application/cloudevents+json\r\n";
    let send = |source: &str| {
        let event = json!({ "specversion": "1.0", "id": "order-1001", "source": source, "type": "shop.ordered", "data": 1 });
        server.post("/v1/events", &format!("{}{kind}", bearer(&admin)), event.to_string())
    };
    let taken = send("/shop");
    assert_eq!((taken.status, &taken.json()["deliveries"]), (202, &json!(1)), "{taken:?}");
    assert_eq!(target.until(3)[2].event_id(), "order-1001");
    for source in ["/v1/hooks/github", "/schedules/nightly", "/workers/a", "/alerts/x", "redrive:alerts"] {
        assert_eq!(send(source).error(), (400, "VALIDATION_ERROR".to_owned()), "{source}");
    }

    // What Redrive wrote out comes in again, once it is gone.
    let letters = || {
        let exported = get(&server, "/v1/dead-letters/export", &admin).body;
        // The answer comes in parts, each behind its length.
        exported.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect::<Vec<_>>()
    };
    let pile = letters();
    assert_eq!(pile.len(), 5, "{pile:?}");
    assert_eq!(server.post("/v1/dead-letters/purge", &bearer(&admin), r#"{"all":true}"#).status, 200);
    let back = server.post("/v1/dead-letters/import", &bearer(&admin), pile.join("\n"));
    assert_eq!(back.json(), json!({ "imported": 5, "known": 0 }), "{back:?}");
    assert_eq!(letters().len(), 5);
    server.stop().assert_calm();

    remember(&folder, "schedule:nightly", ago.memo());
    let server = Server::start(&folder);
    let fires = until("it has fired", || {
        let calls = target.calls();
        let fires: Vec<_> = calls.iter().filter(|call| call.event_id() == fire).cloned().collect();
        (!fires.is_empty()).then_some(fires)
    });
    assert_eq!(fires[0].header("ce-source"), "/schedules/nightly");
    server.stop().assert_calm();
}

#[test]
fn a_key_that_is_imported_for_one_service_is_new_for_another() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, "0 0 1 1 *"));
    folder.write("secret", format!("{SECRET}\n"));
    let admin = key_on_folder(&folder, &["root", "--role", "admin"]);
    let bound = key_on_folder(&folder, &["team", "--role", "operator", "--service", "a"]);
    let server = Server::start(&folder);
    let (new, known) = (json!({ "imported": 1, "known": 0 }), json!({ "imported": 0, "known": 1 }));
    for (key, service, expected) in
        [(&bound, "a", &new), (&admin, "b", &new), (&admin, "b", &known), (&bound, "a", &known)]
    {
        let letter = line(service, "/imported", "same-key").to_string();
        let answer = server.post("/v1/dead-letters/import", &bearer(key), letter);
        assert_eq!(answer.json(), *expected, "{service}");
    }
    let own = get(&server, "/v1/dead-letters/same-key", &bound).json();
    assert_eq!(own["consumerService"], "a", "another service's import hides nothing: {own}");
    let both = get(&server, "/v1/dead-letters/same-key", &admin);
    assert_eq!(both.error(), (409, "AMBIGUOUS_ID".to_owned()), "{both:?}");
    server.stop().assert_calm();
}
