//! The `exec` target: runs a program per delivery, with the event on its standard input. A `container` target
//! is the same with a container in the program's place.
//!
//! The environment has the delivery's facts under the names of [`variables`], and of the server's own only
//! what [`INHERITED`](redrive::process::INHERITED) and the book name. Exit 0 means delivered. A run past its
//! limit is killed with its process group, and `on_timeout` may then cancel work elsewhere.
//!
//! Invariants: one call is one run; it ends within its limits whatever the program does; a run cut short by
//! our shutdown is no failure of the program.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use redrive_core::book::connectors;
use redrive_core::book::connectors::container::ContainerSettings;
use redrive_core::book::connectors::exec::{Cancellation, ExecInput, ExecSettings, RunSettings};
use redrive_core::book::connectors::http::FixedCall;
use redrive_core::book::model::Network;
use redrive_core::engine::worker::RunReport;
use redrive_core::engine::{Ending, PendingDelivery, TargetCall};
use redrive_core::event::idempotency::webhook_id;
use redrive_core::policy::answer::{Exit, ReplyKind, TargetReply};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::http::{
    Auth, Pool, Wire, WireOptions, fixed_headers, method_of, place_in_trace, structured, trace_state,
};
use super::{Target, container};
use crate::connectors::{Driver, Make, MakeError, Site, settings};
use redrive::process::{ProgramCommand, ProgramRun, RunEnd, RunLimits, Supervisor};

const CANCEL_WITHIN: Duration = Duration::from_secs(10);
/// Time beyond all limits until the whole process group has ended.
const END_WITHIN: Duration = Duration::from_secs(15);
const COMPLAINT_BYTES_MAX: usize = 2_000;

/// Time to end and remove a container, beyond what a program needs.
const REMOVE_WITHIN: Duration = Duration::from_mins(1);

pub(super) struct WorkerTarget {
    supervisor: Supervisor,
    launch: Launch,
    settings: RunSettings,
    /// Without the time, which each call has.
    limits: RunLimits,
    on_timeout: Option<Cancel>,
    pool: Arc<Pool>,
}

/// What runs.
pub(super) enum Launch {
    Program { words: Vec<String>, folder: Option<String> },
    Container { runtime: String, settings: Box<ContainerSettings> },
}

enum Cancel {
    ProgramCommand(Vec<String>),
    Call(Box<CancelCall>),
}

struct CancelCall {
    wire: Wire,
    method: Method,
    headers: HeaderMap,
    auth: Option<Auth>,
}

impl CancelCall {
    fn new(call: &FixedCall, site: &Site<'_>) -> Result<Self, MakeError> {
        // A literal or internal address needs no permission here, and neither does its issuer of tokens.
        let network = Network::Private;
        let options = WireOptions { permits: 1, network, place: site.place.clone() };
        let mut headers =
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        headers.extend(fixed_headers(&call.headers.fixed));
        Ok(Self {
            wire: Wire::new(&call.address, options, Arc::clone(site.pool))?,
            method: method_of(call.method),
            headers,
            auth: site.auth(call.headers.auth.as_ref(), network)?,
        })
    }

    async fn send(&self, body: Bytes) -> TargetReply {
        let until = Instant::now() + CANCEL_WITHIN;
        let send = |headers| {
            let left = until.saturating_duration_since(Instant::now());
            self.wire.send_within(left, self.method.clone(), headers, body.clone())
        };
        let Some(auth) = &self.auth else { return send(self.headers.clone()).await };
        let with = |name, value| {
            let mut headers = self.headers.clone();
            headers.insert(name, value);
            send(headers)
        };
        auth.around(until, with).await
    }
}

pub(crate) const DRIVER: Driver = Driver {
    connector: &connectors::exec::TARGET,
    make: Make::Target(|endpoint, site| {
        let ExecSettings { command, folder, run } = settings(endpoint);
        let launch = Launch::Program { words: command.clone(), folder: folder.clone() };
        Ok(Arc::new(WorkerTarget::new(launch, run, site)?))
    }),
};

