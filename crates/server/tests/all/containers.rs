//! Workers in containers, by a real server: with podman where it runs containers here, and with a scripted docker,
//! `containers/scripted-docker`, which runs processes and plays what a runtime cannot be made to do.

mod runtime;

use std::fs;

use serde_json::{Value, json};

use self::runtime::{IsDown, Runtime};
use crate::run::Folder;
use crate::server::{Server, until};

/// A book with a container of that image and script.
fn book(runtime: &Runtime, image: &str, script: &str, keys: &str) -> String {
    let command =
        if script.is_empty() { String::new() } else { format!(", command: [sh, -c, {}]", json!(script)) };
    let of_runtime = runtime.keys();
    format!(
        "version: 1\nretry_policies:\n  soon: {{ initial: 10ms, factor: 1, max: 10ms, retries: 1, jitter: none }}\n  \
         long: {{ initial: 100ms, factor: 1, max: 100ms, retries: 300, jitter: none }}\nservices:\n  worker:\n    \
         target: {{ container: {image}{command}, {of_runtime}{keys} }}\n    \
         on_failure: {{ transient: long, unknown: soon, internal: soon }}\n    breaker: none\n    events: [task.given]\n"
    )
}

fn folder(runtime: &Runtime, script: &str, keys: &str) -> Folder {
    Folder::with("redrive.yaml", &book(runtime, "worker", script, keys))
}

fn story(delivery: &Value) -> Value {
    delivery["stories"].as_array().and_then(|stories| stories.last().cloned()).unwrap_or_default()
}

/// The container that runs, once there is one.
#[track_caller]
fn running(runtime: &Runtime) -> String {
    until(&format!("{} has a container", runtime.name()), || runtime.containers().first().cloned())
}

#[track_caller]
fn none_left(runtime: &Runtime) {
    until(&format!("{} has no container", runtime.name()), || runtime.containers().is_empty().then_some(()));
}

