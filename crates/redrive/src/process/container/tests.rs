//! The command line of a run, and what answers of a runtime mean.

use super::client::{ContainerState, MemoryUse, end_of};
use super::record::ContainerRecord;
use super::*;
use crate::process::run_records::RunRecords;

/// The arguments of the client, with the mark as `MARK` and the folder as `DIR`.
fn arguments(command: ContainerCommand, memory_bytes: Option<u64>) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let records = RunRecords::open(folder.path()).expect("it can be read");
    let mark = RunMark::new();
    let record = ContainerRecord::begin(mark.clone(), "docker", "d-1", Some(&records)).expect("written");
    let (prepared, _) = command.into_client(&record, memory_bytes).prepare(&mark, None);
    let words = prepared.as_std().get_args().map(|word| word.to_string_lossy().into_owned());
    let dir = folder.path().display().to_string();
    words.map(|word| word.replace(mark.as_str(), "MARK").replace(&dir, "DIR")).collect()
}

#[test]
fn the_command_line_has_names_of_variables_and_no_values() {
    const USUAL: [&str; 5] = [
        "run",
        "--interactive",
        "--log-driver=none",
        "--cidfile=DIR/redrive-MARK.cid",
        "--name=redrive-MARK",
    ];
    let command = || ContainerCommand::new("docker", "worker:1");
    #[rustfmt::skip]
    let cases: [(&str, ContainerCommand, Option<u64>, &[&str]); 7] = [
        ("an image",                  command(),                                   None,       &["worker:1"]),
        ("a command",                 command().argument("a").argument("--b"),     None,       &["worker:1", "a", "--b"]),
        ("an option after an argument", command().argument("a").option("--cpus=2"), None,      &["--cpus=2", "worker:1", "a"]),
        ("a variable",                command().variable("OWN", "secret"),         None,       &["--env=OWN", "worker:1"]),
        ("an inherited one",          command().inherit("TOKEN"),                  None,       &["--env=TOKEN", "worker:1"]),
        ("one that the client reads", command().variable("PATH", "/bin").variable("DOCKER_HOST", "h"), None, &["--env=PATH=/bin", "--env=DOCKER_HOST=h", "worker:1"]),
        ("a memory limit",            command(),                                   Some(8 << 20), &["--memory=8388608", "--memory-swap=8388608", "worker:1"]),
    ];
    for (name, command, memory_bytes, expected) in cases {
        let all = arguments(command, memory_bytes);
        let (usual, rest) = all.split_at(USUAL.len());
        assert_eq!(
            (usual, rest),
            (
                &USUAL.map(str::to_owned)[..],
                &expected.iter().map(ToString::to_string).collect::<Vec<_>>()[..]
            ),
            "{name}"
        );
    }
}

fn client(end: RunEnd) -> ProgramRun {
    let (stdout, stderr) = (CapturedOutput::default(), CapturedOutput::default());
    ProgramRun { end, stdout, stderr, took: Duration::ZERO }
}

#[test]
fn the_end_of_a_container_is_what_its_runtime_says() {
    const STATED: MemoryUse = MemoryUse { limit: Some(8), kernel_killed: false };
    const KILLED: MemoryUse = MemoryUse { limit: Some(8), kernel_killed: true };
    const ELSEWHERE: MemoryUse = MemoryUse { limit: None, kernel_killed: true };
    let state = |exit_code, out_of_memory| {
        Ok(Some(ContainerState { is_running: false, has_started: true, exit_code, out_of_memory }))
    };
    let running = || {
        Ok(Some(ContainerState { is_running: true, has_started: true, exit_code: 0, out_of_memory: false }))
    };
    let created = || {
        Ok(Some(ContainerState { is_running: false, has_started: false, exit_code: 0, out_of_memory: false }))
    };
    let unknown = || Err("no answer".to_owned());
    let unavailable = |reason: &str| RunEnd::RuntimeUnavailable { reason: reason.to_owned() };
    let failed = |reason: &str| RunEnd::SpawnFailed { reason: reason.to_owned() };
    #[rustfmt::skip]
    let cases = [
        ("a success",                       RunEnd::Exited(0),    state(0, false),   STATED,    RunEnd::Exited(0)),
        ("a failure",                       RunEnd::Exited(3),    state(3, false),   STATED,    RunEnd::Exited(3)),
        ("the program's own 125",           RunEnd::Exited(125),  state(125, false), STATED,    RunEnd::Exited(125)),
        ("out of memory",                   RunEnd::Exited(137),  state(137, true),  STATED,    RunEnd::OutOfMemory { used: Some(8) }),
        ("a child that ran out of memory",  RunEnd::Exited(0),    state(0, true),    STATED,    RunEnd::Exited(0)),
        ("only the kernel says so",         RunEnd::Exited(137),  state(137, false), KILLED,    RunEnd::OutOfMemory { used: Some(8) }),
        ("killed, with memory",             RunEnd::Exited(137),  state(137, false), STATED,    RunEnd::Exited(137)),
        ("the kernel killed something else", RunEnd::Exited(137), state(137, false), ELSEWHERE, RunEnd::Exited(137)),
        ("a client that was killed",        RunEnd::Signalled(9), running(),         STATED,    unavailable("client ended (Process crashed: signal 9) before its container, which was killed")),
        ("killed after its container",      RunEnd::Signalled(9), state(0, false),   STATED,    RunEnd::Exited(0)),
        ("killed before its container",     RunEnd::Signalled(9), Ok(None),          STATED,    unavailable("client was ended by signal 9")),
        ("never created",                   RunEnd::Exited(125),  Ok(None),          STATED,    failed("client ended with exit status 125")),
        ("created and not started",         RunEnd::Exited(127),  created(),         STATED,    failed("client ended with exit status 127")),
        ("a success of nothing",            RunEnd::Exited(0),    Ok(None),          STATED,    unavailable("client ended without starting a container")),
        ("a status without a state",        RunEnd::Exited(3),    unknown(),         STATED,    RunEnd::Exited(3)),
        ("a failed runtime",                RunEnd::Exited(125),  unknown(),         STATED,    unavailable("no answer")),
        ("no such client",                  failed("docker: x"),  Ok(None),          STATED,    failed("docker: x")),
    ];
    for (name, end, state, memory, expected) in cases {
        assert_eq!(end_of(&client(end), &state, &memory), expected, "{name}");
    }
}

