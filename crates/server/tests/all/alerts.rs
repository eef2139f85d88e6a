//! Alerts at a real server: real receivers are told that something begins, lasts and is over.

mod at_once;
mod latency;
pub(crate) mod mail;
mod manager;

use serde_json::{Value, json};

use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Call, Gate, Target, status};

/// Takes events of the type `orders.bad` for dead letters at once, and tells of that those whom the lines name.
fn book(target: &Target, receivers: &str, alert: &str) -> String {
    format!(
        "version: 1
retry_policies:
  again: {{ initial: 50ms, max: 200ms, retries: 1000, jitter: none }}
secrets: {{ token: {{ file: token }} }}
services:
  orders:
    target: {{ http: \"{}\" }}
    retry: none
    breaker: none
    events: [\"orders.*\"]
receivers:
{receivers}alerts:
  - {{ name: letters, when: dead_letters > 0 for 1s, severity: critical, action: look at them, {alert} }}
",
        target.url()
    )
}

/// Refuses everything for good.
fn refusing() -> Target {
    Target::start(|_| status(400))
}

/// Serves that book; the secret of its receivers is there.
fn start(book: &str) -> (Folder, Server) {
    let folder = Folder::with("redrive.yaml", book);
    folder.write("token", "tk_of_this_run");
    let server = Server::start(&folder);
    (folder, server)
}

/// Brings about a dead letter.
#[track_caller]
fn spoil(server: &Server, id: &str) {
    server.accept("orders.bad", id, "");
    server.until(id, "dead");
}

/// Deals with every dead letter of the orders, so that the alert is over.
#[track_caller]
fn mend(server: &Server) {
    let purged = server.post(
        "/v1/dead-letters/purge",
        "content-type: application/json\r\n",
        json!({ "service": "orders" }).to_string(),
    );
    assert_eq!(purged.status, 200, "{purged:?}");
}

fn url_of(server: &Server) -> String {
    format!("http://{}", server.client.address)
}

/// The calls to that path, in their order.
fn calls_to(target: &Target, path: &str) -> Vec<Call> {
    target.calls().into_iter().filter(|call| call.path == path).collect()
}

/// The notices that were posted to a webhook.
fn notices(target: &Target) -> Vec<Value> {
    target.calls().iter().map(Call::json).collect()
}

/// Waits until a webhook was told that an alert is at that stage.
#[track_caller]
pub(crate) fn until_told(hook: &Target, alert: &str, stage: &str) -> Value {
    until(&format!("{alert} is told to be {stage}"), || {
        notices(hook).into_iter().find(|notice| notice["alert"] == alert && notice["stage"] == stage)
    })
}

fn stages(target: &Target) -> Vec<String> {
    notices(target).iter().map(|notice| notice["stage"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The alert of the book, and the receiver of that name, as the API shows them.
fn shown(server: &Server) -> Value {
    let answer = server.get("/v1/alerts");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Waits until everything was looked at so many times more.
#[track_caller]
fn until_looked_at(server: &Server, times: usize) {
    let mut last = Value::Null;
    for _ in 0..times {
        last = until("it is looked at again", || {
            let at = shown(server)["evaluated_at"].clone();
            (at != last && !at.is_null()).then_some(at)
        });
    }
}

#[test]
fn everybody_is_told_once_then_again_and_that_it_is_over() {
    let (orders, desk) = (refusing(), Target::willing());
    let at = desk.address;
    let receivers = format!(
        "  hook: {{ webhook: \"http://{at}/hook\", secret: token }}
  phone: {{ ntfy: \"http://{at}/ops\", secret: token }}
  chat: {{ slack: \"http://{at}/chat\" }}
  am: {{ alertmanager: \"http://{at}/am/\", secret: token }}
"
    );
    let book = book(&orders, &receivers, "to: [hook, phone, chat, am], repeat: 1s");
    let (_folder, server) = start(&book);
    spoil(&server, "e-1");
    until("everybody is told twice", || {
        let paths = ["/hook", "/ops", "/chat", "/am/api/v2/alerts"];
        paths.iter().all(|path| calls_to(&desk, path).len() >= 2).then_some(())
    });
    let firing = shown(&server)["alerts"][0].clone();
    assert_eq!((&firing["state"], &firing["name"]), (&json!("firing"), &json!("letters")));
    assert_eq!((&firing["value"], &firing["severity"]), (&json!("1"), &json!("critical")));
    mend(&server);
    until("it is over", || (shown(&server)["alerts"][0]["state"] == "quiet").then_some(()));
    until("everybody knows", || {
        let hooks = calls_to(&desk, "/hook");
        let chats = calls_to(&desk, "/chat");
        let is_over = |call: &Call| String::from_utf8_lossy(&call.body).contains("resolved after");
        (hooks.iter().any(is_over) && chats.iter().any(is_over)).then_some(())
    });

    let hooks = calls_to(&desk, "/hook");
    let stages: Vec<Value> = hooks.iter().map(|call| call.json()["stage"].clone()).collect();
    assert_eq!(stages.iter().filter(|stage| **stage == "firing").count(), 1, "{stages:?}");
    assert_eq!(stages.iter().filter(|stage| **stage == "resolved").count(), 1, "{stages:?}");
    assert_eq!((stages.first(), stages.last()), (Some(&json!("firing")), Some(&json!("resolved"))));
    assert_eq!(hooks[0].header("ce-type"), "redrive.alert.firing");
    assert_eq!(hooks[0].header("ce-source"), "redrive:alerts");
    assert!(hooks[0].header("webhook-signature").starts_with("v1,"), "{:?}", hooks[0]);
    assert_eq!(
        (&hooks[0].json()["action"], &hooks[0].json()["told_before"]),
        (&json!("look at them"), &json!(0))
    );

    let ntfy = &calls_to(&desk, "/ops")[0];
    assert_eq!((ntfy.header("priority"), ntfy.header("tags")), ("5", "rotating_light,redrive"));
    assert_eq!(ntfy.header("title"), "[critical] letters: 1");
    assert_eq!(ntfy.header("authorization"), "Bearer tk_of_this_run");
    assert!(String::from_utf8_lossy(&ntfy.body).contains("What to do: look at them"));

    let chat = calls_to(&desk, "/chat")[0].json();
    assert_eq!(
        (&chat["text"], &chat["attachments"][0]["color"]),
        (&json!("[critical] letters: 1"), &json!("#b22222"))
    );

    let manager = calls_to(&desk, "/am/api/v2/alerts")[0].json();
    assert_eq!(
        manager[0]["labels"],
        json!({ "alertname": "letters", "severity": "critical", "source": "redrive" })
    );
    assert!(manager[0]["endsAt"].as_str() > manager[0]["startsAt"].as_str(), "{manager}");
    server.stop().assert_calm();
}

#[test]
fn a_receiver_that_was_down_hears_of_it_when_it_is_back() {
    let orders = refusing();
    let gate = Gate::default();
    let waits = gate.clone();
    // It fails less often than would open its breaker, and then takes its time.
    let hook = Target::start(move |call| {
        if call.nth < 3 {
            return status(503);
        }
        waits.pass();
        status(200)
    });
    let receivers = format!("  hook: {{ webhook: \"{}\", retry: again, timeout: 60s }}\n", hook.url());
    let (folder, server) = start(&book(&orders, &receivers, "to: [hook], repeat: 1h"));
    spoil(&server, "e-1");
    hook.until(3);
    let receiver = until("its trouble is known", || {
        let receiver = shown(&server)["receivers"][0].clone();
        receiver.get("last_trouble").is_some().then_some(receiver)
    });
    assert_eq!((&receiver["kind"], &receiver["waiting"]), (&json!("webhook"), &json!(1)));
    assert_eq!(receiver["last_trouble"], "503 Service Unavailable");
    gate.open();
    until("it has arrived", || (shown(&server)["receivers"][0]["waiting"] == 0).then_some(()));
    let calls = hook.calls();
    assert!(calls.iter().all(|call| call.event_id() == calls[0].event_id()), "one notice, tried again");
    assert_eq!(shown(&server)["receivers"][0].get("last_trouble"), None);

    // It is a delivery like any other, and nothing of it counts as trouble of its own.
    let delivery = server.delivery(calls[0].event_id())["id"].as_str().expect("an id").to_owned();
    let why = folder.run(&["why", &delivery, "--server", &url_of(&server)]).printed();
    assert!(why.contains("redrive-alerts/hook") && why.contains("503"), "{why}");
    assert_eq!(shown(&server)["alerts"][0]["value"], "1");
    server.stop().assert_calm();
}

#[test]
fn a_receiver_that_refuses_for_good_is_seen_by_who_looks_at_the_server() {
    let (orders, hook) = (refusing(), refusing());
    let receivers = format!("  hook: {{ webhook: \"{}\", retry: none }}\n", hook.url());
    let (folder, server) = start(&book(&orders, &receivers, "to: [hook], repeat: 1h"));
    spoil(&server, "e-1");
    let ready = until("it is degraded", || {
        let body = server.get("/readyz").json();
        (body["status"] == "degraded").then_some(body)
    });
    let expected = json!([{ "what": "receiver-dead", "why": "an alert receiver is unreachable: hook" }]);
    assert_eq!(ready["degraded"], expected);
    let status = server.status();
    assert_eq!(status["degraded"], expected);
    assert_eq!(
        (&status["firing"][0]["name"], &status["firing"][0]["severity"]),
        (&json!("letters"), &json!("critical"))
    );
    let printed = folder.run(&["status", "--server", &url_of(&server)]).printed();
    assert!(
        printed.starts_with("✗ ") && printed.contains("\n✗ an alert receiver is unreachable: hook\n"),
        "{printed}"
    );
    assert!(printed.contains("\n✗ alert letters fires"), "{printed}");
    server.stop().assert_calm();
}

#[test]
fn a_storm_is_a_handful_of_messages() {
    let orders = Target::start(|call| match call.event_id().len() % 4 {
        0 => status(400),
        1 => status(404),
        2 => status(410),
        _ => status(422),
    });
    let hook = Target::willing();
    let receivers = format!("  hook: {{ webhook: \"{}\" }}\n", hook.url());
    let more = "to: [hook] }\n  - { use: dead-letter-spike, to: [hook] }\n  - { name: causes, when: dead_letters > 0 by fingerprint, severity: high, to: [hook]";
    let (_folder, server) = start(&book(&orders, &receivers, more));
    for number in 0..200 {
        server.accept("orders.bad", &format!("{}-{number}", "e".repeat(1 + number % 4)), "");
    }
    until("all are dead", || {
        let status = server.status();
        let services = status["services"].as_array().expect("a list").clone();
        services.iter().any(|one| one["service"] == "orders" && one["dead"] == 200).then_some(())
    });
    until("every alert fires", || {
        let found = shown(&server);
        let alerts = found["alerts"].as_array().expect("a list").clone();
        // Those that stand in the book; others are on by themselves.
        let mut own = alerts.iter().filter(|alert| !alert["line"].is_null());
        own.all(|alert| alert["state"] == "firing").then_some(())
    });
    until_looked_at(&server, 2);
    let told = notices(&hook);
    assert!((3..=6).contains(&told.len()), "{} messages: {told:#?}", told.len());
    let names = |name: &str| told.iter().filter(|notice| notice["alert"] == name).count();
    assert_eq!((names("letters"), names("dead-letter-spike")), (1, 1), "{told:#?}");
    server.stop().assert_calm();
}

#[test]
fn a_server_that_is_killed_says_nothing_twice_and_forgets_nothing() {
    let orders = refusing();
    let gate = Gate::default();
    let waits = gate.clone();
    let hook = Target::start(move |_| {
        waits.pass();
        status(200)
    });
    let receivers = format!("  hook: {{ webhook: \"{}\", retry: again, timeout: 60s }}\n", hook.url());
    let (folder, server) = start(&book(&orders, &receivers, "to: [hook], repeat: 1h"));
    spoil(&server, "e-1");
    // The notice is on its way, and nobody has answered it.
    hook.until(1);
    server.kill();
    gate.open();
    let server = Server::start(&folder);
    until("it has arrived", || {
        let found = shown(&server);
        (found["receivers"][0]["waiting"] == 0 && found["alerts"][0]["state"] == "firing").then_some(())
    });
    until_looked_at(&server, 3);
    let mut ids: Vec<String> = hook.calls().iter().map(|call| call.event_id().to_owned()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 1, "one notice, however often it was sent: {:?}", stages(&hook));
    assert_eq!(shown(&server)["recent"].as_array().map(Vec::len), Some(1), "it is known what was said");

    // Killed again while nothing is on its way: whoever was told is still told that it is over.
    server.kill();
    let server = Server::start(&folder);
    until_looked_at(&server, 2);
    mend(&server);
    until("it is over", || stages(&hook).contains(&"resolved".to_owned()).then_some(()));
    let said: Vec<String> = stages(&hook);
    assert_eq!(said.iter().filter(|stage| *stage == "resolved").count(), 1, "{said:?}");
    assert!(!said.contains(&"repeated".to_owned()), "{said:?}");
    server.stop().assert_calm();
}

#[test]
fn a_receiver_can_be_tried_out() {
    let (orders, hook) = (refusing(), Target::willing());
    let gone = Target::willing().address;
    let receivers = format!(
        "  hook: {{ webhook: \"{}\" }}\n  gone: {{ ntfy: \"http://{gone}/x\", retry: none }}\n",
        hook.url()
    );
    let (folder, server) = start(&book(&orders, &receivers, "to: [hook, gone]"));
    let url = url_of(&server);
    let run = |arguments: &[&str]| folder.run(&[arguments, &["--server", &url]].concat());
    assert_eq!(run(&["alerts", "test", "hook"]).printed(), "✓ test message delivered to hook\n");
    assert_eq!(hook.calls()[0].header("ce-type"), "redrive.alert.test");
    let gone = run(&["alerts", "test", "gone"]);
    assert_eq!(gone.code, 1);
    assert!(gone.stdout.contains("test message to gone failed for good"), "{}", gone.stdout);
    let nobody = run(&["alerts", "test", "nobody"]);
    assert_eq!(nobody.code, 1);
    assert!(nobody.stderr.contains("no receiver `nobody`"), "{}", nobody.stderr);

    let table = run(&["alerts"]).printed();
    assert!(table.contains("letters") && table.contains("webhook"), "{table}");
    let json: Value = serde_json::from_str(&run(&["alerts", "--format", "json"]).printed()).expect("JSON");
    assert_eq!(json["alerts"][0]["when"], "dead_letters > 0 for 1s");
    // What could not be told is a dead letter, and raises no alert.
    assert_eq!(json["receivers"][0]["dead"], 1);
    until_looked_at(&server, 2);
    assert_eq!(shown(&server)["alerts"][0]["state"], "quiet");
    server.stop().assert_calm();
}

#[test]
fn whoever_tests_a_receiver_is_on_record() {
    let (orders, desk) = (refusing(), Target::willing());
    let receivers = format!("  hook: {{ webhook: \"http://{}/hook\" }}\n", desk.address);
    let folder = Folder::with("redrive.yaml", &book(&orders, &receivers, "to: [hook]"));
    folder.write("token", "tk_of_this_run");
    let key = crate::identity::key_on_folder(&folder, &["root", "--role", "admin"]);
    let server = Server::start(&folder);
    let caller = format!("authorization: Bearer {key}\r\n");
    assert_eq!(server.post("/v1/receivers/nobody/test", &caller, "").status, 404);
    let tested = server.post("/v1/receivers/hook/test", &caller, "");
    assert_eq!((tested.status, &tested.json()["outcome"]), (200, &json!("delivered")), "{tested:?}");
    let head = format!("GET /v1/audit HTTP/1.1\r\nhost: localhost\r\n{caller}connection: close\r\n\r\n");
    let audit = server.client.ask(&head, "").json();
    let acts = audit["audit"].as_array().expect("a list");
    let tests: Vec<&Value> = acts.iter().filter(|record| record["act"] == "test-receiver").collect();
    let [record] = tests[..] else { panic!("{audit}") };
    assert_eq!(record["what"], "hook", "{record}");
    assert!(record["by"].as_str().is_some_and(|by| by.ends_with("(root)")), "{record}");
    server.stop().assert_calm();
}

#[test]
fn a_receiver_that_says_what_it_was_sent_tells_nobody_our_secret() {
    let desk = Target::start(|call| {
        let said = format!("you are {}", call.header("authorization"));
        crate::target::Say::Status(400, "", said)
    });
    let receivers = format!("  phone: {{ ntfy: \"http://{}/ops\", secret: token }}\n", desk.address);
    let (folder, server) = start(&book(&refusing(), &receivers, "to: [phone]"));
    let tested = server.post("/v1/receivers/phone/test", "content-type: application/json\r\n", "{}").json();
    assert_eq!(tested["message"], "400 Bad Request: you are Bearer [secret]", "{tested}");
    assert_eq!(desk.calls()[0].header("authorization"), "Bearer tk_of_this_run");
    let delivery = tested["delivery"].as_str().expect("an id");
    for path in ["/v1/alerts".to_owned(), "/v1/dead-letters".to_owned(), format!("/v1/deliveries/{delivery}")]
    {
        let answer = server.get(&path);
        assert!(answer.status == 200 && answer.body.contains("Bearer [secret]"), "{path}: {answer:?}");
        assert!(!answer.body.contains("tk_of_this_run"), "{path}: {answer:?}");
    }
    server.stop().assert_calm();
    for (path, bytes) in crate::server::contents(&folder.path("data")) {
        let has_it = bytes.windows(14).any(|window| window == b"tk_of_this_run");
        assert!(!has_it, "{} keeps it", path.display());
    }
}
