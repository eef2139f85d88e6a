//! The contract of every source: scenarios with a real node and the real upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::book::connectors::{Connector, Edge, Profile};
use redrive_core::book::schema::ValueType;
use redrive_core::engine::{Ending, EngineBounds, TargetCall};
use redrive_core::ids::{Seq, ServiceName};
use redrive_core::policy::answer::{BrokerError, ReplyKind, TargetReply};
use redrive_core::policy::catalog::DependencyKind;
use tempfile::TempDir;

use super::{
    AckToken, Acknowledge, SettledMessage, Source, SourceConnection, SourceError, SourceState, SourceView,
    Sources,
};
use crate::connectors::{ConnectorFuture, Driver, Drivers, Make};
use crate::runtime::{Config, Node};
use crate::secret::Secrets;
use crate::store::access_store::AuditActor;
use crate::store::{self, Options};
use crate::target::Target;
use crate::target::registry::Targets;

const PATIENCE: Duration = Duration::from_secs(30);
const A_WHILE: Duration = Duration::from_millis(300);
const HELD_MAX: usize = 1_024;

pub trait Upstream: Send + Sync {
    fn source(&self) -> Arc<dyn Source>;
    fn put(&self, bodies: Vec<String>) -> ConnectorFuture<'_, ()>;
    fn unacknowledged(&self) -> ConnectorFuture<'_, usize>;
    /// Breaks its connections and refuses new ones.
    fn go_away(&self) -> ConnectorFuture<'_, ()>;
    fn come_back(&self) -> ConnectorFuture<'_, ()>;
}

/// Runs every scenario, each with a fresh upstream.
///
/// # Panics
///
/// If the source breaks its contract.
pub async fn keeps<U: Upstream + 'static>(fresh: impl Fn() -> U) {
    taken_in_order_and_acknowledged(Bench::new(fresh())).await;
    not_acknowledged_before_it_is_durable(Bench::new(fresh())).await;
    absorbed_when_the_acknowledgement_is_lost(Bench::new(fresh())).await;
    refused_and_on_record(Bench::new(fresh())).await;
    bounded_while_nothing_is_taken(Bench::new(fresh())).await;
    read_again_after_an_outage(Bench::new(fresh())).await;
    drained_by_a_stop(Bench::new(fresh())).await;
}

async fn taken_in_order_and_acknowledged(bench: Bench) {
    bench.put(0..10).await;
    let sources = bench.start();
    bench.until("all are acknowledged", async || bench.upstream.unacknowledged().await == 0).await;
    assert_eq!(bench.accepted().await, ids(0..10));
    let view = bench.view();
    assert_eq!((view.durable, view.duplicates, view.refused), (10, 0, 0));
    bench.put(10..13).await;
    bench.until("the rest is acknowledged", async || bench.upstream.unacknowledged().await == 0).await;
    assert_eq!(bench.accepted().await, ids(0..13));
    bench.until("nothing is behind", async || bench.view().lag == Some(0)).await;
    sources.stop().await;
}

async fn not_acknowledged_before_it_is_durable(bench: Bench) {
    bench.pause().await;
    bench.put(0..10).await;
    let sources = bench.start();
    // The paused service takes four.
    bench.until("it is held", async || matches!(bench.view().state, SourceState::Held(_))).await;
    bench.until("what waits is counted", async || bench.view().lag.is_some_and(|lag| lag > 0)).await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(bench.accepted().await, ids(0..4));
    let left = bench.upstream.unacknowledged().await;
    assert!(left >= 6, "{left} are not durable, and were acknowledged");
    bench.resume().await;
    bench.until("all are acknowledged", async || bench.upstream.unacknowledged().await == 0).await;
    assert_eq!(bench.accepted().await, ids(0..10), "nothing has overtaken what was held");
    assert_eq!(bench.view().state, SourceState::Reading);
    sources.stop().await;
}

async fn absorbed_when_the_acknowledgement_is_lost(bench: Bench) {
    bench.is_deaf.store(true, Ordering::SeqCst);
    bench.put(0..3).await;
    let sources = bench.start();
    bench.until("it is durable", async || bench.accepted().await.len() == 3).await;
    bench.until("it comes again", async || bench.view().duplicates >= 3).await;
    assert!(bench.upstream.unacknowledged().await > 0);
    bench.is_deaf.store(false, Ordering::SeqCst);
    bench.until("all are acknowledged", async || bench.upstream.unacknowledged().await == 0).await;
    assert_eq!(bench.accepted().await, ids(0..3), "each once");
    sources.stop().await;
}

