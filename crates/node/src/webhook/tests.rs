//! Published examples of every scheme, calls that must not be believed, and what becomes of those that are.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use redrive_core::book::connectors::built_in;
use redrive_core::event::Event;
use redrive_core::event::attribute::{ContentType, Text};

use super::*;

/// The source `s` of a book with that webhook and those further lines.
fn hook(webhook: &str, more: &str) -> WebhookSource {
    let text = format!(
        "version: 1\nsecrets: {{ k: {{ env: K }} }}\nsources:\n  s:\n    webhook: {{ {webhook}, secret: k }}\n{more}"
    );
    let reading = redrive_core::book::read(&text, built_in());
    let book = reading.book.unwrap_or_else(|| panic!("{text}\n{:?}", reading.problems));
    WebhookSource::new("s", &book.sections().sources["s"].value).expect("a webhook")
}

fn plain(webhook: &str) -> WebhookSource {
    hook(webhook, "    type: a.b\n")
}

/// Headers in their order, written as `name: value`; one that comes twice is there twice.
fn headers(lines: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").expect("a header");
        let name: HeaderName = name.parse().expect("a name");
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
    }
    headers
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

const GITHUB_SECRET: &[u8] = b"It's a Secret to Everybody";
const GITHUB_SIGNATURE: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
const STANDARD_SECRET: &[u8] = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const STANDARD_ID: &str = "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek";
const STANDARD_AT: &str = "webhook-timestamp: 1614265330";
const STANDARD_BODY: &[u8] = br#"{"test": 2432232314}"#;
const STANDARD_SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
const SLACK_BODY: &[u8] = b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
const SLACK_SIGNATURE: &str = "a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
const FOX: &[u8] = b"The quick brown fox jumps over the lazy dog";

/// What it is called, the webhook, the secret, the headers, the body, and when it was signed.
type Example<'a> = (&'a str, &'a str, &'a [u8], &'a [&'a str], &'a [u8], u64);

#[test]
fn examples_that_others_have_published_are_good() {
    let github = format!("x-hub-signature-256: sha256={GITHUB_SIGNATURE}");
    let standard = format!("webhook-signature: {STANDARD_SIGNATURE}");
    let slack = format!("x-slack-signature: v0={SLACK_SIGNATURE}");
    let sha1 = "x-signature: de7c9b85b8b78aa6bc8a7a36f70a90701c9db4d9";
    let sha512 = "x-sum: hmac=b42af09057bac1e2d41708e48a902e09b5ff7f12ab428a4fe86653c73dd248fb82f948a549f7b791a5b41915ee4d1ec3935357e4e2317250d0372afa2ebeeb3a";
    let base64 = "x-signature: 97yD9DBThCSxMpjmqm+xQ+9NWaFJRhdZl0edvC0aPNg=";
    #[rustfmt::skip]
    let cases: [Example<'_>; 6] = [
        ("GitHub's own",            "scheme: github",            GITHUB_SECRET,   &[&github],                             b"Hello, World!", 0),
        ("that of the standard",    "scheme: standard-webhooks", STANDARD_SECRET, &[STANDARD_ID, STANDARD_AT, &standard], STANDARD_BODY,    1_614_265_330),
        ("Slack's own",             "scheme: slack",             b"8f742231b10e8888abcd99yyyzzz85a5", &["x-slack-request-timestamp: 1531420618", &slack], SLACK_BODY, 1_531_420_618),
        ("the fox by SHA-1",        "scheme: hmac, algorithm: sha1",   b"key",    &[sha1],                                FOX,              0),
        ("the fox by SHA-512",      "scheme: hmac, algorithm: sha512, header: X-Sum, prefix: hmac=", b"key", &[sha512],   FOX,              0),
        ("the fox in base64",       "scheme: hmac, encoding: base64",  b"key",    &[base64],                              FOX,              0),
    ];
    for (name, webhook, secret, lines, body, now) in cases {
        let hook = plain(webhook);
        assert_eq!(hook.verify(&[secret], &headers(lines), body, at(now)), Ok(()), "{name}");
        assert_eq!(
            hook.verify(&[b"new", secret], &headers(lines), body, at(now)),
            Ok(()),
            "{name}, in a rotation"
        );
        let other = hook.verify(&[b"other"], &headers(lines), body, at(now));
        assert_eq!(other, Err(SignatureError::Bad), "{name}, by another secret");
        assert_eq!(
            hook.verify(&[], &headers(lines), body, at(now)),
            Err(SignatureError::NoKey),
            "{name}, by none"
        );
    }
}

