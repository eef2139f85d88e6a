//! Properties that hold for any bytes: one function per kind of input.
//!
//! The fuzz targets and the core's tests call the same functions, so a finding becomes a corpus file and a test. Only a
//! broken property panics.

use redrive_core::book::connectors::built_in;
use std::sync::Arc;

use bytes::Bytes;
use redrive_core::book::problem::{Problem, ProblemSeverity};
use redrive_core::book::{BUILTIN_BOOK, RuleBook, read};
use redrive_core::event::attribute::{ContentType, EventId, ExtensionText, ExtensionValue};
use redrive_core::event::refusal::InvalidEvent;
use redrive_core::event::simple::{SimpleEvent, parse_simple};
use redrive_core::event::{Event, Incoming, Parsed, parse};
use redrive_core::ids::{ChannelName, ServiceName};
use redrive_core::limits;
use redrive_lab::dapr::{Matching, export};
use redrive_lab::lint::{CheckReport, check};
use redrive_lab::report::{explain, markdown, matrix};
use redrive_lab::scenario::{self, ArrivalPattern};
use redrive_lab::simulate::{Go, SimulationPlan, run};
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// One or more events, a book or a scenario.
    Taken,
    /// Refused with a reason.
    Refused,
}

/// Upper bound of an error message: it must not repeat the input.
const REFUSAL_BYTES_MAX: usize = 1_000;

/// Larger bursts take too long for a fuzzer.
const BURST_PLAYED_MAX: u32 = 1_000;

/// The rule book for scenarios.
const SCENARIO_BOOK: &str = r#"version: 1
services:
  shop:
    target: { http: "http://127.0.0.1:9000/" }
    depends_on: api
    events: ["*"]
dependencies: { api: { kind: webhook } }
"#;

/// Number of rows checked one by one.
const ROWS_LOOKED_AT: usize = 50;

const STRUCTURED: (&str, &[u8]) = ("content-type", b"application/cloudevents+json");
const BATCH: (&str, &[u8]) = ("content-type", b"application/cloudevents-batch+json");

/// Bytes as a request to `/v1/events`: lines with a header each, an empty line, and the body.
pub fn event(bytes: &[u8]) -> Came {
    let (headers, body) = request(bytes);
    let parsed = parse(Incoming { headers: &headers.as_slice(), body: &Bytes::copy_from_slice(body) });
    match parsed {
        Ok(Parsed::One(event)) => holds_for_event(&event),
        Ok(Parsed::Batch(events)) => {
            assert!(!events.is_empty(), "a batch of nothing is no batch");
            assert!(events.len() <= limits::BATCH_EVENTS_MAX, "a batch has a bound");
            events.iter().for_each(holds_for_event);
            holds_for_batch(&events);
        }
        Err(invalid) => return refused(&invalid),
    }
    Came::Taken
}

/// Bytes as a request to `/v1/events/{type}`: the type and, after a `?`, the partition key; then as above.
pub fn easy_event(bytes: &[u8]) -> Came {
    let (path, rest) = split(bytes, b"\n");
    let path = String::from_utf8_lossy(path);
    let (event_type, partition_key) =
        path.split_once('?').map_or((&*path, None), |(event_type, key)| (event_type, Some(key)));
    let (headers, body) = request(rest);
    let idempotency_key = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("idempotency-key"));
    let idempotency_key = idempotency_key.and_then(|(_, value)| std::str::from_utf8(value).ok());
    let parsed = parse_simple(SimpleEvent {
        event_type,
        partition_key,
        idempotency_key,
        generated_id: &EventId::new("generated").expect("a short plain text"),
        headers: &headers.as_slice(),
        body: &Bytes::copy_from_slice(body),
    });
    let event = match parsed {
        Ok(event) => event,
        Err(invalid) => return refused(&invalid),
    };
    assert_eq!(event.event_type.as_str(), event_type, "the path says the type");
    assert!(event.data.is_empty() || holds_json(&event), "what is posted the easy way is JSON");
    holds_for_event(&event);
    Came::Taken
}