async fn refused_and_on_record(bench: Bench) {
    bench
        .upstream
        .put(vec![event(0), "{\"no\": \"event\"}".to_owned(), "no json".to_owned(), event(1)])
        .await;
    let sources = bench.start();
    bench.until("all are acknowledged", async || bench.upstream.unacknowledged().await == 0).await;
    assert_eq!(bench.accepted().await, ids(0..2));
    let refused = bench.node.read(|reader| reader.refused(None, 10)).await.expect("the store answers");
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused.iter().all(|one| one.source == "in" && !one.reason.is_empty()), "{refused:?}");
    assert_eq!(bench.view().refused, 2);
    sources.stop().await;
}

async fn bounded_while_nothing_is_taken(bench: Bench) {
    bench.pause().await;
    bench.put(0..3_000).await;
    let sources = bench.start();
    bench.until("it is held", async || matches!(bench.view().state, SourceState::Held(_))).await;
    tokio::time::sleep(A_WHILE).await;
    let held = bench.view().held;
    assert!(held <= HELD_MAX, "{held} messages are in memory");
    sources.stop().await;
    assert!(bench.upstream.unacknowledged().await >= 2_000, "messages that were not read are still there");
}

async fn read_again_after_an_outage(bench: Bench) {
    bench.put(0..2).await;
    let sources = bench.start();
    bench.until("it is read", async || bench.accepted().await.len() == 2).await;
    bench.upstream.go_away().await;
    bench.until("the outage shows", async || matches!(bench.view().state, SourceState::Down(_))).await;
    bench.upstream.come_back().await;
    bench.put(2..4).await;
    bench.until("all are acknowledged", async || bench.upstream.unacknowledged().await == 0).await;
    assert_eq!(bench.accepted().await, ids(0..4));
    assert_eq!(bench.view().state, SourceState::Reading);
    sources.stop().await;
}

async fn drained_by_a_stop(bench: Bench) {
    bench.put(0..500).await;
    let sources = bench.start();
    bench.until("it has begun", async || !bench.accepted().await.is_empty()).await;
    sources.stop().await;
    let durable = bench.accepted().await.len();
    let left = bench.upstream.unacknowledged().await;
    assert!(500 - left <= durable, "{durable} are durable, and {} were acknowledged", 500 - left);
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(bench.accepted().await.len(), durable, "nothing comes after the stop");
    let again = bench.start();
    bench.until("all are acknowledged", async || bench.upstream.unacknowledged().await == 0).await;
    assert_eq!(bench.accepted().await, ids(0..500), "each once, in order");
    again.stop().await;
}

pub(super) struct Bench {
    pub(super) node: Node,
    upstream: Box<dyn Upstream>,
    /// Whether acknowledgements are lost.
    is_deaf: Arc<AtomicBool>,
    _folder: TempDir,
}

impl Bench {
    pub(super) fn new(upstream: impl Upstream + 'static) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (node, upstream) = (node(&folder), Box::new(upstream));
        Self { node, upstream, is_deaf: Arc::default(), _folder: folder }
    }

    pub(super) fn start(&self) -> Sources {
        let (source, is_deaf) = (self.upstream.source(), Arc::clone(&self.is_deaf));
        let open = move |_: &str, _: &_| {
            let (source, is_deaf) = (Arc::clone(&source), Arc::clone(&is_deaf));
            Some(Ok(Arc::new(Deaf { source, is_deaf }) as Arc<dyn Source>))
        };
        Sources::with(&self.node, Box::new(open)).expect("it can be made")
    }

    async fn put(&self, numbers: std::ops::Range<usize>) {
        self.upstream.put(numbers.map(event).collect()).await;
    }

    pub(super) fn view(&self) -> SourceView {
        self.node.sources().remove("in").expect("the source is shown")
    }

    pub(super) async fn accepted(&self) -> Vec<String> {
        let all = self.node.read(|reader| reader.events_after(Seq::NONE, 10_000, usize::MAX)).await;
        all.expect("the store answers").iter().map(|view| view.event.id.to_string()).collect()
    }

