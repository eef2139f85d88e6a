//! Every code and every form of answer, over HTTP from end to end, with the counters that follow.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::response::Response;
use pkarr::{Keypair, PKARR_INVALID_SIGNED_PACKET_SEQ};
use pkarr_verifier::api::{self, Service};
use pkarr_verifier::code::{ErrorCode, Kind};
use pkarr_verifier::counters::Monitor;
use pkarr_verifier::lookup::{Lookup, LookupError, Network, Place};
use pkarr_verifier::verify::RELAYS;
use redrive::Book;
use redrive::clock::wall_clock;
use redrive::core::policy::category::Category;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::relays::{Puppet, bytes, plain};
use crate::support::{
    ADDRESS, QUICK_LIFETIMES, RULES, Script, Step, changed, contact, packet, packet_naming, quick_rules,
    quick_verifier, someone, verifier_by,
};

type Answer = Box<dyn Fn() -> Response + Send + Sync>;

/// The service on a port of its own.
struct Served {
    address: String,
    client: reqwest::Client,
}

impl Served {
    async fn over(lookup: Arc<dyn Lookup>) -> Self {
        let book = Book::parse(RULES).expect("a sound book").rules();
        let monitor = Mutex::new(Monitor::new(book, wall_clock()));
        let service = Arc::new(Service { verifier: quick_verifier(lookup), monitor });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        tokio::spawn(async move { axum::serve(listener, api::router(service)).await.expect("it serves") });
        Self { address, client: reqwest::Client::new() }
    }

    async fn verify(&self, keys: &Keypair) -> Value {
        self.verify_raw(&keys.public_key().to_z32(), ADDRESS).await
    }

    async fn verify_raw(&self, public_key: &str, nip05: &str) -> Value {
        let body = json!({ "public_key": public_key, "nip05": nip05 }).to_string();
        let request = self.client.post(format!("{}/verify", self.address)).body(body);
        let response = request.header("content-type", "application/json").send().await.expect("it answers");
        assert_eq!(response.status(), 200);
        json_of(&response.bytes().await.expect("a body"))
    }

    async fn get(&self, path: &str) -> Value {
        let response = self.client.get(format!("{}{path}", self.address)).send().await.expect("it answers");
        json_of(&response.bytes().await.expect("a body"))
    }
}

