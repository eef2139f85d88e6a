//! How the target behaves towards an ntfy server. The server here is a stand-in: it answers as a real one was
//! seen to, since none can be installed for tests.

use std::net::SocketAddr;
use std::sync::Mutex;

use redrive_core::policy::answer::MalformedEvent;
use redrive_core::policy::category::Category;
use redrive_core::policy::classify::{Outcome, classify};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::*;
use crate::target::call_test::{call, delivery};
use crate::target::contract::{Downstream, DownstreamMood, keeps};
use crate::target::contract_test::made;

/// Stands in for an ntfy server.
struct Ntfy {
    address: SocketAddr,
    state: Arc<Mutex<NtfyState>>,
    serving: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Publishing {
    Answered,
    /// It is kept, and the answer never comes.
    Unanswered,
    Says(&'static str),
}

struct NtfyState {
    mood: DownstreamMood,
    publishing: Publishing,
    can_poll: bool,
    /// First lines of requests.
    heard: Vec<String>,
    /// Headers of each publication, in small letters, and its body.
    messages: Vec<Value>,
}

impl Ntfy {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state = NtfyState {
            mood: DownstreamMood::Takes,
            publishing: Publishing::Answered,
            can_poll: true,
            heard: Vec::new(),
            messages: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let serving = tokio::spawn(serve(listener, Arc::clone(&state)));
        Self { address, state, serving: Mutex::new(Some(serving)) }
    }

    fn target(&self, more: &str) -> Arc<dyn Target> {
        made(&format!("{{ ntfy: \"http://{}/orders\"{more} }}", self.address))
    }

    fn set(&self, change: impl FnOnce(&mut NtfyState)) {
        change(&mut self.state.lock().expect("no test panics here"));
    }

    fn messages(&self) -> Vec<Value> {
        self.state.lock().expect("no test panics here").messages.clone()
    }

    fn heard(&self) -> Vec<String> {
        self.state.lock().expect("no test panics here").heard.clone()
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<NtfyState>>) {
    // Dropped with the listener, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(talk(stream, Arc::clone(&state)));
    }
}

async fn talk(mut stream: TcpStream, state: Arc<Mutex<NtfyState>>) {
    let mut buffer = [0; 16_384];
    // Small requests come in one piece.
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let request = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let Some((status, body)) = answer(&request, &state) else { return std::future::pending().await };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// `None` if none comes.
fn answer(request: &str, state: &Mutex<NtfyState>) -> Option<(&'static str, String)> {
    let mut state = state.lock().expect("no test panics here");
    let (head, body) = request.split_once("\r\n\r\n").expect("a head and a body");
    let mut lines = head.lines();
    let first = lines.next().expect("a request").trim_end_matches(" HTTP/1.1").to_owned();
    state.heard.push(first.clone());
    match state.mood {
        DownstreamMood::Takes => {}
        DownstreamMood::Fails => return Some(("500 Internal Server Error", "{\"code\":50001}".to_owned())),
        DownstreamMood::Hangs | DownstreamMood::Away => return None,
    }
    if first.starts_with("GET") {
        if !state.can_poll {
            return Some((
                "403 Forbidden",
                "{\"code\":40301,\"http\":403,\"error\":\"forbidden\"}".to_owned(),
            ));
        }
        let lines: Vec<String> = state.messages.iter().map(|one| one["said"].to_string()).collect();
        return Some(("200 OK", lines.join("\n") + "\n"));
    }
    if let Publishing::Says(status) = state.publishing {
        let body = match &status[..3] {
            "401" => {
                r#"{"code":40101,"http":401,"error":"unauthorized","link":"https://ntfy.sh/docs/publish/#authentication"}"#
            }
            "429" => {
                r#"{"code":42901,"http":429,"error":"limit reached: too many requests","link":"https://ntfy.sh/docs/publish/#limitations"}"#
            }
            _ => "",
        };
        return Some((status, body.to_owned()));
    }
    let headers: Value = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), Value::from(value)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let tags: Vec<&str> = headers["tags"].as_str().unwrap_or_default().split(',').collect();
    let id = format!("hwQ2YpKdmg{}", state.messages.len());
    let said = json!({ "id": id, "time": 1_761_057_000, "expires": 1_761_100_200, "event": "message", "topic": "orders", "message": body, "tags": tags });
    state.messages.push(json!({ "headers": headers, "body": body, "said": said }));
    (state.publishing == Publishing::Answered).then(|| ("200 OK", said.to_string()))
}

impl Downstream for Ntfy {
    fn target(&self) -> Arc<dyn Target> {
        Ntfy::target(self, ", message: \"{{ id }}\"")
    }

    fn set_mood(&self, mood: DownstreamMood) -> ConnectorFuture<'_, bool> {
        Box::pin(async move {
            self.set(|state| state.mood = mood);
            let before = self.serving.lock().expect("no test panics here").take();
            if let Some(before) = before {
                before.abort();
                let _ = before.await;
            }
            if mood != DownstreamMood::Away {
                let listener = TcpListener::bind(self.address).await.expect("the port is free again");
                let serving = tokio::spawn(serve(listener, Arc::clone(&self.state)));
                *self.serving.lock().expect("no test panics here") = Some(serving);
            }
            true
        })
    }

    fn taken(&self) -> ConnectorFuture<'_, Vec<String>> {
        let bodies =
            self.messages().iter().map(|one| one["body"].as_str().expect("text").to_owned()).collect();
        Box::pin(async move { bodies })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ntfy_keeps_the_contract() {
    keeps(&Ntfy::start().await).await;
}

const HEADERS: [(&str, &str); 5] = [
    ("ce-specversion", "1.0"),
    ("ce-id", "e-1"),
    ("ce-source", "web"),
    ("ce-type", "orders.placed"),
    ("content-type", "application/json"),
];

/// A delivery that came after the target was made.
fn order(seq: u64, data: &str) -> PendingDelivery {
    PendingDelivery {
        written_at: Timestamp::from_millis(u64::from(u32::MAX) * 1_000),
        ..delivery(seq, &HEADERS, data)
    }
}

async fn sent(target: &dyn Target, delivery: PendingDelivery) -> TargetReply {
    match target.call(call("2s", vec![delivery])).await {
        Ending::Reply(reply) => reply,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_notification_has_what_the_templates_make() {
    let ntfy = Ntfy::start().await;
    let id = webhook_id(order(1, "{}").id);
    let link = r#", click: "https://a.test/orders/{{ data.n }}""#;
    #[rustfmt::skip]
    let cases = [
        ("nothing more",         "",                                           r#"{"n":1}"#,                  json!({ "tags": id }), r#"{"n":1}"#),
        ("no repetition known",  ", once: false",                              r#"{"n":1}"#,                  json!({}), r#"{"n":1}"#),
        ("text",                 r#", title: "Order {{ data.n }}", message: "{{ data.t }}""#, r#"{"n":1,"t":"a\nb"}"#, json!({ "tags": id, "title": "Order 1" }), "a\nb"),
        ("letters beyond ASCII", r#", title: "{{ data.n }}", message: x"#,     r#"{"n":"Größe\r\nTags: x"}"#, json!({ "tags": id, "title": "=?UTF-8?B?R3LDtsOfZSBUYWdzOiB4?=" }), "x"),
        ("a priority",           r", priority: high, message: x",            "{}",                          json!({ "tags": id, "priority": "4" }), "x"),
        ("one of the event",     r#", priority: "{{ data.p }}", message: x"#,  r#"{"p":5}"#,                  json!({ "tags": id, "priority": "5" }), "x"),
        ("tags",                 r#", tags: [package, "{{ data.p }}"], message: x"#, r#"{"p":"a b"}"#,        json!({ "tags": format!("package,a b,{id}") }), "x"),
        ("no tag",               r#", tags: "{{ data.p }}", message: x"#,      r#"{"p":""}"#,                 json!({ "tags": id }), "x"),
        ("a link",               link,                                         r#"{"n":"../7"}"#,             json!({ "tags": id, "click": "https://a.test/orders/..%2F7" }), r#"{"n":"../7"}"#),
        ("one of the event",     r#", click: "{{ data.n }}", message: x"#,     r#"{"n":"https://b.test/7"}"#, json!({ "tags": id, "click": "https://b.test/7" }), "x"),
    ];
    for (name, more, data, headers, body) in cases {
        let target = ntfy.target(more);
        let reply = sent(&*target, order(1, data)).await;
        assert_eq!(reply.seen, ReplyKind::Taken, "{name}: {reply:?}");
        let message = ntfy.messages().pop().expect("it came");
        assert_eq!(
            reply.message,
            format!("notification {}", message["said"]["id"].as_str().expect("an id")),
            "{name}"
        );
        let own = ["title", "priority", "tags", "click"];
        let seen: Value = own
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), message["headers"].get(key)?.clone())))
            .collect::<serde_json::Map<_, _>>()
            .into();
        assert_eq!((&seen, &message["body"]), (&headers, &json!(body)), "{name}");
    }
    assert!(ntfy.heard().iter().all(|line| line == "POST /orders"), "a first attempt asks nothing");
}

#[tokio::test]
async fn a_message_is_cut_where_ntfy_would_make_a_file_of_it() {
    let ntfy = Ntfy::start().await;
    let reply = sent(&*ntfy.target(""), order(1, &format!("\"{}\"", "ö".repeat(4_000)))).await;
    assert_eq!(reply.seen, ReplyKind::Taken, "{reply:?}");
    let body = ntfy.messages()[0]["body"].as_str().expect("text").to_owned();
    assert!(body.len() <= 4_000 && body.ends_with("ö…"), "{}", body.len());
}

#[tokio::test]
async fn an_event_that_does_not_fit_is_not_sent() {
    let ntfy = Ntfy::start().await;
    #[rustfmt::skip]
    let cases = [
        ("no such value",       r#", message: "{{ data.m }}""#,   "{}",                            "`message`: `data.m` is missing in the event"),
        ("no such priority",    r#", priority: "{{ data.m }}""#,  r#"{"m":"loud"}"#,               "`priority`: `{{ data.m }}` makes no priority"),
        ("two tags in one",     r#", tags: ["{{ data.m }}"]"#,    r#"{"m":"a,msg_b"}"#,            "`tags`: `{{ data.m }}` makes no tag"),
        ("a header in a tag",   r#", tags: ["{{ data.m }}"]"#,    r#"{"m":"a\r\nClick: x"}"#,      "`tags`: `{{ data.m }}` makes no tag"),
        ("a script as a link",  r#", click: "{{ data.m }}""#,     r#"{"m":"javascript:alert(1)"}"#, "`click`: `{{ data.m }}` makes no address of the web"),
        ("a link in two lines", r#", click: "{{ data.m }}""#,     r#"{"m":"https://a\r\nb"}"#,     "`click`: `{{ data.m }}` makes no address of the web"),
    ];
    for (name, more, data, message) in cases {
        let reply = sent(&*ntfy.target(more), order(1, data)).await;
        assert_eq!(reply.seen, ReplyKind::Malformed(MalformedEvent::ViolatesSchema), "{name}: {reply:?}");
        assert_eq!(reply.message, message, "{name}");
    }
    assert_eq!(ntfy.heard(), Vec::<String>::new());
}

#[tokio::test]
async fn answers_of_the_server_say_what_follows() {
    #[rustfmt::skip]
    let cases = [
        ("a wrong token",       "401 Unauthorized",          Category::Fatal,       "UNAUTHORIZED"),
        ("no write access",     "403 Forbidden",             Category::Fatal,       "FORBIDDEN"),
        ("too many",            "429 Too Many Requests",     Category::RateLimited, "RATE_LIMITED"),
        ("too large",           "413 Payload Too Large",     Category::Permanent,   "PAYLOAD_TOO_LARGE"),
        ("away behind a proxy", "502 Bad Gateway",           Category::Transient,   "BAD_GATEWAY"),
        ("no ntfy server",      "200 OK",                    Category::Unknown,     "PROTOCOL_ERROR"),
    ];
    let ntfy = Ntfy::start().await;
    let target = ntfy.target("");
    for (name, status, category, code) in cases {
        ntfy.set(|state| state.publishing = Publishing::Says(status));
        let reply = sent(&*target, order(1, "{}")).await;
        assert_eq!(reply.retry_after, None, "{name}");
        let rule = call("1s", Vec::new()).rule.clone();
        match classify(&reply.as_answer(), &rule.classify, rule.timeouts.category) {
            Outcome::Failed(failure) => {
                assert_eq!((failure.category, failure.code.as_str()), (category, code), "{name}: {reply:?}");
            }
            Outcome::Delivered { .. } => panic!("{name}: {reply:?}"),
        }
    }
}

#[tokio::test]
async fn what_an_earlier_attempt_has_sent_is_not_sent_again() {
    let ntfy = Ntfy::start().await;
    let target = ntfy.target("");
    ntfy.set(|state| state.publishing = Publishing::Unanswered);
    let first = sent(&*target, order(1, "{}")).await;
    assert!(matches!(first.seen, ReplyKind::Transport(TransportError::Timeout(_))), "{first:?}");
    ntfy.set(|state| state.publishing = Publishing::Answered);
    sent(&*target, order(2, "{}")).await;
    let again = |change: fn(PendingDelivery) -> PendingDelivery| change(order(1, "{}"));
    #[rustfmt::skip]
    let repeated = [
        ("a retry",             again(|one| PendingDelivery { attempts: 1, ..one })),
        ("after a crash",       again(|one| PendingDelivery { written_at: Timestamp::EPOCH, ..one })),
    ];
    for (name, delivery) in repeated {
        let reply = sent(&*target, delivery).await;
        assert_eq!(reply.seen, ReplyKind::Taken, "{name}: {reply:?}");
        assert_eq!(reply.message, "notification hwQ2YpKdmg0 of an earlier attempt", "{name}");
    }
    assert_eq!(ntfy.messages().len(), 2);
    let id = webhook_id(order(1, "{}").id);
    assert_eq!(ntfy.heard().pop(), Some(format!("GET /orders/json?poll=1&since=all&tags={id}")));

    let other = sent(&*target, PendingDelivery { attempts: 1, ..order(3, "{}") }).await;
    assert_eq!(other.message, "notification hwQ2YpKdmg2", "another delivery's notification is not its own");
    let careless = ntfy.target(", once: false");
    sent(&*careless, PendingDelivery { attempts: 1, ..order(1, "{}") }).await;
    assert_eq!(ntfy.messages().len(), 4, "the book does not mind");
    ntfy.set(|state| state.can_poll = false);
    let reply = sent(&*target, PendingDelivery { attempts: 1, ..order(1, "{}") }).await;
    assert_eq!(reply.message, "notification hwQ2YpKdmg4", "without an answer it is sent again");
}
