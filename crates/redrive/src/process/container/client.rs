//! The runtime's command line: short commands with a time limit, and what its answers mean.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::CLIENT_VARIABLES;
use crate::process::{INHERITED, ProgramRun, RunEnd};

/// A command that takes longer counts as unanswered.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const REMOVE_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time for output to arrive after the exit.
const READ_ON: Duration = Duration::from_millis(500);
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;

/// The client's own exit statuses: the runtime failed, the command cannot run, the command does not exist.
const RUNTIME_FAILED: i32 = 125;
const NOT_FOUND: i32 = 127;
/// 128 and the number of KILL.
const KILLED: i32 = 137;

/// Parts of messages, in lower case, after which another attempt may succeed.
const TRANSIENT: [&str; 22] = [
    "bad gateway",
    "cannot allocate memory",
    "cannot connect to the docker daemon",
    "client.timeout",
    "connection refused",
    "connection reset",
    "connection timed out",
    "context deadline exceeded",
    "database is locked",
    "failed to connect to the docker api",
    "gateway timeout",
    "i/o timeout",
    "is the docker daemon running",
    "network is unreachable",
    "no space left on device",
    "no such host",
    "resource temporarily unavailable",
    "service unavailable",
    "temporary failure in name resolution",
    "tls handshake timeout",
    "toomanyrequests",
    "unable to connect to podman",
];

#[derive(Clone, Debug)]
pub(super) struct RuntimeClient {
    program: String,
}

struct ClientAnswer {
    is_success: bool,
    stdout: String,
    stderr: String,
}

/// The state of a container that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerState {
    pub(super) is_running: bool,
    pub(super) has_started: bool,
    pub(super) exit_code: i32,
    pub(super) out_of_memory: bool,
}

impl ContainerState {
    /// `{"Running":false,"ExitCode":0,"OOMKilled":false,"StartedAt":"0001-01-01T00:00:00Z", …}`
    pub(super) fn read(json: &str) -> Option<Self> {
        let state: Value = serde_json::from_str(json).ok()?;
        let started = state.get("StartedAt")?.as_str()?;
        Some(Self {
            is_running: state.get("Running")?.as_bool()?,
            has_started: !started.is_empty() && !started.starts_with("0001-"),
            exit_code: i32::try_from(state.get("ExitCode")?.as_i64()?).ok()?,
            out_of_memory: state.get("OOMKilled").and_then(Value::as_bool).unwrap_or_default(),
        })
    }
}

impl RuntimeClient {
    pub(super) fn new(program: &str) -> Self {
        Self { program: program.to_owned() }
    }

    /// `None` if there is no such container.
    pub(super) fn state(&self, id: &str) -> Result<Option<ContainerState>, String> {
        let format = ["inspect", "--type=container", "--format={{json .State}}", id];
        let answer = self.ask(&format, ANSWER_WITHIN)?;
        match ContainerState::read(&answer.stdout) {
            Some(state) if answer.is_success => Ok(Some(state)),
            Some(_) | None if answer.is_no_container() => Ok(None),
            Some(_) | None => Err(answer.complaint()),
        }
    }

    /// Asks it to stop, and kills it after those seconds.
    pub(super) fn stop(&self, id: &str, seconds: u64) {
        // Newer versions of docker call it `--timeout`, podman `--time`.
        let arguments = ["stop", "-t", &seconds.to_string(), id];
        if let Err(error) = self.ask(&arguments, ANSWER_WITHIN + Duration::from_secs(seconds)) {
            tracing::warn!(error, "could not ask a container to stop");
        }
    }

    /// Returns whether it was running. Fails only if the runtime cannot be asked.
    pub(super) fn kill(&self, name: &str) -> Result<bool, String> {
        Ok(self.ask(&["kill", name], ANSWER_WITHIN)?.is_success)
    }

    /// Succeeds if it is gone.
    pub(super) fn remove(&self, name: &str) -> Result<(), String> {
        let answer = self.ask(&["rm", "--force", "--volumes", name], REMOVE_WITHIN)?;
        if answer.is_success || answer.is_no_container() { Ok(()) } else { Err(answer.complaint()) }
    }

