//! Good tokens and bad ones, over real keys that a real server publishes.

mod issuer;

use std::sync::Mutex;

use proptest::prelude::*;
use redrive_core::book::RuleBook;
use redrive_core::book::connectors::built_in;
use serde_json::json;
use tokio::time::{advance, pause, resume};

use self::issuer::{KeyServer, Signer, decoded, encoded};
use super::*;
use crate::connectors::Drivers;
use crate::tls::Roots;

/// When it is, in seconds since 1970.
const NOW: u64 = 1_761_057_000;

fn now() -> Timestamp {
    Timestamp::from_millis(NOW * 1_000)
}

fn book(keys: &str) -> Arc<RuleBook> {
    let text = format!(
        "version: 1\nsecrets: {{ shared: {{ env: UNSET }} }}\naccess: {{ jwt: {{ {keys}, issuer: \"https://id.test\", audience: redrive }} }}\n"
    );
    let reading = redrive_core::book::read(&text, built_in());
    Arc::new(reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems)))
}

fn rules(keys: &str) -> Jwt {
    book(keys).sections().access.jwt.clone().expect("the book has it")
}

/// Who reads tokens of an issuer with published keys.
fn reader(server: &KeyServer) -> Tokens {
    let pool = Arc::new(Pool::new(Roots::Only(Vec::new())));
    Tokens::new(&rules(&format!("jwks: \"{}\"", server.url())), Secrets::default(), pool).expect("an address")
}

/// Who reads tokens that are signed with what stands in a file, and the file.
fn shared_reader(secret: &[u8]) -> (Tokens, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), secret).expect("written");
    let text = format!("version: 1\nsecrets: {{ shared: {{ file: \"{}\" }} }}\n", file.path().display());
    let book = Arc::new(redrive_core::book::read(&text, built_in()).book.expect("a book"));
    let secrets = Secrets::new(&book, Drivers::built_in());
    let pool = Arc::new(Pool::new(Roots::Only(Vec::new())));
    (Tokens::new(&rules("secret: shared"), secrets, pool).expect("no address is needed"), file)
}

fn claims() -> Value {
    json!({ "iss": "https://id.test", "aud": "redrive", "sub": "ann", "exp": NOW + 60, "role": "operator" })
}

/// The claims with some of them changed; null takes one away.
fn but(changes: &Value) -> Value {
    let mut claims = claims();
    let all = claims.as_object_mut().expect("an object");
    for (name, value) in changes.as_object().expect("an object") {
        if value.is_null() {
            all.remove(name)
        } else {
            all.insert(name.clone(), value.clone())
        };
    }
    claims
}

fn told(result: Result<Claims, TokenError>) -> String {
    match result {
        Ok(Claims { subject, roles, .. }) => format!("{subject} {roles:?}"),
        Err(error) => error.to_string(),
    }
}

/// Lets that time pass, with the world outside as it is.
async fn wait(span: Duration) {
    pause();
    advance(span).await;
    resume();
}

