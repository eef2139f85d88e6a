//! What is secret in addresses is shown to admins and to nobody else, wherever the API tells of the rule book.

use serde_json::{Value, json};

use crate::identity::{bearer, create, get, key_on_folder};
use crate::run::{Folder, redrive};
use crate::server::{Server, until};
use crate::target::{Target, status};

/// Parts of addresses that open a door.
const SECRETS: [&str; 5] =
    ["hunter2query", "T0SECRET/B0SECRET", "hunter2path", "hunter2topic", "hunter2pager"];
const STREAMS: [&str; 2] = ["/v1/live", "/v1/activity"];
/// A password is shown to nobody, not even to admins.
const PASSWORD: &str = "hunter2password";

#[test]
fn secrets_in_addresses_are_for_admins_only() {
    let target = Target::start(|call| status(if call.path.contains("orders") { 404 } else { 200 }));
    let at = target.address;
    // Everything on one line, so that a line of the book tells all of it.
    let book = format!(
        "version: 1
services:
  orders: {{ target: {{ http: \"http://u:{PASSWORD}@{at}/orders?token=hunter2query\" }}, classify: [{{ status: 404, as: permanent }}], events: [{{ type: orders.placed }}] }}
  chat: {{ target: {{ http: 'http://{at}/hooks/hunter2path' }}, events: [chat.said] }}
receivers: {{ ops: {{ slack: \"http://{at}/services/T0SECRET/B0SECRET\" }}, push: {{ ntfy: \"http:\\/\\/{at}/hunter2topic\" }}, pager: {{ webhook: \"http://{at}/in/hunter2pager\" }} }}
alerts: [{{ when: \"dead_letters > 0\", severity: high, to: [ops, push, pager] }}]
"
    );
    let folder = Folder::with("redrive.yaml", &book);
    let admin = key_on_folder(&folder, &["root", "--role", "admin"]);
    let server = Server::start(&folder);
    let make = |wish: Value| create(&server, &admin, &wish);
    let viewer = make(json!({ "name": "v", "role": "viewer" }));
    let operator = make(json!({ "name": "o", "role": "operator" }));
    let bound = make(json!({ "name": "b", "role": "viewer", "services": ["orders"] }));
    let headers = format!("{}idempotency-key: 1\r\n", bearer(&admin));
    assert_eq!(server.post("/v1/events/orders.placed", &headers, "{}").status, 202);
    let delivery = until("it is dead", || {
        let found = get(&server, "/v1/deliveries?state=dead", &admin).json();
        found["deliveries"][0]["id"].as_str().map(str::to_owned)
    });

    // Every GET that has a whole answer, and those that name something.
    let document: Value = serde_json::from_str(&redrive(&["openapi"]).printed()).expect("it is JSON");
    let paths = document["paths"].as_object().expect("there are paths").iter();
    let mut paths: Vec<String> = paths
        .filter(|(path, item)| {
            item.get("get").is_some() && !path.contains('{') && !STREAMS.contains(&path.as_str())
        })
        .map(|(path, _)| path.clone())
        .collect();
    paths.extend([
        "/v1/rule?service=orders&type=orders.placed".to_owned(),
        "/v1/rule?service=chat&type=chat.said".to_owned(),
        "/v1/events/1".to_owned(),
        "/v1/dead-letters?service=orders".to_owned(),
        format!("/v1/deliveries/{delivery}"),
        format!("/v1/dead-letters/{delivery}"),
    ]);
    let mut seen_by_admin = String::new();
    for path in &paths {
        for key in [&viewer, &operator, &bound] {
            let body = get(&server, path, key).body;
            let told: Vec<&str> = SECRETS.into_iter().filter(|secret| body.contains(secret)).collect();
            assert!(told.is_empty() && !body.contains(PASSWORD), "{path} tells {told:?}: {body}");
        }
        seen_by_admin += &get(&server, path, &admin).body;
    }
    for path in ["/v1/receivers/ops/test", "/v1/receivers/push/test"] {
        let body = server.post(path, &bearer(&operator), "").body;
        assert!(SECRETS.into_iter().all(|secret| !body.contains(secret)), "{path}: {body}");
    }
    for secret in SECRETS {
        assert!(seen_by_admin.contains(secret), "an admin sees {secret}");
    }
    assert!(!seen_by_admin.contains(PASSWORD));
    // The lines that a verdict names are shown, masked.
    let story = get(&server, &format!("/v1/deliveries/{delivery}"), &viewer).json();
    let line = story["stories"][0]["classified_line"].as_str().expect("a row of the book said so");
    assert!(line.contains("/orders?token=************"), "{line}");
    // A book that is refused is shown in the log with its lines.
    folder.write("redrive.yaml", book.replace("receivers: {", "receivers: { bad: { slack: 7 },"));
    assert_refusal_is_masked(&server, [&viewer, &operator], &bound);
    let ended = server.stop();
    let log = ended.stdout + &ended.stderr;
    assert!(SECRETS.into_iter().all(|secret| !log.contains(secret)) && !log.contains(PASSWORD), "{log}");
}

/// What is told of a refused book, in streams and in the state of the server.
fn assert_refusal_is_masked(server: &Server, whole: [&String; 2], bound: &str) {
    let assert_masked = |path: &str, body: &str| {
        assert!(SECRETS.into_iter().all(|secret| !body.contains(secret)), "{path}: {body}");
        assert!(!body.contains(PASSWORD), "{path}: {body}");
    };
    let listeners = STREAMS.map(|path| {
        let mut connection = server.client.connect().expect("it listens");
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{}\r\n", bearer(whole[0]));
        connection.send(head.as_bytes()).expect("it is sent");
        assert!(connection.line().expect("it answers").contains(" 200 "), "{path}");
        (path, connection)
    });
    server.signal("HUP");
    server.err.wait_for("rule book rejected");
    for (path, mut connection) in listeners {
        // Everything up to what is told of the refused book.
        let mut told = String::new();
        while !told.contains("book-refused") {
            told += &connection.line().expect("the stream goes on");
        }
        assert_masked(path, &told);
    }
    for path in ["/readyz", "/v1/status"] {
        for key in whole {
            let body = until("it is told", || {
                Some(get(server, path, key).body).filter(|body| body.contains("book-refused"))
            });
            assert_masked(path, &body);
        }
        assert_masked(path, &get(server, path, bound).body);
    }
}
