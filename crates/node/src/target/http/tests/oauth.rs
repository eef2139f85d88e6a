//! Tokens: how many requests an issuer gets, and what its failures come to.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use redrive_core::book::connectors::http::{ClientProof, HttpAuth, OAuthClient};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::server::read_request;
use super::*;
use crate::connectors::Drivers;
use crate::secret::Secrets;
use crate::target::call_test::book_of;
use crate::target::http::Auth;

/// Answers each request by its number, from 1, and its text.
struct Stub {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    async fn start(answer: impl Fn(usize, &str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&requests), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                tokio::spawn(async move {
                    while let Some(request) = read_request(&mut stream).await {
                        let number = {
                            let mut seen = seen.lock().expect("not poisoned");
                            seen.push(request.clone());
                            seen.len()
                        };
                        let _ = stream.write_all(answer(number, &request).as_bytes()).await;
                    }
                });
            }
        });
        Self { port, requests }
    }

    /// Gives tokens `t1`, `t2` and so on.
    async fn issuer() -> Self {
        Self::start(|number, _| token(&format!("t{number}"), 600)).await
    }

    fn count(&self) -> usize {
        self.requests.lock().expect("not poisoned").len()
    }

    fn last(&self) -> String {
        self.requests.lock().expect("not poisoned").last().cloned().unwrap_or_default()
    }
}

