//! Baseline relay: accepts an event on the API's stack, forwards it with the client of the `http` target, and
//! responds; no store, no decisions.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use redrive::clock::wall_clock;
use redrive_core::book::RuleBook;
use redrive_core::book::connectors::built_in;
use redrive_core::engine::{CallId, Ending, PendingDelivery, QueueName, TargetCall};
use redrive_core::event::idempotency::delivery_id;
use redrive_core::event::{Event, HeaderList, Incoming, parse};
use redrive_core::ids::{Attempt, Seq, ServiceName};
use redrive_core::policy::answer::ReplyKind;
use redrive_core::policy::decide::History;
use redrive_core::policy::rule::Rule;
use redrive_node::secret::Secrets;
use redrive_node::target::Target;
use redrive_node::target::registry::Targets;

use crate::book::{self, Order, Service};

pub(super) fn run(to: SocketAddr) -> anyhow::Result<ExitCode> {
    let relay = Relay::new(to)?;
    super::serve_routes(Router::new().route("/v1/events", post(forward)).with_state(Arc::new(relay)))
}

struct Relay {
    book: Arc<RuleBook>,
    rule: Arc<Rule>,
    queue: Arc<QueueName>,
    target: Arc<dyn Target>,
    calls: AtomicU64,
}

impl Relay {
    fn new(to: SocketAddr) -> anyhow::Result<Self> {
        let service = Service::taking(0, Order::None);
        let text = book::text(to, std::slice::from_ref(&service), None);
        let book =
            redrive_core::book::read(&text, built_in()).book.context("the book of the bench is wrong")?;
        let name = ServiceName::new(&service.name).context("the service has no name")?;
        let queue = QueueName { service: name, channel: None };
        let targets = Targets::new(&book, &Secrets::default(), None);
        let targets = targets.map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
        let rule = book.rule(&service.name, None, &service.event_type).context("the book has no rule")?;
        Ok(Self {
            rule: Arc::clone(rule),
            target: targets.get(&queue).context("the book has no target")?,
            queue: Arc::new(queue),
            book: Arc::new(book),
            calls: AtomicU64::new(1),
        })
    }

    fn call(&self, event: Event) -> TargetCall {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let now = wall_clock();
        let waiting = PendingDelivery {
            id: delivery_id(Seq::new(number), event.dedup_key(), &self.queue.service, None),
            queue: Arc::clone(&self.queue),
            sequence: None,
            replaying: None,
            event: Arc::new(event),
            attempts: 0,
            due_at: None,
            history: History::default(),
            book: None,
            written_at: now,
            start_recorded: false,
            damaged: false,
        };
        TargetCall {
            id: CallId(number),
            queue: Arc::clone(&self.queue),
            deliveries: vec![waiting],
            limit: self.rule.timeouts.whole.limit(Attempt::FIRST),
            rule: Arc::clone(&self.rule),
            book: Arc::clone(&self.book),
            started_at: now,
        }
    }
}

async fn forward(State(relay): State<Arc<Relay>>, headers: HeaderMap, body: Body) -> Response {
    let Some(body) = super::read(body).await else { return StatusCode::BAD_REQUEST.into_response() };
    let Ok(parsed) = parse(Incoming { headers: &Headers(&headers), body: &body }) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    for event in parsed.into_events() {
        let call = Arc::new(relay.call(event));
        let taken = match relay.target.call(call).await {
            Ending::Reply(reply) => matches!(reply.seen, ReplyKind::Http { status: 200..=299, .. }),
            Ending::Partly { .. } | Ending::Ran { .. } | Ending::Interrupted => false,
        };
        if !taken {
            return StatusCode::BAD_GATEWAY.into_response();
        }
    }
    super::handler::accepted(&headers)
}

struct Headers<'a>(&'a HeaderMap);

impl HeaderList for Headers<'_> {
    fn each(&self) -> Box<dyn Iterator<Item = (&str, &[u8])> + '_> {
        Box::new(self.0.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
    }
}
