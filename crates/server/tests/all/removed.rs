//! A service, a channel or a row leaves the rule book while deliveries wait for it: it is reported, and there is a
//! way out.

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
    server.err.wait_for("rule book reloaded");
    assert_eq!(server.post("/v1/services/old/resume", "", "").status, 200);
    server
}

fn waiting(server: &Server) -> Value {
    server.get("/v1/removed").json()["removed"].clone()
}

/// The log has it as a warning, with the queue.
#[track_caller]
fn assert_warned(server: &Server, warning: &str, queue: &str) {
    let line = until(warning, || {
        let log = server.err.so_far();
        let has_it = |line: &&str| line.contains(warning) && line.contains(&format!("service=\"{queue}\" "));
        log.lines().find(has_it).map(str::to_owned)
    });
    assert!(line.contains("WARN"), "{line}");
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
    let warning = "deliveries wait for a service removed from the rule book";
    assert_warned(&server, warning, "old");
    let old = json!([{ "service": "old", "waiting": 50, "in_book": false }]);
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
    assert_warned(&server, warning, "old");
    let url = format!("http://{}", server.client.address);
    let run = |arguments: &[&str]| folder.run(&[arguments, &["--server", &url]].concat());
    let listed = run(&["removed"]).printed();
    assert!(listed.contains("old") && listed.contains("redrive removed move old --to SERVICE"), "{listed}");
    let status = run(&["status"]).printed();
    assert!(status.contains("removed: no longer in the rule book, 50 deliveries wait"), "{status}");

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
    assert!(refused.contains("destination `none` is not in the rule book"), "{refused}");
    let told = run(&["removed", "move", "old", "--to", "new"]).printed();
    assert!(told.contains("✓ 50 deliveries moved to new\n"), "{told}");
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

/// A book with a row of `mail` and a channel of `text`, and one without them, in which `new` takes those events.
fn shrinking(target: &Target, receiver: &Target) -> (String, String) {
    let url = target.url();
    let service = |name: &str, rest: &str| {
        format!("  {name}: {{ target: {{ http: \"{url}\" }}, retry: standard, order: session, {rest} }}\n")
    };
    let receivers = format!("receivers: {{ ops: {{ webhook: \"{}\" }} }}\n", receiver.url());
    let book = |services: [String; 3]| format!("version: 1\n{receivers}services:\n{}", services.concat());
    let before = [
        service("mail", "events: [orders.placed, orders.paid]"),
        service("text", "events: [text.sent], channels: { sms: { events: [\"sms.*\"] } }"),
        String::new(),
    ];
    let after = [
        service("mail", "events: [orders.placed]"),
        service("text", "events: [text.sent]"),
        service("new", "events: [orders.paid]"),
    ];
    (book(before), book(after))
}

/// The log, the health and the list tell of the row and of the channel.
fn assert_reported(server: &Server) {
    let (row, channel) = (
        "deliveries wait without a matching row in their service",
        "deliveries wait for a service removed from the rule book",
    );
    // One behind them waits for its turn.
    let all = json!([
        { "service": "mail", "waiting": 11, "in_book": true },
        { "service": "text", "channel": "sms", "waiting": 2, "in_book": false },
    ]);
    assert_warned(server, row, "mail");
    assert_warned(server, channel, "text/sms");
    until("all wait for a rule", || (waiting(server) == all).then_some(()));
    for path in ["/readyz", "/v1/status"] {
        let degraded = until("it is degraded", || {
            let degraded = server.get(path).json()["degraded"].clone();
            let has =
                |what: &str| degraded.as_array().is_some_and(|all| all.iter().any(|one| one["what"] == what));
            (has("rule-removed") && has("service-removed")).then_some(degraded)
        });
        assert!(degraded.to_string().contains(&format!("{row}: mail (11 waiting)")), "{path}: {degraded}");
        assert!(
            degraded.to_string().contains(&format!("{channel}: text/sms (2 waiting)")),
            "{path}: {degraded}"
        );
    }
}

#[test]
fn what_waits_for_a_removed_row_or_channel_is_reported_and_has_a_way_out() {
    let (target, receiver) = (Target::willing(), Target::willing());
    let (before, after) = shrinking(&target, &receiver);
    let folder = Folder::with("redrive.yaml", &before);
    let server = Server::start(&folder);
    for service in ["mail", "text"] {
        assert_eq!(server.post(&format!("/v1/services/{service}/pause"), "", "").status, 200);
    }
    for number in 1..=10 {
        server.accept("orders.paid", &format!("o-{number}"), &format!("s{}", number % 5));
    }
    server.accept("orders.placed", "o-11", "s0");
    server.accept("sms.sent", "t-1", "");
    server.accept("sms.sent", "t-2", "");
    folder.write("redrive.yaml", &after);
    server.signal("HUP");
    server.err.wait_for("rule book reloaded");
    assert_reported(&server);
    until("an alert for each", || {
        let alerts = server.get("/v1/alerts").json();
        let alerts =
            alerts["alerts"].as_array()?.iter().find(|alert| alert["name"] == "service-removed")?.to_string();
        let row = alerts.contains("service=mail") && alerts.contains("11 deliveries that no row of it takes");
        (row && alerts.contains("service=text")).then_some(())
    });
    server.kill();
    let server = Server::start(&folder);
    assert_reported(&server);
    for service in ["mail", "text"] {
        assert_eq!(server.post(&format!("/v1/services/{service}/resume"), "", "").status, 200);
    }

    assert_ways_out(&folder, &server, &target);
    server.stop().assert_calm();
}

/// Ends what waits, or sends it elsewhere; what a row takes goes out.
fn assert_ways_out(folder: &Folder, server: &Server, target: &Target) {
    let url = format!("http://{}", server.client.address);
    let run = |arguments: &[&str]| folder.run(&[arguments, &["--server", &url]].concat());
    let listed = run(&["removed"]).printed();
    assert!(listed.contains("rows for these events") && listed.contains("text/sms"), "{listed}");
    let id = server.delivery("o-1")["id"].clone();
    let why = run(&["why", id.as_str().expect("an id")]).printed();
    assert!(why.contains("redrive removed move mail --to SERVICE"), "{why}");
    let ended = run(&["removed", "dead-letter", "text/sms"]).printed();
    assert!(ended.contains("✓ 2 deliveries turned into dead letters\n"), "{ended}");
    let moved = run(&["removed", "move", "mail", "--to", "new", "--limit", "3"]).printed();
    assert!(moved.contains("3 deliveries moved to new, 8 left"), "{moved}");
    let ended = run(&["removed", "dead-letter", "mail"]).printed();
    assert!(ended.contains("✓ 7 deliveries turned into dead letters\n"), "{ended}");
    // The row that is left takes what waited behind.
    server.until("o-11", "delivered");
    until("the other service has its part", || {
        let theirs = server.get("/v1/deliveries?service=new&state=delivered").json();
        (theirs["deliveries"].as_array().map(Vec::len) == Some(3)).then_some(())
    });
    assert_eq!((waiting(server), count(server, "dead"), target.count()), (json!([]), 9, 4));
    for (code, expected) in [("RULE_REMOVED", 7), ("SERVICE_REMOVED", 2)] {
        let letters = server.get(&format!("/v1/dead-letters?code={code}")).json();
        assert_eq!(letters["dead_letters"].as_array().map(Vec::len), Some(expected), "{code}");
    }
    until("all is well again", || {
        let degraded = server.get("/readyz").json()["degraded"].to_string();
        (!degraded.contains("removed")).then_some(())
    });
    assert_eq!(
        server.post("/v1/removed/mail/dead-letter", "", "").error(),
        (409, "SERVICE_IN_BOOK".to_owned())
    );
}