fn http(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn token(token: &str, life: u32) -> String {
    let body = format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":{life}}}"#);
    http("200 OK", &body)
}

/// Takes those who bring this token.
fn only(token: &'static str) -> impl Fn(usize, &str) -> String + Send + Sync + 'static {
    move |_, request| {
        let is_good = request.contains(&format!("authorization: Bearer {token}\r\n"));
        http(if is_good { "200 OK" } else { "401 Unauthorized" }, "")
    }
}

struct Stage {
    folder: TempDir,
    secrets: Secrets,
    pool: Arc<Pool>,
    client: OAuthClient,
}

impl Stage {
    fn new(issuer: u16) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        std::fs::write(&file, "hunter2").expect("a file");
        let book = format!("version: 1\nsecrets: {{ s: {{ file: \"{}\", cached: 0s }} }}\n", file.display());
        let secrets = Secrets::new(&Arc::new(book_of(&book)), Drivers::built_in());
        let client = OAuthClient {
            token_url: format!("http://127.0.0.1:{issuer}/token"),
            id: "me".to_owned(),
            secret: "s".to_owned(),
            scope: None,
            audience: None,
            proof: ClientProof::Basic,
        };
        Self { folder, secrets, pool: Arc::new(Pool::new(Roots::Only(Vec::new()))), client }
    }

    fn target(&self, port: u16) -> Arc<HttpTarget> {
        let auth = HttpAuth::OAuth2(self.client.clone());
        let auth = Auth::new(&auth, &self.secrets, &self.pool, Network::Public).expect("an address");
        let options = HttpOptions { auth: Some(auth), ..options(HttpFormat::Binary, None, 64) };
        let url = format!("http://127.0.0.1:{port}/");
        Arc::new(HttpTarget::new(&url, options, Arc::clone(&self.pool)).expect("an address"))
    }
}

#[tokio::test]
async fn many_calls_of_targets_with_one_client_need_one_token() {
    let (issuer, shop) = (Stub::issuer().await, Stub::start(only("t1")).await);
    let stage = Stage::new(issuer.port);
    let targets = [stage.target(shop.port), stage.target(shop.port)];
    let mut calls = JoinSet::new();
    for number in 0..50 {
        let target = Arc::clone(&targets[number % 2]);
        calls.spawn(async move { post(&target).await });
    }
    for ending in calls.join_all().await {
        assert_eq!(told(&ending, shop.port), r#"200 "", 200 OK"#);
    }
    assert_eq!((shop.count(), issuer.count()), (50, 1));
}

#[tokio::test]
async fn a_client_says_who_it_is_and_what_it_wants() {
    #[rustfmt::skip]
    let cases = [
        ("by a header",   ClientProof::Basic, None,        None,                 "authorization: Basic bWU6aHVudGVyMg==\r\n", "grant_type=client_credentials"),
        ("in the body",   ClientProof::Body,  None,        None,                 "", "grant_type=client_credentials&client_id=me&client_secret=hunter2"),
        ("with a scope",  ClientProof::Body,  Some("a b"), Some("https://x/é"),  "", "grant_type=client_credentials&scope=a+b&audience=https%3A%2F%2Fx%2F%C3%A9&client_id=me&client_secret=hunter2"),
    ];
    for (name, proof, scope, audience, header, body) in cases {
        let (issuer, shop) = (Stub::issuer().await, Stub::start(only("t1")).await);
        let mut stage = Stage::new(issuer.port);
        stage.client.proof = proof;
        stage.client.scope = scope.map(str::to_owned);
        stage.client.audience = audience.map(str::to_owned);
        assert_eq!(told(&post(&stage.target(shop.port)).await, shop.port), r#"200 "", 200 OK"#, "{name}");
        let request = issuer.last();
        assert!(
            request.starts_with("POST /token HTTP/1.1\r\n") && request.contains(header),
            "{name}: {request}"
        );
        assert_eq!(request.contains("authorization"), !header.is_empty(), "{name}: {request}");
        assert_eq!(request.rsplit("\r\n").next(), Some(body), "{name}");
    }
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires_and_used_on_while_that_fails() {
    let broken = Arc::new(AtomicUsize::new(0));
    let is_broken = Arc::clone(&broken);
    let issuer = Stub::start(move |number, _| match is_broken.load(Ordering::SeqCst) {
        0 => token(&format!("t{number}"), 600),
        _ => http("503 Busy", ""),
    });
    let (issuer, shop) = (issuer.await, Stub::start(|_, _| http("200 OK", "")).await);
    let stage = Stage::new(issuer.port);
    let target = stage.target(shop.port);
    #[rustfmt::skip]
    let steps = [
        ("the first",                               0,   0, "t1", 1),
        ("long before its end",                     500, 0, "t1", 1),
        ("shortly before its end",                  71,  0, "t2", 2),
        ("again, and the issuer is down",           571, 1, "t2", 3),
        ("it is left alone for some seconds",       1,   1, "t2", 3),
        ("then it is asked once more",              5,   1, "t2", 4),
        ("and it is up",                            6,   0, "t5", 5),
    ];
    for (name, seconds, is_down, token, requests) in steps {
        later(seconds).await;
        broken.store(is_down, Ordering::SeqCst);
        for _ in 0..3 {
            assert_eq!(told(&post(&target).await, shop.port), r#"200 "", 200 OK"#, "{name}");
        }
        assert!(
            shop.last().contains(&format!("authorization: Bearer {token}\r\n")),
            "{name}: {}",
            shop.last()
        );
        assert_eq!(issuer.count(), requests, "{name}");
    }
    later(700).await;
    broken.store(1, Ordering::SeqCst);
    let ending = told(&post(&target).await, issuer.port);
    assert!(ending.starts_with("SecretUnavailable, call not made: "), "it has expired: {ending}");
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_and_never_in_a_storm() {
    let (issuer, shop) = (Stub::issuer().await, Stub::start(only("t2")).await);
    let stage = Stage::new(issuer.port);
    let target = stage.target(shop.port);
    let refused = r#"401 "", 401 Unauthorized"#;
    assert_eq!(told(&post(&target).await, shop.port), refused, "a token that was just got");
    assert_eq!((shop.count(), issuer.count()), (1, 1));
    later(11).await;
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let target = Arc::clone(&target);
        calls.spawn(async move { post(&target).await });
    }
    for ending in calls.join_all().await {
        assert_eq!(told(&ending, shop.port), r#"200 "", 200 OK"#, "with the new one, in the same attempt");
    }
    assert_eq!(issuer.count(), 2, "one for all");

    let (issuer, shop) = (Stub::issuer().await, Stub::start(only("none")).await);
    let target = Stage::new(issuer.port);
    let target = target.target(shop.port);
    for round in 1..=3 {
        for _ in 0..10 {
            assert_eq!(told(&post(&target).await, shop.port), refused);
        }
        assert_eq!(issuer.count(), round, "at most one in ten seconds");
        later(11).await;
    }
    assert_eq!(shop.count(), 32, "a call is repeated only with another token");
}

#[tokio::test]
async fn what_an_issuer_answers_decides_and_is_not_asked_for_again_at_once() {
    let refused = "Broker(Unauthorized), call not made: 127.0.0.1:PORT gave no token to client `me`: ";
    let wrong = "ConfigMissing, call not made: 127.0.0.1:PORT gave no token to client `me`: ";
    let later = "SecretUnavailable, call not made: no token from 127.0.0.1:PORT: ";
    let no_token = "SecretUnavailable, call not made: 127.0.0.1:PORT gave no token to client `me`: ";
    #[rustfmt::skip]
    let cases = [
        (http("400 Bad Request", r#"{"error":"invalid_client"}"#),            refused,  "400: invalid_client"),
        (http("401 Unauthorized", ""),                                        refused,  "401"),
        (http("401 No", r#"{"error":"x","error_description":"not hunter2, not bWU6aHVudGVyMg=="}"#), refused, "401: x: not [secret], not [secret]"),
        (http("400 Bad Request", r#"{"error":"invalid_scope"}"#),             wrong,    "400: invalid_scope"),
        (http("404 Not Found", "<html>"),                                     wrong,    "404"),
        (http("302 Found", ""),                                               wrong,    "302"),
        (http("503 Busy", r#"{"error":"invalid_client"}"#),                   no_token, "503: invalid_client"),
        (http("429 Slow down", ""),                                           no_token, "429"),
        (http("200 OK", "<html>"),                                            later,    "its answer is not JSON"),
        (http("200 OK", r#"{"token":"x"}"#),                                  later,    "its answer has no `access_token`"),
        (http("200 OK", r#"{"access_token":"x","token_type":"mac"}"#),        later,    "its token is not a bearer token"),
        (http("200 OK", r#"{"access_token":"x\r\ny: z"}"#),                   later,    "its token has characters not allowed in a header"),
        (http("200 OK", &"x".repeat(70_000)),                                 later,    "its answer is too long"),
        ("nonsense\r\n\r\n".to_owned(),                                       later,    "response of 127.0.0.1:PORT is not HTTP: invalid HTTP version parsed"),
    ];
    for (answer, prefix, why) in cases {
        let issuer = Stub::start(move |_, _| answer.clone()).await;
        let shop = Stub::start(only("t1")).await;
        let stage = Stage::new(issuer.port);
        let target = stage.target(shop.port);
        for _ in 0..20 {
            assert_eq!(told(&post(&target).await, issuer.port), format!("{prefix}{why}"));
        }
        assert_eq!((shop.count(), issuer.count()), (0, 1), "{why}");
    }
    let stage = Stage::new(1);
    let ending = told(&post(&stage.target(1)).await, 1);
    assert_eq!(ending, format!("{later}127.0.0.1:PORT refused the connection"));
}

#[tokio::test]
async fn a_changed_client_secret_is_used_at_once() {
    let issuer = Stub::start(|_, request| {
        if request.contains("Basic bWU6bmV3") { token("t1", 600) } else { http("401 Unauthorized", "") }
    });
    let (issuer, shop) = (issuer.await, Stub::start(only("t1")).await);
    let stage = Stage::new(issuer.port);
    let target = stage.target(shop.port);
    assert!(told(&post(&target).await, shop.port).starts_with("Broker(Unauthorized)"));
    std::fs::write(stage.folder.path().join("secret"), "new").expect("a file");
    for _ in 0..5 {
        later(1).await;
        if told(&post(&target).await, shop.port) == r#"200 "", 200 OK"# {
            return;
        }
    }
    panic!("the new secret was not used: {}", issuer.last());
}

#[tokio::test]
async fn an_issuer_obeys_the_network_of_its_target() {
    let issuer = Stub::issuer().await;
    let mut stage = Stage::new(issuer.port);
    stage.client.token_url = format!("http://localhost:{}/token", issuer.port);
    let ending = told(&post(&stage.target(1)).await, issuer.port);
    assert!(ending.starts_with("Transport(AddressRefused), localhost:PORT resolves to "), "{ending}");
    assert_eq!(issuer.count(), 0);
}
