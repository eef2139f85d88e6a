//! Worker processes, by a real server: their results, what is told of their lives, and what is left when the
//! server is killed in the middle of everything.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::run::Folder;
use crate::server::{Server, serve, until};

/// A book with that worker, and services that write down what they hear of it.
fn book(worker: &str) -> String {
    let ear = |name: &str, event: &str| {
        format!(
            "  {name}:\n    target: {{ exec: [sh, -c, 'text=$(cat); printf \"%s\\n\" \"$text\" >>{name}.log'], format: data }}\n    order: session\n    events: [{event}]\n"
        )
    };
    format!(
        "version: 1\nretry_policies:\n  soon: {{ initial: 10ms, factor: 1, max: 10ms, retries: 3, jitter: none }}\n\
         services:\n{worker}{}{}",
        ear("results", "worker.result"),
        ear("life", "worker.lifecycle")
    )
}

/// The worker of a script, with those keys beside it.
fn worker(script: &str, target: &str, rest: &str) -> String {
    let script = serde_json::json!(script);
    format!(
        "  worker:\n    target: {{ exec: [sh, -c, {script}], output: worker.result{target} }}\n    \
         on_failure: {{ transient: soon, unknown: soon, internal: soon }}\n{rest}    events: [task.given]\n"
    )
}

/// What a service has heard so far; one that was cut short may hear the same again.
fn heard(folder: &Folder, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.path(&format!("{name}.log"))).unwrap_or_default();
    let mut heard: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    heard.dedup();
    heard
}

/// Waits until it has heard just that of the worker, in that order. (Who writes down results is a worker too, and
/// has a life.)
#[track_caller]
fn hears(folder: &Folder, name: &str, statuses: &[&str]) -> Vec<Value> {
    until(&format!("{name} has heard {statuses:?}: {:?}", heard(folder, name)), || {
        let all: Vec<Value> =
            heard(folder, name).into_iter().filter(|one| one["service"] == "worker").collect();
        let said = all.iter().map(|one| one["status"].as_str());
        said.eq(statuses.iter().copied().map(Some)).then_some(all)
    })
}

#[test]
fn results_and_lives_of_workers_reach_whoever_wants_them() {
    type Words = &'static [&'static str];
    #[rustfmt::skip]
    let cases: [(&str, &str, &str, Words, Words, &str, &str); 5] = [
        ("a success",    r#"cat >/dev/null; echo '{"sum":42}'"#, "", &["completed"], &["started", "succeeded"], "delivered", ""),
        ("a crash",      "echo out of luck >&2; exit 3", "", &["failed", "failed"], &["started", "failed", "started", "failed"], "dead",
            "Process crashed: exit status 3: out of luck"),
        ("its own word", r#"echo '{"status":"error","error":"ValueError: no id"}'; exit 1"#, "", &["error", "error"], &["started", "failed", "started", "failed"], "dead",
            "ValueError: no id"),
        ("past its time", "sleep 1000", ", time_limit: 300ms, grace: 100ms", &["failed"], &["started", "timed out"], "dead",
            "process exceeded its time limit of 300ms"),
        ("no such program", "", "", &["failed"], &["started", "failed"], "dead", "process could not be started"),
    ];
    for (name, script, target, results, life, state, error) in cases {
        let mut text = book(&worker(script, target, "")).replace("retries: 3", "retries: 1");
        if script.is_empty() {
            text = text.replacen("exec: [sh, -c, \"\"]", "exec: [/nonexistent/worker]", 1);
        }
        let folder = Folder::with("redrive.yaml", &text);
        let server = Server::start(&folder);
        server.accept("task.given", "t-1", "s");
        server.until("t-1", state);
        let results = hears(&folder, "results", results);
        let last = results.last().expect("there is one");
        let told = |key: &str| last[key].as_str().unwrap_or_default().to_owned();
        assert!(told("error").starts_with(error), "{name}: {last}");
        assert_eq!((told("event_id").as_str(), told("service").as_str()), ("t-1", "worker"), "{name}");
        let last_words: Vec<bool> = results.iter().map(|one| one["final"] == true).collect();
        assert_eq!(last_words.iter().filter(|is_last| **is_last).count(), 1, "{name}: {results:?}");
        if state == "delivered" {
            assert_eq!(last["output"]["sum"], 42, "{name}: {last}");
        }
        hears(&folder, "life", life);
        server.stop().assert_calm();
    }
}

/// What a service has heard of one task, once that is so much.
#[track_caller]
fn heard_of(folder: &Folder, name: &str, task: &str, count: usize) -> Vec<Value> {
    until(&format!("{name} hears {count} times of {task}"), || {
        let all: Vec<Value> = heard(folder, name).into_iter().filter(|one| one["event_id"] == task).collect();
        (all.len() >= count).then_some(all)
    })
}

