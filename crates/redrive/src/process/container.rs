//! One run of a container, by the command line of docker or podman.
//!
//! The client is a run like any other; the container is not its child and may outlive it. So the container has
//! a name that is on record before it starts, and is ended and removed by that name however its client ends.
//!
//! Invariants:
//! - a container whose removal failed is removed before a container with the same key starts;
//! - values of variables are in the client's environment, not in its arguments, unless the client itself
//!   would read them.

mod client;
mod record;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::text::show_duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use self::client::{ContainerState, MemoryUse, RuntimeClient, end_of};
pub(super) use self::record::Leftovers;
use self::record::{ContainerRecord, LastSeen};
use super::family::{RunMark, kills_for_memory};
use super::supervise::{self, grace_until, told_to_stop};
use super::{CapturedOutput, INHERITED, ProgramCommand, ProgramRun, RunEnd, RunLimits, Supervisor};

/// Variables that a runtime's client inherits beside [`INHERITED`]: which daemon, store and registry it uses.
/// The container gets none of them.
pub const CLIENT_VARIABLES: &[&str] = &[
    "CONTAINERS_CONF",
    "CONTAINERS_REGISTRIES_CONF",
    "CONTAINERS_STORAGE_CONF",
    "CONTAINER_CONNECTION",
    "CONTAINER_HOST",
    "CONTAINER_SSHKEY",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_API_VERSION",
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "DOCKER_TLS",
    "DOCKER_TLS_VERIFY",
    "REGISTRY_AUTH_FILE",
    "SSH_AUTH_SOCK",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
];

/// Beginnings of further names that mean something to a client.
const CLIENT_PREFIXES: [&str; 9] =
    ["BUILDAH_", "CONTAINER", "DOCKER_", "GO", "LD_", "PODMAN_", "REGISTRY_", "STORAGE_", "XDG_"];

/// Time beyond all limits after which even a client that nothing ends is ended.
const CLIENT_BEYOND: Duration = Duration::from_hours(1);
/// Time for a client to pass on the last output of its container.
const LAST_OUTPUT_WITHIN: Duration = Duration::from_secs(1);
/// How soon a runtime that did not answer is asked again whether a container has started.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// The part of the stop time that is kept for removing the container.
const REMOVE_WITHIN: Duration = Duration::from_secs(1);

/// A container to run.
#[derive(Clone, Debug)]
pub struct ContainerCommand {
    runtime: String,
    image: String,
    key: String,
    options: Vec<OsString>,
    arguments: Vec<OsString>,
    client: ProgramCommand,
}

impl ContainerCommand {
    /// `runtime` is a program that takes the commands of docker; an image must not begin with `-`.
    #[must_use]
    pub fn new(runtime: impl Into<String>, image: impl Into<String>) -> Self {
        let runtime = runtime.into();
        let client = ProgramCommand::new(&runtime).group_only();
        Self {
            client: CLIENT_VARIABLES.iter().fold(client, ProgramCommand::inherit),
            runtime,
            image: image.into(),
            key: String::new(),
            options: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Names the work: while a container with this key could not be removed, none with it starts.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// Adds an option of the runtime's `run`, such as `--cpus=2`.
    #[must_use]
    pub fn option(mut self, option: impl AsRef<OsStr>) -> Self {
        self.options.push(option.as_ref().to_owned());
        self
    }

    /// Adds a word of the command; without any, the image's own command runs.
    #[must_use]
    pub fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Sets the standard input, which ends after these bytes.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.client = self.client.input(input);
        self
    }

    /// Sets an environment variable of the container.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        if is_client_variable(name) {
            return self.option(format!("--env={name}={value}"));
        }
        self.client = self.client.variable(name, value);
        self.option(format!("--env={name}"))
    }

    /// Passes a variable of this process to the container.
    #[must_use]
    pub fn inherit(mut self, name: &str) -> Self {
        self.client = self.client.inherit(name);
        self.option(format!("--env={name}"))
    }

    fn into_client(self, record: &ContainerRecord, memory_bytes: Option<u64>) -> ProgramCommand {
        let mut client = self.client.argument("run").argument("--interactive").argument("--log-driver=none");
        let mut cid_file = OsString::from("--cidfile=");
        cid_file.push(record.cid_file());
        client = client.argument(cid_file).argument(format!("--name={}", record.name()));
        if let Some(bytes) = memory_bytes {
            // Without swap, so that the limit is one of all memory.
            client = client.argument(format!("--memory={bytes}")).argument(format!("--memory-swap={bytes}"));
        }
        let words = self
            .options
            .iter()
            .chain(std::iter::once(&OsString::from(&self.image)))
            .chain(&self.arguments)
            .cloned()
            .collect::<Vec<_>>();
        words.iter().fold(client, ProgramCommand::argument)
    }
}