    pub(super) async fn pause(&self) {
        let paused = self.node.pause(ServiceName::new("shop").expect("a name"), &AuditActor::unknown()).await;
        paused.expect("it is written");
    }

    pub(super) async fn resume(&self) {
        let resumed =
            self.node.resume(ServiceName::new("shop").expect("a name"), &AuditActor::unknown()).await;
        resumed.expect("it is written");
    }

    pub(super) async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let patience = tokio::time::Instant::now() + PATIENCE;
        while !is_so().await {
            assert!(tokio::time::Instant::now() < patience, "not so: {what}; {:?}", self.view());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub(super) fn event(number: usize) -> String {
    format!(
        r#"{{"specversion":"1.0","id":"e-{number}","source":"/test","type":"a.b","partitionkey":"one","data":{{"n":{number}}}}}"#
    )
}

pub(super) fn ids(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("e-{number}")).collect()
}

const BOOK: &str = "version: 1
retry_policies: { fast: { delays: [20ms], retries: 1, jitter: none } }
dependencies: { upstream: { kind: kafka, retry: fast, breaker: none, timeout: 10s } }
sources: { in: { pulled: here, depends_on: upstream } }
services: { shop: { target: { discard: here }, order: session, waiting: { events: 4 }, events: [a.b] } }
";

static PULLED: Connector = Connector {
    dependency: Some(DependencyKind::Kafka),
    ..Connector::new(Edge::Source, "pulled", ValueType::Text, "The source of the scenario.", |from| {
        Some((Arc::new(from.own_text()?), Profile::default()))
    })
};

static DISCARD: Connector =
    Connector::new(Edge::Target, "discard", ValueType::Text, "Takes everything.", |from| {
        Some((Arc::new(from.own_text()?), Profile::default()))
    });

struct Discard;

impl Target for Discard {
    fn call(&self, _: Arc<TargetCall>) -> ConnectorFuture<'_, Ending> {
        let taken = TargetReply::new(ReplyKind::Taken, String::new());
        Box::pin(async move { Ending::Reply(taken) })
    }
}

fn node(folder: &TempDir) -> Node {
    let drivers = Drivers::built_in().with(&[
        Driver { connector: &PULLED, make: Make::Served },
        Driver { connector: &DISCARD, make: Make::Target(|_, _| Ok(Arc::new(Discard))) },
    ]);
    let reading = redrive_core::book::read(BOOK, drivers.connectors());
    let book: Arc<RuleBook> = Arc::new(reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems)));
    let secrets = Secrets::default();
    let targets = Targets::made_by(&drivers, &book, &secrets).expect("they can be made");
    let store = store::open(folder.path(), Options::default()).expect("it opens");
    let config = Config { book, book_text: BOOK.into(), targets, store, bounds: EngineBounds::SERVER };
    Node::start(config).expect("it starts")
}

/// Loses acknowledgements, as a crash between commit and acknowledgement would.
struct Deaf {
    source: Arc<dyn Source>,
    is_deaf: Arc<AtomicBool>,
}

impl Source for Deaf {
    fn connect(&self) -> ConnectorFuture<'_, Result<SourceConnection, SourceError>> {
        Box::pin(async {
            let SourceConnection { messages, acks } = self.source.connect().await?;
            Ok(SourceConnection {
                messages,
                acks: Box::new(DeafAcks { acks, is_deaf: Arc::clone(&self.is_deaf) }),
            })
        })
    }
}

struct DeafAcks {
    acks: Box<dyn Acknowledge>,
    is_deaf: Arc<AtomicBool>,
}

impl Acknowledge for DeafAcks {
    fn settle(&mut self, settled: Vec<SettledMessage>) -> ConnectorFuture<'_, Result<(), SourceError>> {
        if self.is_deaf.load(Ordering::SeqCst) {
            let (seen, message) =
                (ReplyKind::Broker(BrokerError::Unavailable), "the connection broke".to_owned());
            return Box::pin(async { Err(SourceError::new(seen, message)) });
        }
        self.acks.settle(settled)
    }

    fn extend(&mut self, held: Vec<AckToken>) -> ConnectorFuture<'_, Result<(), SourceError>> {
        self.acks.extend(held)
    }

    fn lag(&mut self) -> ConnectorFuture<'_, Option<u64>> {
        self.acks.lag()
    }

    fn close(self: Box<Self>) -> ConnectorFuture<'static, ()> {
        self.acks.close()
    }
}