#[tokio::test]
async fn what_a_token_says_is_held_against_the_rules() {
    let (reader, _file) = shared_reader(b"a secret that both know, of some length");
    let signer = Signer::shared(b"a secret that both know, of some length");
    let long = "x".repeat(257);
    #[rustfmt::skip]
    let cases = [
        ("all that is needed",       json!({}),                                   "ann [Operator]"),
        ("another issuer",           json!({ "iss": "https://id.test/" }),        "token has another issuer"),
        ("no issuer",                json!({ "iss": null }),                      "token has another issuer"),
        ("two issuers",              json!({ "iss": ["https://id.test"] }),       "token has another issuer"),
        ("another audience",         json!({ "aud": "redrive2" }),                "token has another audience"),
        ("no audience",              json!({ "aud": null }),                      "token has another audience"),
        ("one of several",           json!({ "aud": ["shop", "redrive"] }),       "ann [Operator]"),
        ("none of several",          json!({ "aud": ["shop", 7] }),               "token has another audience"),
        ("no end",                   json!({ "exp": null }),                      "the token has no usable claim `exp`"),
        ("an end in words",          json!({ "exp": "never" }),                   "the token has no usable claim `exp`"),
        ("an end before time",       json!({ "exp": -1 }),                        "the token has no usable claim `exp`"),
        ("an end after time",        json!({ "exp": 1e300 }),                     "the token has no usable claim `exp`"),
        ("the end of numbers",       json!({ "exp": u64::MAX }),                  "ann [Operator]"),
        ("over",                     json!({ "exp": NOW }),                       "the token has expired"),
        ("nearly over",              json!({ "exp": NOW + 1 }),                   "ann [Operator]"),
        ("over, in parts",           json!({ "exp": NOW as f64 + 0.5 }),          "the token has expired"),
        ("begins in a minute",       json!({ "nbf": NOW + 60, "iat": NOW + 60 }), "ann [Operator]"),
        ("begins later",             json!({ "nbf": NOW + 61 }),                  "the token is not valid yet"),
        ("of the future",            json!({ "iat": NOW + 61 }),                  "the token is not valid yet"),
        ("begins at nonsense",       json!({ "nbf": true }),                      "the token has no usable claim `nbf`"),
        ("nobody",                   json!({ "sub": null }),                      "the token has no usable claim `sub`"),
        ("somebody without a name",  json!({ "sub": "" }),                        "the token has no usable claim `sub`"),
        ("a name that never ends",   json!({ "sub": long }),                      "the token has no usable claim `sub`"),
        ("a name with orders",       json!({ "sub": "ann\u{1b}[2J" }),            "the token has no usable claim `sub`"),
        ("no role",                  json!({ "role": null }),                     "ann []"),
        ("a role nobody knows",      json!({ "role": "root" }),                   "ann []"),
        ("a role in capitals",       json!({ "role": "Admin" }),                  "ann []"),
        ("several roles",            json!({ "role": ["viewer", "root", "ingest", "viewer", 7] }), "ann [Ingest, Viewer]"),
        ("a role within",            json!({ "role": { "name": "admin" } }),      "ann []"),
    ];
    for (name, changes, expected) in cases {
        let token = signer.token("any", &but(&changes));
        assert_eq!(told(reader.verify(&token, now()).await), expected, "{name}");
    }
    let good = reader.verify(&signer.token("any", &claims()), now()).await.expect("a good token");
    assert_eq!(good.expires_at, Timestamp::from_millis((NOW + 60) * 1_000));
}