    fn ask(&self, arguments: &[&str], within: Duration) -> Result<ClientAnswer, String> {
        let variables = INHERITED.iter().chain(CLIENT_VARIABLES);
        let variables = variables.filter_map(|name| Some((name, std::env::var_os(name)?)));
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear().envs(variables);
        // A group of its own, so that an interrupt from the terminal does not end it.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let failed = |error| format!("{}: {error}", self.program);
        let mut child = command.spawn().map_err(failed)?;
        let (stdout, stderr) = (read_all(child.stdout.take()), read_all(child.stderr.take()));
        let deadline = Instant::now() + within;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                let command = arguments.first().copied().unwrap_or_default();
                let within = redrive_core::text::show_duration(within);
                return Err(format!("`{} {command}` did not end within {within}", self.program));
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let text = |output: mpsc::Receiver<String>| output.recv_timeout(READ_ON).unwrap_or_default();
        Ok(ClientAnswer { is_success: status.success(), stdout: text(stdout), stderr: text(stderr) })
    }
}

impl ClientAnswer {
    fn is_no_container(&self) -> bool {
        let said = self.stderr.to_ascii_lowercase();
        !self.is_success && (said.contains("no such container") || said.contains("no such object"))
    }

    fn complaint(&self) -> String {
        complaint(&self.stderr).unwrap_or_else(|| "the container runtime gave no usable answer".to_owned())
    }
}

fn read_all(stream: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            let _ = stream.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// The last line, without the hints that follow an error.
fn complaint(stderr: &str) -> Option<String> {
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_hint = |line: &&str| line.starts_with("Run '") || line.starts_with("See '");
    lines.rfind(|line| !is_hint(line)).map(str::to_owned)
}

pub(super) struct MemoryUse {
    pub(super) limit: Option<u64>,
    /// Whether the kernel has killed anything for memory since the start. Some runtimes do not report it.
    pub(super) kernel_killed: bool,
}

/// How a container ended whose client ended by itself.
pub(super) fn end_of(
    client: &ProgramRun,
    state: &Result<Option<ContainerState>, String>,
    memory: &MemoryUse,
) -> RunEnd {
    let unavailable = |reason: String| RunEnd::RuntimeUnavailable { reason };
    match (&client.end, state) {
        (RunEnd::Exited(_) | RunEnd::Signalled(_), Ok(Some(state))) if state.is_running => {
            unavailable(format!("client ended ({}) before its container, which was killed", client.end))
        }
        (RunEnd::Exited(_) | RunEnd::Signalled(_), Ok(Some(state))) if state.has_started => {
            exit_of(state, memory)
        }
        (RunEnd::Exited(0), Ok(_)) => unavailable("client ended without starting a container".to_owned()),
        (RunEnd::Exited(code), Ok(_)) => refusal(*code, &client.stderr.text()),
        (RunEnd::Exited(RUNTIME_FAILED..=NOT_FOUND), Err(reason)) => unavailable(reason.clone()),
        // The client passes the container's own status on.
        (RunEnd::Exited(code), Err(_)) => RunEnd::Exited(*code),
        (RunEnd::Signalled(signal), _) => unavailable(format!("client was ended by signal {signal}")),
        (
            RunEnd::OutOfMemory { .. }
            | RunEnd::TimeLimit { .. }
            | RunEnd::SpawnFailed { .. }
            | RunEnd::RuntimeUnavailable { .. }
            | RunEnd::Stopped,
            _,
        ) => client.end.clone(),
    }
}

fn exit_of(state: &ContainerState, memory: &MemoryUse) -> RunEnd {
    let killed_for_memory = state.exit_code == KILLED && memory.limit.is_some() && memory.kernel_killed;
    if state.exit_code != 0 && (state.out_of_memory || killed_for_memory) {
        return RunEnd::OutOfMemory { used: memory.limit };
    }
    RunEnd::Exited(state.exit_code)
}

/// The client's message about a container that did not start.
pub(super) fn refusal(code: i32, stderr: &str) -> RunEnd {
    let said = stderr.to_ascii_lowercase();
    let reason = complaint(stderr).unwrap_or_else(|| format!("client ended with exit status {code}"));
    if code == RUNTIME_FAILED && TRANSIENT.iter().any(|part| said.contains(part)) {
        RunEnd::RuntimeUnavailable { reason }
    } else {
        RunEnd::SpawnFailed { reason }
    }
}