#[test]
fn what_is_signed_otherwise_is_not_believed() {
    let good = GITHUB_SIGNATURE;
    let upper = good.to_uppercase();
    let line = |value: &str| format!("x-hub-signature-256: {value}");
    #[rustfmt::skip]
    let cases: [(&str, Vec<String>, Result<(), SignatureError>); 13] = [
        ("as it should be",          vec![line(&format!("sha256={good}"))],                               Ok(())),
        ("in capital digits",        vec![line(&format!("sha256={upper}"))],                              Ok(())),
        ("not signed",               vec![],                                                              Err(SignatureError::Missing)),
        ("an empty header",          vec![line("")],                                                      Err(SignatureError::Missing)),
        ("the old header",           vec![format!("x-hub-signature: sha1={good}")],                       Err(SignatureError::Missing)),
        ("twice the same",           vec![line(&format!("sha256={good}")); 2],                            Err(SignatureError::Malformed)),
        ("a bad one beside it",      vec![line("sha256=00"), line(&format!("sha256={good}"))],            Err(SignatureError::Malformed)),
        ("no prefix",                vec![line(good)],                                                    Err(SignatureError::Malformed)),
        ("no digits",                vec![line("sha256=")],                                               Err(SignatureError::Bad)),
        ("half a digit",             vec![line(&format!("sha256={}", &good[1..]))],                       Err(SignatureError::Malformed)),
        ("a byte short",             vec![line(&format!("sha256={}", &good[2..]))],                       Err(SignatureError::Bad)),
        ("a byte more",              vec![line(&format!("sha256={good}00"))],                             Err(SignatureError::Bad)),
        ("other letters",            vec![line(&format!("sha256={}", good.replace('a', "g")))],           Err(SignatureError::Malformed)),
    ];
    let hook = plain("scheme: github");
    for (name, lines, expected) in cases {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let verdict = hook.verify(&[GITHUB_SECRET], &headers(&lines), b"Hello, World!", at(0));
        assert_eq!(verdict, expected, "{name}");
    }
}

#[test]
fn a_signed_time_must_be_near() {
    let standard = format!("webhook-signature: v1,AAAA v1a,xyz {STANDARD_SIGNATURE}");
    let lines = [STANDARD_ID, STANDARD_AT, standard.as_str()];
    let signed = 1_614_265_330;
    #[rustfmt::skip]
    let cases = [
        ("at once",                      "",                 signed,          Ok(())),
        ("five minutes later",           "",                 signed + 300,    Ok(())),
        ("a second more",                "",                 signed + 301,    Err(SignatureError::TooOld)),
        ("five minutes before",          "",                 signed - 300,    Ok(())),
        ("a second more before",         "",                 signed - 301,    Err(SignatureError::TooNew)),
        ("as the book says",             ", tolerance: 10s", signed + 11,     Err(SignatureError::TooOld)),
        ("longer, as the book says",     ", tolerance: 1h",  signed + 3_000,  Ok(())),
    ];
    for (name, tolerance, now, expected) in cases {
        let hook = plain(&format!("scheme: standard-webhooks{tolerance}"));
        assert_eq!(
            hook.verify(&[STANDARD_SECRET], &headers(&lines), STANDARD_BODY, at(now)),
            expected,
            "{name}"
        );
    }
}