/// Bytes as a rule book.
pub fn rule_book(bytes: &[u8]) -> Came {
    let CheckReport { book, problems, .. } = check(bytes, built_in());
    holds_for_problems(&problems, bytes);
    let Some(book) = book else {
        let is_error = problems.iter().any(|problem| problem.severity == ProblemSeverity::Error);
        assert!(is_error, "a book that is refused has an error");
        return Came::Refused;
    };
    let text = std::str::from_utf8(bytes).expect("a book is text");
    let again = read(text, built_in()).book.expect("what was read once is read again");
    assert_eq!(book.hash(), again.hash(), "the same text is the same book");
    holds_for_book(&book);
    assert_eq!(matrix::render(&book), matrix::render(&again), "the same book gives the same report");
    Came::Taken
}

/// Bytes as a scenario.
pub fn scenario(bytes: &[u8]) -> Came {
    let scenario::ScenarioReading { scenario, problems } = scenario::read_bytes(bytes);
    let problems = problems.into_sorted();
    holds_for_problems(&problems, bytes);
    let Some(scenario) = scenario else {
        let is_error = problems.iter().any(|problem| problem.severity == ProblemSeverity::Error);
        assert!(is_error, "a scenario that is refused has an error");
        return Came::Refused;
    };
    let book = Arc::new(read(SCENARIO_BOOK, built_in()).book.expect("a book of our own"));
    holds_for_problems(&scenario.misfits(&book).into_sorted(), bytes);
    // A burst cannot be interrupted.
    let bursts = scenario.arrivals.iter().map(|arrival| match arrival.flow {
        ArrivalPattern::Bursts { size, .. } => size,
        ArrivalPattern::Steady { .. } | ArrivalPattern::Wave { .. } | ArrivalPattern::Trace { .. } => 1,
    });
    if bursts.max().unwrap_or(0) > BURST_PLAYED_MAX {
        return Came::Taken;
    }
    let plan = SimulationPlan { scenario: &scenario, book, seed: 1 };
    if let Ok(report) = run(&plan, &mut |_| Go::Stop) {
        let ended = report.delivered + report.dead + report.waiting;
        assert_eq!(report.deliveries, ended, "nothing is lost");
        assert_eq!(report.order_violations, 0, "order is kept");
    }
    Came::Taken
}

fn holds_for_problems(problems: &[Problem], bytes: &[u8]) {
    for problem in problems {
        let (start, end) = (problem.span.start as usize, problem.span.end as usize);
        assert!(start <= end && end <= bytes.len(), "{problem:?} points into the text");
        let is_whole = |text: &str| text.is_char_boundary(start) && text.is_char_boundary(end);
        assert!(std::str::from_utf8(bytes).map_or(true, is_whole), "{problem:?} cuts no character in two");
        assert!(!problem.message.is_empty(), "{problem:?} says what is wrong");
    }
}

fn refused(invalid: &InvalidEvent) -> Came {
    let message = invalid.to_string();
    assert!(!invalid.field.is_empty() || message.contains("``"), "{message:?} names the field");
    assert!(message.len() <= REFUSAL_BYTES_MAX, "a refusal of {} bytes: {message:.200}…", message.len());
    Came::Refused
}

/// An accepted event can be routed and sent, and the receiver reads the same event.
fn holds_for_event(event: &Event) {
    let sent = event.to_structured();
    assert_eq!(read_one(&[STRUCTURED], &sent), without_space_around(event), "as one JSON object");

    let headers = event.binary_headers();
    assert!(headers.iter().all(|(_, value)| value.bytes().all(|byte| matches!(byte, b' '..=b'~'))));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    assert_eq!(read_one(&headers, &event.data), with_texts_only(event), "as headers and data");

    holds_for_letter(event);
    let book = read(BUILTIN_BOOK, built_in()).book.expect("a book of our own");
    assert_eq!(book.route(event.event_type.as_str()).len(), 1, "`*` claims every event");
}

/// A dead letter keeps the event unchanged, except for white space between its parts.
fn holds_for_letter(event: &Event) {
    let letter = event.to_json();
    let text = letter.to_string();
    let again: Value = serde_json::from_str(&text).expect("what was written is JSON");
    assert_eq!(again, letter, "a letter survives any reader, whatever the keys in it");
    let back = read_one(&[STRUCTURED], text.as_bytes());
    assert_eq!(back.to_json(), letter, "a letter is an event again when it is replayed");
    if letter.get("data").is_none() {
        assert_eq!(back.data, event.data, "bytes are kept as bytes");
    }
}