/// Whether a process with that id runs; one that has ended and is not buried does not.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn pids(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let files = files.filter(|file| file.extension().is_some_and(|end| end == "pid"));
    files
        .filter_map(|file| Some(fs::read_to_string(file).ok()?.trim().to_owned()))
        .filter(|pid| !pid.is_empty())
        .collect()
}

/// Leaves a child that ignores TERM, and a daemon in a session of its own, and waits for ever at the first try of the first task.
const NASTY: &str = "[ $REDRIVE_ATTEMPT$REDRIVE_EVENT_ID = 1t-1 ] || { echo again; exit 0; }\n\
    echo $$ >leader.pid\n\
    (trap '' TERM; sh -c 'echo $$ >child.pid; sleep 1000')&\n\
    (setsid sh -c 'trap \"\" TERM; (echo $$ >daemon.pid; sleep 1000) & wait' &)\n\
    trap '' TERM; while :; do sleep 0.1; done";

#[test]
fn nothing_of_a_worker_survives_a_server_that_is_killed() {
    let folder = Folder::with("redrive.yaml", &book(&worker(NASTY, "", "    order: session\n")));
    let server = Server::start(&folder);
    server.accept("task.given", "t-1", "s");
    server.accept("task.given", "t-2", "s");
    let left = until("the worker has started", || {
        let pids = pids(&folder.path("."));
        (pids.len() == 3 && pids.iter().all(|pid| runs(pid))).then_some(pids)
    });
    server.kill();
    // The program itself dies with the server; what it has started is ended by the next one.
    let leader = fs::read_to_string(folder.path("leader.pid")).expect("it has written it");
    until("the program is gone too", || (!runs(leader.trim())).then_some(()));
    let server = Server::start(&folder);
    let still: Vec<&String> = left.iter().filter(|pid| runs(pid)).collect();
    assert!(still.is_empty(), "{still:?} of {left:?}");
    let delivery = server.until("t-1", "delivered");
    let stories = delivery["stories"].as_array().expect("its stories");
    let codes: Vec<&str> = stories.iter().filter_map(|story| story["code"].as_str()).collect();
    assert_eq!(
        (codes.as_slice(), &delivery["attempts"]),
        (["INTERRUPTED"].as_slice(), &Value::from(2)),
        "{delivery}"
    );
    // The second task waited behind the first, and was never started before.
    server.until("t-2", "delivered");
    let mut results = heard_of(&folder, "results", "t-1", 2);
    assert_eq!(
        (results.remove(0)["final"].clone(), results.remove(0)["final"].clone()),
        (false.into(), true.into())
    );
    let life: Vec<Value> =
        heard_of(&folder, "life", "t-1", 4).iter().map(|one| one["status"].clone()).collect();
    assert_eq!(life, ["started", "failed", "started", "succeeded"]);
    let id = delivery["id"].as_str().expect("an id");
    let why = folder.run(&["why", id, "--server", &format!("http://{}", server.client.address)]).printed();
    assert!(why.contains("INTERRUPTED") && why.contains("Redrive crashed during this attempt"), "{why}");
    server.stop().assert_calm();
}

#[test]
fn a_server_that_stops_burns_no_retry_of_a_worker() {
    let folder = Folder::with("redrive.yaml", &book(&worker(NASTY, "", "")));
    let server = Server::run(serve(&folder, &["--rules", "redrive.yaml", "--drain", "2s"]));
    server.accept("task.given", "t-1", "s");
    let left = until("the worker has started", || {
        let pids = pids(&folder.path("."));
        (pids.len() == 3 && pids.iter().all(|pid| runs(pid))).then_some(pids)
    });
    let ended = server.stop();
    ended.assert_calm();
    assert!(ended.stderr.contains("cut short, without using a retry"), "{ended:?}");
    assert!(!left.iter().any(|pid| runs(pid)), "{left:?}");
    // The same attempt again: this time it is told that it may end.
    fs::write(folder.path("redrive.yaml"), book(&worker("echo $REDRIVE_ATTEMPT", "", ""))).expect("written");
    let server = Server::start(&folder);
    let delivery = server.until("t-1", "delivered");
    assert_eq!(delivery["attempts"], 1, "{delivery}");
    let results = heard_of(&folder, "results", "t-1", 1);
    assert_eq!((&results[0]["status"], &results[0]["output"]), (&"completed".into(), &1.into()));
    server.stop().assert_calm();
}

#[test]
fn as_many_workers_run_at_once_as_the_machine_has_cores() {
    let folder = Folder::with("redrive.yaml", &book(&worker("exit 0", "", "")));
    let cores = std::thread::available_parallelism().expect("it says so");
    let shown = folder.run(&["rules", "worker", "task.given", "--rules", "redrive.yaml"]).printed();
    let line = shown.lines().find(|line| line.trim_start().starts_with("in flight")).expect("it is shown");
    assert_eq!(line.split_whitespace().nth(2), Some(cores.to_string().as_str()), "{line}");
    assert!(line.ends_with("the number of CPU cores"), "{line}");
    folder.run(&["check", "redrive.yaml"]).printed();
}