#[tokio::test]
async fn only_signed_tokens_by_the_expected_algorithm_are_read() {
    let (rsa, p256) = (Signer::rsa(), Signer::p256());
    let server = KeyServer::start(&[rsa.public("r"), p256.public("e")]).await;
    let published = reader(&server);
    let (shared, _file) = shared_reader(b"hunter2");
    let hs = Signer::shared(b"hunter2");
    let header = |alg: &str, kid: &str| json!({ "alg": alg, "kid": kid });
    let unsigned =
        |alg: &str| format!("{}.{}.", encoded(header(alg, "r").to_string()), encoded(claims().to_string()));
    let good = "ann [Operator]";
    let (algorithm, signature) = ("token has an unexpected algorithm", "token signature does not match");
    let (malformed, unknown) =
        ("the token is not a signed JWT", "the token is signed with a key that the issuer does not publish");
    // The public key in the forms in which somebody may have taken it for a secret.
    let as_secret = rsa.public("r").to_string();
    let modulus = rsa.public("r")["n"].as_str().expect("a text").to_owned();
    let signed = rsa.token("r", &claims());
    let critical = rsa.token_of(&json!({ "alg": "RS256", "kid": "r", "crit": ["exp"] }), &claims());
    let brings_key = Signer::p256();
    let brought = brings_key.public("own");
    let large = rsa.token("r", &but(&json!({ "more": "x".repeat(16 * 1024) })));
    #[rustfmt::skip]
    let cases = [
        ("RS256",                         &published, signed.clone(),                                        good),
        ("ES256",                         &published, p256.token("e", &claims()),                            good),
        ("HS256",                         &shared,    hs.token("any", &claims()),                            good),
        ("none",                          &published, unsigned("none"),                                      algorithm),
        ("none, oddly written",           &published, unsigned("nOnE"),                                      algorithm),
        ("none, with a secret",           &shared,    unsigned("none"),                                      algorithm),
        ("an empty signature",            &published, unsigned("RS256"),                                     signature),
        ("an empty one with a secret",    &shared,    unsigned("HS256"),                                     signature),
        ("a published key as a secret",   &published, Signer::shared(as_secret.as_bytes()).token("r", &claims()), algorithm),
        ("its number as a secret",        &published, Signer::shared(&decoded(&modulus)).token("r", &claims()),   algorithm),
        ("RS256 where there is a secret", &shared,    signed.clone(),                                        algorithm),
        ("a longer hash",                 &published, rsa.token_of(&header("RS512", "r"), &claims()),        algorithm),
        ("the algorithm of another key",  &published, rsa.token_of(&header("ES256", "e"), &claims()),        signature),
        ("another algorithm of the key",  &published, rsa.token_of(&header("ES256", "r"), &claims()),        unknown),
        ("the name of another key",       &published, p256.token("r", &claims()),                            unknown),
        ("a key nobody knows",            &published, Signer::p256().token("x", &claims()),                  unknown),
        ("somebody else's key",           &published, Signer::p256().token("e", &claims()),                  signature),
        ("no name, and one key for it",   &published, rsa.token_of(&json!({ "alg": "RS256" }), &claims()),   good),
        ("a key that it brings along",    &published, brings_key.token_of(&json!({ "alg": "ES256", "kid": "e", "jwk": brought }), &claims()), signature),
        ("critical headers",              &published, critical,                                              "the token has critical headers"),
        ("no algorithm",                  &published, rsa.token_of(&json!({ "kid": "r" }), &claims()),       malformed),
        ("a header that is a list",       &published, rsa.token_of(&json!([]), &claims()),                   malformed),
        ("claims that are a list",        &published, rsa.token("r", &json!([])),                            malformed),
        ("two parts",                     &published, signed.rsplit_once('.').expect("dots").0.to_owned(),   malformed),
        ("four parts",                    &published, format!("{signed}."),                                  malformed),
        ("a space before",                &published, format!(" {signed}"),                                  malformed),
        ("filled up",                     &published, format!("{signed}="),                                  malformed),
        ("nothing",                       &published, String::new(),                                         malformed),
        ("too much",                      &published, large,                                                 "the token is larger than 16 KiB"),
    ];
    for (name, reader, token, expected) in cases {
        assert_eq!(told(reader.verify(&token, now()).await), expected, "{name}");
    }
    assert_eq!(server.asked(), 1, "whatever came, the keys are fetched once in 30 seconds");
}