#[test]
fn odd_times_and_lists_are_refused() {
    let stripe = |value: &str| vec![format!("stripe-signature: {value}")];
    let many = format!("t=1{}", ",v1=00".repeat(17));
    let standard = |id: &str, time: &str, signature: &str| {
        vec![
            format!("webhook-id: {id}"),
            format!("webhook-timestamp: {time}"),
            format!("webhook-signature: {signature}"),
        ]
    };
    #[rustfmt::skip]
    let cases: [(&str, &str, Vec<String>, SignatureError); 13] = [
        ("no time",                   "stripe", stripe("v1=00"),                              SignatureError::Malformed),
        ("two times",                 "stripe", stripe("t=1,t=2,v1=00"),                      SignatureError::Malformed),
        ("a time with a sign",        "stripe", stripe("t=+1,v1=00"),                         SignatureError::Malformed),
        ("a time below nought",       "stripe", stripe("t=-1,v1=00"),                         SignatureError::Malformed),
        ("a time beyond all numbers", "stripe", stripe("t=99999999999999999999999,v1=00"),    SignatureError::Malformed),
        ("no signature",              "stripe", stripe("t=1"),                                SignatureError::Malformed),
        ("of tests only",             "stripe", stripe("t=1,v0=00"),                          SignatureError::Malformed),
        ("too many",                  "stripe", stripe(&many),                                SignatureError::Malformed),
        ("no time at all",            "slack",  vec!["x-slack-signature: v0=00".to_owned()],  SignatureError::Missing),
        ("another version",           "slack",  vec!["x-slack-signature: v1=00".to_owned(), "x-slack-request-timestamp: 1".to_owned()], SignatureError::Malformed),
        ("a time that is none",       "standard-webhooks", standard("a", "now", STANDARD_SIGNATURE), SignatureError::Malformed),
        ("no base64",                 "standard-webhooks", standard("a", "1", "v1,?"),        SignatureError::Malformed),
        ("no id",                     "standard-webhooks", standard("", "1", "v1,AAAA"),      SignatureError::Missing),
    ];
    for (name, scheme, lines, expected) in cases {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let hook = plain(&format!("scheme: {scheme}"));
        assert_eq!(hook.verify(&[b"k"], &headers(&lines), b"{}", at(1)), Err(expected), "{name}");
    }
    let unusable = plain("scheme: standard-webhooks").verify(
        &[b"whsec_?"],
        &headers(&[STANDARD_ID, STANDARD_AT, "webhook-signature: v1,AAAA"]),
        b"",
        at(1),
    );
    assert_eq!(unusable, Err(SignatureError::NoKey), "a secret that is no base64");
}

const SCHEMES: [&str; 5] = [
    "scheme: github",
    "scheme: standard-webhooks",
    "scheme: stripe",
    "scheme: slack",
    "scheme: hmac, prefix: sha256=, header: x-sum, encoding: base64",
];

/// Which part of a call is altered.
#[derive(Clone, Copy, Debug)]
enum Part {
    Body,
    Header(usize),
}

proptest! {
    #[test]
    fn no_altered_byte_of_what_is_signed_or_of_the_signature_passes(
        scheme in 0..SCHEMES.len(),
        body in proptest::collection::vec(any::<u8>(), 1..64),
        part in 0..4_usize,
        place in any::<prop::sample::Index>(),
        byte in 0x21..0x7f_u8,
    ) {
        let hook = plain(SCHEMES[scheme]);
        let now = at(1_700_000_000);
        let signed = hook.sign(b"k", &body, "msg_1", now).expect("a key");
        // What GitHub sends beside its signature is not signed.
        let signed: Vec<_> = signed.into_iter().filter(|(name, _)| !name.starts_with("x-github")).collect();
        let lines = |signed: &[(String, String)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in signed {
                let name: HeaderName = name.parse().expect("a name");
                headers.insert(name, HeaderValue::from_str(value).expect("a value"));
            }
            headers
        };
        prop_assert_eq!(hook.verify(&[b"k"], &lines(&signed), &body, now), Ok(()));

        let part = if part == 0 { Part::Body } else { Part::Header((part - 1) % signed.len()) };
        let (mut altered, mut other) = (signed.clone(), body.clone());
        let is_same = match part {
            Part::Body => {
                let place = place.index(other.len());
                other[place] = byte;
                other == body
            }
            Part::Header(index) => {
                let mut bytes = altered[index].1.clone().into_bytes();
                let place = place.index(bytes.len());
                bytes[place] = byte;
                altered[index].1 = String::from_utf8(bytes).expect("ASCII");
                // Hexadecimal digits mean the same in either case.
                altered[index].1.eq_ignore_ascii_case(&signed[index].1) && !SCHEMES[scheme].contains("base64")
                    || altered[index].1 == signed[index].1
            }
        };
        let verdict = hook.verify(&[b"k"], &lines(&altered), &other, now);
        // A capital letter in a prefix is another prefix, which is refused and may well be.
        prop_assert!(is_same || verdict.is_err(), "{part:?}: {altered:?}");
    }
}

/// What a call becomes, with its headers and its body.
fn read(hook: &WebhookSource, lines: &[&str], body: &str) -> Result<WebhookOutcome, MalformedInput> {
    let body = Bytes::copy_from_slice(body.as_bytes());
    hook.read(WebhookCall { headers: &headers(lines), body: &body, correlation_id: "c-1", now: at(100) })
}

#[track_caller]
fn event(hook: &WebhookSource, lines: &[&str], body: &str) -> Event {
    match read(hook, lines, body) {
        Ok(WebhookOutcome::Event(event)) => *event,
        other => panic!("{other:?}"),
    }
}

