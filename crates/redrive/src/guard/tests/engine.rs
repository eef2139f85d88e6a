//! A delivery of the engine itself, in virtual time, against a target that follows a script.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use redrive_core::book::connectors::built_in;
use redrive_core::book::{self, RuleBook};
use redrive_core::engine::attempt_record;
use redrive_core::engine::{
    Absences, Effect, Ending, Engine, EngineBounds, Input, LoadRequest, LoadedPage, NextState,
    PendingDelivery, QueueName, Settlement, SettlementResult, Setup, TargetCall,
};
use redrive_core::event::{self, Incoming};
use redrive_core::ids::{DeliveryId, Seed, ServiceName};
use redrive_core::policy::answer::{CallPart, HeaderPairs, ReplyKind, TargetReply, TransportError};
use redrive_core::time::Timestamp;

use super::Oops;
use super::same::{Line, Told};

/// More steps than any delivery here takes.
const STEPS_MAX: usize = 10_000;

/// A service of its own for the dependency of a book.
const SERVICE: &str = "services: { shop: { target: { http: \"http://127.0.0.1:9/\" }, depends_on: d, events: [orders.placed] } }\n";

/// What becomes of one delivery to the dependency `d` of that book; none if the script has something that no
/// target reports.
pub(super) fn delivered(book: &str, script: &[Line]) -> Option<Told> {
    let answers = script.iter().map(|line| line.1.map_or(Some(never()), reply)).collect::<Option<_>>()?;
    let start = Timestamp::from_millis(1_761_057_000_250);
    let engine = Engine::new(Setup {
        seed: Seed::default(),
        book: Arc::new(book_of(&format!("{book}{SERVICE}"))),
        older_books: Vec::new(),
        bounds: EngineBounds { window: 4, window_bytes: 10_000, calls: 64 },
        now: start,
        queues: Vec::new(),
        paused: BTreeMap::new(),
        absences: Absences::new(),
        breakers: Vec::new(),
        replays: Vec::new(),
        suspects_until: None,
    });
    let mut row = order();
    row.written_at = start;
    let world = World {
        engine,
        start,
        now: start,
        answers,
        inputs: VecDeque::from([Input::Accepted(vec![row])]),
        under_way: None,
        wake_at: None,
        starts_ms: Vec::new(),
        end: None,
    };
    Some(world.play())
}

struct World {
    engine: Engine,
    start: Timestamp,
    now: Timestamp,
    answers: VecDeque<TargetReply>,
    /// What is to be told at once.
    inputs: VecDeque<Input>,
    /// The call that is made, and when it ends.
    under_way: Option<(Timestamp, Input)>,
    wake_at: Option<Timestamp>,
    starts_ms: Vec<u64>,
    end: Option<String>,
}

impl World {
    fn play(mut self) -> Told {
        for _ in 0..STEPS_MAX {
            let input = self.next_input();
            self.engine.handle(input, self.now);
            while let Some(effect) = self.engine.next_effect() {
                self.carry_out(effect);
            }
            if let Some(end) = self.end {
                return Told { starts_ms: self.starts_ms, end };
            }
        }
        panic!("the delivery has no end: {:?}", self.starts_ms);
    }

    /// What happens next, after as much time as that takes.
    fn next_input(&mut self) -> Input {
        if let Some(input) = self.inputs.pop_front() {
            return input;
        }
        let ends_at = self.under_way.as_ref().map(|(at, _)| *at);
        let at = [ends_at, self.wake_at].into_iter().flatten().min().expect("something is still to come");
        self.now = self.now.max(at);
        if ends_at.is_some_and(|ends_at| ends_at <= self.now) {
            return self.under_way.take().expect("it was just seen").1;
        }
        self.wake_at = None;
        Input::Tick
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start(call) => self.call(&call),
            Effect::Settle(settlement) => self.settle(&settlement),
            // Whatever waits is in memory.
            Effect::Load(LoadRequest { queue, wanted, .. }) => {
                let page = LoadedPage { queue, wanted, rows: Vec::new(), more: false, next_due_at: None };
                self.inputs.push_back(Input::Loaded(page));
            }
            Effect::WakeAt(at) => self.wake_at = Some(at),
            Effect::Keep(_)
            | Effect::Release(_)
            | Effect::Advance(_)
            | Effect::Reprocess(_)
            | Effect::Activity(_) => {}
        }
    }

    fn call(&mut self, call: &TargetCall) {
        let since = self.now.since(self.start).as_millis();
        self.starts_ms.push(u64::try_from(since).expect("a short test"));
        let reply = self.answers.pop_front().expect("every script ends with a success");
        let never_answers = matches!(reply.seen, ReplyKind::Transport(TransportError::Timeout(_)));
        let ends_at = if never_answers { self.now + call.limit } else { self.now };
        self.under_way = Some((ends_at, Input::Ended { call: call.id, ending: Ending::Reply(reply) }));
    }

    fn settle(&mut self, settlement: &Settlement) {
        let fate = SettlementResult::Written;
        self.inputs.push_back(Input::Settled { delivery: settlement.delivery, fate, promoted: None });
        self.end = match &settlement.next {
            NextState::Delivered => Some("ok".to_owned()),
            NextState::Dead(death) => Some(death.code.to_string()),
            // A guard has no service to pause: that ends it.
            NextState::Ready if settlement.pause.is_some() => failure_code(settlement),
            NextState::Ready | NextState::Due { .. } | NextState::Starting => None,
        };
    }
}

fn failure_code(settlement: &Settlement) -> Option<String> {
    match &settlement.record.as_ref()?.end {
        attempt_record::AttemptEnd::Failed { code, .. } => Some(code.to_string()),
        _ => None,
    }
}

fn never() -> TargetReply {
    let seen = ReplyKind::Transport(TransportError::Timeout(CallPart::Whole));
    TargetReply { seen, message: "no answer in time".to_owned(), retry_after: None }
}

/// What a target would report; a code of a caller's own is nothing that one can.
fn reply(answer: Result<(), Oops>) -> Option<TargetReply> {
    use redrive_core::policy::answer::AnswerKind;

    use crate::Classify;
    let http = |status| ReplyKind::Http { status, headers: HeaderPairs::default(), body: String::new() };
    let Err(error) = answer else {
        return Some(TargetReply { seen: http(200), message: String::new(), retry_after: None });
    };
    let told = error.answer();
    let seen = match told.what {
        AnswerKind::Http { status, .. } => http(status),
        AnswerKind::Transport(error) => ReplyKind::Transport(error),
        _ => return None,
    };
    Some(TargetReply { seen, message: told.message.to_owned(), retry_after: told.retry_after })
}

fn book_of(text: &str) -> RuleBook {
    let reading = book::read(text, built_in());
    reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems))
}

/// The first delivery of a small event.
fn order() -> PendingDelivery {
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "e-1"),
        ("ce-source", "web"),
        ("ce-type", "orders.placed"),
        ("content-type", "application/json"),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let body = Bytes::from_static(br#"{"total":12}"#);
    let parsed = event::parse(Incoming { headers: &headers, body: &body }).expect("an event");
    PendingDelivery {
        id: DeliveryId(1),
        queue: Arc::new(QueueName { service: ServiceName::new("shop").expect("a name"), channel: None }),
        sequence: None,
        replaying: None,
        event: Arc::new(parsed.into_events().remove(0)),
        attempts: 0,
        due_at: None,
        history: serde_json::from_str("{}").expect("nothing yet"),
        book: None,
        written_at: Timestamp::EPOCH,
        start_recorded: false,
        damaged: false,
    }
}