fn is_client_variable(name: &str) -> bool {
    INHERITED.contains(&name)
        || CLIENT_VARIABLES.contains(&name)
        || CLIENT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

pub(super) async fn run(supervisor: &Supervisor, command: ContainerCommand, limits: RunLimits) -> ProgramRun {
    let begun = Instant::now();
    let mut stop_by = supervisor.stop_by.subscribe();
    let not_run = |end| ProgramRun {
        end,
        stdout: CapturedOutput::default(),
        stderr: CapturedOutput::default(),
        took: begun.elapsed(),
    };
    if stop_by.borrow().is_some() {
        return not_run(RunEnd::Stopped);
    }
    let (container, client) = match ActiveContainer::begin(supervisor, command, &limits).await {
        Ok(begun) => begun,
        Err(end) => return not_run(end),
    };
    // The client is only ended once its container was asked to.
    let clients = Supervisor { stop_by: Arc::new(watch::Sender::new(None)), ..supervisor.clone() };
    let client_limits =
        RunLimits { time: limits.time + limits.grace + CLIENT_BEYOND, memory_bytes: None, ..limits };
    let mut client = Box::pin(supervise::run(&clients, client, client_limits));
    let first = tokio::select! {
        biased;
        run = &mut client => FirstEnd::Client(run),
        by = told_to_stop(&mut stop_by) => FirstEnd::Stop(by),
        () = sleep_until(begun + limits.time) => FirstEnd::TimeLimit,
        () = container.not_started(begun + limits.spawn) => FirstEnd::NotStarted,
    };
    let (grace, end) = match first {
        FirstEnd::Client(run) => {
            let state = container.state().await;
            let end = end_of(&run, &state, &container.memory_use());
            container.remove(LastSeen::of(&state)).await;
            return ProgramRun { end, took: begun.elapsed(), ..run };
        }
        FirstEnd::Stop(by) => (grace_until(by).saturating_sub(REMOVE_WITHIN).as_secs(), RunEnd::Stopped),
        FirstEnd::TimeLimit => (whole_seconds(limits.grace), RunEnd::TimeLimit { limit: limits.time }),
        FirstEnd::NotStarted => {
            (0, RunEnd::SpawnFailed { reason: format!("no start within {}", show_duration(limits.spawn)) })
        }
    };
    let wind_down = async {
        container.ask_to_stop(grace).await;
        sleep(LAST_OUTPUT_WITHIN).await;
    };
    let ended = tokio::select! {
        run = &mut client => Some(run),
        () = wind_down => None,
    };
    let run = if let Some(run) = ended {
        run
    } else {
        clients.stop(Duration::ZERO);
        client.await
    };
    container.remove(LastSeen::Running).await;
    ProgramRun { end, took: begun.elapsed(), ..run }
}

enum FirstEnd {
    Client(ProgramRun),
    Stop(Instant),
    TimeLimit,
    NotStarted,
}

/// Runtimes take whole seconds.
fn whole_seconds(grace: Duration) -> u64 {
    grace.as_secs() + u64::from(grace.subsec_nanos() > 0)
}

/// A container that may exist; dropping it ends the container.
struct ActiveContainer {
    /// `None` once it was removed.
    record: Option<ContainerRecord>,
    leftovers: Leftovers,
    memory_bytes: Option<u64>,
    kills_before: Option<u64>,
}

impl ActiveContainer {
    async fn begin(
        supervisor: &Supervisor,
        command: ContainerCommand,
        limits: &RunLimits,
    ) -> Result<(Self, ProgramCommand), RunEnd> {
        let leftovers = supervisor.leftovers.clone();
        let (runtime, key) = (command.runtime.clone(), command.key.clone());
        blocking(move || leftovers.settle(&runtime, &key))
            .await
            .map_err(|reason| RunEnd::RuntimeUnavailable { reason })?;
        let record = ContainerRecord::begin(
            RunMark::new(),
            &command.runtime,
            &command.key,
            supervisor.run_records.as_ref(),
        );
        let record = record.map_err(|error| RunEnd::SpawnFailed {
            reason: format!("its start could not be put on record: {error}"),
        })?;
        let client = command.into_client(&record, limits.memory_bytes);
        let container = Self {
            record: Some(record),
            leftovers: supervisor.leftovers.clone(),
            memory_bytes: limits.memory_bytes,
            kills_before: kills_for_memory(),
        };
        Ok((container, client))
    }

    fn memory_use(&self) -> MemoryUse {
        MemoryUse { limit: self.memory_bytes, kernel_killed: kills_for_memory() > self.kills_before }
    }

    /// `None` if it was not created.
    async fn state(&self) -> Result<Option<ContainerState>, String> {
        let Some((client, id)) = self.created() else { return Ok(None) };
        blocking(move || client.state(&id)).await
    }

    fn created(&self) -> Option<(RuntimeClient, String)> {
        let record = self.record.as_ref()?;
        Some((record.client(), record.id()?))
    }

    /// Resolves once it is known that it had not started at that time.
    async fn not_started(&self, at: Instant) {
        sleep_until(at).await;
        loop {
            match self.state().await {
                Ok(Some(ContainerState { has_started: true, .. })) => std::future::pending().await,
                Ok(_) => return,
                Err(_) => sleep(ASK_AGAIN).await,
            }
        }
    }

    async fn ask_to_stop(&self, seconds: u64) {
        if let Some((client, id)) = self.created() {
            blocking(move || client.stop(&id, seconds)).await;
        }
    }

    async fn remove(mut self, seen: LastSeen) {
        let Some(record) = self.record.take() else { return };
        let leftovers = self.leftovers.clone();
        blocking(move || leftovers.remove(record, seen)).await;
    }
}

/// The caller went away.
impl Drop for ActiveContainer {
    fn drop(&mut self) {
        let Some(record) = self.record.take() else { return };
        let leftovers = self.leftovers.clone();
        let sweep = move || leftovers.remove(record, LastSeen::Running);
        // Without a thread the record stays, and the next start ends the container.
        let _ = std::thread::Builder::new().name("redrive-sweep".to_owned()).spawn(sweep);
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work);
    done.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
