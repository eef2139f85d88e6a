//! What comes from elsewhere, in all three forms.

use redrive_core::book;
use redrive_core::book::connectors::built_in;

use super::*;
use crate::letters::envelope::{envelope, tests::letter};

const NOW: &str = "2026-02-01T00:00:00Z";

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

fn read_book(text: &str) -> RuleBook {
    let reading = book::read(text, built_in());
    reading.book.unwrap_or_else(|| panic!("{:#?}", reading.problems))
}

fn unknown() -> RuleBook {
    read_book("version: 1\nservices: { other: { target: { log: stdout }, events: [\"a.b\"] } }\n")
}

#[test]
fn our_own_envelope_comes_back_as_it_was() {
    let before = letter();
    let line = serde_json::to_string(&envelope(&before)).expect("JSON");
    let read = read(&line).expect("a letter").into_letter(&unknown(), now());
    assert_eq!(read.key, before.delivery.id.to_string());
    assert_eq!(*read.queue, before.delivery.queue);
    assert_eq!(*read.event, *before.event);
    assert_eq!((read.attempts, read.replays), (2, 1));
    assert_eq!(read.died_at, before.died_at);
    assert_eq!(&*read.subscription, before.delivery.subscription);
    assert_eq!(read.death.fingerprint, before.death.fingerprint);
    assert_eq!(read.death.consumer_group, before.death.consumer_group);
    assert_eq!(read.death.name, before.death.name, "the usual name is made of service and channel");
    let told: Vec<u32> = read.stories.iter().map(|story| story.attempt.get()).collect();
    assert_eq!(told, [1, 2]);
    assert!(matches!(read.stories[1].verdict, RecordedVerdict::Dead { .. }));
}

