//! What a collector of traces is told by a real server: a tree of spans over retries and a restart.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::run::Folder;
use crate::server::{Server, serve, until};
use crate::target::{Target, book};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SENDER: &str = "b7ad6b7169203331";

/// A span that came.
#[derive(Clone, Debug)]
struct Span(Value);

impl Span {
    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.0["attributes"].as_array()?.iter().find(|one| one["key"] == name)?;
        found["value"]["stringValue"].as_str().or_else(|| found["value"]["intValue"].as_str())
    }
}

/// All spans that a collector has got, by their ids; none comes twice.
fn spans(collector: &Target) -> BTreeMap<String, Span> {
    let mut spans = BTreeMap::new();
    for call in collector.calls() {
        assert_eq!((call.path.as_str(), call.header("content-type")), ("/v1/traces", "application/json"));
        let body = call.json();
        let resource =
            body["resourceSpans"][0]["resource"]["attributes"].as_array().expect("it says who").clone();
        assert!(resource.iter().any(|one| one["value"]["stringValue"] == "shop"), "{resource:?}");
        let all = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans").clone();
        for span in all.into_iter().map(Span) {
            let id = span.text("spanId").to_owned();
            assert_eq!((id.len(), span.text("traceId").len()), (16, 32), "{span:?}");
            assert!(spans.insert(id, span).is_none(), "a span came twice");
        }
    }
    spans
}

fn named(spans: &BTreeMap<String, Span>, name: &str) -> Vec<Span> {
    spans.values().filter(|span| span.text("name") == name).cloned().collect()
}

fn traced(folder: &Folder, collector: &str) -> Server {
    let mut command = serve(folder, &["--rules", "redrive.yaml", "--otlp", collector]);
    command.env("OTEL_SERVICE_NAME", "shop");
    Server::run(command)
}

fn send(server: &Server, id: &str, flags: &str) {
    let event = format!(
        r#"{{"specversion":"1.0","id":"{id}","source":"/s","type":"orders.placed","traceparent":"00-{TRACE}-{SENDER}-{flags}"}}"#
    );
    let answer = server.post("/v1/events", "content-type: application/cloudevents+json\r\n", event);
    assert_eq!(answer.status, 202, "{answer:?}");
}

#[test]
fn a_delivery_is_one_tree_over_retries_and_a_restart() {
    let (target, collector) = (Target::saying(&[503, 503, 200]), Target::willing());
    let slow = book(&target, &[]).replace("initial: 20ms, max: 20ms", "initial: 2s, max: 2s");
    let folder = Folder::with("redrive.yaml", &slow);
    let address = format!("http://{}", collector.address);
    let server = traced(&folder, &address);
    send(&server, "o-1", "01");
    target.until(1);
    server.until("o-1", "retrying");
    server.stop().assert_calm();
    let first = spans(&collector);
    assert_eq!((named(&first, "accept").len(), named(&first, "attempt orders").len()), (1, 1), "{first:?}");

    let server = traced(&folder, &address);
    let delivered = server.until("o-1", "delivered");
    server.stop().assert_calm();
    let all = spans(&collector);
    let [accept] = &named(&all, "accept")[..] else { panic!("{all:?}") };
    let [deliver] = &named(&all, "deliver orders")[..] else { panic!("{all:?}") };
    let attempts = named(&all, "attempt orders");
    assert!(all.values().all(|span| span.text("traceId") == TRACE), "{all:?}");
    assert_eq!((accept.text("parentSpanId"), deliver.text("parentSpanId")), (SENDER, SENDER));
    assert_eq!(deliver.attribute("redrive.delivery_id"), delivered["id"].as_str());
    assert_eq!(deliver.attribute("redrive.attempts"), Some("3"));
    let mut told: Vec<_> = attempts
        .iter()
        .map(|span| {
            assert_eq!(
                span.text("parentSpanId"),
                deliver.text("spanId"),
                "attempts are parts of the delivery"
            );
            assert!(span.text("startTimeUnixNano") < span.text("endTimeUnixNano"), "{span:?}");
            let failed = span.0["status"]["code"].as_u64() == Some(2);
            (span.attribute("redrive.attempt"), span.attribute("http.response.status_code"), failed)
        })
        .collect();
    told.sort_unstable();
    let mut at_target: Vec<_> =
        target.calls().iter().map(|call| call.header("traceparent").to_owned()).collect();
    let mut of_attempts: Vec<_> =
        attempts.iter().map(|span| format!("00-{TRACE}-{}-01", span.text("spanId"))).collect();
    at_target.sort_unstable();
    of_attempts.sort_unstable();
    assert_eq!(at_target, of_attempts, "the target can go on from each attempt");
    let expected =
        [(Some("1"), Some("503"), true), (Some("2"), Some("503"), true), (Some("3"), Some("200"), false)];
    assert_eq!(told, expected);
}

