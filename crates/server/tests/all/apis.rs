//! The recipes of `docs/http-apis.md` against stand-ins that answer as the real APIs do.

use std::fs;
use std::time::Instant;

use serde_json::{Value, json};

use crate::examples::root;
use crate::run::Folder;
use crate::server::{Server, contents, serve, until};
use crate::target::{Call, Say, Target, status};

const JSON: &str = "content-type: application/json\r\n";

/// The book of a section of the page.
fn recipe(section: &str) -> String {
    let page = fs::read_to_string(root().join("docs/http-apis.md")).expect("the page is there");
    let (_, after) = page.split_once(&format!("## {section}\n")).expect("a section of that name");
    let (_, book) = after.split_once("```yaml\n").expect("it has a book");
    book.split_once("```").expect("the book ends").0.to_owned()
}

/// Serves the recipe with the stand-in in place of the API, and with quick retries.
fn start(section: &str, api: &str, target: &Target, secret: (&str, &str)) -> (Folder, Server) {
    let book = recipe(section);
    assert!(book.contains(api), "{section} calls {api}");
    let book = book.replace(api, &format!("http://{}", target.address)).replace(
        "version: 1\n",
        "version: 1
retry_policies: { quick: { initial: 20ms, max: 20ms, retries: 3, jitter: none } }
defaults: { on_failure: { rate-limited: quick, transient: quick, unknown: quick } }
",
    );
    let folder = Folder::with("redrive.yaml", &book);
    let mut command = serve(&folder, &["--rules", "redrive.yaml"]);
    command.env(secret.0, secret.1);
    (folder, Server::run(command))
}

fn send(server: &Server, event_type: &str, id: &str, data: &Value) {
    let headers = format!("{JSON}idempotency-key: {id}\r\n");
    let answer = server.post(&format!("/v1/events/{event_type}"), &headers, data.to_string());
    assert_eq!(answer.status, 202, "{answer:?}");
}

fn said(status: u16, headers: &'static str, body: &Value) -> Say {
    Say::Status(status, headers, body.to_string())
}

fn body(call: &Call) -> &str {
    std::str::from_utf8(&call.body).expect("it is text")
}

/// The headers of an event, which an API does not get.
fn has_event_headers(call: &Call) -> bool {
    call.headers.keys().any(|name| name.starts_with("ce-"))
}

#[test]
fn an_sms_is_a_form_with_basic_authentication() {
    let target = Target::start(|call| {
        if call.header("authorization") != "Basic QUMxMjM6dG9rLTE=" {
            return said(401, JSON, &json!({ "code": 20003, "message": "Authenticate", "status": 401 }));
        }
        match (body(call), call.nth) {
            (form, _) if form.contains("To=%2B490") => said(
                400,
                JSON,
                &json!({ "code": 21211, "message": "Invalid 'To' Phone Number", "status": 400 }),
            ),
            (form, _) if form.contains("To=%2B491") => {
                said(400, JSON, &json!({ "code": 21610, "message": "unsubscribed", "status": 400 }))
            }
            (_, 1) => {
                said(429, JSON, &json!({ "code": 20429, "message": "Too Many Requests", "status": 429 }))
            }
            _ => said(201, JSON, &json!({ "sid": "SM1", "status": "queued" })),
        }
    });
    let (_folder, server) = start("SMS", "https://api.twilio.com", &target, ("SMS_TOKEN", "tok-1"));
    send(&server, "sms.wanted", "good", &json!({ "to": "+492", "text": "code & 1\r\n= ü" }));
    let delivered = server.until("good", "delivered");
    assert_eq!(delivered["attempts"], 2, "{delivered}");
    let call = &target.calls()[1];
    assert_eq!(call.method, "POST");
    assert_eq!(call.path, "/2010-04-01/Accounts/AC123/Messages.json");
    assert_eq!(call.header("content-type"), "application/x-www-form-urlencoded");
    assert_eq!(body(call), "To=%2B492&From=%2B15005550006&Body=code+%26+1%0D%0A%3D+%C3%BC");
    assert!(!has_event_headers(call) && call.webhook_id() == call.header("idempotency-key"));

    for (id, to, words) in [("wrong", "+490", "Invalid 'To' Phone Number"), ("gone", "+491", "unsubscribed")]
    {
        send(&server, "sms.wanted", id, &json!({ "to": to, "text": "x" }));
        let dead = server.until(id, "dead");
        assert_eq!(dead["attempts"], 1, "{dead}");
        assert!(dead["death"].to_string().contains(words), "{dead}");
    }
    server.stop();
}

