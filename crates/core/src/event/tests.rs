//! What is an event in each form and what is refused with which words; and that what is sent reads back.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::simple::{SimpleEvent, parse_simple};
use super::*;
use crate::limits;

type Headers<'a> = &'a [(&'a str, &'a [u8])];

const STRUCTURED: Headers<'_> = &[("content-type", b"application/cloudevents+json; charset=UTF-8")];
const BATCH: Headers<'_> = &[("content-type", b"application/cloudevents-batch+json")];
const REQUIRED: Headers<'_> = &[
    ("ce-specversion", b"1.0"),
    ("ce-id", b"1"),
    ("ce-source", b"/shop"),
    ("ce-type", b"shop.order.created"),
];

fn parsed(headers: Headers<'_>, body: &[u8]) -> Result<Vec<Event>, InvalidEvent> {
    parse(Incoming { headers: &headers, body: &Bytes::copy_from_slice(body) }).map(Parsed::into_events)
}

fn one(headers: Headers<'_>, body: &[u8]) -> Result<Event, InvalidEvent> {
    parsed(headers, body).map(|mut events| events.remove(0))
}

fn with_required(more: Headers<'_>) -> Vec<(&str, &[u8])> {
    REQUIRED.iter().chain(more).copied().collect()
}

/// An event in JSON with some members more, or others in the place of its own.
fn object(more: Value) -> Vec<u8> {
    let mut event = json!({"specversion": "1.0", "id": "1", "source": "/shop", "type": "shop.order.created"});
    let Value::Object(more) = more else { panic!("members") };
    event.as_object_mut().expect("an object").extend(more);
    event.to_string().into_bytes()
}

/// The same with members as they are written.
fn written(more: &str) -> Vec<u8> {
    let required = r#""specversion":"1.0","id":"1","source":"/shop","type":"shop.order.created""#;
    format!("{{{required},{more}}}").into_bytes()
}

fn shown(result: Result<Event, InvalidEvent>) -> String {
    match result {
        Ok(event) => String::from_utf8(event.to_structured()).expect("JSON is text"),
        Err(invalid) => invalid.to_string(),
    }
}

