//! A service leaves the rule book while deliveries wait for it: it is reported, and there is a way out.

use serde_json::{Value, json};

use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::Target;

/// A book with the service `old` and another; without the first after a reload.
fn rules(target: &Target, names: &[&str]) -> String {
    let service = |name: &&str| {
        format!(
            "  {name}:\n    target: {{ http: \"{}\" }}\n    retry: standard\n    order: session\n    events: [\"{}\"]\n",
            target.url(),
            if *name == "old" { "orders.*" } else { "orders.placed" }
        )
    };
    let services: String = names.iter().map(service).collect();
    format!("version: 1\nservices:\n{services}")
}

/// A server with 50 deliveries that wait for `old`, which has left the rule book.
fn removed(folder: &Folder, target: &Target) -> Server {
    folder.write("redrive.yaml", rules(target, &["old"]));
    let server = Server::start(folder);
    assert_eq!(server.post("/v1/services/old/pause", "", "").status, 200);
    for number in 1..=50 {
        server.accept("orders.placed", &format!("o-{number}"), &format!("s{}", number % 5));
    }
    folder.write("redrive.yaml", rules(target, &["new"]));
    server.signal("HUP");
    server.err.wait_for("holds from now on");
    assert_eq!(server.post("/v1/services/old/resume", "", "").status, 200);
    server
}

fn waiting(server: &Server) -> Value {
    server.get("/v1/removed").json()["removed"].clone()
}

fn count(server: &Server, state: &str) -> usize {
    let path = format!("/v1/deliveries?limit=500&state={state}");
    server.get(&path).json()["deliveries"].as_array().expect("a list").len()
}

#[test]
fn what_waits_for_a_removed_service_is_reported_and_can_end_as_dead_letters() {
    let target = Target::willing();
    let folder = Folder::new();
    let server = removed(&folder, &target);
    let warning = "deliveries wait for a service that the rule book has no more";
    server.err.wait_for(warning);
    let old = json!([{ "service": "old", "waiting": 50 }]);
    assert_eq!(waiting(&server), old);
    let why = format!("{warning}: old (50 waiting)");
    for path in ["/readyz", "/v1/status"] {
        let degraded = server.get(path).json()["degraded"].clone();
        assert_eq!(
            (&degraded[0]["what"], &degraded[0]["why"]),
            (&json!("service-removed"), &json!(why)),
            "{path}"
        );
    }
    server.kill();
    let server = Server::start(&folder);
    server.err.wait_for(warning);
    let url = format!("http://{}", server.client.address);
    let run = |arguments: &[&str]| folder.run(&[arguments, &["--server", &url]].concat());
    let listed = run(&["removed"]).printed();
    assert!(listed.contains("old") && listed.contains("redrive removed move old --to SERVICE"), "{listed}");
    let status = run(&["status"]).printed();
    assert!(status.contains("removed: not in the rule book any more, and 50 deliveries wait"), "{status}");

    let some = run(&["removed", "dead-letter", "old", "--limit", "25", "--note", "gone"]).printed();
    assert!(some.contains("25 deliveries turned into dead letters, 25 left"), "{some}");
    assert_eq!(count(&server, "dead"), 25);
    let rest = run(&["removed", "dead-letter", "old"]).printed();
    assert!(rest.contains("✓ 25 deliveries turned into dead letters\n"), "{rest}");
    assert_eq!((waiting(&server), count(&server, "dead"), target.count()), (json!([]), 50, 0));
    assert_eq!(server.get("/readyz").json()["degraded"], json!([]));
    let letter = server.get("/v1/dead-letters?code=SERVICE_REMOVED&limit=100").json();
    assert_eq!(letter["dead_letters"].as_array().map(Vec::len), Some(50));
    let acts = server.get("/v1/audit").json();
    let acts: Vec<_> = acts["audit"].as_array().expect("a list").iter().take(2).collect();
    assert!(acts.iter().all(|act| act["act"] == "dead-letter" && act["letters"] == 25), "{acts:?}");
    assert_eq!(
        server.post("/v1/removed/new/dead-letter", "", "").error(),
        (409, "SERVICE_IN_BOOK".to_owned())
    );
    server.stop().assert_calm();
}

#[test]
fn what_waits_for_a_removed_service_goes_to_another_in_the_order_of_its_sessions() {
    let target = Target::willing();
    let folder = Folder::new();
    let server = removed(&folder, &target);
    let url = format!("http://{}", server.client.address);
    let run = |arguments: &[&str]| folder.run(&[arguments, &["--server", &url]].concat());
    let refused = run(&["removed", "move", "old", "--to", "none"]).refused();
    assert!(refused.contains("the rule book has no service `none`"), "{refused}");
    let told = run(&["removed", "move", "old", "--to", "new"]).printed();
    assert!(told.contains("✓ 50 deliveries sent to new\n"), "{told}");
    until("all are delivered", || (count(&server, "delivered") == 50).then_some(()));
    let calls = target.calls();
    assert_eq!(calls.len(), 50);
    for session in 0..5 {
        let came: Vec<u32> = calls
            .iter()
            .map(|call| call.event_id().trim_start_matches("o-").parse().expect("a number"))
            .filter(|number| number % 5 == session)
            .collect();
        assert!(came.is_sorted() && came.len() == 10, "session {session} came as {came:?}");
    }
    assert_eq!(server.delivery("o-1")["service"], "new");
    assert_eq!(waiting(&server), json!([]));
    server.stop().assert_calm();
}