/// RFC 7515 has tokens for each algorithm in A.1 to A.3. Their claims are not for us, which shows only after
/// their signatures were found to fit.
#[tokio::test]
async fn published_tokens_fit_their_keys() {
    const CLAIMS: &str =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let es256 = json!({
        "kty": "EC",
        "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    });
    let server = KeyServer::start(&[Signer::rsa().public("r"), es256]).await;
    let published = reader(&server);
    let secret =
        decoded("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow");
    let (shared, _file) = shared_reader(&secret);
    let rs256 = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujG\
        bds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB\
        _eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5A\
        XLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let es256 = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    let hs256 = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    #[rustfmt::skip]
    let cases = [
        ("A.1", &shared,    "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9", hs256),
        ("A.2", &published, "eyJhbGciOiJSUzI1NiJ9",                     rs256),
        ("A.3", &published, "eyJhbGciOiJFUzI1NiJ9",                     es256),
    ];
    for (name, reader, header, signature) in cases {
        let token = format!("{header}.{CLAIMS}.{signature}");
        assert_eq!(told(reader.verify(&token, now()).await), "token has another issuer", "{name}");
        let other = format!("{header}.{CLAIMS}.{}", encoded(vec![7; decoded(signature).len()]));
        assert_eq!(told(reader.verify(&other, now()).await), "token signature does not match", "{name}");
    }
}

#[tokio::test]
async fn keys_serve_through_a_day_of_the_issuers_absence() {
    let key = Signer::p256();
    let server = KeyServer::start(&[key.public("e")]).await;
    let reader = reader(&server);
    let news = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&news);
    reader.listen(move |words| heard.lock().expect("lock is not poisoned").push(words));
    // Long enough for all of it: the times here are those of the keys.
    let token = key.token("e", &but(&json!({ "exp": NOW + 1_000_000 })));
    let verify = async || told(reader.verify(&token, now()).await);
    assert_eq!(verify().await, "ann [Operator]");
    server.answer("503 Service Unavailable", "");
    wait(Duration::from_mins(5)).await;
    assert_eq!(verify().await, "ann [Operator]", "nobody waits for the fetch that fails");
    failed(&reader, "response has status 503").await;
    server.answer("200 OK", "{\"keys\":[]}");
    wait(Duration::from_hours(23)).await;
    assert_eq!(verify().await, "ann [Operator]", "an empty set takes no place");
    failed(&reader, "response has no key for RS256 or ES256").await;
    assert_eq!(server.asked(), 3);
    wait(Duration::from_hours(1)).await;
    let gone = "tokens cannot be verified now: response has no key for RS256 or ES256";
    assert_eq!(verify().await, gone);
    assert!(reader.verify(&token, now()).await.expect_err("it is gone").is_outage());
    server.publish(&[key.public("e")]);
    assert_eq!(verify().await, gone, "a failure is remembered for some seconds");
    wait(Duration::from_secs(5)).await;
    assert_eq!(verify().await, "ann [Operator]");
    let expected = [
        "issuer keys unavailable, tokens are refused: response has no key for RS256 or ES256",
        "issuer keys available again",
    ];
    let news: Vec<String> =
        news.lock().expect("lock is not poisoned").iter().map(ToString::to_string).collect();
    assert_eq!(news, expected, "each is told once");
}

/// Waits until a fetch in the background has failed like that.
async fn failed(reader: &Tokens, why: &str) {
    let TokenKeys::Published(issuer) = &reader.keys else { panic!("it fetches nothing") };
    for _ in 0..20_000 {
        if issuer.failure().is_some_and(|failure| failure == why) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("no fetch failed like that");
}

#[tokio::test]
async fn a_new_key_is_fetched_when_it_is_first_seen_and_not_more_often_than_every_half_minute() {
    let (old, new) = (Signer::p256(), Signer::p256());
    let server = KeyServer::start(&[old.public("old")]).await;
    let reader = reader(&server);
    let unknown = "the token is signed with a key that the issuer does not publish";
    let verify =
        async |signer: &Signer, kid: &str| told(reader.verify(&signer.token(kid, &claims()), now()).await);
    assert_eq!(verify(&old, "old").await, "ann [Operator]");
    server.publish(&[old.public("old"), new.public("new")]);
    assert_eq!(verify(&new, "new").await, unknown, "the keys have just been fetched");
    wait(Duration::from_secs(30)).await;
    assert_eq!(verify(&new, "new").await, "ann [Operator]");
    for kid in ["a", "b", "c"] {
        assert_eq!(verify(&Signer::p256(), kid).await, unknown);
    }
    assert_eq!(server.asked(), 2, "nobody can make us ask more often");
    wait(Duration::from_secs(30)).await;
    server.answer("500 Internal Server Error", "");
    assert_eq!(verify(&Signer::p256(), "d").await, unknown, "the issuer is away: what is known stays");
    assert_eq!(verify(&old, "old").await, "ann [Operator]");
    assert_eq!(server.asked(), 3);
}

#[tokio::test]
async fn an_issuer_that_was_never_reached_is_an_outage_and_says_why() {
    let server = KeyServer::start(&[]).await;
    let token = Signer::p256().token("e", &claims());
    let many = vec![json!({}); 101];
    let large = "x".repeat(1024 * 1024 + 1);
    #[rustfmt::skip]
    let cases = [
        ("another status",   "404 Not Found", String::new(),                         "response has status 404"),
        ("another place",    "302 Found",     String::new(),                         "response has status 302"),
        ("no JSON",          "200 OK",        "<html>".to_owned(),                   "response is not a key set"),
        ("other JSON",       "200 OK",        "{\"keys\":{}}".to_owned(),            "response is not a key set"),
        ("too many",         "200 OK",        json!({ "keys": many }).to_string(),   "response has more than 100 keys"),
        ("too large",        "200 OK",        large,                                 "response is larger than 1048576 bytes"),
        ("no key of use",    "200 OK",        "{\"keys\":[{\"kty\":\"oct\"}]}".to_owned(), "response has no key for RS256 or ES256"),
    ];
    for (name, status, body, expected) in cases {
        server.answer(status, &body);
        let error = reader(&server).verify(&token, now()).await.expect_err(name);
        assert!(error.is_outage(), "{name}");
        assert_eq!(error.to_string(), format!("tokens cannot be verified now: {expected}"), "{name}");
    }
    let shared =
        Tokens::new(&rules("secret: shared"), Secrets::default(), Arc::new(Pool::new(Roots::System)));
    let error = shared.expect("it reads").verify(&Signer::shared(b"x").token("", &claims()), now()).await;
    let error = error.expect_err("there is no secret");
    assert!(error.is_outage());
    assert_eq!(error.to_string(), "tokens cannot be verified now: not defined in the rule book");
}

#[tokio::test]
async fn either_of_two_secrets_is_good_and_a_changed_one_is_used_soon() {
    let (reader, file) = shared_reader(b"new\nold");
    let verify = async |secret: &str| {
        told(reader.verify(&Signer::shared(secret.as_bytes()).token("", &claims()), now()).await)
    };
    assert_eq!(verify("old").await, "ann [Operator]");
    assert_eq!(verify("new").await, "ann [Operator]");
    std::fs::write(file.path(), "newest").expect("written");
    // Later than anybody would put off a fetch, so that a slow look at the file does not matter.
    wait(Duration::from_secs(10)).await;
    assert_eq!(verify("newest").await, "ann [Operator]");
    assert_eq!(verify("old").await, "token signature does not match");
}

#[tokio::test]
async fn rules_tell_whether_a_reader_can_stay() {
    let (reader, _file) = shared_reader(b"hunter2");
    assert!(reader.is_by(&rules("secret: shared")));
    assert!(!reader.is_by(&rules("jwks: \"http://id.test/keys\"")));
    let shown = format!("{reader:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

/// What a changed token came to; every reading is a new one, so that all share nothing but the keys.
fn altered(signer: &Signer, place: usize, change: u8) -> (String, String) {
    let token = signer.token("any", &claims());
    let mut bytes = token.clone().into_bytes();
    let place = place % bytes.len();
    bytes[place] ^= change;
    (token, String::from_utf8_lossy(&bytes).into_owned())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_altered_byte_passes(place in any::<usize>(), change in 1_u8.., which in 0_usize..3) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let signer = match which { 0 => Signer::rsa(), 1 => Signer::p256(), _ => Signer::shared(b"hunter2") };
            let (token, other) = altered(&signer, place, change);
            let verdicts = if let Signer::Shared(_) = signer {
                let (reader, _file) = shared_reader(b"hunter2");
                (told(reader.verify(&token, now()).await), told(reader.verify(&other, now()).await))
            } else {
                let server = KeyServer::start(&[signer.public("any")]).await;
                let reader = reader(&server);
                (told(reader.verify(&token, now()).await), told(reader.verify(&other, now()).await))
            };
            prop_assert_eq!(verdicts.0, "ann [Operator]");
            prop_assert!(!verdicts.1.contains('['), "{} was read as {}", other, verdicts.1);
            Ok(())
        })?;
    }

    #[test]
    fn no_text_upsets_the_reader(text in "\\PC{0,200}|([A-Za-z0-9_-]{0,40}\\.){0,4}[A-Za-z0-9_-]{0,40}") {
        prop_assert!(ParsedToken::parse(&text).is_err() || text.matches('.').count() == 2);
    }
}