#[test]
fn a_push_is_json_with_a_token_and_its_answer_is_examined() {
    let target = Target::start(|call| {
        let data = match call.json()["to"].as_str() {
            _ if call.header("authorization") != "Bearer push-1" => return status(401),
            Some("gone") => {
                json!({ "status": "error", "message": "not registered", "details": { "error": "DeviceNotRegistered" } })
            }
            Some("busy") if call.nth == 1 => json!({ "status": "error", "message": "try again" }),
            _ => json!({ "status": "ok", "id": "1" }),
        };
        said(200, JSON, &json!({ "data": data }))
    });
    let (_folder, server) = start("Push", "https://exp.host", &target, ("PUSH_TOKEN", "push-1"));
    send(&server, "push.wanted", "p1", &json!({ "device": "d\"1", "text": "}{\n", "order": 7 }));
    server.until("p1", "delivered");
    let call = &target.calls()[0];
    assert_eq!(
        (call.path.as_str(), call.header("content-type")),
        ("/--/api/v2/push/send", "application/json")
    );
    assert_eq!(call.json(), json!({ "to": "d\"1", "title": "News", "body": "}{\n", "data": { "order": 7 } }));

    send(&server, "push.wanted", "p2", &json!({ "device": "busy", "text": "x", "order": 7 }));
    assert_eq!(server.until("p2", "delivered")["attempts"], 2);

    send(&server, "push.wanted", "p3", &json!({ "device": "gone", "text": "x", "order": 7 }));
    let dead = server.until("p3", "dead");
    assert_eq!(
        (&dead["attempts"], &dead["death"]["code"]),
        (&json!(1), &json!("UNEXPECTED_RESPONSE")),
        "{dead}"
    );

    let calls = target.count();
    send(&server, "push.wanted", "p4", &json!({ "device": "d", "text": "x" }));
    let dead = server.until("p4", "dead");
    assert_eq!(dead["attempts"], 1, "{dead}");
    let death = dead["death"].to_string();
    assert!(death.contains("`data.order` is missing in the event") && death.contains("invalid"), "{dead}");
    assert_eq!(target.count(), calls, "no call is made");
    server.stop();
}

#[test]
fn a_slack_webhook_keeps_its_path_secret() {
    const PATH: &str = "/services/T0/B0/hunter2";
    let target = Target::start(|call| match (call.path.as_str(), call.nth) {
        (PATH, _) if body(call).contains("gone") => Say::Status(404, "", format!("no_service {PATH}")),
        (PATH, 1) => Say::Status(429, "retry-after: 1\r\n", "rate_limited".to_owned()),
        (PATH, _) => Say::Status(200, "content-type: text/html\r\n", "ok".to_owned()),
        (other, _) => Say::Status(400, "", format!("invalid_payload {other}")),
    });
    let (folder, server) = start("Slack", "https://hooks.slack.com", &target, ("SLACK_PATH", PATH));
    let begun = Instant::now();
    send(&server, "order.placed", "s1", &json!({ "order": "<b>\"1\"", "total": 12.5 }));
    assert_eq!(server.until("s1", "delivered")["attempts"], 2);
    assert!(begun.elapsed().as_secs() >= 1, "Retry-After is waited");
    assert_eq!(target.calls()[0].json(), json!({ "text": "Order *<b>\"1\"* over 12.5 EUR" }));
    send(&server, "order.placed", "s2", &json!({ "order": "gone", "total": 1 }));
    let dead = server.until("s2", "dead");
    assert_eq!((&dead["attempts"], &dead["death"]["code"]), (&json!(1), &json!("NOT_FOUND")), "{dead}");
    let id = dead["id"].as_str().expect("an id").to_owned();
    let mut shown = String::new();
    for path in ["/v1/deliveries", "/v1/dead-letters", "/v1/rules", &format!("/v1/dead-letters/{id}")] {
        shown += &server.get(path).body;
    }
    assert!(shown.contains("no_service [secret]"), "{shown}");
    let ended = server.stop();
    shown += &(ended.stdout + &ended.stderr);
    for (_, bytes) in contents(&folder.path("data")) {
        shown += &String::from_utf8_lossy(&bytes);
    }
    assert!(!shown.contains("hunter2"), "the path is shown");
}

