//! Exports traces to an OpenTelemetry collector: OTLP over HTTP, as JSON.
//!
//! JSON, because the crates for protobuf would bring a second HTTP stack for the same spans.
//!
//! Two tasks: one turns activities into spans and never waits; the other sends batches. A bounded queue is
//! between them. A slow or absent collector costs spans, which are counted; no delivery or response ever
//! waits for it.

mod json;
pub(crate) mod settings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redrive_core::trace::span::{self, TraceSpan};
use redrive_node::activity::TraceStep;
use redrive_node::runtime::Node;
use redrive_node::tls::Roots;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::client::{Client, ClientRequest};
use crate::serve::otlp::settings::OtlpSettings;

const WAITING_MAX: usize = 8_192;

const BATCH_MAX: usize = 512;

/// How long a span waits for its batch.
const GATHER: Duration = Duration::from_secs(1);

/// How long sending may take at shutdown.
const STOP_WITHIN: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(crate) struct SpanCounts {
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl SpanCounts {
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn drop_some(&self, spans: u64) {
        self.dropped.fetch_add(spans, Ordering::Relaxed);
    }
}

pub(crate) struct SpanExporter {
    counts: Arc<SpanCounts>,
    stop: watch::Sender<()>,
    sending: JoinHandle<()>,
}

impl SpanExporter {
    pub(crate) fn start(node: &Node, settings: OtlpSettings, roots: Roots) -> Self {
        let counts: Arc<SpanCounts> = Arc::default();
        let (spans, waiting) = mpsc::channel(WAITING_MAX);
        let (stop, stopping) = watch::channel(());
        let taking = SpanIntake { steps: node.follow(), spans, counts: Arc::clone(&counts), stopping };
        tokio::spawn(taking.run(settings.sampler));
        let client = Client::new(settings.address.clone(), None).trusting(roots);
        let sending = SpanSender { client, settings, counts: Arc::clone(&counts), is_away: false };
        Self { counts, stop, sending: tokio::spawn(sending.run(waiting)) }
    }

    pub(crate) fn counts(&self) -> Arc<SpanCounts> {
        Arc::clone(&self.counts)
    }

    /// Sends the rest, within [`STOP_WITHIN`].
    pub(crate) async fn stop(self) {
        drop(self.stop);
        // Spans not accepted by then are lost.
        let _ = timeout(STOP_WITHIN, self.sending).await;
    }
}

struct SpanIntake {
    steps: broadcast::Receiver<Arc<TraceStep>>,
    spans: mpsc::Sender<TraceSpan>,
    counts: Arc<SpanCounts>,
    /// Closed at shutdown.
    stopping: watch::Receiver<()>,
}

impl SpanIntake {
    async fn run(mut self, sampler: redrive_core::trace::Sampler) {
        loop {
            let step = tokio::select! {
                biased;
                step = self.steps.recv() => step,
                _ = self.stopping.changed() => break,
            };
            match step {
                Ok(step) => self.take(&step, sampler),
                Err(RecvError::Lagged(missed)) => self.counts.drop_some(missed),
                Err(RecvError::Closed) => return,
            }
        }
        loop {
            match self.steps.try_recv() {
                Ok(step) => self.take(&step, sampler),
                Err(TryRecvError::Lagged(missed)) => self.counts.drop_some(missed),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn take(&self, step: &TraceStep, sampler: redrive_core::trace::Sampler) {
        let spans = match step {
            TraceStep::Accepted { event, deliveries, at } => {
                span::of_accepted(event, *deliveries, *at, sampler).into_iter().collect()
            }
            TraceStep::Signal(signal) => span::of_activity(signal, sampler),
        };
        for span in spans {
            if self.spans.try_send(span).is_err() {
                self.counts.drop_some(1);
            }
        }
    }
}

struct SpanSender {
    client: Client,
    settings: OtlpSettings,
    counts: Arc<SpanCounts>,
    /// The last batch failed; logged once.
    is_away: bool,
}

impl SpanSender {
    async fn run(mut self, mut waiting: mpsc::Receiver<TraceSpan>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while waiting.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let gathered_at = Instant::now() + GATHER;
            while batch.len() < BATCH_MAX {
                let room = BATCH_MAX - batch.len();
                match timeout_at(gathered_at, waiting.recv_many(&mut batch, room)).await {
                    Ok(more) if more > 0 => {}
                    Ok(_) | Err(_) => break,
                }
            }
            self.send(&batch).await;
            batch.clear();
        }
    }

    async fn send(&mut self, batch: &[TraceSpan]) {
        let OtlpSettings { path, headers, service_name, .. } = &self.settings;
        let body = json::written(service_name, batch);
        let mut ask = ClientRequest::post(path.clone(), "application/json", body);
        for (name, value) in headers {
            ask = ask.header(name.clone(), value.clone());
        }
        match self.client.ask(&ask).await {
            Ok(_) => {
                self.counts.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
                if std::mem::take(&mut self.is_away) {
                    tracing::info!("span export recovered");
                }
            }
            Err(error) => {
                self.counts.drop_some(batch.len() as u64);
                if !std::mem::replace(&mut self.is_away, true) {
                    let address = &self.settings.address;
                    let error = error.to_string();
                    let error = error.lines().next().unwrap_or_default();
                    tracing::warn!(%address, error, "span export failed; spans are dropped");
                }
            }
        }
    }
}