#[test]
fn a_container_gets_the_event_and_its_end_is_read_back() {
    const HUNGRY: &str = "x=$(head -c 100000000 /dev/zero | tr '\\0' x); exit 1";
    #[rustfmt::skip]
    let cases = [
        ("it gets the event",         "worker",  "grep -q t-1 && test $REDRIVE_EVENT_ID = t-1", "",                    "delivered", "",                    ""),
        ("it exits with a status",    "worker",  "echo no disk >&2; exit 3",                    "",                    "dead",      "PROCESS_CRASHED",     "Process crashed: exit status 3: no disk"),
        ("it reports an error",       "worker",  r#"echo '{"status":"error","error":"no id"}'; exit 1"#, "",           "dead",      "PROCESS_ERROR",       "no id"),
        ("it takes too much memory",  "hungry",  HUNGRY,                                        ", memory: 16MiB",     "dead",      "OUT_OF_MEMORY",       "Process crashed: memory limit exceeded with 16MiB"),
        ("it exceeds its time",       "worker",  "sleep 1000",                                  ", time_limit: 1s, grace: 100ms", "dead", "TIME_LIMIT_EXCEEDED", "process exceeded its time limit of 1s"),
        ("it ignores its time",       "worker",  "trap '' TERM; while :; do sleep 0.1; done",   ", time_limit: 1s, grace: 100ms", "dead", "TIME_LIMIT_EXCEEDED", "process exceeded its time limit of 1s"),
        ("there is no such image",    "missing", "exit 0",                                      "",                    "dead",      "SPAWN_FAILED",        "process could not be started: "),
        ("there is no such command",  "worker",  "",                                            ", command: [nosuch]", "dead",      "",                    ""),
    ];
    for runtime in Runtime::all() {
        for (name, image, script, keys, state, code, message) in cases {
            let image = if image == "hungry" && runtime.name() == "podman" { "worker" } else { image };
            let folder = Folder::with("redrive.yaml", &book(&runtime, image, script, keys));
            let server = runtime.start(&folder);
            server.accept("task.given", "t-1", "s");
            let delivery = server.until("t-1", state);
            let last = story(&delivery);
            let name = format!("{name}, {}", runtime.name());
            if !code.is_empty() {
                assert_eq!(last["code"], code, "{name}: {delivery}");
                assert!(
                    last["message"].as_str().is_some_and(|said| said.starts_with(message)),
                    "{name}: {last}"
                );
            }
            assert_eq!(runtime.containers(), Vec::<String>::new(), "{name}");
            assert_eq!(records(&folder), 0, "{name}");
            server.stop().assert_calm();
        }
    }
}

/// Files about runs in the data folder.
fn records(folder: &Folder) -> usize {
    fs::read_dir(folder.path("data/workers")).expect("a folder").count()
}

#[test]
fn a_container_does_not_outlive_a_server_that_is_killed() {
    for runtime in Runtime::all() {
        let folder = folder(&runtime, "test $REDRIVE_ATTEMPT = 2 || sleep 1000", "");
        let server = runtime.start(&folder);
        server.accept("task.given", "t-1", "s");
        let first = running(&runtime);
        server.kill();
        assert_eq!(runtime.containers(), [first.as_str()], "a killed server ends no container");
        let server = runtime.start(&folder);
        assert!(!runtime.containers().contains(&first), "the next one ends it before it serves");
        let delivery = server.until("t-1", "delivered");
        assert_eq!(delivery["attempts"], 2, "{delivery}");
        none_left(&runtime);
        server.stop().assert_calm();
    }
}

#[test]
fn a_server_that_stops_ends_its_containers_and_burns_no_retry() {
    for runtime in Runtime::all() {
        let folder = folder(&runtime, "sleep 1000", ", grace: 1m");
        let server = Server::run(runtime.serve(&folder, &["--drain", "4s"]));
        server.accept("task.given", "t-1", "s");
        running(&runtime);
        let ended = server.stop();
        ended.assert_calm();
        assert!(ended.stderr.contains("cut short, without using a retry"), "{ended:?}");
        assert_eq!(runtime.containers(), Vec::<String>::new(), "{}", runtime.name());
        assert_eq!(records(&folder), 0, "{}", runtime.name());
    }
}

/// The processes whose command line has all of these.
fn processes(parts: &[&str]) -> Vec<(u32, String)> {
    let ids = fs::read_dir("/proc").expect("a system with processes").flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let lines = ids.filter_map(|id| Some((id, fs::read(format!("/proc/{id}/cmdline")).ok()?)));
    let lines = lines.map(|(id, line)| (id, String::from_utf8_lossy(&line).replace('\0', " ")));
    lines.filter(|(_, line)| parts.iter().all(|part| line.contains(part))).collect()
}

#[test]
fn a_container_whose_client_is_killed_is_ended_and_tried_again() {
    for runtime in Runtime::all() {
        let folder = folder(&runtime, "test $REDRIVE_ATTEMPT = 2 || sleep 1000", "");
        let server = runtime.start(&folder);
        server.accept("task.given", "t-1", "s");
        let first = running(&runtime);
        let client = until("its client runs", || {
            let all = processes(&["run --interactive"]);
            all.iter().find(|(id, _)| parent(*id) == Some(server.id())).map(|(id, _)| *id)
        });
        crate::server::signal(client, "KILL");
        let delivery = server.until("t-1", "delivered");
        let stories = delivery["stories"].as_array().expect("its stories");
        assert_eq!(stories[0]["code"], "RUNTIME_UNAVAILABLE", "{delivery}");
        assert!(!runtime.containers().contains(&first), "{}", runtime.name());
        none_left(&runtime);
        server.stop().assert_calm();
    }
}

fn parent(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[test]
fn values_of_variables_are_not_on_a_command_line() {
    const SECRET: &str = "a-value-for-the-container-alone";
    for runtime in Runtime::all() {
        let size = SECRET.len();
        let folder = folder(
            &runtime,
            &format!("test ${{#TOKEN}} = {size} && test ${{#OWN}} = {size} && sleep 2"),
            &format!(", inherit: [TOKEN], env: {{ OWN: {} }}", SECRET.replace('-', "_")),
        );
        let mut command = runtime.serve(&folder, &[]);
        command.env("TOKEN", SECRET);
        let server = Server::run(command);
        server.accept("task.given", "t-1", "s");
        running(&runtime);
        let mut seen = 0;
        let delivery = until("it is delivered", || {
            seen += processes(&["run --interactive", "--env=TOKEN"]).len();
            for secret in [SECRET.to_owned(), SECRET.replace('-', "_")] {
                let shown = processes(&[&secret]);
                // The scripted docker runs no container: `env` there has the values for a moment.
                let shown: Vec<_> = shown
                    .iter()
                    .filter(|(_, line)| line.contains("--interactive") || runtime.name() == "podman")
                    .collect();
                assert!(shown.is_empty(), "{shown:?}");
            }
            let delivery = server.delivery("t-1");
            (delivery["state"] != "pending" && delivery["state"] != "in-flight").then_some(delivery)
        });
        assert_eq!(delivery["state"], "delivered", "{delivery}");
        assert!(seen > 0, "the client was seen");
        server.stop().assert_calm();
    }
}

#[test]
fn a_container_that_does_not_start_in_time_is_a_permanent_failure() {
    let runtime = Runtime::scripted();
    let text = book(&runtime, "slow", "exit 0", ", spawn_limit: 300ms");
    let folder = Folder::with("redrive.yaml", &text);
    let server = runtime.start(&folder);
    server.accept("task.given", "t-1", "s");
    let delivery = server.until("t-1", "dead");
    let last = story(&delivery);
    assert_eq!(
        (&last["code"], &last["category"]),
        (&"SPAWN_FAILED".into(), &"permanent".into()),
        "{delivery}"
    );
    assert_eq!(last["message"], "process could not be started: no start within 300ms", "{delivery}");
    assert_eq!(runtime.containers(), Vec::<String>::new());
    server.stop().assert_calm();
}

#[test]
fn a_runtime_that_does_not_answer_is_tried_again() {
    let runtime = Runtime::scripted();
    runtime.set_down(IsDown::Yes);
    let folder = folder(&runtime, "exit 0", "");
    let server = runtime.start(&folder);
    server.accept("task.given", "t-1", "s");
    let first = until("an attempt failed", || {
        let stories = server.delivery("t-1")["stories"].as_array()?.clone();
        stories.first().cloned()
    });
    assert_eq!(
        (&first["code"], &first["category"]),
        (&"RUNTIME_UNAVAILABLE".into(), &"transient".into()),
        "{first}"
    );
    runtime.set_down(IsDown::No);
    server.until("t-1", "delivered");
    server.stop().assert_calm();
}

/// A daemon that is away when the server starts again may still run the container of the crashed attempt.
#[test]
fn no_second_container_of_a_delivery_starts_beside_the_first() {
    let runtime = Runtime::scripted();
    let folder = folder(&runtime, "test $REDRIVE_ATTEMPT != 1 || sleep 1000", "");
    let server = runtime.start(&folder);
    server.accept("task.given", "t-1", "s");
    let first = running(&runtime);
    until("it runs", || runtime.path().join("state").join(&first).join("pid").exists().then_some(()));
    server.kill();
    runtime.set_down(IsDown::Yes);
    let server = runtime.start(&folder);
    until("it was tried again", || {
        let stories = server.delivery("t-1")["stories"].as_array()?.clone();
        stories.iter().any(|story| story["code"] == "RUNTIME_UNAVAILABLE").then_some(())
    });
    assert_eq!(runtime.containers(), [first.as_str()]);
    assert_eq!(runtime.calls().lines().count(), 1, "{}", runtime.calls());
    runtime.set_down(IsDown::No);
    server.until("t-1", "delivered");
    assert!(!runtime.containers().contains(&first));
    none_left(&runtime);
    server.stop().assert_calm();
}

#[test]
fn each_key_of_a_container_reaches_its_runtime() {
    let runtime = Runtime::scripted();
    #[rustfmt::skip]
    let cases = [
        ("cpus: 0.5",               "--cpus=0.5"),
        ("pids: 20",                "--pids-limit=20"),
        ("container_network: none", "--network=none"),
        ("user: \"1000:1000\"",     "--user=1000:1000"),
        ("read_only: true",         "--read-only"),
        ("mounts: [\"/srv:/data:ro\"]", "--volume=/srv:/data:ro"),
        ("memory: 16MiB",           "--memory=16777216 --memory-swap=16777216"),
    ];
    for (key, option) in cases {
        let folder = folder(&runtime, "exit 0", &format!(", {key}"));
        assert!(!runtime.calls().contains(option), "{key}: only with the key");
        let server = runtime.start(&folder);
        server.accept("task.given", "t-1", "s");
        server.until("t-1", "delivered");
        assert!(runtime.calls().contains(option), "{key}: {}", runtime.calls());
        server.stop().assert_calm();
    }
}

#[test]
fn each_key_of_a_container_does_what_it_says() {
    let Some(runtime) = Runtime::podman() else { return };
    let data = tempfile::tempdir().expect("a folder");
    fs::write(data.path().join("there"), "yes").expect("written");
    let mount = format!("mounts: [\"{}:/data:ro\"]", data.path().display());
    #[rustfmt::skip]
    let cases = [
        ("a user",             "test $(id -u) = 1000",       "user: \"1000\""),
        ("a read-only system", "! touch /new",               "read_only: true"),
        ("a mount",            "test -e /data/there",        mount.as_str()),
        ("a limit of processes", "! sh -c 'for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; wait'", "pids: 4"),
        ("a variable",         "test \"$OWN\" = 1",          "env: { OWN: \"1\" }"),
        ("a path",             "test \"$PATH\" = /bin:/own", "env: { PATH: \"/bin:/own\" }"),
        ("the data alone",     r#"test "$(cat)" = '{"id":"t-1"}'"#,     "format: data"),
    ];
    for (name, script, key) in cases {
        let ends = |keys: &str| {
            let folder = folder(&runtime, script, keys);
            let server = runtime.start(&folder);
            server.accept("task.given", "t-1", "s");
            let delivery = until("it is settled", || {
                let delivery = server.delivery("t-1");
                ["delivered", "dead"].contains(&delivery["state"].as_str()?).then_some(delivery)
            });
            server.stop().assert_calm();
            delivery
        };
        let (with, without) = (ends(&format!(", {key}")), ends(""));
        assert_eq!(
            (&with["state"], &without["state"]),
            (&"delivered".into(), &"dead".into()),
            "{name}: {with} {without}"
        );
    }
}