#[test]
fn a_dead_letter_keeps_what_came_or_its_bytes() {
    #[rustfmt::skip]
    let cases = [
        ("plain JSON",               r#"{"a":1,"b":[true,null,"x y"]}"#,         Some(r#"{"a":1,"b":[true,null,"x y"]}"#)),
        ("space between the parts",  "{ \"a\" : \"x  \\\" y\" }\n",              Some("{\"a\":\"x  \\\" y\"}")),
        ("a long number",            r#"{"n":123456789012345678901234567890}"#,  None),
        ("many digits",              r#"{"n":0.1234567890123456789}"#,           None),
        ("a key that stands twice",  r#"{"a":1,"a":2}"#,                         None),
        ("no JSON",                  "{",                                        None),
        ("a key that our reader takes for more", r#"{"$serde_json::private::RawValue":"[1]"}"#, None),
        ("the same further in",      r#"[{"$serde_json::private::RawValue":"[1]"}]"#, None),
        ("the same with no text",    r#"{"$serde_json::private::RawValue":1}"#,  None),
        ("the same behind another",  r#"{"a":1,"$serde_json::private::RawValue":"[1]"}"#, Some(r#"{"a":1,"$serde_json::private::RawValue":"[1]"}"#)),
    ];
    for (name, body, expected) in cases {
        let headers = with_required(&[("content-type", b"application/json")]);
        let json = one(&headers, body.as_bytes()).expect("an event").to_json();
        assert_eq!(json.get("data").map(ToString::to_string).as_deref(), expected, "{name}");
        assert_eq!(json.get("data_base64").is_some(), expected.is_none(), "{name}");
    }
}

#[test]
fn headers_make_an_event() {
    let headers = with_required(&[
        ("Content-Type", b"text/plain; charset=latin1"),
        ("CE-Subject", b"order%20%E2%84%96%201"),
        ("ce-time", b"2026-01-31T13:00:00.5+01:00"),
        ("ce-partitionkey", b"customer-7"),
        ("ce-correlationid", b"c-1"),
        ("ce-traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("ce-dataschema", b"https://example.com/order.json"),
        ("ce-tenant", b""),
        ("traceparent", b"of the request, not of the event"),
        ("x-ce-id", b"somebody else's"),
        ("ce", b""),
    ]);
    let event = one(&headers, b"caf\xe9").expect("an event");
    assert_eq!(event.id.as_str(), "1");
    assert_eq!(event.source.as_str(), "/shop");
    assert_eq!(event.event_type.as_str(), "shop.order.created");
    assert_eq!(event.subject.as_ref().map(EventSubject::as_str), Some("order № 1"));
    assert_eq!(event.time, "2026-01-31T12:00:00.5Z".parse().ok());
    assert_eq!(event.content_type.as_ref().map(ContentType::as_str), Some("text/plain; charset=latin1"));
    assert_eq!(event.session.as_ref().map(SessionKey::as_str), Some("customer-7"));
    assert_eq!(event.correlation_id.as_ref().map(CorrelationId::as_str), Some("c-1"));
    assert!(event.traceparent.is_some());
    let extensions: Vec<String> =
        event.extensions.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(extensions, ["dataschema=https://example.com/order.json", "tenant="]);
    assert_eq!(&*event.data, b"caf\xe9");
}

#[test]
fn what_headers_lack_or_have_wrong_is_named() {
    let long = "x".repeat(3_000);
    let long = long.as_bytes();
    #[rustfmt::skip]
    let cases: &[(&str, Headers<'_>, &str)] = &[
        ("no second id",          &[("Ce-Id", b"2")],                   "`id` is given twice"),
        ("no second extension",   &[("ce-a", b"2"), ("CE-A", b"2")],    "`a` is given twice"),
        ("no second content type", &[("content-type", b"a/b"), ("Content-Type", b"a/b")], "`content-type` is given twice"),
        ("an empty subject",      &[("ce-subject", b"")],               "`subject` is empty: give it a value or remove it"),
        ("an empty time",         &[("ce-time", b" ")],                 "`time` is empty: give it a value or remove it"),
        ("an empty schema",       &[("ce-dataschema", b"")],            "`dataschema` is empty: give it a value or remove it"),
        ("a long subject",        &[("ce-subject", long)],              "`subject` is 3000 bytes long: the maximum is 2048"),
        ("a long key",            &[("ce-partitionkey", long)],         "`partitionkey` is 3000 bytes long: the maximum is 512"),
        ("a long correlation id", &[("ce-correlationid", long)],        "`correlationid` is 3000 bytes long: the maximum is 512"),
        ("a long trace",          &[("ce-traceparent", long)],          "`traceparent` is 3000 bytes long: the maximum is 256"),
        ("a long time",           &[("ce-time", long)],                 "`time` is 3000 bytes long: the maximum is 64"),
        ("a long content type",   &[("content-type", long)],            "`content-type` is 3000 bytes long: the maximum is 256"),
        ("a line break",          &[("ce-subject", b"a%0Ab")],          "`subject` contains '\\n': control characters and noncharacters are not allowed"),
        ("no character",          &[("ce-tenant", "\u{ffff}".as_bytes())], "`tenant` contains '\\u{ffff}': control characters and noncharacters are not allowed"),
        ("no text",               &[("ce-subject", b"%FF")],            "`subject` is not valid UTF-8: percent-encode its UTF-8 bytes"),
        ("no content type",       &[("content-type", "text/plän".as_bytes())], "`content-type` contains 'ä': a media type is printable ASCII"),
        ("no time",               &[("ce-time", b"soon")],              "`time` is not a valid time: \"soon\" is not a timestamp such as 2026-01-31T12:00:00Z, from 1970 on"),
        ("before 1970",           &[("ce-time", b"1969-12-31T23:59:59Z")], "`time` is not a valid time: \"1969-12-31T23:59:59Z\" is not a timestamp such as 2026-01-31T12:00:00Z, from 1970 on"),
        ("a time without a zone", &[("ce-time", b"2026-01-31T12:00:00")], "`time` is not a valid time: \"2026-01-31T12:00:00\" is not a timestamp such as 2026-01-31T12:00:00Z, from 1970 on"),
        ("a dashed name",         &[("ce-my-tenant", b"a")],            "`my-tenant` is not an attribute name: use lower-case letters and digits only"),
        ("no name",               &[("ce-", b"a")],                     "`` is not an attribute name: use lower-case letters and digits only"),
        ("data as a header",      &[("ce-data", b"a")],                 "`data` is reserved"),
        ("the type of the data",  &[("ce-datacontenttype", b"a/b")],    "`datacontenttype` is set by the header `content-type`: remove `ce-datacontenttype`"),
        ("another format",        &[("content-type", b"application/cloudevents+avro")], "`content-type` is not `application/cloudevents+json` or `application/cloudevents-batch+json`: send one of these"),
        ("large extensions",      &[("ce-a", long), ("ce-b", long), ("ce-c", long), ("ce-d", long), ("ce-e", long), ("ce-f", long)],
            "`extensions` exceed 16384 bytes in total: move some into the data"),
    ];
    for (name, headers, expected) in cases {
        let headers = with_required(headers);
        assert_eq!(shown(one(&headers, b"")), *expected, "{name}");
    }
}

#[test]
fn what_must_be_there_is_asked_for() {
    for missing in ["specversion", "id", "source", "type"] {
        let headers: Vec<_> = REQUIRED.iter().filter(|(name, _)| !name.ends_with(missing)).copied().collect();
        let expected = format!(
            "`{missing}` is missing: set the header `ce-{missing}`, or send the type in the path and any JSON: \
             POST /v1/events/{{type}}"
        );
        assert_eq!(shown(one(&headers, b"")), expected);
        let expected = format!("`{missing}` is missing");
        assert_eq!(shown(one(STRUCTURED, &object(json!({ missing: null })))), expected);
    }
}

#[test]
fn json_makes_an_event_or_is_refused() {
    const START: &str = r#"{"specversion":"1.0","id":"1","source":"/shop","type":"shop.order.created""#;
    let long = "x".repeat(2_100);
    #[rustfmt::skip]
    let cases = [
        // Odd, but legal.
        ("nothing more",             r#""subject":null"#,                      Ok("}")),
        ("data",                     r#""data": {"b" : 1.50,"a":[ ]}  "#,      Ok(r#","datacontenttype":"application/json","data":{"b" : 1.50,"a":[ ]}}"#)),
        ("data before their type",   r#""data":"<a/>","datacontenttype":"text/xml""#, Ok(r#","datacontenttype":"text/xml","data_base64":"PGEvPg=="}"#)),
        ("a text that is JSON",      r#""data":"\u0061","datacontenttype":"application/vnd.x+JSON;v=1""#, Ok(r#","datacontenttype":"application/vnd.x+JSON;v=1","data":"\u0061"}"#)),
        ("no text, but not JSON",    r#""data":[1],"datacontenttype":"text/xml""#, Ok(r#","datacontenttype":"text/xml","data_base64":"WzFd"}"#)),
        ("data that are null",       r#""data":null"#,                         Ok(r#","datacontenttype":"application/json","data":null}"#)),
        ("numbers beyond any type",  r#""data":1e999"#,                        Ok(r#","datacontenttype":"application/json","data":1e999}"#)),
        ("half a surrogate",         r#""data":"\ud800""#,                     Ok(r#","datacontenttype":"application/json","data":"\ud800"}"#)),
        ("bytes",                    r#""data_base64":"AP8=""#,                Ok(r#","data_base64":"AP8="}"#)),
        ("JSON as bytes",            r#""data_base64":"e30=","datacontenttype":"text/json""#, Ok(r#","datacontenttype":"text/json","data":{}}"#)),
        ("no bytes",                 r#""data_base64":"""#,                    Ok("}")),
        ("null beside data",         r#""data_base64":null,"data":1"#,         Ok(r#","datacontenttype":"application/json","data":1}"#)),
        ("a number as extension",    r#""b":-7,"a":true,"c":"x""#,             Ok(r#","a":true,"b":-7,"c":"x"}"#)),
        ("an escaped name",          r#""\u0061":"\u00e9""#,                   Ok(r#","a":"é"}"#)),
        ("space in a content type",  r#""datacontenttype":" a/b ""#,           Ok(r#","datacontenttype":"a/b"}"#)),
        ("a time in small letters",  r#""time":"2026-01-31t12:00:00z""#,       Ok(r#","time":"2026-01-31T12:00:00Z"}"#)),
        // Refused.
        ("another version",          r#""specversion":"0.3""#,                 Err("`specversion` is given twice")),
        ("a name twice",             r#""a":1,"a":1"#,                         Err("`a` is given twice")),
        ("twice, once escaped",      r#""a":1,"\u0061":null"#,                 Err("`a` is given twice")),
        ("data twice",               r#""data":1,"data":1"#,                   Err("`data` is given twice")),
        ("data in two forms",        r#""data":null,"data_base64":"AP8=""#,    Err("`data_base64` is given beside `data`: give one of the two")),
        ("no base64",                r#""data_base64":"AP8""#,                 Err("`data_base64` is not padded base64 in the standard alphabet")),
        ("base64 that is no text",   r#""data_base64":7"#,                     Err("`data_base64` is not padded base64 in the standard alphabet")),
        ("a subject that is none",   r#""subject":7"#,                         Err("`subject` is a number: write it as a text in quotes")),
        ("a time that is none",      r#""time":false"#,                        Err("`time` is true or false: write it as a text in quotes")),
        ("a schema that is none",    r#""dataschema":1"#,                      Err("`dataschema` is a number: write it as a text in quotes")),
        ("an object",                r#""tenant":{}"#,                         Err("`tenant` is an object: an attribute is a text, a whole number of 32 bits, true or false")),
        ("a list",                   r#""subject":[]"#,                        Err("`subject` is a list: an attribute is a text, a whole number of 32 bits, true or false")),
        ("a fraction",               r#""tenant":1.0"#,                        Err("`tenant` is a number of another kind: an attribute is a text, a whole number of 32 bits, true or false")),
        ("too large a number",       r#""tenant":2147483648"#,                 Err("`tenant` is a number of another kind: an attribute is a text, a whole number of 32 bits, true or false")),
        ("a capital",                r#""Tenant":1"#,                          Err("`Tenant` is not an attribute name: use lower-case letters and digits only")),
        ("half a surrogate in text", r#""subject":"\ud800""#,                  Err("`subject` is not valid JSON: unexpected end of hex escape at line 1 column 8")),
        ("half a surrogate in data", r#""data":"\ud800","datacontenttype":"a/b""#, Err("`data` is not valid JSON: unexpected end of hex escape at line 1 column 8")),
        ("an escaped control",       r#""subject":"\u0000""#,                  Err("`subject` contains '\\0': control characters and noncharacters are not allowed")),
        ("an event in an event",     r#""data":{},"datacontenttype":"application/cloudevents+json""#, Err("`datacontenttype` is a CloudEvents type: send the data as separate events, or as `application/json`")),
        ("a long name",              &format!(r#""{long}":1"#),                Err("`xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx` is 2100 bytes long: the maximum is 64")),
        ("no JSON",                  "a",                                      Err("`body` is not valid JSON: key must be a string at line 1 column 76")),
    ];
    for (name, more, expected) in cases {
        let expected = expected.map_or_else(str::to_owned, |end| format!("{START}{end}"));
        assert_eq!(shown(one(STRUCTURED, &written(more))), expected, "{name}");
    }
}

#[test]
fn the_required_attributes_are_checked() {
    let long = "x".repeat(2_100);
    let segments = vec!["a"; 33].join(".");
    #[rustfmt::skip]
    let cases = [
        ("another version",       json!({"specversion": "0.3"}), "`specversion` is not 1.0, the supported version of CloudEvents"),
        ("a version as number",   json!({"specversion": 1}),     "`specversion` is a number: write it as a text in quotes"),
        ("no id",                 json!({"id": ""}),             "`id` is empty: give it a value or remove it"),
        ("a long id",             json!({"id": long}),           "`id` is 2100 bytes long: the maximum is 512"),
        ("a number for an id",    json!({"id": 7}),              "`id` is a number: write it as a text in quotes"),
        ("no source",             json!({"source": ""}),         "`source` is empty: give it a value or remove it"),
        ("a long source",         json!({"source": long}),       "`source` is 2100 bytes long: the maximum is 2048"),
        ("no type",               json!({"type": ""}),           "`type` is empty: give it a value or remove it"),
        ("an empty segment",      json!({"type": "a..b"}),       "`type` cannot be routed: it has an empty segment"),
        ("a dot at the end",      json!({"type": "a."}),         "`type` cannot be routed: it has an empty segment"),
        ("a space",               json!({"type": "a b"}),        "`type` cannot be routed: it contains ' '; only letters, digits, `-`, `_`, `:`, `/` and dots are allowed"),
        ("a star",                json!({"type": "a.*"}),        "`type` cannot be routed: it contains '*'; only letters, digits, `-`, `_`, `:`, `/` and dots are allowed"),
        ("a long type",           json!({"type": long}),         "`type` cannot be routed: it is 2100 bytes long, the maximum is 256"),
        ("a type of many words",  json!({"type": segments}),     "`type` cannot be routed: it has 33 segments, the maximum is 32"),
    ];
    for (name, members, expected) in cases {
        assert_eq!(shown(one(STRUCTURED, &object(members))), expected, "{name}");
    }
}

#[test]
fn extensions_are_counted() {
    let with = |count: usize| {
        let members = (0..count).map(|index| (format!("a{index}"), json!(1)));
        one(STRUCTURED, &object(members.collect::<serde_json::Map<_, _>>().into()))
    };
    assert_eq!(with(limits::EXTENSIONS_MAX).expect("just enough").extensions.len(), limits::EXTENSIONS_MAX);
    for count in [limits::EXTENSIONS_MAX + 1, 10_000] {
        assert_eq!(shown(with(count)), "`extensions` are more than 64: move some into the data");
    }
}

#[test]
fn a_batch_is_taken_whole_or_not_at_all() {
    let event = |id: usize| json!({"specversion": "1.0", "id": id.to_string(), "source": "s", "type": "t", "data": id});
    let batch = |count: usize| Value::from((0..count).map(event).collect::<Vec<_>>());
    let most = parsed(BATCH, batch(limits::BATCH_EVENTS_MAX).to_string().as_bytes()).expect("just enough");
    assert_eq!(most.len(), limits::BATCH_EVENTS_MAX);
    assert!((0..).zip(&most).all(|(id, event): (usize, _)| *event.data == *id.to_string().as_bytes()));
    let body = &Bytes::from(batch(1).to_string());
    assert!(
        matches!(parse(Incoming { headers: &BATCH, body }), Ok(Parsed::Batch(events)) if events.len() == 1)
    );
    #[rustfmt::skip]
    let cases = [
        ("nothing in it",      "[]".to_owned(),             "`body` is empty: send at least one event"),
        ("too much in it",     batch(1_001).to_string(),    "`body` has more than 1000 events: send several batches"),
        ("one is wrong",       json!([event(0), {"specversion": "1.0", "id": "", "source": "s", "type": "t"}]).to_string(),
            "event 1 of the batch, counted from 0: `id` is empty: give it a value or remove it"),
        ("one is no event",    json!([event(0), 7]).to_string(),
            "event 1 of the batch, counted from 0: `body` is not valid JSON: invalid type: integer `7`, expected an event as an object at line 1 column 1"),
        ("no list",            event(0).to_string(),        "`body` is not valid JSON: invalid type: map, expected a batch as a list of events at line 1 column 0"),
        ("cut off",            "[{}".to_owned(),            "`body` is not valid JSON: EOF while parsing a list at line 1 column 3"),
    ];
    for (name, body, expected) in cases {
        assert_eq!(parsed(BATCH, body.as_bytes()).expect_err(name).to_string(), expected, "{name}");
    }
    let invalid = one(STRUCTURED, b"[]").expect_err("no object");
    assert!(invalid.to_string().contains("expected an event as an object"), "{invalid}");
}

#[test]
fn any_json_under_a_type_is_an_event() {
    let generated_id = EventId::new("made-up").expect("an id");
    let empty: Headers<'_> = &[];
    let plain = |headers, body| (headers, None, None, "a.b", body);
    #[rustfmt::skip]
    let cases: [(&str, (Headers<'_>, _, _, _, &str), _); 17] = [
        ("just JSON",             plain(empty, "{}"),                                       r#""id":"made-up","source":"/v1/events","type":"a.b","datacontenttype":"application/json","data":{}}"#),
        ("as curl sends it",      plain(&[("content-type", b"application/x-www-form-urlencoded")], "[1]"), r#""id":"made-up","source":"/v1/events","type":"a.b","datacontenttype":"application/json","data":[1]}"#),
        ("a JSON of its own",     plain(&[("content-type", b"application/x+json")], "1"),   r#""id":"made-up","source":"/v1/events","type":"a.b","datacontenttype":"application/x+json","data":1}"#),
        ("nothing at all",        plain(&[("content-type", b"application/json")], ""),      r#""id":"made-up","source":"/v1/events","type":"a.b"}"#),
        ("a key as id",           (empty, None, Some("k"), "a.b", "1"),                     r#""id":"k","source":"/v1/events","type":"a.b","datacontenttype":"application/json","data":1}"#),
        ("a session",             (empty, Some("7"), None, "a.b", ""),                      r#""id":"made-up","source":"/v1/events","type":"a.b","partitionkey":"7"}"#),
        ("a session as a header", plain(&[("ce-partitionkey", b"7")], ""),                  r#""id":"made-up","source":"/v1/events","type":"a.b","partitionkey":"7"}"#),
        ("its own attributes",    plain(&[("ce-specversion", b"1.0"), ("ce-id", b"1"), ("ce-source", b"s"), ("ce-x", b"y")], ""), r#""id":"1","source":"s","type":"a.b","x":"y"}"#),
        ("two types",             plain(&[("ce-type", b"a.b")], ""),                        "`type` is given twice"),
        ("two ids",               (&[("ce-id", b"1")], None, Some("k"), "a.b", "1"),        "`idempotency-key` is given twice"),
        ("two sessions",          (&[("ce-partitionkey", b"7")], Some("7"), None, "a.b", ""), "`partitionkey` is given twice"),
        ("an empty key",          (empty, None, Some(""), "a.b", "1"),                      "`idempotency-key` is empty: give it a value or remove it"),
        ("an empty session",      (empty, Some(""), None, "a.b", "1"),                      "`partitionkey` is empty: give it a value or remove it"),
        ("another version",       plain(&[("ce-specversion", b"2")], ""),                   "`specversion` is not 1.0, the supported version of CloudEvents"),
        ("no JSON",               plain(empty, "a=1"),                                      "`body` is not valid JSON: expected value at line 1 column 1"),
        ("a whole event",         plain(STRUCTURED, "{}"),                                  "`content-type` marks the body as a whole event: post it to /v1/events, without a type"),
        ("no type",               (empty, None, None, "a b", ""),                           "`type` cannot be routed: it contains ' '; only letters, digits, `-`, `_`, `:`, `/` and dots are allowed"),
    ];
    for (name, (headers, partition_key, idempotency_key, event_type, body), expected) in cases {
        let body = &Bytes::copy_from_slice(body.as_bytes());
        let generated_id = &generated_id;
        let simple =
            SimpleEvent { event_type, partition_key, idempotency_key, generated_id, headers: &headers, body };
        let result = shown(parse_simple(simple));
        assert_eq!(result.trim_start_matches(r#"{"specversion":"1.0","#), expected, "{name}");
    }
}

#[test]
fn data_that_cannot_be_json_are_base64() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let (deep, deeper) = (nested(limits::EMBEDDED_DEPTH_MAX), nested(limits::EMBEDDED_DEPTH_MAX + 1));
    #[rustfmt::skip]
    let cases = [
        ("JSON",                    b"application/json".as_slice(), b"{\"a\":1}".as_slice(), "data", "data"),
        ("with space around",       b"application/json", b" 1\n",          "data",        "data"),
        ("brackets within a text",  b"application/json", b"\"[[\\\"[[\"",  "data",        "data"),
        ("no JSON after all",       b"application/json", b"{\"a\":",       "data_base64", "data_base64"),
        ("no text at all",          b"application/json", b"\"\xff\"",      "data_base64", "data_base64"),
        ("not said to be JSON",     b"text/plain",       b"1",             "data_base64", "data_base64"),
        ("a number beyond a value", b"application/json", b"1e999",         "data",        "data_base64"),
        ("deep",                    b"application/json", deep.as_bytes(),  "data",        "data"),
        ("too deep",                b"application/json", deeper.as_bytes(), "data_base64", "data_base64"),
    ];
    for (name, content_type, data, in_text, in_value) in cases {
        let event = one(&with_required(&[("content-type", content_type)]), data).expect(name);
        let text = String::from_utf8(event.to_structured()).expect("JSON is text");
        assert!(text.contains(&format!("\"{in_text}\":")), "{name}: {text}");
        assert!(event.to_json().get(in_value).is_some(), "{name}");
        let again = one(STRUCTURED, text.as_bytes()).expect(name);
        assert_eq!(again.data, event.data.trim_ascii(), "{name}");
    }
}

/// Texts of any characters that attributes may have.
fn text(bytes_max: usize) -> impl Strategy<Value = String> {
    let text = "[ -~éß№😀\u{a0}]{1,20}|[%\"\\\\ ]{1,6}|\\PC{1,12}";
    text.prop_filter("no character is forbidden", move |text| {
        text.len() <= bytes_max && attribute::ExtensionText::new(text).is_ok()
    })
}

fn json_text() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(".{0,4}", inner, 0..5)
                .prop_map(|map| Value::from(map.into_iter().collect::<serde_json::Map<_, _>>())),
        ]
    });
    prop_oneof![
        value.clone().prop_map(|value| value.to_string().into_bytes()),
        value.prop_map(|value| serde_json::to_vec_pretty(&value).expect("a value")),
    ]
}

fn data() -> impl Strategy<Value = (Option<ContentType>, Bytes)> {
    let content_type = |text: &'static str| Just(Some(ContentType::new(text).expect("a content type")));
    let json = prop_oneof![content_type("application/json"), content_type("text/x+json; charset=utf-8")];
    let other = prop_oneof![Just(None), content_type("text/plain"), content_type("image/png")];
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        (json.clone(), json_text()),
        (json, bytes.clone().prop_filter("space around JSON is lost", |data| data.trim_ascii() == data)),
        (other.clone(), json_text()),
        (other, bytes),
    ]
    .prop_map(|(content_type, data)| (content_type, data.into()))
}

fn extensions() -> impl Strategy<Value = BTreeMap<ExtensionName, ExtensionValue>> {
    let value = prop_oneof![
        3 => prop_oneof![Just(String::new()), text(99)]
            .prop_map(|text| ExtensionValue::Text(attribute::ExtensionText::new(&text).expect("checked"))),
        1 => any::<i32>().prop_map(ExtensionValue::Integer),
        1 => any::<bool>().prop_map(ExtensionValue::Boolean),
    ];
    let name = "[a-z0-9]{1,20}".prop_filter_map("a name of its own", |name| ExtensionName::new(&name).ok());
    prop::collection::btree_map(name, value, 0..6)
}

fn events() -> impl Strategy<Value = Event> {
    let known = (text(99), text(99), "[a-zé_/:-]{1,8}(\\.[a-z0-9]{1,4}){0,3}");
    let optional = || prop::option::of(text(99));
    let time = prop::option::of(any::<u64>().prop_map(Timestamp::from_nanos));
    let others = (optional(), time, optional(), optional(), optional());
    (known, others, extensions(), data()).prop_map(|(known, others, extensions, (content_type, data))| {
        let (id, source, event_type) = known;
        let (subject, time, session, correlation_id, traceparent) = others;
        Event {
            id: EventId::new(&id).expect("checked"),
            source: EventSource::new(&source).expect("checked"),
            event_type: EventType::new(&event_type).expect("words and dots"),
            subject: subject.map(|text| EventSubject::new(&text).expect("checked")),
            time,
            content_type,
            session: session.map(|text| SessionKey::new(&text).expect("checked")),
            correlation_id: correlation_id.map(|text| CorrelationId::new(&text).expect("checked")),
            traceparent: traceparent.map(|text| TraceParent::new(&text).expect("checked")),
            extensions,
            data,
        }
    })
}

/// The event as headers can tell it: they know only texts.
fn with_texts_only(mut event: Event) -> Event {
    for value in event.extensions.values_mut() {
        *value = ExtensionValue::Text(attribute::ExtensionText::new(&value.to_string()).expect("checked"));
    }
    event
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_sent_as_headers_reads_back(event in events()) {
        let headers = event.binary_headers();
        for (name, value) in &headers {
            prop_assert!(value.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{name}: {value}");
        }
        let again = parse(Incoming { headers: &headers, body: &event.data });
        prop_assert_eq!(again, Ok(Parsed::One(Box::new(with_texts_only(event)))));
    }

    #[test]
    fn what_is_sent_as_json_reads_back(event in events()) {
        let text = event.to_structured();
        prop_assert_eq!(one(STRUCTURED, &text), Ok(event.clone()));
        let value = serde_json::to_vec(&event.to_json()).expect("a value");
        let again = one(STRUCTURED, &value).expect("an event");
        prop_assert_eq!(again.to_json(), event.to_json());
        let batch = [b"[", &*text, b" , ", &*text, b"]"].concat();
        prop_assert_eq!(parsed(BATCH, &batch), Ok(vec![event.clone(), event]));
    }

    #[test]
    fn any_bytes_end_in_events_or_in_a_refusal(
        headers in prop::collection::vec(("(ce-)?(id|type|time|specversion|[a-z-]{0,3})", prop::collection::vec(any::<u8>(), 0..9)), 0..6),
        body in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (name.as_str(), &**value)).collect();
        let _ = one(&headers, &body);
        for form in [STRUCTURED, BATCH] {
            prop_assert!(parsed(form, &body).is_err());
        }
    }

    #[test]
    fn a_mangled_event_ends_in_an_event_or_in_a_refusal(event in events(), at in 0..200_usize, cut in 0..9_usize, new in "[ -~]{0,6}") {
        let text = event.to_structured();
        let (start, end) = (at.min(text.len()), (at + cut).min(text.len()));
        let mangled = [&text[..start], new.as_bytes(), &text[end..]].concat();
        if let Ok(event) = one(STRUCTURED, &mangled) {
            prop_assert_eq!(one(STRUCTURED, &event.to_structured()), Ok(event));
        }
    }
}