fn holds_for_batch(events: &[Event]) {
    let sent: Vec<String> =
        events.iter().map(|event| String::from_utf8(event.to_structured()).expect("JSON is text")).collect();
    let sent = format!("[{}]", sent.join(","));
    let again = parse(Incoming { headers: &[BATCH].as_slice(), body: &Bytes::from(sent) });
    let expected = events.iter().map(without_space_around).collect();
    assert_eq!(again, Ok(Parsed::Batch(expected)), "as a batch");
}

/// Every row of a book without an error can be resolved, shown and looked up.
fn holds_for_book(book: &RuleBook) {
    let sections = book.sections();
    for (service, channel, row) in sections.rows().take(ROWS_LOOKED_AT) {
        let resolved = sections.resolve(service, channel, row);
        assert!(!explain::explain(book, &resolved).is_empty(), "a rule can be explained");
        assert!(explain::to_json(book, &resolved).is_object(), "to machines too");
        assert!(!markdown::render(book, &resolved).is_empty(), "and as a page");
        let (service, channel) = (service.name.as_str(), channel.map(|channel| channel.name.as_str()));
        let pattern = &row.pattern.value;
        if pattern.is_exact() {
            assert!(book.rule(service, channel, pattern.as_str()).is_some(), "{pattern} has its rule");
        }
        let throttle = book.throttle(&resolved.dependency.value);
        assert_eq!(throttle.in_flight.get(), resolved.in_flight.value, "one throttle for a dependency");
        assert!(book.waiting(service).is_some_and(|limits| limits.events > 0 && limits.size_bytes > 0));
        assert!(book.batch_max(service, channel).is_some_and(|max| max > 0), "a call carries something");
        assert!(book.dedup_ttl_max() >= resolved.idempotency.ttl.value, "no row's ids are forgotten early");
        let leads_here = |(name, of): (&ServiceName, Option<&ChannelName>)| {
            name.as_str() == service && of.map(ChannelName::as_str) == channel
        };
        assert!(book.queues().any(leads_here), "a row leads to a queue");
    }
    for matching in [Matching::AsStated, Matching::Always] {
        assert!(!export(book, matching).yaml.is_empty(), "any book can be exported");
    }
}

/// The headers and the body of a request; other lines are ignored.
fn request(bytes: &[u8]) -> (Vec<(&str, &[u8])>, &[u8]) {
    let (head, body) = match bytes {
        [b'\n', body @ ..] => (&bytes[..0], body),
        _ => split(bytes, b"\n\n"),
    };
    (head.split(|byte| *byte == b'\n').filter_map(header).collect(), body)
}

fn header(line: &[u8]) -> Option<(&str, &[u8])> {
    let (name, value) = split(line, b":");
    Some((std::str::from_utf8(name).ok()?, value))
}

/// The parts before and after the first mark; without one, all is before.
fn split<'a>(bytes: &'a [u8], mark: &[u8]) -> (&'a [u8], &'a [u8]) {
    match bytes.windows(mark.len()).position(|window| window == mark) {
        Some(at) => (&bytes[..at], &bytes[at + mark.len()..]),
        None => (bytes, &[]),
    }
}

fn read_one(headers: &[(&str, &[u8])], body: &[u8]) -> Event {
    match parse(Incoming { headers: &headers, body: &Bytes::copy_from_slice(body) }) {
        Ok(Parsed::One(event)) => *event,
        other => panic!("what is sent reads back as one event, not as {other:?}"),
    }
}

/// The event as JSON can express it: white space around JSON data is not kept.
fn without_space_around(event: &Event) -> Event {
    let mut event = event.clone();
    if holds_json(&event) {
        event.data = event.data.slice_ref(event.data.trim_ascii());
    }
    event
}

/// Whether the data are declared as JSON and are JSON.
fn holds_json(event: &Event) -> bool {
    event.content_type.as_ref().is_some_and(ContentType::is_json)
        && serde_json::from_slice::<&RawValue>(&event.data).is_ok()
}

/// The event as headers can express it: texts only.
fn with_texts_only(event: &Event) -> Event {
    let mut event = event.clone();
    for value in event.extensions.values_mut() {
        *value = ExtensionValue::Text(ExtensionText::new(&value.to_string()).expect("numbers are short"));
    }
    event
}