fn json_of(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

/// The answer with its time taken out, which nobody can foretell; the order of its fields stays.
fn without_time(mut answer: Value) -> String {
    assert!(answer["response_time_ms"].is_u64(), "{answer}");
    answer["response_time_ms"] = json!(0);
    answer.to_string()
}

#[tokio::test]
async fn a_verified_contact_is_answered_with_exactly_these_fields() {
    let keys = someone();
    let served = Served::over(Script::new([Step::Found(packet(&keys))])).await;
    let expected = r#"{"success":true,"verified":true,"verification_level":"verified","response_time_ms":0,"cached":false,"retried":false}"#;
    assert_eq!(without_time(served.verify(&keys).await), sorted(expected));
    assert_eq!(served.verify(&keys).await["cached"], true);
}

#[tokio::test]
async fn every_failure_has_its_form() {
    #[rustfmt::skip]
    let cases = [
        ("a wrong key",       "nonsense", ADDRESS,  Step::Hangs,
         r#"{"success":true,"verified":false,"verification_level":"unverified","error":"Invalid public key format","error_code":"INVALID_PUBLIC_KEY","response_time_ms":0,"cached":false,"retried":false}"#),
        ("a wrong address",   "",         "alice",  Step::Hangs,
         r#"{"success":true,"verified":false,"verification_level":"unverified","error":"Invalid NIP-05 identifier","error_code":"INVALID_NIP05","response_time_ms":0,"cached":false,"retried":false}"#),
        ("nobody answers",    "",         ADDRESS,  Step::Hangs,
         r#"{"success":true,"verified":false,"verification_level":"unverified","error":"Max retry attempts exceeded","error_code":"MAX_RETRIES_EXCEEDED","metadata":{"attempts":4,"last_error_code":"NETWORK_TIMEOUT"},"response_time_ms":0,"cached":false,"retried":true}"#),
        ("nothing published", "",         ADDRESS,  Step::Fails(ErrorCode::RecordNotFound),
         r#"{"success":true,"verified":false,"verification_level":"unverified","error":"PKARR record not found","error_code":"RECORD_NOT_FOUND","response_time_ms":0,"cached":false,"retried":false}"#),
    ];
    for (name, key, address, step, expected) in cases {
        let served = Served::over(Script::new([step])).await;
        let key = if key.is_empty() { someone().public_key().to_z32() } else { key.to_owned() };
        assert_eq!(without_time(served.verify_raw(&key, address).await), sorted(expected), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_the_deadline_ends_has_the_code_of_its_last_try() {
    // Longer delays than the deadline leaves room for.
    let rules = changed(&quick_rules(), &[("deadline: 5s", "deadline: 350ms")]);
    let verifier = verifier_by(&rules, Script::new([Step::Hangs]), QUICK_LIFETIMES);
    let answer = serde_json::to_value(verifier.verify(&contact(&someone())).await).expect("JSON");
    let expected = r#"{"success":true,"verified":false,"verification_level":"unverified","error":"Network timeout during PKARR verification","error_code":"NETWORK_TIMEOUT","response_time_ms":0,"cached":false,"retried":true}"#;
    assert_eq!(without_time(answer), sorted(expected));
}

#[tokio::test]
async fn an_open_breaker_rejects_and_is_counted() {
    let relay = Puppet::with_status(503).await;
    let served = Served::over(relay.network()).await;
    for _ in 0..5 {
        served.verify(&someone()).await;
    }
    let expected = r#"{"success":true,"verified":false,"verification_level":"unverified","error":"Circuit breaker is open, request rejected","error_code":"CIRCUIT_BREAKER_OPEN","response_time_ms":0,"cached":false,"retried":false}"#;
    assert_eq!(without_time(served.verify(&someone()).await), sorted(expected));
    let metrics = served.get("/metrics").await;
    assert_eq!(metrics["circuitState"], "OPEN");
    assert_eq!(metrics["circuitBreakerTrips"], 1);
    assert_eq!(metrics["errorsByCode"], json!({ "CIRCUIT_BREAKER_OPEN": 1, "MAX_RETRIES_EXCEEDED": 5 }));
    assert_eq!(metrics["errorRate"], 100.0);
}

#[tokio::test]
async fn what_a_relay_answers_has_a_code() {
    let (keys, stranger) = (someone(), someone());
    let (good, other) = (packet(&keys), packet_naming(&keys, "bob@example.test"));
    let forged = packet(&stranger).to_relay_payload();
    let header = |status: u16, name: &'static str, value: &'static str| -> Answer {
        Box::new(move || {
            Response::builder().status(status).header(name, value).body(Body::empty()).expect("an answer")
        })
    };
    let good = good.to_relay_payload();
    let other = other.to_relay_payload();
    #[rustfmt::skip]
    let cases: [(&str, Answer, Option<ErrorCode>, u32); 13] = [
        ("a packet",                Box::new(move || bytes(good.clone())),        None,                               1),
        ("of another address",      Box::new(move || bytes(other.clone())),       Some(ErrorCode::RecordNotFound),    1),
        ("signed by another",       Box::new(move || bytes(forged.clone())),      Some(ErrorCode::SignatureInvalid),  1),
        ("no packet at all",        Box::new(|| bytes("<html>")),                 Some(ErrorCode::MalformedResponse), 1),
        ("far too much",            Box::new(|| bytes(vec![0; 100_000])),         Some(ErrorCode::MalformedResponse), 1),
        ("an item that is none",    header(404, PKARR_INVALID_SIGNED_PACKET_SEQ, "7"), Some(ErrorCode::MalformedResponse), 1),
        ("nothing",                 Box::new(|| plain(404)),                      Some(ErrorCode::RecordNotFound),    1),
        ("a relay that waited",     Box::new(|| plain(504)),                      Some(ErrorCode::RelayTimeout),      4),
        ("too many requests",       Box::new(|| plain(429)),                      Some(ErrorCode::RateLimited),       4),
        ("no nodes",                Box::new(|| plain(503)),                      Some(ErrorCode::DhtUnavailable),    4),
        ("something broke",         Box::new(|| plain(500)),                      Some(ErrorCode::TemporaryFailure),  4),
        ("what nobody foresaw",     Box::new(|| plain(418)),                      Some(ErrorCode::UnknownError),      4),
        ("a redirect to nowhere",   Box::new(|| plain(302)),                      Some(ErrorCode::UnknownError),      4),
    ];
    let relay = Puppet::with_status(500).await;
    for (name, answer, code, tries) in cases {
        relay.answers(answer);
        let verified = quick_verifier(relay.network()).verify(&contact(&keys)).await;
        let last = verified.metadata.map_or(verified.error_code, |spent| Some(spent.last_error_code));
        assert_eq!(last, code, "{name}");
        assert_eq!(verified.metadata.map_or(1, |spent| spent.attempts), tries, "{name}");
        assert_eq!(verified.retried, tries > 1, "{name}");
    }
}

#[tokio::test]
async fn nobody_listens_where_a_relay_was() {
    let address =
        TcpListener::bind("127.0.0.1:0").await.expect("a free port").local_addr().expect("it is bound");
    let gone = Place::Relay(format!("http://{address}/").parse().expect("an address"));
    let answer = quick_verifier(Arc::new(Network::new(vec![gone]))).verify(&contact(&someone())).await;
    let spent = answer.metadata.expect("all retries were spent");
    assert_eq!((spent.last_error_code, spent.attempts), (ErrorCode::DhtUnavailable, 4));
}

#[tokio::test]
async fn errors_are_counted_by_kind_and_code() {
    let (keys, other) = (someone(), someone());
    let script = Script::new([
        Step::Fails(ErrorCode::RelayTimeout),
        Step::Found(packet(&keys)),
        Step::Fails(ErrorCode::SignatureInvalid),
        Step::Fails(ErrorCode::TemporaryFailure),
    ]);
    let served = Served::over(script).await;
    assert_eq!(served.verify(&keys).await["retried"], true, "well at the second try");
    served.verify(&other).await;
    served.verify(&other).await;
    served.verify_raw("nonsense", ADDRESS).await;
    served.verify(&someone()).await;
    let metrics = served.get("/metrics").await;
    let expected = json!({
        "totalRequests": 5,
        "totalErrors": 4,
        "transientErrors": 1,
        "permanentErrors": 3,
        "retriedErrors": 2,
        "circuitBreakerTrips": 0,
        "errorsByCode": { "INVALID_PUBLIC_KEY": 1, "MAX_RETRIES_EXCEEDED": 1, "SIGNATURE_INVALID": 2 },
        "errorRate": 80.0,
        "retryRate": 40.0,
        "circuitState": "CLOSED",
    });
    assert_eq!(metrics, expected);
}

#[tokio::test]
async fn logs_say_what_happened_and_to_nobody_whom() {
    let (log, keys) = (Log::default(), someone());
    let lines = log.clone();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false);
    let subscriber = subscriber.with_writer(move || lines.clone()).finish();
    let _here = tracing::subscriber::set_default(subscriber);
    let relay = Puppet::with_status(500).await;
    quick_verifier(relay.network()).verify(&contact(&keys)).await;
    let text = String::from_utf8(log.0.lock().expect("no panic").clone()).expect("text");
    assert!(text.contains("contact not verified code=MAX_RETRIES_EXCEEDED"), "{text}");
    assert!(!text.contains(&keys.public_key().to_z32()) && !text.contains(ADDRESS), "{text}");
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_book_means_what_the_code_says() {
    for code in ErrorCode::ALL {
        let expected = match code.kind() {
            Kind::Transient => Category::Transient,
            Kind::Permanent => Category::Permanent,
            // No lookup reports these: they are what the guard says.
            Kind::System => continue,
        };
        let book = Book::parse(&quick_rules()).expect("a sound book");
        let relays = book.guard(RELAYS).expect("the book has them");
        let failed = relays.call(|_| async move { Err::<(), _>(LookupError::new(code, "seen")) }).await;
        let error = failed.expect_err("it fails");
        assert_eq!(
            (error.category, error.attempts),
            (expected, if code.kind() == Kind::Transient { 4 } else { 1 }),
            "{code}"
        );
    }
}

fn sorted(text: &str) -> String {
    json_of(text.as_bytes()).to_string()
}
