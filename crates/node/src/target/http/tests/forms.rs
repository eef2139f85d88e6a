//! The bytes that a target gets, in each form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use redrive_core::letters::replay::{ReplayId, Replaying};
use redrive_core::time::Timestamp;

use super::server::{Server, answer};
use super::*;
use crate::connectors::Drivers;
use crate::secret::Secrets;
use crate::target::call_test::book_of;

/// An event with all there is.
fn full(seq: u64) -> PendingDelivery {
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "e-1"),
        ("ce-source", "/shop/M%C3%BCnchen"),
        ("ce-type", "orders.placed"),
        ("ce-subject", "order 7"),
        ("ce-time", "2025-10-21T14:29:59Z"),
        ("ce-partitionkey", "customer-7"),
        ("ce-correlationid", "c-1"),
        ("ce-traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("ce-tenant", "blue"),
        ("content-type", "application/json; charset=utf-8"),
    ];
    let mut delivery = delivery(seq, &headers, r#"{ "total": 12 }"#);
    delivery.attempts = 2;
    delivery
}

async fn request_of(form: HttpFormat, secret: Option<&str>, deliveries: Vec<PendingDelivery>) -> String {
    let server = Server::start(vec![answer("200 OK", "")]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let signing = secret.map(|lines| {
        let file = folder.path().join("hooks");
        std::fs::write(&file, lines).expect("written");
        let book =
            book_of(&format!("version: 1\nsecrets: {{ hooks: {{ file: \"{}\" }} }}\n", file.display()));
        Signing::new(Secrets::new(&Arc::new(book), Drivers::built_in()), "hooks")
    });
    let pool = Arc::new(Pool::new(Roots::Only(Vec::new())));
    let target = HttpTarget::new(&server.url(), options(form, signing, 1), pool).expect("an address");
    let target = target.at(|| Timestamp::from_millis(1_761_057_000_999));
    let ending = target.call(call(PATIENT, deliveries)).await;
    assert_eq!(told(&ending, 0), r#"200 "", 200 OK"#);
    server.request()
}

/// Two, as while one is changed.
const SECRETS: Option<&str> = Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\nthe old one\n");

#[tokio::test]
async fn the_binary_form() {
    insta::assert_snapshot!(request_of(HttpFormat::Binary, SECRETS, vec![full(7)]).await, @r#"
    POST /hooks?from=here HTTP/1.1
    host: 127.0.0.1:PORT
    user-agent: redrive/VERSION
    ce-specversion: 1.0
    ce-id: e-1
    ce-source: /shop/M%C3%BCnchen
    ce-type: orders.placed
    ce-subject: order%207
    ce-partitionkey: customer-7
    ce-correlationid: c-1
    ce-traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
    ce-time: 2025-10-21T14:29:59Z
    ce-tenant: blue
    content-type: application/json; charset=utf-8
    redrive-attempt: 3
    redrive-sequence: 7
    traceparent: 00-0af7651916cd43dd8448eb211c80319c-b64d64d4b9893506-01
    x-correlation-id: c-1
    webhook-id: msg_c92690de482a21cac9150c690a275b3a
    idempotency-key: msg_c92690de482a21cac9150c690a275b3a
    webhook-timestamp: 1761057000
    webhook-signature: v1,ykHVk2C6tLCf2U94ZkdZD3vBvt0XtSjafy3oGXRhK4E= v1,Cr8RNX+XjA8v6Cj/4Tynhy/m/kJd1mPQX+ZfqoPDwFM=
    content-length: 15

    { "total": 12 }
    "#);
}

#[tokio::test]
async fn the_binary_form_of_very_little() {
    let headers =
        [("ce-specversion", "1.0"), ("ce-id", "e-1"), ("ce-source", "web"), ("ce-type", "orders.placed")];
    let request = request_of(HttpFormat::Binary, None, vec![delivery(7, &headers, "")]).await;
    insta::assert_snapshot!(request, @r#"
    POST /hooks?from=here HTTP/1.1
    host: 127.0.0.1:PORT
    user-agent: redrive/VERSION
    ce-specversion: 1.0
    ce-id: e-1
    ce-source: web
    ce-type: orders.placed
    redrive-attempt: 1
    webhook-id: msg_c92690de482a21ca70271acd7ba3f844
    idempotency-key: msg_c92690de482a21ca70271acd7ba3f844
    webhook-timestamp: 1761057000
    content-length: 0
    "#);
}

#[tokio::test]
async fn the_structured_form() {
    insta::assert_snapshot!(request_of(HttpFormat::Structured, None, vec![full(7)]).await, @r#"
    POST /hooks?from=here HTTP/1.1
    host: 127.0.0.1:PORT
    user-agent: redrive/VERSION
    content-type: application/cloudevents+json
    redrive-attempt: 3
    redrive-sequence: 7
    traceparent: 00-0af7651916cd43dd8448eb211c80319c-b64d64d4b9893506-01
    x-correlation-id: c-1
    webhook-id: msg_c92690de482a21cac9150c690a275b3a
    idempotency-key: msg_c92690de482a21cac9150c690a275b3a
    webhook-timestamp: 1761057000
    content-length: 344

    {"specversion":"1.0","id":"e-1","source":"/shop/München","type":"orders.placed","subject":"order 7","partitionkey":"customer-7","correlationid":"c-1","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","time":"2025-10-21T14:29:59Z","tenant":"blue","datacontenttype":"application/json; charset=utf-8","data":{ "total": 12 }}
    "#);
}

#[tokio::test]
async fn the_batch_form() {
    let deliveries = vec![order(7, "e-1"), full(8)];
    insta::assert_snapshot!(request_of(HttpFormat::Batch, SECRETS, deliveries).await, @r#"
    POST /hooks?from=here HTTP/1.1
    host: 127.0.0.1:PORT
    user-agent: redrive/VERSION
    content-type: application/cloudevents-batch+json
    redrive-attempt: 3
    webhook-id: batch_f6201d47f2f885dd073bcefc87edcd06
    idempotency-key: batch_f6201d47f2f885dd073bcefc87edcd06
    webhook-timestamp: 1761057000
    webhook-signature: v1,KtKnTJlHg89aKi0/fwtsijC2dJxcxdNYTgRMTtVWLSA= v1,KsQ4UxLhVq8AfigKOOt+601muot8boIe7WVqil+HTeM=
    content-length: 715

    [{"specversion":"1.0","id":"e-1","source":"web","type":"orders.placed","redriveattempt":1,"webhookid":"msg_c92690de482a21ca70271acd7ba3f844","datacontenttype":"application/json","data":{"total":12}},{"specversion":"1.0","id":"e-1","source":"/shop/München","type":"orders.placed","subject":"order 7","partitionkey":"customer-7","correlationid":"c-1","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","time":"2025-10-21T14:29:59Z","redriveattempt":3,"redrivesequence":"8","redrivetraceparent":"00-0af7651916cd43dd8448eb211c80319c-548129d45b19f2e4-01","tenant":"blue","webhookid":"msg_1507ca5fd3b3dd8fc9150c690a275b3a","datacontenttype":"application/json; charset=utf-8","data":{ "total": 12 }}]
    "#);
}

#[tokio::test]
async fn a_replayed_letter_says_so_in_every_form() {
    let replaying = Replaying { replay: ReplayId(3), times: 2 };
    let replayed = || PendingDelivery { replaying: Some(replaying), ..full(7) };
    let (header, attribute) = ("\nredrive-replay: 2\n", "\"redrivereplay\":2");
    #[rustfmt::skip]
    let cases = [
        ("a header",                        HttpFormat::Binary,     vec![replayed()],                 1, 0),
        ("a header and an attribute",       HttpFormat::Structured, vec![replayed()],                 1, 1),
        ("an attribute of that event only", HttpFormat::Batch,      vec![replayed(), order(8, "e")],  0, 1),
        ("nothing of what was not",         HttpFormat::Binary,     vec![full(7)],                    0, 0),
        ("nor in the body",                 HttpFormat::Structured, vec![full(7)],                    0, 0),
    ];
    for (name, form, deliveries, headers, attributes) in cases {
        let request = request_of(form, None, deliveries).await;
        let seen = (request.matches(header).count(), request.matches(attribute).count());
        assert_eq!(seen, (headers, attributes), "{name}: {request}");
    }
}

#[tokio::test]
async fn what_arrives_can_be_verified_with_either_secret() {
    for (form, deliveries) in
        [(HttpFormat::Binary, vec![full(7)]), (HttpFormat::Batch, vec![full(7), order(8, "e-2")])]
    {
        let request = request_of(form, SECRETS, deliveries).await;
        let (head, body) = request.split_once("\n\n").expect("a head and a body");
        let header = |name: &str| {
            let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.expect("it is stated")
        };
        let signed = format!("{}.{}.{body}", header("webhook-id"), header("webhook-timestamp"));
        let old = hmac::Key::new(hmac::HMAC_SHA256, b"the old one");
        let new = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
        let new = hmac::Key::new(hmac::HMAC_SHA256, &new);
        let signatures: Vec<&str> = header("webhook-signature").split(' ').collect();
        assert_eq!(signatures.len(), 2);
        for (key, signature) in [new, old].iter().zip(signatures) {
            let signature = signature.strip_prefix("v1,").and_then(|text| STANDARD.decode(text).ok());
            let signature = signature.expect("base64 behind a version");
            hmac::verify(key, signed.as_bytes(), &signature).expect("the signature fits");
        }
    }
}

#[tokio::test]
async fn a_batch_is_known_by_what_is_in_it() {
    let id = async |deliveries| {
        let request = request_of(HttpFormat::Batch, None, deliveries).await;
        let line = request.lines().find_map(|line| line.strip_prefix("webhook-id: ")).map(str::to_owned);
        line.expect("it is stated")
    };
    let (one, two) = (|| order(7, "e-1"), || order(8, "e-2"));
    let again = || PendingDelivery { attempts: 4, ..order(7, "e-1") };
    let same = id(vec![one(), two()]).await;
    assert_eq!(id(vec![again(), two()]).await, same, "on a later attempt");
    assert_ne!(id(vec![one()]).await, same);
    assert_ne!(id(vec![two(), one()]).await, same);
}

#[tokio::test]
async fn what_no_header_can_hold_is_not_sent_as_one() {
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "%E2%82%AC%20%25"),
        ("ce-source", "web"),
        ("ce-type", "orders.placed"),
        ("ce-correlationid", "%E2%82%AC"),
    ];
    let request = request_of(HttpFormat::Binary, None, vec![delivery(7, &headers, "x")]).await;
    assert!(request.contains("ce-id: %E2%82%AC%20%25\n"), "{request}");
    assert!(request.contains("ce-correlationid: %E2%82%AC\n"), "{request}");
    assert!(!request.contains("x-correlation-id"), "{request}");
}

/// An event that tries to be more than an event.
fn hostile() -> PendingDelivery {
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "e-1"),
        ("ce-source", "web%22,%20x: y"),
        ("ce-type", "orders.placed"),
        ("ce-subject", "a\u{2028}b\u{a0}\u{10d}\u{10a}\\r\\n"),
        ("ce-correlationid", "c\"; x=y"),
        ("ce-host", "elsewhere.test"),
        ("ce-contentlength", "0"),
        ("ce-transferencoding", "chunked"),
        ("ce-connection", "close"),
        ("ce-authorization", "Bearer mine"),
        ("ce-webhookid", "msg_forged"),
        ("ce-webhooksignature", "v1,forged"),
        ("ce-redriveattempt", "99"),
        ("ce-redrivesequence", "99"),
        ("ce-redrivereplay", "99"),
        ("ce-redrivetraceparent", "00-forged"),
        ("content-type", "text/plain; x=\"ce-id: y\""),
    ];
    delivery(7, &headers, "x")
}

#[tokio::test]
async fn no_attribute_becomes_a_header_of_its_own() {
    let request = request_of(HttpFormat::Binary, None, vec![hostile()]).await;
    let (head, body) = request.split_once("\n\n").expect("a head and a body");
    assert_eq!(body, "x");
    assert!(head.bytes().all(|byte| byte == b'\n' || matches!(byte, b' '..=b'~')), "{head:?}");
    let names: Vec<&str> = head.lines().skip(1).filter_map(|line| Some(line.split_once(':')?.0)).collect();
    let ours: Vec<&str> = names.iter().copied().filter(|name| !name.starts_with("ce-")).collect();
    assert_eq!(
        ours,
        [
            "host",
            "user-agent",
            "content-type",
            "redrive-attempt",
            "x-correlation-id",
            "webhook-id",
            "idempotency-key",
            "webhook-timestamp",
            "content-length",
        ]
    );
    for line in [
        "host: 127.0.0.1:PORT",
        "content-length: 1",
        "redrive-attempt: 1",
        "ce-host: elsewhere.test",
        "ce-source: web%22,%20x:%20y",
        "ce-subject: a%E2%80%A8b%C2%A0%C4%8D%C4%8A\\r\\n",
    ] {
        assert!(head.lines().any(|one| one == line), "{line}: {head}");
    }
}

#[tokio::test]
async fn a_sender_does_not_say_what_only_we_know() {
    let batch = request_of(HttpFormat::Batch, None, vec![hostile()]).await;
    assert!(!batch.contains("forged\",\"redrive") && !batch.contains("msg_forged"), "{batch}");
    for spoofed in [
        r#""redriveattempt":"99""#,
        r#""redriveattempt":99"#,
        "redrivesequence",
        "redrivereplay",
        "redrivetrace",
    ] {
        assert!(!batch.contains(spoofed), "{spoofed}: {batch}");
    }
    let structured = request_of(HttpFormat::Structured, None, vec![hostile()]).await;
    let binary = request_of(HttpFormat::Binary, None, vec![hostile()]).await;
    for spoofed in [
        "webhookid",
        "redriveattempt",
        "redrivesequence",
        "redrivereplay",
        "redrivetraceparent",
        "msg_forged",
    ] {
        assert!(!structured.contains(spoofed), "{spoofed}: {structured}");
        assert!(!binary.contains(spoofed), "{spoofed}: {binary}");
    }
}

#[test]
fn what_would_break_a_line_is_no_attribute() {
    use redrive_core::event::{Incoming, parse};
    let event = |name: &str, value: &str| {
        let mut headers: Vec<(String, String)> =
            [("ce-specversion", "1.0"), ("ce-id", "e-1"), ("ce-source", "web"), ("ce-type", "a.b")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec();
        headers.retain(|(given, _)| given != name);
        headers.push((name.to_owned(), value.to_owned()));
        parse(Incoming { headers: &headers, body: &bytes::Bytes::new() })
    };
    #[rustfmt::skip]
    let cases = [
        ("a line, encoded",         "ce-subject",        "a%0D%0Ahost: elsewhere.test"),
        ("a line feed alone",       "ce-id",             "a%0Ab"),
        ("a line in a source",      "ce-source",         "a\r\nx: y"),
        ("a zero byte",             "ce-correlationid",  "a%00b"),
        ("a line in an extension",  "ce-tenant",         "a%0d%0ax: y"),
        ("a line in a type",        "ce-type",           "a.b%0d%0ax: y"),
        ("a line in a media type",  "content-type",      "text/plain\r\nx: y"),
        ("a name with a dash",      "ce-webhook-id",     "msg_forged"),
        ("a name with a colon",     "ce-x:host",         "elsewhere.test"),
        ("a name with a line",      "ce-x\r\nhost",    "elsewhere.test"),
        ("a name in capitals and more", "ce-Transfer-Encoding", "chunked"),
    ];
    for (name, header, value) in cases {
        assert!(event(header, value).is_err(), "{name}");
    }
}

#[tokio::test]
async fn a_user_in_the_address_is_who_calls() {
    let server = Server::start(vec![answer("200 OK", "")]).await;
    let url = server.url().replace("http://", "http://ann:secret@");
    let target = target(&url, HttpFormat::Binary);
    post(&target).await;
    assert!(server.request().contains("\nauthorization: Basic YW5uOnNlY3JldA==\n"));
    assert!(server.request().contains("\nhost: 127.0.0.1:PORT\n"));
    assert!(!format!("{target:?}").contains("secret"));
}