#[test]
fn teams_gets_an_adaptive_card() {
    const PATH: &str = "/workflows/1/triggers/manual/paths/invoke?api-version=2016-06-01&sig=hunter2";
    let target = Target::start(|call| if call.path == PATH { status(202) } else { status(401) });
    let (_folder, server) =
        start("Teams", "https://prod-01.westeurope.logic.azure.com", &target, ("TEAMS_PATH", PATH));
    send(&server, "order.placed", "t1", &json!({ "order": 7 }));
    server.until("t1", "delivered");
    let card = &target.calls()[0].json()["attachments"][0];
    assert_eq!(card["contentType"], "application/vnd.microsoft.card.adaptive");
    assert_eq!(card["content"]["version"], "1.4");
    let texts: Vec<_> = (0..2).map(|place| card["content"]["body"][place]["text"].clone()).collect();
    assert_eq!(texts, ["Order 7", "no note"]);
    server.stop();
}

#[test]
fn pagerduty_gets_one_incident_per_check() {
    let target = Target::start(|call| match (call.path.as_str(), call.nth) {
        ("/v2/enqueue", 1) => status(503),
        ("/v2/enqueue", _) => {
            let key = call.json()["dedup_key"].clone();
            said(202, JSON, &json!({ "status": "success", "message": "Event processed", "dedup_key": key }))
        }
        _ => status(404),
    });
    let (_folder, server) = start("PagerDuty", "https://events.pagerduty.com", &target, ("NONE", ""));
    for (id, state) in [("c1", "down"), ("c2", "ok")] {
        send(
            &server,
            "check.changed",
            id,
            &json!({ "check": "db", "state": state, "text": "x".repeat(2_000) }),
        );
        server.until(id, "delivered");
    }
    let calls: Vec<Value> = target.calls().iter().map(Call::json).collect();
    let of = |key: &str| calls.iter().map(|call| call[key].as_str().expect("a text")).collect::<Vec<_>>();
    assert_eq!(of("event_action"), ["trigger", "trigger", "resolve", "resolve"]);
    assert!(of("dedup_key").iter().all(|key| *key == "/v1/events/db"), "{calls:?}");
    assert_eq!(calls[0]["payload"]["summary"].as_str().map(str::len), Some(1_024));
    assert_eq!(calls[0]["payload"]["severity"], "error");
    assert_eq!(calls[0]["payload"]["custom_details"]["check"], "db");
    server.stop();
}

