//! What is hidden, what is not, and that a planted secret never survives.

use proptest::prelude::*;

use super::*;

#[test]
fn secrets_and_people_are_hidden() {
    #[rustfmt::skip]
    let cases = [
        ("a mail address",        "no such user jane.doe+x@example.com here",          "no such user [email] here"),
        ("one in brackets",       "<jane@mail.example.co.uk>",                         "<[email]>"),
        ("one in a query",        "GET /u?m=jane%40example.com failed",                "GET /u?m=[email] failed"),
        ("letters of others",     "für jürgen@müller.example",                         "für [email]"),
        ("a bearer token",        "got 'Bearer abcDEF123' back",                       "got 'Bearer [secret]' back"),
        ("a header",              "authorization: Bearer abc.def-123, x: 1",           "authorization: [secret]"),
        ("a header in JSON",      r#"{"authorization":"Basic dTpw","n":1}"#,           r#"{"authorization":[secret]","n":1}"#),
        ("a cookie",              "cookie: sid=12; other=34\nnext",                    "cookie: [secret]\nnext"),
        ("a JWT",                 "bad eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0. given",    "bad [secret] given"),
        ("a pair",                "password=hunter2 for db",                           "password=[secret] for db"),
        ("a pair with a space",   "password: hunter2",                                 "password: [secret]"),
        ("a quoted pair",         r#"{"password": "hun ter2", "a": 1}"#,               r#"{"password": [secret], "a": 1}"#),
        ("JSON within JSON",      r#"{\"api_key\":\"k 1\",\"a\":1}"#,                 r#"{\"api_key\":[secret],\"a\":1}"#),
        ("single quotes",         "{'client_secret': 'a b'}",                          "{'client_secret': [secret]}"),
        ("a query",               "https://x.test/a?id=7&access_token=abc&b=2",        "https://x.test/a?id=7&access_token=[secret]&b=2"),
        ("a longer name",         "X-Api-Key: 42",                                     "X-Api-Key: [secret]"),
        ("a user",                "user_id=4711 is unknown",                           "user_id=[secret] is unknown"),
        ("a URL's credentials",   "postgres://app:s3cr3t@db:5432/x",                   "postgres://[secret]@db:5432/x"),
        ("with an at in it",      "https://u:p@ss@h.test/",                            "https://[secret]@h.test/"),
        ("hexadecimal digits",    "key 0123456789abcdef0123456789abcdef",              "key [secret]"),
        ("base64",                "sent dGhpcyBpcyBhIHNlY3JldCE5OTg3NjU0 to it",       "sent [secret] to it"),
        ("a key of ours",         "rk_0123abcd_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "[secret]"),
        ("a key of another",      "sk_live_abcdefgh is revoked",                       "[secret] is revoked"),
        ("a card",                "card 4111 1111 1111 1111 was declined",             "card [number] was declined"),
        ("a card in a row",       "card 5555555555554444.",                            "card [number]."),
        ("an account",            "DE89 3704 0044 0532 0130 00 is closed",             "[number] is closed"),
        ("a telephone",           "call +49 170 1234567 now",                          "call [number] now"),
        ("a private key",         "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nAB==\n-----END RSA PRIVATE KEY-----", "[secret]"),
        ("one that was cut",      "-----BEGIN PRIVATE KEY-----\nMIIE",                 "[secret]"),
    ];
    for (name, text, expected) in cases {
        assert_eq!(redact(text), expected, "{name}");
    }
}

#[test]
fn what_one_needs_to_find_the_cause_stays() {
    #[rustfmt::skip]
    let cases = [
        ("words",            "the target answered 503: service unavailable, try again later"),
        ("an event type",    "orders.placed.v2 has no target"),
        ("a name",           "notification-service-europe-west1-cluster-2 is down"),
        ("a UUID",           "event 018f2f6a-7b1c-7def-8a2b-0123456789ab"),
        ("a receipt",        "receipt 00000000000018f2"),
        ("a fingerprint",    "group 9f86d081884c7d65"),
        ("an address",       "could not connect to http://10.1.2.3:8080/v1/orders?page=2"),
        ("a path",           "/usr/lib/x86_64-linux-gnu/libssl.so.3 is not there"),
        ("a time",           "not before 2026-11-15T21:35:59.123456Z"),
        ("nanoseconds",      "1763242559123456788"),
        ("a version",        "redrive/0.1.0 (linux 6.1.0-18-amd64)"),
        ("a scheme's name",  "no bearer token was sent, and no basic authentication"),
        ("a camel",          "at com.example.PlaceOrderRequestHandlerFactory"),
        ("a media type",     "content-type: application/cloudevents-batch+json"),
        ("nothing",          ""),
    ];
    for (name, text) in cases {
        assert!(matches!(redact(text), Cow::Borrowed(same) if same == text), "{name}: {}", redact(text));
    }
}

#[test]
fn a_secret_that_is_known_is_hidden_however_it_looks() {
    #[rustfmt::skip]
    let cases = [
        ("plain words",    "you said open sesame to me", vec!["open sesame"], "you said [secret] to me"),
        ("more than one",  "ab-cd-ef and gh-ij-kl",      vec!["gh-ij-kl", "ab-cd-ef"], "[secret] and [secret]"),
        ("one in another", "hush-hush-hush",             vec!["hush-hush"], "[secret]-hush"),
        ("too short",      "a cat is a cat",             vec!["cat"], "a cat is a cat"),
        ("none",           "nothing",                    vec![], "nothing"),
    ];
    for (name, text, known, expected) in cases {
        assert_eq!(hide_known(text, known), expected, "{name}");
    }
}

#[test]
fn an_id_stays_but_for_what_gives_itself_away() {
    #[rustfmt::skip]
    let cases = [
        ("a ULID",         "01HF3Z8Q9W4XK2M7N6P5R1S0TV",           "01HF3Z8Q9W4XK2M7N6P5R1S0TV"),
        ("digits",         "0123456789abcdef0123456789abcdef",     "0123456789abcdef0123456789abcdef"),
        ("an address",     "signup-jane@example.com",              "[email]"),
        ("a token",        "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.", "[secret]"),
    ];
    for (name, text, expected) in cases {
        assert_eq!(redact_id(text), expected, "{name}");
    }
}

/// A secret within the words that give it away; what is hidden is the first.
fn planted() -> impl Strategy<Value = (String, String)> {
    let word = "[A-Za-z0-9]{8,40}";
    let name = prop::sample::select(vec![
        "password",
        "token",
        "secret",
        "api_key",
        "apikey",
        "X-Api-Key",
        "client_secret",
        "access_token",
        "db.password",
        "Signature",
        "passwd",
    ]);
    let pair =
        (name, word, prop::sample::select(vec!["=", ": ", ":", " = ", "\":\"", "\": \"", "\\\":\\\""]));
    prop_oneof![
        pair.prop_map(|(name, word, between)| (word.clone(), format!("{name}{between}{word}"))),
        word.prop_map(|word| (word.clone(), format!("https://app:{word}@db.test/path"))),
        word.prop_map(|word| (word.clone(), format!("authorization: Bearer {word}"))),
        word.prop_map(|word| (word.clone(), format!("https://h.test/a?x=1&token={word}&y=2"))),
        "[a-z]{3,12}\\.[a-z]{2,9}@[a-z]{3,12}\\.(com|test)".prop_map(|mail| (mail.clone(), mail)),
        "[0-9a-f]{32,64}".prop_map(|hex| (hex.clone(), hex)),
    ]
}

proptest! {
    #[test]
    fn a_planted_secret_never_survives(
        before in "[ a-zA-Z0-9.,:{}\"']{0,40}",
        (secret, text) in planted(),
        after in "[ ,;\"'}\n]([ a-zA-Z0-9.,{}\"']{0,40})",
    ) {
        let told = format!("{before} {text}{after}");
        let redacted = redact(&told);
        // What stood there before by chance is nobody's secret.
        prop_assume!(!before.contains(&secret) && !after.contains(&secret));
        prop_assert!(!redacted.contains(&secret), "{told:?} became {redacted:?}");
    }

    #[test]
    fn what_is_hidden_once_is_hidden_for_good(text in "\\PC{0,120}") {
        let once = redact(&text).into_owned();
        prop_assert_eq!(redact(&once), once.as_str());
    }

    #[test]
    fn any_secret_that_is_known_is_hidden(secret in "[^\\[\\]]{4,40}", before in "\\PC{0,40}", after in "\\PC{0,40}") {
        let told = format!("{before}{secret}{after}");
        let hidden = hide_known(&told, [secret.as_str()]);
        // A bit of what stands for secrets may be a secret by chance.
        prop_assume!(!SECRET.contains(secret.as_str()));
        prop_assert!(!hidden.contains(secret.as_str()), "{told:?} became {hidden:?}");
    }
}
