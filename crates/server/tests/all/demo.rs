//! `redrive demo`: alive at once, and its story from the break to the last replayed letter.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use redrive_core::time::Timestamp;
use serde_json::{Value, json};

use crate::run::Folder;
use crate::server::{Server, in_folder, until};

fn demo(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
    command.args(["demo", "--listen", "127.0.0.1:0"]).args(arguments);
    // Where the demo keeps its things when nobody names a folder.
    command.env("TMPDIR", folder.path("."));
    in_folder(command, folder)
}

/// Where the steps of the story stand.
#[track_caller]
fn states(server: &Server) -> Vec<String> {
    let answer = server.get("/v1/demo");
    assert_eq!(answer.status, 200, "{answer:?}");
    let story = answer.json();
    let steps = story["steps"].as_array().expect("a list");
    steps.iter().map(|step| step["state"].as_str().expect("a word").to_owned()).collect()
}

/// Waits until so many steps are done.
#[track_caller]
fn until_done(server: &Server, count: usize) {
    until(&format!("{count} steps are done"), || {
        let done = states(server).iter().filter(|state| *state == "done").count();
        (done >= count).then_some(())
    });
}

#[track_caller]
fn act(server: &Server, act: &str) {
    let answer = server.post(&format!("/v1/demo/{act}"), "content-type: application/json\r\n", "{}");
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn the_story_is_told_from_the_break_to_the_last_letter() {
    let folder = Folder::new();
    let server = Server::run(demo(&folder, &[]));
    until_done(&server, 1);
    let groups = server.get("/v1/failure-groups").json();
    assert_eq!(groups["groups"].as_array().map(Vec::len), Some(1), "one cause: {groups}");

    act(&server, "look");
    until_done(&server, 2);
    act(&server, "fix");
    until_done(&server, 3);
    until("what was under way before the fix has ended", || {
        let status = server.status();
        let services = status["services"].as_array().expect("a list").clone();
        services
            .iter()
            .any(|service| service["service"] == "invoicing" && service["waiting"] == 0)
            .then_some(())
    });
    let wish = json!({ "service": "invoicing", "canary": true });
    let answer = server.post("/v1/replays", "content-type: application/json\r\n", wish.to_string());
    assert_eq!(answer.status, 201, "{answer:?}");
    until_done(&server, 5);

    server.out.wait_for("Nothing is lost");
    let left = || std::fs::read_dir(folder.path(".")).expect("a folder").count();
    assert_eq!(left(), 1, "it keeps its things in one folder");
    assert_eq!(server.stop().code, Some(0));
    assert_eq!(left(), 0, "and leaves nothing behind");
}

fn moment(at: &Value) -> Timestamp {
    at.as_str().and_then(|at| at.parse().ok()).expect("a time")
}

/// Whether two orders of one customer are there: each took as long as the slow service does, and the second
/// began after the first had ended.
fn is_slow_and_in_order(server: &Server, delivered: &[Value]) -> bool {
    let mut by_customer: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for delivery in delivered {
        by_customer.entry(delivery["session"].as_str().expect("a customer")).or_default().push(delivery);
    }
    let Some(mut of_one) = by_customer.into_values().find(|deliveries| deliveries.len() > 1) else {
        return false;
    };
    of_one.sort_by_key(|delivery| moment(&delivery["accepted_at"]));
    let calls = of_one.iter().map(|delivery| {
        let told = server.get(&format!("/v1/deliveries/{}", delivery["id"].as_str().expect("an id"))).json();
        let story =
            told["stories"].as_array().and_then(|stories| stories.last()).expect("it was tried").clone();
        (moment(&story["started_at"]), Duration::from_nanos(story["took_nanos"].as_u64().expect("a number")))
    });
    let mut ended = Timestamp::EPOCH;
    for (began, took) in calls {
        assert!(took >= Duration::from_millis(900), "it is slow: {took:?}");
        assert!(began >= ended, "one after the other: {began} is before {ended}");
        ended = began + took;
    }
    true
}

#[test]
fn each_service_of_the_demo_has_its_habit() {
    let folder = Folder::new();
    let server = Server::run(demo(&folder, &["--data", "kept"]));
    let healed = |delivery: &Value| delivery["attempts"].as_u64().is_some_and(|attempts| attempts > 1);
    until("a retry has healed a payment", || {
        let found = server.get("/v1/deliveries?service=payments&state=delivered").json();
        found["deliveries"].as_array().expect("a list").iter().any(healed).then_some(())
    });
    until("shipping has taken its time, in order for a customer", || {
        let found = server.get("/v1/deliveries?service=shipping&state=delivered").json();
        let delivered = found["deliveries"].as_array().expect("a list").clone();
        is_slow_and_in_order(&server, &delivered).then_some(())
    });
    until("the breaker of the warehouse is open", || {
        let status = server.status();
        let dependencies = status["dependencies"].as_array().expect("a list").clone();
        dependencies
            .iter()
            .any(|dependency| dependency["name"] == "warehouse-api" && dependency["breaker"] == "open")
            .then_some(())
    });
    until("the CRM has said how long to wait, and everybody does", || {
        let page = server.get("/metrics").body;
        let failed =
            "redrive_service_failures_total{service=\"crm\",channel=\"\",category=\"rate-limited\"} ";
        let holds = "redrive_dependency_holds_total{dependency=\"crm-api\"} ";
        let count = |name: &str| page.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
        (count(failed)? > 0 && count(holds)? > 0).then_some(())
    });
    assert_eq!(server.stop().code, Some(0));
    assert!(folder.path("kept/redrive.yaml").exists(), "a folder that somebody named is kept");

    std::fs::create_dir(folder.path("mine")).expect("a folder of the test's own");
    folder.write("mine/redrive.yaml", "version: 1\n");
    let refused =
        Server::try_run(demo(&folder, &["--data", "mine"])).err().expect("it is somebody's own book");
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("is not a rule book of the demo"), "{}", refused.stderr);
    let there = std::fs::read_to_string(folder.path("mine/redrive.yaml")).expect("it is still there");
    assert_eq!(there, "version: 1\n");
}

#[test]
fn a_demo_for_others_says_what_can_be_done_and_leaves_nothing_behind() {
    let folder = Folder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
    command.args(["demo", "--listen", "0.0.0.0:0"]).env("TMPDIR", folder.path("."));
    let refused = Server::try_run(in_folder(command, &folder)).err().expect("others could reach it");
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("--insecure"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("keys create"), "its folder is not there: {}", refused.stderr);
    assert_eq!(std::fs::read_dir(folder.path(".")).expect("a folder").count(), 0);
}

#[test]
fn a_server_that_is_no_demo_has_no_story() {
    let folder = Folder::new();
    let server = Server::run(crate::server::serve(&folder, &[]));
    assert_eq!(server.get("/v1/demo").status, 404);
}