#[test]
fn a_language_model_is_asked_again_when_it_says() {
    let target = Target::start(|call| match call.nth {
        _ if call.header("authorization") != "Bearer llm-1" => status(401),
        1 => Say::Status(
            429,
            "retry-after: 2\r\nretry-after-ms: 1500\r\n",
            json!({ "error": { "code": "rate_limit_exceeded" } }).to_string(),
        ),
        2 => said(200, JSON, &json!({ "choices": [] })),
        _ => said(200, JSON, &json!({ "choices": [{ "message": { "content": "short" } }] })),
    });
    let (_folder, server) = start("Language models", "https://api.openai.com", &target, ("LLM_KEY", "llm-1"));
    let begun = Instant::now();
    send(&server, "ticket.opened", "l1", &json!({ "ticket": "it \"broke\"\n" }));
    target.until(2);
    assert!(begun.elapsed().as_millis() >= 1_500, "retry-after-ms is waited");
    let delivered = server.until("l1", "delivered");
    assert_eq!(delivered["attempts"], 3, "{delivered}");
    let id = delivered["id"].as_str().expect("an id");
    let record = server.get(&format!("/v1/deliveries/{id}")).body;
    assert!(record.contains("1500000000") || record.contains("1.5s"), "{record}");
    assert!(record.contains("UNEXPECTED_RESPONSE"), "{record}");
    let call = &target.calls()[0];
    assert_eq!(call.path, "/v1/chat/completions");
    assert_eq!(call.json()["messages"][1], json!({ "role": "user", "content": "it \"broke\"\n" }));
    assert_eq!(call.json()["max_tokens"], 200);
    server.stop();
}

