//! The `exec` target: runs a program for each delivery.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::http::fixed::CALL;
use super::http::{FixedCall, HttpAuth};
use super::{CallProtocol, Connector, ConnectorSettings, Edge, Profile, ProgramRun, SettingsReader};
use crate::book::pattern::EventPattern;
use crate::book::schema::{KeySchema, ValueType, key};
use crate::engine::worker;
use crate::policy::catalog::DependencyKind;

pub(super) const FORMAT: KeySchema = key(
    "format",
    ValueType::Word(&["structured", "data"]),
    "With `exec` and `container`: `structured` puts the whole event on standard input as JSON (the default), `data` its data alone.",
);

pub(super) const TIME_LIMIT: KeySchema = key(
    "time_limit",
    ValueType::Duration,
    "With `exec` and `container`: how long a run may take (default 30m); a `timeout` of the row wins, one of the defaults does not apply.",
);

pub(super) const SPAWN_LIMIT: KeySchema = key(
    "spawn_limit",
    ValueType::Duration,
    "With `exec` and `container`: how long starting may take (default 60s).",
);

pub(super) const ON_TIMEOUT: KeySchema = key(
    "on_timeout",
    ValueType::ShortOrLong(&ValueType::ListOf(&ValueType::Text), &CALL),
    "With `exec` and `container`: cancels what runs elsewhere: a command, one address that is posted to, or a call.",
);

pub(super) const OUTPUT: KeySchema =
    key("output", ValueType::Text, "With `exec` and `container`: the event type of the results.");

pub(super) const GRACE: KeySchema = key(
    "grace",
    ValueType::Duration,
    "With `exec` and `container`: how long a run may take to exit after it is asked to, before it is killed (default 10s).",
);

pub(super) const MEMORY: KeySchema = key(
    "memory",
    ValueType::Size,
    "With `exec` and `container`: the memory that all processes of a run may have together (default: no limit).",
);

pub(super) const OUTPUT_MAX: KeySchema = key(
    "output_max",
    ValueType::Size,
    "With `exec` and `container`: how much is kept of what a run prints (default 64KiB); the middle of more is left out.",
);

pub(super) const ENV: KeySchema = key(
    "env",
    ValueType::MapOf(&ValueType::Text),
    "With `exec` and `container`: variables of the program's environment.",
);

pub(super) const INHERIT: KeySchema = key(
    "inherit",
    ValueType::ListOf(&ValueType::Text),
    "With `exec` and `container`: variables of the server's own environment that the program gets; `exec` passes PATH, HOME, LANG, TZ and the like in any case.",
);

pub static TARGET: Connector = Connector {
    beside: &[
        FORMAT,
        TIME_LIMIT,
        SPAWN_LIMIT,
        ON_TIMEOUT,
        OUTPUT,
        GRACE,
        MEMORY,
        OUTPUT_MAX,
        key("folder", ValueType::Text, "With `exec`: the folder to run in (default: the server's)."),
        ENV,
        INHERIT,
    ],
    dependency: Some(DependencyKind::Process),
    speech: CallProtocol::Process,
    ..Connector::new(
        Edge::Target,
        "exec",
        ValueType::ListOf(&ValueType::Text),
        "A program and its arguments; the event comes on standard input.",
        read,
    )
};

#[derive(Clone, Debug, PartialEq)]
pub struct ExecSettings {
    pub command: Vec<String>,
    pub folder: Option<String>,
    pub run: RunSettings,
}

/// Settings of a run, whatever starts it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSettings {
    pub input: ExecInput,
    pub spawn_limit: Option<Duration>,
    pub on_timeout: Option<Cancellation>,
    pub output: Option<String>,
    /// Time to exit after a request to stop.
    pub grace: Option<Duration>,
    pub memory_bytes: Option<u64>,
    pub output_bytes_max: Option<u64>,
    pub env: BTreeMap<String, String>,
    pub inherit: Vec<String>,
}

/// What cancels work that a program started elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancellation {
    Command(Vec<String>),
    Call(FixedCall),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecInput {
    Structured,
    Data,
}

#[expect(clippy::unnecessary_wraps, reason = "other connectors may have no settings to give")]
fn read(from: &mut SettingsReader<'_>) -> Option<(Arc<dyn ConnectorSettings>, Profile)> {
    let settings =
        ExecSettings { command: from.texts("exec"), folder: from.text("folder"), run: read_run(from) };
    let shown = settings.command.join(" ");
    let profile = run_profile(from, &settings.run, shown);
    Some((Arc::new(settings), profile))
}

pub(super) fn read_run(from: &mut SettingsReader<'_>) -> RunSettings {
    let output = from.text("output");
    let is_type = |text: &String| {
        *text != worker::LIFECYCLE && EventPattern::parse(text).is_ok_and(|pattern| pattern.is_exact())
    };
    if let Some(output) = output.as_ref().filter(|output| !is_type(output)) {
        let message = format!("invalid event type `{output}` for results");
        from.error("output", "bad-event-type", message, "use a separate type such as `worker.result`");
    }
    RunSettings {
        input: if from.says("format", "data") { ExecInput::Data } else { ExecInput::Structured },
        spawn_limit: from.duration("spawn_limit"),
        on_timeout: cancellation(from),
        output,
        grace: from.duration("grace"),
        memory_bytes: from.size("memory"),
        output_bytes_max: from.size("output_max"),
        env: from.map("env"),
        inherit: from.texts("inherit"),
    }
}

pub(super) fn run_profile(from: &SettingsReader<'_>, settings: &RunSettings, shown: String) -> Profile {
    let run = ProgramRun { time_limit: from.duration_at("time_limit"), output: settings.output.clone() };
    let call = match &settings.on_timeout {
        Some(Cancellation::Call(call)) => Some(call),
        Some(Cancellation::Command(_)) | None => None,
    };
    let auth = call.and_then(|call| call.headers.auth.as_ref());
    let addresses = call.map(|call| &call.address).into_iter().chain(auth.and_then(HttpAuth::issuer));
    Profile {
        shown,
        addresses: addresses.cloned().collect(),
        secrets: auth.map(|auth| auth.secret().to_owned()).into_iter().collect(),
        run: Some(run),
        ..Profile::default()
    }
}

fn cancellation(from: &mut SettingsReader<'_>) -> Option<Cancellation> {
    let node = from.node("on_timeout")?;
    if !node.entries().is_empty() {
        return FixedCall::read(&mut from.within(node)).map(Cancellation::Call);
    }
    match from.texts("on_timeout").as_slice() {
        [] => None,
        [address] if address.starts_with("http://") || address.starts_with("https://") => {
            Some(Cancellation::Call(FixedCall::post(address)))
        }
        words => Some(Cancellation::Command(words.to_vec())),
    }
}