#[test]
fn an_event_without_a_trace_begins_one_that_its_target_goes_on_in() {
    let (target, collector) = (Target::willing(), Target::willing());
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = traced(&folder, &format!("http://{}", collector.address));
    server.accept("orders.placed", "o-1", "");
    server.until("o-1", "delivered");
    server.stop().assert_calm();
    let all = spans(&collector);
    let [accept] = &named(&all, "accept")[..] else { panic!("{all:?}") };
    let [deliver] = &named(&all, "deliver orders")[..] else { panic!("{all:?}") };
    let [attempt] = &named(&all, "attempt orders")[..] else { panic!("{all:?}") };
    assert_eq!(accept.0.get("parentSpanId"), None, "it begins the trace");
    assert_eq!(deliver.text("parentSpanId"), accept.text("spanId"));
    let expected = format!("00-{}-{}-01", accept.text("traceId"), attempt.text("spanId"));
    assert_eq!(target.calls()[0].header("traceparent"), expected);
}

#[test]
fn every_event_of_a_batch_says_its_own_place() {
    let (target, collector) = (Target::willing(), Target::willing());
    let rules = book(&target, &[]).replace(" }\n    retry", ", format: batch }\n    retry");
    let folder = Folder::with("redrive.yaml", &rules);
    let server = traced(&folder, &format!("http://{}", collector.address));
    assert_eq!(server.post("/v1/services/orders/pause", "", "").status, 200);
    send(&server, "o-1", "01");
    server.accept("orders.placed", "o-2", "");
    assert_eq!(server.post("/v1/services/orders/resume", "", "").status, 200);
    for id in ["o-1", "o-2"] {
        server.until(id, "delivered");
    }
    server.stop().assert_calm();
    let attempts = named(&spans(&collector), "attempt orders");
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    let bodies: Vec<Value> = target.calls().iter().map(crate::target::Call::json).collect();
    let events: Vec<&Value> = bodies.iter().flat_map(|body| body.as_array().expect("a list")).collect();
    for span in attempts {
        let id = span.attribute("cloudevents.event_id").expect("it says whose");
        let event = events.iter().find(|event| event["id"] == id).expect("it was sent");
        let place = format!("00-{}-{}-01", span.text("traceId"), span.text("spanId"));
        assert_eq!(event["redrivetraceparent"], place, "{event}");
        let own = (id == "o-1").then(|| format!("00-{TRACE}-{SENDER}-01"));
        assert_eq!(event.get("traceparent").and_then(Value::as_str), own.as_deref(), "as it came");
    }
}

#[test]
fn what_a_sender_does_not_want_recorded_is_not_sent() {
    let (target, collector) = (Target::willing(), Target::willing());
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = traced(&folder, &format!("http://{}", collector.address));
    send(&server, "o-secret", "00");
    send(&server, "o-told", "01");
    for id in ["o-secret", "o-told"] {
        server.until(id, "delivered");
    }
    server.stop().assert_calm();
    let all = spans(&collector);
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all.values().all(|span| span.attribute("cloudevents.event_id") == Some("o-told")), "{all:?}");
}

#[test]
fn a_collector_that_is_away_costs_spans_and_nothing_else() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = traced(&folder, &crate::scripted::nowhere());
    send(&server, "o-1", "01");
    server.until("o-1", "delivered");
    until("the spans are dropped", || {
        let page = server.get("/metrics").body;
        page.lines().any(|line| line == "redrive_spans_dropped_total 3").then_some(())
    });
    assert!(server.get("/metrics").body.contains("\nredrive_spans_sent_total 0\n"));
    server.err.wait_for("span export failed");
    server.stop().assert_calm();
}

#[test]
fn an_address_that_is_none_is_refused_at_the_start() {
    let folder = Folder::new();
    let ended = Server::try_run(serve(&folder, &["--otlp", "collector:4318"])).err().expect("it is refused");
    assert!(ended.stderr.contains("--otlp is not a valid collector address"), "{}", ended.stderr);
    assert_eq!(ended.code, Some(1));
}