/// What it is called, the webhook, the further lines of its source, the headers, the body, and what is
/// expected.
type Case<'a> = (&'a str, &'a str, &'a str, &'a [&'a str], &'a str, &'a str);

const GITHUB_MORE: &str = "    type: \"github.{header.x-github-event}.{data.action}\"
    subject: \"{data.repository.full_name}\"
    session: \"{data.repository.full_name}#{data.pull_request.number|data.issue.number}\"
";

#[test]
fn a_github_call_becomes_an_event() {
    let hook = hook("scheme: github", GITHUB_MORE);
    let body = r#"{"action":"opened","repository":{"full_name":"octo/hello"},"issue":{"number":7}}"#;
    let lines = [
        "x-github-event: issues",
        "x-github-delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "content-type: application/json",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate: a=1",
    ];
    let issue = event(&hook, &lines, body);
    assert_eq!(issue.id.as_str(), "72d3162e-cc78-11e3-81ab-4c9367dc0958");
    assert_eq!(issue.source.as_str(), "/v1/hooks/s");
    assert_eq!(issue.event_type.as_str(), "github.issues.opened");
    assert_eq!(issue.subject.as_ref().map(Text::as_str), Some("octo/hello"));
    assert_eq!(issue.session.as_ref().map(Text::as_str), Some("octo/hello#7"));
    assert_eq!(issue.content_type.as_ref().map(ContentType::as_str), Some("application/json"));
    assert_eq!(issue.correlation_id.as_ref().map(Text::as_str), Some("c-1"));
    assert!(issue.traceparent.is_some() && issue.extensions.len() == 1);
    assert_eq!((issue.time, &issue.data[..]), (Some(at(100)), body.as_bytes()));

    let ping = event(&hook, &["x-github-event: ping", "x-github-delivery: d"], "{\"zen\":\"…\"}");
    assert_eq!((ping.event_type.as_str(), ping.session), ("github.ping", None));
}