#[test]
fn messages_of_a_runtime_that_may_succeed_later_are_transient() {
    const TRANSIENT: bool = true;
    const PERMANENT: bool = false;
    #[rustfmt::skip]
    let cases = [
        ("no daemon",       125, "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n\nRun 'docker run --help' for more information\n", TRANSIENT,
            "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"),
        ("no registry",     125, "docker: Error response from daemon: Get \"https://r.test/v2/\": dial tcp: lookup r.test: no such host.\nSee 'docker run --help'.", TRANSIENT,
            "docker: Error response from daemon: Get \"https://r.test/v2/\": dial tcp: lookup r.test: no such host."),
        ("no image",        125, "Unable to find image 'x:latest' locally\ndocker: Error response from daemon: pull access denied for x\n", PERMANENT,
            "docker: Error response from daemon: pull access denied for x"),
        ("no such option",  125, "Error: unknown flag: --bogus\nSee 'podman run --help'\n", PERMANENT, "Error: unknown flag: --bogus"),
        ("no access",       125, "docker: permission denied while trying to connect to the Docker daemon socket\n", PERMANENT, "docker: permission denied while trying to connect to the Docker daemon socket"),
        ("no such command", 127, "Error: exec: \"nosuch\": executable file not found in $PATH: connection refused\n", PERMANENT, "Error: exec: \"nosuch\": executable file not found in $PATH: connection refused"),
        ("nothing said",    125, "", PERMANENT, "client ended with exit status 125"),
    ];
    for (name, code, stderr, is_transient, reason) in cases {
        let reason = reason.to_owned();
        let expected =
            if is_transient { RunEnd::RuntimeUnavailable { reason } } else { RunEnd::SpawnFailed { reason } };
        assert_eq!(client::refusal(code, stderr), expected, "{name}");
    }
}

#[test]
fn states_are_read_as_docker_and_podman_write_them() {
    let state = |is_running, has_started, exit_code, out_of_memory| {
        Some(ContainerState { is_running, has_started, exit_code, out_of_memory })
    };
    #[rustfmt::skip]
    let cases = [
        ("docker, ended",    r#"{"Status":"exited","Running":false,"OOMKilled":true,"Dead":false,"Pid":0,"ExitCode":137,"Error":"","StartedAt":"2026-01-01T10:00:00.1Z"}"#, state(false, true, 137, true)),
        ("podman, running",  r#"{"OciVersion":"1.0.2-dev","Status":"running","Running":true,"OOMKilled":false,"ExitCode":0,"StartedAt":"2026-11-18T20:48:56.302268542Z"}"#, state(true, true, 0, false)),
        ("created",          r#"{"Running":false,"OOMKilled":false,"ExitCode":0,"StartedAt":"0001-01-01T00:00:00Z"}"#, state(false, false, 0, false)),
        ("nothing",          "", None),
        ("an empty list",    "[]", None),
        ("half of it",       r#"{"Running":false"#, None),
    ];
    for (name, json, expected) in cases {
        assert_eq!(ContainerState::read(json), expected, "{name}");
    }
}
