//! Events as notifications. The ntfy server is a stand-in: it answers as a real one was seen to, since none can
//! be installed for tests.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::durable::bound_files;
use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Call, Gate, Say, Target};

/// Stands in for an ntfy server that keeps what is published.
struct Ntfy {
    target: Target,
    /// The first publication waits here after it was kept.
    gate: Gate,
}

impl Ntfy {
    /// `refuse` answers publications of its own accord.
    fn start(refuse: fn(&Call, usize) -> Option<Say>) -> Self {
        let gate = Gate::default();
        let (waiting, kept) = (gate.clone(), Arc::<Mutex<Vec<Value>>>::default());
        let asked = Arc::new(Mutex::new(0));
        let target = Target::start(move |call| {
            if call.method == "GET" {
                let kept = kept.lock().expect("no thread panics while publishing");
                let lines: Vec<String> = kept.iter().map(Value::to_string).collect();
                return Say::Status(200, "", lines.join("\n") + "\n");
            }
            let number = {
                let mut asked = asked.lock().expect("no thread panics while counting");
                *asked += 1;
                *asked
            };
            if let Some(refusal) = refuse(call, number) {
                return refusal;
            }
            let tags: Vec<&str> = call.header("tags").split(',').collect();
            let text = String::from_utf8_lossy(&call.body).into_owned();
            let id = format!("hwQ2YpKdmg{number}");
            let said = json!({ "id": id, "time": 1_761_057_000, "event": "message", "topic": "orders", "message": text, "tags": tags });
            kept.lock().expect("no thread panics while publishing").push(said.clone());
            if number == 1 {
                waiting.pass();
            }
            Say::Status(200, "content-type: application/json\r\n", said.to_string())
        });
        Self { target, gate }
    }

    fn book(&self, more: &str) -> String {
        format!(
            "version: 1
retry_policies:
  quick: {{ initial: 20ms, max: 20ms, retries: 5, jitter: none }}
secrets: {{ token: {{ file: token }} }}
services:
  orders:
    target: {{ ntfy: \"http://{}/orders\", title: \"Order {{{{ data.id }}}}\", tags: [package], secret: token }}
    retry: quick
{more}    events: [\"orders.*\"]
",
            self.target.address
        )
    }

    fn calls(&self, method: &str) -> Vec<Call> {
        self.target.calls().into_iter().filter(|call| call.method == method).collect()
    }
}

fn start(book: &str) -> (Folder, Server) {
    let folder = Folder::with("redrive.yaml", book);
    folder.write("token", "tk_of_this_run");
    let server = Server::start(&folder);
    (folder, server)
}

#[test]
fn a_notification_is_published_and_its_id_is_kept() {
    let ntfy = Ntfy::start(|_, _| None);
    ntfy.gate.open();
    let (folder, server) = start(&ntfy.book(""));
    server.accept("orders.placed", "o-1", "");
    let delivery = server.until("o-1", "delivered");
    assert_eq!(delivery["stories"][0]["message"], "notification hwQ2YpKdmg1", "{delivery}");
    let call = &ntfy.target.calls()[0];
    assert_eq!((call.path.as_str(), call.header("title")), ("/orders", "Order o-1"));
    assert_eq!(call.header("authorization"), "Bearer tk_of_this_run");
    let id = delivery["webhook_id"].as_str().expect("an id");
    assert_eq!(call.header("tags"), format!("package,{id}"));
    let url = format!("http://{}", server.client.address);
    let shown = folder.run(&["show", delivery["id"].as_str().expect("an id"), "--server", &url]).printed();
    assert!(shown.contains("accepted: notification hwQ2YpKdmg1"), "{shown}");
    server.stop().assert_calm();
}

#[test]
fn a_crash_between_the_answer_and_its_record_sends_no_second_notification() {
    let ntfy = Ntfy::start(|_, _| None);
    let (folder, server) = start(&ntfy.book(""));
    server.accept("orders.placed", "o-1", "");
    ntfy.target.until(1);
    // The answer comes, and cannot be recorded.
    bound_files(&server, "0:unlimited");
    ntfy.gate.open();
    until("the server has answered", || ntfy.target.calls()[0].answered);
    server.err.wait_for("store writes failing");
    server.kill();

    let server = Server::start(&folder);
    let delivery = server.until("o-1", "delivered");
    assert_eq!(
        delivery["stories"][0]["message"], "notification hwQ2YpKdmg1 of an earlier attempt",
        "{delivery}"
    );
    assert_eq!(ntfy.calls("POST").len(), 1);
    server.stop().assert_calm();
}

#[test]
fn a_notification_whose_answer_is_late_is_not_sent_again() {
    let ntfy = Ntfy::start(|_, _| None);
    let (_folder, server) = start(&ntfy.book("    timeout: 500ms\n"));
    server.accept("orders.placed", "o-1", "");
    let delivery = server.until("o-1", "delivered");
    let stories = delivery["stories"].as_array().expect("attempts");
    assert_eq!((stories.len(), &stories[0]["code"]), (2, &json!("NETWORK_TIMEOUT")), "{delivery}");
    assert_eq!(stories[1]["message"], "notification hwQ2YpKdmg1 of an earlier attempt", "{delivery}");
    assert_eq!(ntfy.calls("POST").len(), 1);
    ntfy.gate.open();
    server.stop().assert_calm();
}

#[test]
fn limits_and_tokens_are_refused_as_ntfy_does() {
    let limited = Ntfy::start(|_, number| {
        let body = r#"{"code":42901,"http":429,"error":"limit reached: too many requests","link":"https://ntfy.sh/docs/publish/#limitations"}"#;
        (number == 1).then(|| Say::Status(429, "", body.to_owned()))
    });
    let (_folder, server) = start(&limited.book("    on_failure: { rate-limited: quick }\n"));
    server.accept("orders.placed", "o-1", "");
    let delivery = server.until("o-1", "delivered");
    let stories = delivery["stories"].as_array().expect("attempts");
    assert_eq!((stories.len(), &stories[0]["category"]), (2, &json!("rate-limited")), "{delivery}");
    assert_eq!(stories[0]["retry"]["retry_after_nanos"], Value::Null, "{delivery}");
    server.stop().assert_calm();

    let strange = Ntfy::start(|_, _| {
        let body = r#"{"code":40101,"http":401,"error":"unauthorized","link":"https://ntfy.sh/docs/publish/#authentication"}"#;
        Some(Say::Status(401, "", body.to_owned()))
    });
    let (_folder, server) = start(&strange.book(""));
    server.accept("orders.placed", "o-1", "");
    let dead = server.until("o-1", "dead");
    assert_eq!(
        (&dead["death"]["code"], &dead["stories"][0]["category"]),
        (&json!("UNAUTHORIZED"), &json!("fatal"))
    );
    assert_eq!(strange.calls("POST").len(), 1, "no token gets better by waiting");
    server.stop().assert_calm();
}