#[test]
fn events_are_known_by_what_tells_a_repetition() {
    let standard = ["webhook-id: msg_1", "webhook-timestamp: 50", "webhook-signature: v1,AAAA"];
    let own = "    type: a\n    id: \"{data.n}\"\n";
    let plain = "    type: a\n";
    #[rustfmt::skip]
    let cases: [Case<'_>; 9] = [
        ("by its header",              "scheme: github", plain,            &["x-github-event: ping", "x-github-delivery: d"], "",  "d"),
        ("by its header",              "scheme: standard-webhooks", plain, &standard,  "",                     "msg_1"),
        ("by its body",                "scheme: stripe", plain,            &[],        r#"{"id":"evt_1"}"#,    "evt_1"),
        ("by its body",                "scheme: slack", plain,             &[],        r#"{"event_id":"Ev1"}"#, "Ev1"),
        ("by all that was signed",     "scheme: hmac", plain,              &[],        "abcdefgh",             "sha256:9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab"),
        ("by the book's own",          "scheme: hmac", own,                &[],        r#"{"n":7}"#,           "7"),
        ("by the book before GitHub",  "scheme: github", own,              &["x-github-event: ping", "x-github-delivery: d"], r#"{"n":7}"#, "7"),
        ("by GitHub where that fails", "scheme: github", own,              &["x-github-event: ping", "x-github-delivery: d"], "{}",         "d"),
        ("by the sum where there is none", "scheme: stripe", plain,        &[],        "[]",                   "sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"),
    ];
    for (name, webhook, more, lines, body, expected) in cases {
        assert_eq!(event(&hook(webhook, more), lines, body).id.as_str(), expected, "{name}: {webhook}");
    }
    let signed_at = event(&hook("scheme: standard-webhooks", plain), &standard, "").time;
    assert_eq!(signed_at, Some(at(50)), "the time that was signed");
}

#[test]
fn calls_that_are_no_events_say_what_is_missing() {
    let long = format!("{{\"n\":\"{}\"}}", "x".repeat(600));
    let github = ["x-github-event: push", "x-github-delivery: d"];
    let form = [
        "x-github-event: push",
        "x-github-delivery: d",
        "content-type: application/x-www-form-urlencoded; charset=utf-8",
    ];
    let session = "    type: a\n    session: \"{data.n}\"\n";
    #[rustfmt::skip]
    let cases: [Case<'_>; 11] = [
        ("no event",         "scheme: github", GITHUB_MORE, &github[1..],                          "{}", "`x-github-event` is missing"),
        ("no delivery",      "scheme: github", GITHUB_MORE, &github[..1],                          "{}", "`x-github-delivery` is missing"),
        ("two deliveries",   "scheme: github", GITHUB_MORE, &[github[0], github[1], github[1]],    "{}", "`x-github-delivery` is given twice"),
        ("a form",           "scheme: github", GITHUB_MORE, &form,                                 "payload=%7B%7D", "`content-type` is a form: choose `application/json` in the webhook's settings"),
        ("no JSON",          "scheme: github", GITHUB_MORE, &github,                               "{", "`body` is not valid JSON: EOF while parsing an object at line 1 column 1"),
        ("nothing",          "scheme: github", GITHUB_MORE, &github,                               "", "`body` is not valid JSON: EOF while parsing a value at line 1 column 0"),
        ("no type",          "scheme: hmac", "    type: \"{data.kind}\"\n", &[],                   "{}", "`type` has no value in this request: check the template of this source"),
        ("a long session",   "scheme: hmac", session, &[],                                         &long, "`session` is 600 bytes long: the maximum is 512"),
        ("an odd session",   "scheme: hmac", session, &[],                                         r#"{"n":"a\nb"}"#, "`session` contains '\\n': control characters and noncharacters are not allowed"),
        ("a long type",      "scheme: hmac", "    type: \"{data.n}\"\n", &[],                      &long, "`type` cannot be routed: it is 600 bytes long, the maximum is 256"),
        ("an odd type of content", "scheme: hmac", session, &["content-type: a/b", "content-type: a/c"], "{}", "`content-type` is given twice"),
    ];
    for (name, webhook, more, lines, body, expected) in cases {
        let refusal = read(&hook(webhook, more), lines, body).expect_err(name);
        assert_eq!(refusal.to_string(), expected, "{name}");
    }
}

#[test]
fn slack_sees_its_challenge_again_and_nobody_else_does() {
    let body = r#"{"type":"url_verification","challenge":"3eZbrw1aB"}"#;
    assert_eq!(
        read(&plain("scheme: slack"), &[], body),
        Ok(WebhookOutcome::Challenge("3eZbrw1aB".to_owned()))
    );
    assert!(matches!(read(&plain("scheme: hmac"), &[], body), Ok(WebhookOutcome::Event(_))));
    let lines = r#"{"type":"url_verification","challenge":"HTTP/1.1 400 Bad Request\r\n\r\n"}"#;
    assert!(
        !matches!(read(&plain("scheme: slack"), &[], lines), Ok(WebhookOutcome::Challenge(_))),
        "no lines of its own"
    );
    let event = r#"{"type":"event_callback","challenge":"x","event_id":"Ev1"}"#;
    assert!(matches!(read(&plain("scheme: slack"), &[], event), Ok(WebhookOutcome::Event(_))));
}

#[test]
fn events_within_calls_are_called_json() {
    let cloud = ["content-type: application/cloudevents+json; charset=utf-8"];
    let event = event(&plain("scheme: hmac"), &cloud, "{}");
    assert_eq!(event.content_type.as_ref().map(ContentType::as_str), Some("application/json"));
}

#[test]
fn headers_that_tell_a_secret_are_known() {
    let hook = plain("scheme: hmac, header: X-Sum");
    let is_secret = |name: &'static str| hook.is_secret_header(&HeaderName::from_static(name));
    for name in ["authorization", "cookie", "x-sum", "x-hub-signature", "x-gitlab-token", "webhook-signature"]
    {
        assert!(is_secret(name), "{name}");
    }
    for name in ["x-github-event", "content-type", "webhook-id"] {
        assert!(!is_secret(name), "{name}");
    }
}

#[test]
fn counts_outlive_a_change_of_the_book() {
    let book = |source: &str| {
        let text = format!(
            "version: 1\nsecrets: {{ k: {{ env: K }} }}\nsources:\n  {source}:\n    webhook: {{ scheme: github, secret: k }}\n    type: a\n"
        );
        std::sync::Arc::new(redrive_core::book::read(&text, built_in()).book.expect("a book"))
    };
    let hooks = WebhookSources::new(&book("a"));
    hooks.get("a").expect("it is there").tally.count(WebhookResponse::Accepted, at(1));
    hooks.prepare(&book("a"))();
    assert_eq!(hooks.counts()[0].1.accepted, 1);
    hooks.prepare(&book("b"))();
    assert!(hooks.get("a").is_none() && hooks.counts()[0].1.accepted == 0);
}