impl WorkerTarget {
    pub(super) fn new(launch: Launch, settings: &RunSettings, site: &Site<'_>) -> Result<Self, MakeError> {
        let usual = RunLimits::default();
        let on_timeout = match &settings.on_timeout {
            None => None,
            Some(Cancellation::Call(call)) => Some(Cancel::Call(Box::new(CancelCall::new(call, site)?))),
            Some(Cancellation::Command(words)) => Some(Cancel::ProgramCommand(words.clone())),
        };
        Ok(Self {
            supervisor: site.supervisor.clone(),
            launch,
            settings: settings.clone(),
            limits: RunLimits {
                spawn: settings.spawn_limit.unwrap_or(usual.spawn),
                time: usual.time,
                grace: settings.grace.unwrap_or(usual.grace),
                memory_bytes: settings.memory_bytes,
                output_bytes: settings
                    .output_bytes_max
                    .map_or(usual.output_bytes, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            },
            on_timeout,
            pool: Arc::clone(site.pool),
        })
    }

    async fn run(&self, call: &TargetCall) -> Ending {
        let [delivery] = call.deliveries.as_slice() else {
            return internal("call has several deliveries, but a program takes one");
        };
        let variables = variables(delivery, &self.pool);
        let limits = RunLimits { time: call.limit, ..self.limits };
        let run = match &self.launch {
            Launch::Program { words, .. } => {
                let Some(command) = self.command(words, delivery, &variables) else {
                    return internal("no program configured");
                };
                self.supervisor.run(command, limits).await
            }
            Launch::Container { runtime, settings } => {
                let command = container::command(runtime, settings, delivery, &variables);
                self.supervisor.run_container(command.input(self.input(delivery)), limits).await
            }
        };
        let Some(exit) = run.exit() else { return Ending::Interrupted };
        let mut message = message(&run, exit);
        if exit == Exit::TimeLimit
            && let Some(cancel) = &self.on_timeout
        {
            message = format!("{message}; {}", self.cancel(cancel, delivery, &variables).await);
        }
        let reply = TargetReply::new(ReplyKind::Process(exit), message);
        let report = RunReport {
            output: run.stdout.text(),
            left_out: run.stdout.left_out(),
            complaint: complaint(&run).unwrap_or_default(),
        };
        Ending::Ran { reply, report: Box::new(report) }
    }

    fn command(
        &self,
        words: &[String],
        delivery: &PendingDelivery,
        variables: &[(&'static str, String)],
    ) -> Option<ProgramCommand> {
        let (program, arguments) = words.split_first()?;
        let mut command = ProgramCommand::new(program);
        for argument in arguments {
            command = command.argument(argument);
        }
        let RunSettings { env, inherit, .. } = &self.settings;
        for name in inherit {
            command = command.inherit(name);
        }
        for (name, value) in env {
            command = command.variable(name, value);
        }
        for (name, value) in variables {
            command = command.variable(name, value);
        }
        if let Launch::Program { folder: Some(folder), .. } = &self.launch {
            command = command.folder(folder);
        }
        Some(command.input(self.input(delivery)))
    }

    fn input(&self, delivery: &PendingDelivery) -> Vec<u8> {
        match self.settings.input {
            ExecInput::Structured => structured(delivery).to_vec(),
            ExecInput::Data => delivery.event.data.to_vec(),
        }
    }

    async fn cancel(
        &self,
        cancel: &Cancel,
        delivery: &PendingDelivery,
        variables: &[(&'static str, String)],
    ) -> String {
        let failed = match cancel {
            Cancel::ProgramCommand(words) => {
                let Some(command) = self.command(words, delivery, variables) else { return String::new() };
                let run =
                    self.supervisor.run(command, RunLimits { time: CANCEL_WITHIN, ..self.limits }).await;
                (run.end != RunEnd::Exited(0)).then(|| message(&run, Exit::Code(1)))
            }
            Cancel::Call(call) => {
                let reply = call.send(variables_json(variables)).await;
                let is_taken = matches!(reply.seen, ReplyKind::Http { status: 200..=299, .. });
                (!is_taken).then_some(reply.message)
            }
        };
        match failed {
            None => "cancelled by `on_timeout`".to_owned(),
            Some(why) => {
                tracing::warn!(delivery_id = %delivery.id, why, "`on_timeout` failed");
                format!("`on_timeout` failed: {why}")
            }
        }
    }
}

impl Target for WorkerTarget {
    fn call(&self, call: Arc<TargetCall>) -> Pin<Box<dyn Future<Output = Ending> + Send + '_>> {
        Box::pin(async move { self.run(&call).await })
    }

    fn ends_within(&self, limit: Duration) -> Duration {
        let RunLimits { spawn, grace, .. } = self.limits;
        let cancel = if self.on_timeout.is_some() { spawn + CANCEL_WITHIN + grace } else { Duration::ZERO };
        let remove = match &self.launch {
            Launch::Program { .. } => Duration::ZERO,
            Launch::Container { .. } => REMOVE_WITHIN,
        };
        spawn + limit + grace + cancel + remove + END_WITHIN
    }
}

fn variables(delivery: &PendingDelivery, pool: &Pool) -> Vec<(&'static str, String)> {
    let event = &delivery.event;
    let place = place_in_trace(delivery, pool.sampler());
    let state = place.as_ref().and_then(|_| trace_state(event)).map(str::to_owned);
    let stated = [
        ("REDRIVE_SERVICE", Some(delivery.queue.service.to_string())),
        ("REDRIVE_CHANNEL", delivery.queue.channel.as_ref().map(ToString::to_string)),
        ("REDRIVE_DELIVERY_ID", Some(delivery.id.to_string())),
        ("REDRIVE_WEBHOOK_ID", Some(webhook_id(delivery.id))),
        ("REDRIVE_ATTEMPT", Some(delivery.next_attempt().get().to_string())),
        ("REDRIVE_REPLAY", delivery.replaying.map(|replaying| replaying.times.to_string())),
        ("REDRIVE_EVENT_ID", Some(event.id.as_str().to_owned())),
        ("REDRIVE_EVENT_TYPE", Some(event.event_type.as_str().to_owned())),
        ("REDRIVE_EVENT_SOURCE", Some(event.source.as_str().to_owned())),
        ("REDRIVE_SESSION", event.session.as_ref().map(|session| session.as_str().to_owned())),
        ("REDRIVE_SEQUENCE", delivery.sequence.map(|sequence| sequence.get().to_string())),
        ("REDRIVE_CORRELATION_ID", event.correlation_id.as_ref().map(|id| id.as_str().to_owned())),
        ("TRACEPARENT", place.map(|place| place.to_string())),
        ("TRACESTATE", state),
    ];
    let stated = stated.into_iter().filter_map(|(name, value)| Some((name, value?)));
    // Such values are on standard input all the same.
    stated.filter(|(_, value)| !value.contains('\0')).collect()
}

/// As JSON, in lower case and without the prefix.
fn variables_json(variables: &[(&'static str, String)]) -> Bytes {
    let name = |name: &str| name.strip_prefix("REDRIVE_").unwrap_or(name).to_ascii_lowercase();
    let json: Map<String, Value> =
        variables.iter().map(|(key, value)| (name(key), value.as_str().into())).collect();
    Value::Object(json).to_string().into()
}

fn message(run: &ProgramRun, exit: Exit) -> String {
    match exit {
        Exit::ReportedError => run.reported_error().unwrap_or_else(|| run.end.to_string()),
        Exit::Code(0)
        | Exit::OutOfMemory
        | Exit::SpawnFailed
        | Exit::RuntimeUnavailable
        | Exit::TimeLimit => run.end.to_string(),
        Exit::Code(_) | Exit::Signal(_) => match complaint(run) {
            Some(complaint) => format!("{}: {complaint}", run.end),
            None => run.end.to_string(),
        },
    }
}

fn complaint(run: &ProgramRun) -> Option<String> {
    let line = run.stderr.last_line()?;
    Some(line[..line.floor_char_boundary(COMPLAINT_BYTES_MAX)].to_owned())
}

fn internal(message: &str) -> Ending {
    Ending::Reply(TargetReply::new(ReplyKind::Internal, message.to_owned()))
}

#[cfg(test)]
mod tests;