#[test]
fn a_plain_line_needs_a_service_and_a_type() {
    let line = r#"{"service":"billing","type":"orders.placed","data":{"n":100000000000000000000001},"session":"c7","error":"no such customer 4711","code":"BAD_REQUEST","category":"permanent","attempts":3,"failed_at":"2026-01-31T12:00:00Z"}"#;
    let letter = read(line).expect("a letter").into_letter(&unknown(), now());
    assert_eq!(&letter.event.data[..], br#"{"n":100000000000000000000001}"#, "byte for byte");
    assert_eq!(letter.event.id.as_str(), letter.key, "what has no id is known by its line");
    assert_eq!(letter.event.session.as_ref().map(ToString::to_string).as_deref(), Some("c7"));
    assert_eq!((letter.attempts, letter.stories.len()), (3, 1));
    assert_eq!(letter.death.failure_code.as_str(), "BAD_REQUEST");
    assert_eq!(&*letter.subscription, "billing/orders.placed");
    assert_eq!(letter.order, DeliveryOrder::None);
    let again = read(&format!(" {line}\n")).expect("a letter");
    assert_eq!(again.key, letter.key, "white space around a line does not change it");
    let other = line.replace("4711", "4712");
    let other = read(&other).expect("a letter").into_letter(&unknown(), now());
    assert_ne!(other.key, letter.key);
    assert_eq!(other.death.fingerprint, letter.death.fingerprint, "numbers do not make a cause of their own");
}

#[test]
fn the_book_says_what_it_knows() {
    let text = "version: 1\nservices:\n  billing:\n    target: { log: stdout }\n    order: session-strict\n    consumer_group: workers\n    dead_letter: { name: \"{service}/dead\" }\n    events: [\"orders.*\"]\n";
    let line = r#"{"service":"billing","type":"orders.placed","failed_at":"2030-01-01T00:00:00Z"}"#;
    let letter = read(line).expect("a letter").into_letter(&read_book(text), now());
    assert_eq!(letter.death.name, "billing/dead");
    assert_eq!(letter.death.consumer_group, "workers");
    assert_eq!(letter.order, DeliveryOrder::SessionStrict);
    assert_eq!(&*letter.subscription, "billing/orders.*");
    assert_eq!(letter.died_at, now(), "nothing dies in the future");
}

#[test]
fn redis_letters_may_carry_anything() {
    #[rustfmt::skip]
    let cases = [
        ("a CloudEvent",      r#"{"specversion":"1.0","id":"e-1","source":"/s","type":"a.b","data":{"x":1}}"#, "a.b",              "{\"x\":1}"),
        ("JSON of their own", r#"{"type":"build.started","job":7}"#,                                           "build.started",    "{\"type\":\"build.started\",\"job\":7}"),
        ("no type",           r#"{"job":7}"#,                                                                  "imported.message", "{\"job\":7}"),
        ("JSON in a text",    r#""{\"job\":7}""#,                                                              "imported.message", "{\"job\":7}"),
        ("a text",            r#""help""#,                                                                     "imported.message", "\"help\""),
        ("no type at all",    r#"{"type":"what is this?"}"#,                                                   "imported.message", "{\"type\":\"what is this?\"}"),
    ];
    for (name, message, event_type, data) in cases {
        let line = format!(
            r#"{{"original_message":{message},"error_context":{{"error":"boom","timestamp":"2026-01-31T12:00:00Z","service":"worker","attempts":3}}}}"#
        );
        let letter = read(&line).expect(name).into_letter(&unknown(), now());
        assert_eq!(letter.event.event_type.as_str(), event_type, "{name}");
        assert_eq!(std::str::from_utf8(&letter.event.data), Ok(data), "{name}");
        assert_eq!((letter.attempts, letter.death.message.as_str()), (3, "boom"), "{name}");
    }
}

#[test]
fn a_source_that_only_redrive_has_is_another_in_every_form() {
    for (source, expected) in [
        ("/v1/hooks/github", "/imported/v1/hooks/github"),
        ("/schedules/tick", "/imported/schedules/tick"),
        ("/workers/w", "/imported/workers/w"),
        ("/alerts/x", "/imported/alerts/x"),
        ("/shop", "/shop"),
    ] {
        let event = json!({ "specversion": "1.0", "id": "e-1", "source": source, "type": "a.b", "data": 1 });
        let mut ours = serde_json::to_value(envelope(&letter())).expect("JSON");
        ours["originalMessage"] = event.clone();
        let mut as_text = ours.clone();
        as_text["originalMessage"] = json!(event.to_string());
        let context =
            json!({ "error": "boom", "timestamp": "2026-01-31T12:00:00Z", "service": "w", "attempts": 3 });
        let forms = [
            ("plain", json!({ "service": "w", "type": "a.b", "source": source })),
            ("envelope", ours),
            ("envelope with a text", as_text),
            ("redis", json!({ "original_message": event, "error_context": context })),
            ("redis with a text", json!({ "original_message": event.to_string(), "error_context": context })),
        ];
        for (form, line) in forms {
            let read = read(&line.to_string()).unwrap_or_else(|error| panic!("{form}: {error}"));
            assert_eq!(read.event.source.as_str(), expected, "{form}");
        }
    }
}

#[test]
fn what_is_wrong_is_said() {
    #[rustfmt::skip]
    let cases = [
        ("no JSON",           "{",                                                   "is not valid JSON: "),
        ("a list",            "[]",                                                  "is not a JSON object"),
        ("another thing",     r#"{"id":1}"#,                                         "has neither `dlqId`"),
        ("no type",           r#"{"service":"a"}"#,                                  "missing field `type`"),
        ("a typo",            r#"{"service":"a","type":"b","sesion":"c"}"#,          "unknown field `sesion`"),
        ("no name",           r#"{"service":"a b","type":"b"}"#,                     "has an invalid service name: a name cannot contain ' '"),
        ("no channel",        r#"{"service":"a/","type":"b"}"#,                      "has an invalid channel name: a name cannot be empty"),
        ("no category",       r#"{"service":"a","type":"b","category":"bad"}"#,      "has the unknown category `bad`, expected one of transient"),
        ("no type of event",  r#"{"service":"a","type":"b c"}"#,                     "has an invalid event: `type`"),
        ("an empty session",  r#"{"service":"a","type":"b","session":""}"#,          "`session` is empty"),
        ("data twice",        r#"{"service":"a","type":"b","data":1,"data_base64":"AA=="}"#, "`data_base64`"),
        ("half an envelope",  r#"{"dlqId":"x"}"#,                                    "is not a valid envelope: missing field"),
        ("an empty key",      r#"{"service":"a","type":"b","id":"1","key":""}"#,     "has a key of 0 bytes"),
    ];
    for (name, line, words) in cases {
        let said = read(line).expect_err(name);
        assert!(said.contains(words), "{name}: {said}");
    }
}
