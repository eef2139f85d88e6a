//! Ids stay what they are, and a `traceparent` is read as it is meant.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::span::{self, AttributeValue, TraceSpan};
use super::*;
use crate::event::attribute::{EventId, EventSource, EventType, TraceParent};
use crate::figures::tests::{Play, Stage};
use crate::ids::Seq;
use crate::time::Timestamp;

const SENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn event(traceparent: Option<&str>) -> Event {
    Event {
        id: EventId::new("e-1").expect("an id"),
        source: EventSource::new("/shop").expect("a source"),
        event_type: EventType::new("order.placed").expect("a type"),
        subject: None,
        time: None,
        content_type: None,
        session: None,
        correlation_id: None,
        traceparent: traceparent.map(|text| TraceParent::new(text).expect("it fits")),
        extensions: BTreeMap::new(),
        data: Bytes::new(),
    }
}

fn attempt(number: u32) -> Attempt {
    Attempt::new(number).expect("not 0")
}

#[test]
fn a_traceparent_is_read_as_it_is_meant() {
    #[rustfmt::skip]
    let cases = [
        ("a good one",              SENT,                                                          Some(SENT)),
        ("one that is not sampled", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",    Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")),
        ("flags of later releases", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03",    Some(SENT)),
        ("a later version",         "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",  Some(SENT)),
        ("no version",              "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",    None),
        ("more than the first has", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",  None),
        ("no trace",                "00-00000000000000000000000000000000-b7ad6b7169203331-01",    None),
        ("no span",                 "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",    None),
        ("upper case",              "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",    None),
        ("a sign",                  "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",    None),
        ("too short",               "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",       None),
        ("nothing",                 "",                                                           None),
        ("letters of two bytes",    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333é-01",    None),
    ];
    for (name, text, expected) in cases {
        let read = Context::parse(text).map(|context| context.to_string());
        assert_eq!(read.as_deref(), expected, "{name}");
    }
}

#[test]
fn an_event_goes_on_in_the_trace_that_it_came_with() {
    let trace = EventTrace::of(&event(Some(SENT)), Sampler::USUAL);
    assert_eq!(trace.id.to_string(), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(trace.above_deliveries().to_string(), "b7ad6b7169203331");
    let alone = EventTrace::of(&event(None), Sampler::USUAL);
    assert_eq!(alone.above_deliveries(), alone.accept());
    assert_eq!(
        EventTrace::of(&event(Some("nonsense")), Sampler::USUAL),
        alone,
        "what cannot be read is not there"
    );
    let at_attempt = trace.at_attempt(DeliveryId::new(Seq::new(7), 8), attempt(2));
    assert_eq!(Context::parse(&at_attempt.to_string()), Some(at_attempt));
}

/// Calls made by an older release are told of by a newer one.
#[test]
fn ids_are_frozen() {
    let delivery = DeliveryId::new(Seq::new(7), 8);
    let alone = EventTrace::of(&event(None), Sampler::USUAL);
    let ids = [
        alone.id.to_string(),
        alone.accept().to_string(),
        SpanId::of_delivery(delivery).to_string(),
        SpanId::of_replay(delivery, ReplayId(1)).to_string(),
        SpanId::of_attempt(delivery, attempt(1)).to_string(),
    ];
    let frozen = [
        "f3b2a90ec85baee322e2d7341ecbb1d9",
        "e117df8b86248da4",
        "59715697b642b54c",
        "59c161e9402d574f",
        "57e64cd8755b17ec",
    ];
    assert_eq!(ids, frozen);
}

#[test]
fn no_two_spans_have_one_id() {
    let mut seen = BTreeSet::new();
    for place in 0..200 {
        let delivery = DeliveryId::new(Seq::new(place), 8);
        assert!(seen.insert(SpanId::of_delivery(delivery)));
        for number in 1..20 {
            assert!(seen.insert(SpanId::of_attempt(delivery, attempt(number))));
            assert!(seen.insert(SpanId::of_replay(delivery, ReplayId(u64::from(number)))));
        }
    }
}

#[test]
fn a_share_of_traces_is_recorded_and_a_sender_has_a_say() {
    let unsampled = SENT.replace("-01", "-00");
    let half = Share::new(0.5).expect("a part");
    #[rustfmt::skip]
    let cases = [
        ("all of them",                   Share::ALL,  SenderSays::Heeded,  None,             Sampled::Yes),
        ("none of them",                  Share::NONE, SenderSays::Heeded,  None,             Sampled::No),
        ("a sender wants it",             Share::NONE, SenderSays::Heeded,  Some(SENT),       Sampled::Yes),
        ("a sender does not",             Share::ALL,  SenderSays::Heeded,  Some(&*unsampled), Sampled::No),
        ("a sender that is not asked",    Share::ALL,  SenderSays::Ignored, Some(&*unsampled), Sampled::Yes),
        ("that one is in the upper half", half,        SenderSays::Ignored, Some("00-0af7651916cd43ddf448eb211c80319c-b7ad6b7169203331-01"), Sampled::No),
        ("and that one in the lower",     half,        SenderSays::Ignored, Some("00-0af7651916cd43dd0448eb211c80319c-b7ad6b7169203331-01"), Sampled::Yes),
    ];
    for (name, share, sender, traceparent, expected) in cases {
        assert_eq!(
            EventTrace::of(&event(traceparent), Sampler { share, sender }).sampled,
            expected,
            "{name}"
        );
    }
    assert_eq!((Share::new(1.5), Share::new(-0.1), Share::new(f64::NAN)), (None, None, None));
}

/// What a span says of its place: what it does, the end of its id, its parent's, and how it failed.
fn told(stage: &Stage, delivery: DeliveryId) -> Vec<String> {
    let life = SpanId::of_delivery(delivery);
    let name = |id: SpanId| {
        let attempts = (1..9).find(|number| SpanId::of_attempt(delivery, attempt(*number)) == id);
        match attempts {
            Some(number) => format!("attempt {number}"),
            None if id == life => "delivery".to_owned(),
            None => id.to_string(),
        }
    };
    let spans = stage.spans.iter().map(|span| {
        let parent = span.parent.map_or_else(|| "nobody".to_owned(), name);
        let failure = span.failure.as_deref().unwrap_or("well");
        format!("{}: {} of {parent}, {failure}", span.does.as_str(), name(span.id))
    });
    spans.collect()
}

#[test]
fn a_delivery_and_its_attempts_are_told_as_one_tree() {
    let mut stage = Stage::new();
    let play = Play { service: "a", event_type: "t", traceparent: Some(SENT), answers: &[503, 500, 200] };
    let delivery = stage.play(&play);
    assert_eq!(
        told(&stage, delivery),
        [
            "attempt: attempt 1 of delivery, SERVICE_UNAVAILABLE",
            "attempt: attempt 2 of delivery, SERVER_ERROR",
            "attempt: attempt 3 of delivery, well",
            "deliver: delivery of b7ad6b7169203331, well",
        ]
    );
    let [first, .., last] = &stage.spans[..] else { panic!("several") };
    assert_eq!(last.started_at, first.started_at, "a delivery lasts from its first attempt");
    assert!(
        stage.spans.iter().all(|span| span.started_at <= span.ended_at && span.ended_at <= last.ended_at)
    );
    assert!(stage.spans.iter().all(|span| span.trace.to_string() == "0af7651916cd43dd8448eb211c80319c"));
    let status = |span: &TraceSpan| {
        span.attributes
            .iter()
            .find(|(name, _)| *name == "http.response.status_code")
            .map(|(_, value)| value.clone())
    };
    assert_eq!(status(first), Some(AttributeValue::Number(503)));
}

#[test]
fn what_a_sender_does_not_want_recorded_is_not() {
    let mut stage = Stage::new();
    let unsampled = SENT.replace("-01", "-00");
    stage.play(&Play { service: "a", event_type: "t", traceparent: Some(&unsampled), answers: &[503, 200] });
    assert_eq!(stage.spans, []);
    assert_eq!(span::of_accepted(&event(Some(&unsampled)), 1, Timestamp::EPOCH, Sampler::USUAL), None);
    let accepted =
        span::of_accepted(&event(Some(SENT)), 1, Timestamp::EPOCH, Sampler::USUAL).expect("recorded");
    assert_eq!(accepted.parent.map(|id| id.to_string()).as_deref(), Some("b7ad6b7169203331"));
}