/// A service with every part of a request as a template of `data.v`.
fn hostile_book(target: &Target) -> String {
    let at = target.address;
    format!(
        "version: 1
services:
  path: {{ target: {{ http: \"http://{at}/path\", path: \"/u/{{{{ data.v }}}}\" }}, events: [k.path] }}
  query: {{ target: {{ http: \"http://{at}/query\", query: {{ q: \"{{{{ data.v }}}}\" }} }}, events: [k.query] }}
  header: {{ target: {{ http: \"http://{at}/header\", headers: {{ x-value: \"{{{{ data.v }}}}\" }} }}, events: [k.header] }}
  text: {{ target: {{ http: \"http://{at}/text\", body: \"<{{{{ data.v }}}}>\" }}, events: [k.text] }}
  json: {{ target: {{ http: \"http://{at}/json\", body: {{ v: \"{{{{ data.v }}}}\", w: [\"<{{{{ data.v }}}}>\"] }} }}, events: [k.json] }}
  form: {{ target: {{ http: \"http://{at}/form\", form: {{ v: \"{{{{ data.v }}}}\", w: x }} }}, events: [k.form] }}
  loop: {{ target: {{ http: \"http://{at}/loop\", body: \"{{% for a in data.v %}}{{% for b in data.v %}}{{{{ a }}}}{{% endfor %}}{{% endfor %}}\" }}, events: [k.loop] }}
"
    )
}

#[test]
fn hostile_events_are_bounded_and_never_change_a_request() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &hostile_book(&target));
    let server = Server::start(&folder);
    let deep = format!("{{\"v\":{}1{}}}", "[".repeat(3_000), "]".repeat(3_000));
    let nested = format!("{{\"v\":{}1{}}}", "[".repeat(100), "]".repeat(100));
    let long = json!({ "v": "x".repeat(500_000) }).to_string();
    let split = json!({ "v": "a\r\nx-evil: 1\r\n\r\nGET /evil HTTP/1.1" }).to_string();
    let quotes = json!({ "v": "\"}],\"evil\":1,&evil=1#?/../" }).to_string();
    let list = json!({ "v": vec![1; 50_000] }).to_string();
    let services = ["path", "query", "header", "text", "json", "form", "loop"];
    let mut count = 0;
    let mut sent = Vec::new();
    for (kind, data) in [
        ("deep", &deep),
        ("nested", &nested),
        ("long", &long),
        ("split", &split),
        ("quotes", &quotes),
        ("list", &list),
    ] {
        for service in services {
            let id = format!("{kind}-{service}");
            let headers = format!("{JSON}idempotency-key: {id}\r\n");
            let answer = server.post(&format!("/v1/events/k.{service}"), &headers, data);
            assert_eq!(answer.status, 202, "{id}: {answer:?}");
            sent.push(id);
            count += 1;
        }
    }
    let mut ends = Vec::new();
    for id in &sent {
        let delivery = until(&format!("{id} ends"), || {
            let delivery = server.delivery(id);
            ["delivered", "dead"]
                .contains(&delivery["state"].as_str().unwrap_or_default())
                .then_some(delivery)
        });
        assert_eq!(delivery["attempts"], 1, "{delivery}");
        if delivery["state"] == "dead" {
            assert!(delivery["death"].to_string().contains("invalid"), "{delivery}");
            ends.push(id.as_str());
        }
    }
    // Deep JSON is no JSON for a template; what is too long for a place does not go there.
    #[rustfmt::skip]
    assert_eq!(ends, [
        "deep-path", "deep-query", "deep-header", "deep-text", "deep-json", "deep-form", "deep-loop",
        "long-path", "long-query", "long-header", "long-loop",
        "split-header",
        "list-path", "list-query", "list-header", "list-loop",
    ]);
    let calls = target.calls();
    assert_eq!(calls.len(), count - ends.len(), "one call for each that fits");
    for call in calls {
        assert!(!call.headers.contains_key("x-evil") && !call.path.contains("/evil"), "{call:?}");
        let place = call.path.split(['/', '?']).nth(1).unwrap_or_default().to_owned();
        match place.as_str() {
            "path" => assert_eq!(call.path.split('/').count(), 4, "{}", call.path),
            "query" => assert!(!call.path.contains('&') && !call.path.contains('#'), "{}", call.path),
            "json" => {
                let json = call.json();
                let keys: Vec<_> = json.as_object().expect("an object").keys().collect();
                assert_eq!(keys, ["v", "w"]);
            }
            "form" => assert_eq!(body(&call).split('&').count(), 2),
            _ => {}
        }
    }
    server.assert_calm();
    server.stop().assert_calm();
}

#[test]
fn a_try_shows_the_request_without_its_secrets() {
    let folder = Folder::with("redrive.yaml", &recipe("SMS"));
    let data = r#"{"to":"+491761234567","text":"Your code is 4711"}"#;
    let shown = folder.run(&["try", "sms.wanted", "--data", data]).printed();
    for line in [
        "POST https://api.twilio.com/2010-04-01/Accounts/AC123/Messages.json",
        "authorization: Basic [secret]",
        "content-type: application/x-www-form-urlencoded",
        "To=%2B491761234567&From=%2B15005550006&Body=Your+code+is+4711",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("ce-type"), "{shown}");
    let shown = folder.run(&["try", "sms.wanted"]).printed();
    assert!(shown.contains("needs data.text, data.to: give --data"), "{shown}");
    let shown = folder.run(&["try", "sms.wanted", "--data", "{}"]).printed();
    assert!(shown.contains("no call is made: the event lacks data.text, data.to"), "{shown}");
    let event =
        r#"{"specversion":"1.0","id":"1","source":"/a","type":"sms.wanted","data":{"to":"1","text":"t"}}"#;
    folder.write("event.json", event);
    let shown = folder.run(&["try", "sms.wanted", "--event", "event.json"]).printed();
    assert!(shown.contains("To=1&From=%2B15005550006&Body=t"), "{shown}");
    let refused = folder.run(&["try", "sms.sent", "--event", "event.json"]);
    assert!(refused.stderr.contains("is of type `sms.wanted`"), "{refused:?}");
    let refused = folder.run(&["try", "sms.wanted", "--data", "{"]);
    assert!(refused.code != 0 && refused.stderr.contains("--data is no event"), "{refused:?}");

    let folder = Folder::with("redrive.yaml", &recipe("Teams"));
    let shown = folder.run(&["try", "order.placed", "--data", r#"{"order":7}"#]).printed();
    assert!(shown.contains("POST https://prod-01.westeurope.logic.azure.com/[secret]\n"), "{shown}");
}
