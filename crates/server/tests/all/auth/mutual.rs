//! Client certificates: handshakes with a target that requires one.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::run::Folder;
use crate::server::Server;
use crate::tls::{Authority, target_for};

/// Lets in whom the authority has signed.
pub(super) fn known_to(authority: &Authority) -> Arc<dyn ClientCertVerifier> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    verifier.build().expect("it has a root")
}

#[test]
fn calls_show_the_certificate_of_the_book_and_trust_its_authority() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let url = target_for(&ours.pair("127.0.0.1"), known_to(&ours));
    let unauthorized = "UNAUTHORIZED";
    #[rustfmt::skip]
    let cases = [
        ("right",  "tls: { certificate: cert, key: key, ca: ca }",          "delivered", ""),
        ("wrong",  "tls: { certificate: other-cert, key: other-key, ca: ca }", "dead",   unauthorized),
        ("none",   "tls: { ca: ca }",                                       "dead",      unauthorized),
        ("trust",  "tls: { certificate: cert, key: key, ca: other-ca }",    "dead",      "TLS_FAILURE"),
        ("unsaid", "tls: { certificate: cert, key: key }",                  "dead",      "TLS_FAILURE"),
    ];
    let files = ["cert", "key", "ca", "other-cert", "other-key", "other-ca"];
    let secrets = files.map(|name| format!("{name}: {{ file: {name}.pem }}")).join(", ");
    let mut book = format!("version: 1\nsecrets: {{ {secrets} }}\nservices:\n");
    for (name, tls, ..) in cases {
        book += &format!(
            "  {name}: {{ target: {{ http: \"{url}\", {tls} }}, retry: none, breaker: none, events: [orders.{name}] }}\n"
        );
    }
    let folder = Folder::with("redrive.yaml", &book);
    ours.pair("client").write(&folder);
    folder.write("ca.pem", ours.pem());
    folder.write("other-ca.pem", theirs.pem());
    let other = theirs.pair("client");
    folder.write("other-cert.pem", other.certificate_pem());
    folder.write("other-key.pem", other.key_pem());
    let server = Server::start(&folder);
    for (name, _, state, code) in cases {
        server.accept(&format!("orders.{name}"), name, "");
        let delivery = server.until(name, state);
        assert_eq!(delivery["attempts"], 1, "{name}: {delivery}");
        assert!(delivery.to_string().contains(code), "{name}: {delivery}");
    }

    // Another certificate takes effect with a later call, without a restart.
    folder.write("other-cert.pem", ours_again(&ours, &folder));
    let mut number = 0;
    crate::server::until("the rotated certificate is used", || {
        number += 1;
        let id = format!("again-{number}");
        server.accept("orders.wrong", &id, "");
        crate::server::until("it is over", || {
            let state = server.event(&id)["deliveries"][0]["state"].clone();
            ["dead", "delivered"].contains(&state.as_str().unwrap_or_default()).then_some(state)
        })
        .eq("delivered")
        .then_some(())
    });
    server.stop().assert_calm();
}

/// A good certificate, whose key replaces the other one.
fn ours_again(ours: &Authority, folder: &Folder) -> String {
    let pair = ours.pair("client");
    folder.write("other-key.pem", pair.key_pem());
    pair.certificate_pem()
}

#[test]
fn a_book_whose_certificate_cannot_be_shown_is_refused() {
    let ours = Authority::new("ours");
    let folder = Folder::new();
    ours.pair("client").write(&folder);
    folder.write("other.pem", ours.pair("client").key_pem());
    let book = |tls: &str| {
        format!(
            "version: 1\nsecrets: {{ cert: {{ file: cert.pem }}, key: {{ file: key.pem }}, other: {{ file: other.pem }} }}\nservices: {{ s: {{ target: {{ http: \"https://127.0.0.1:9/\", tls: {tls} }}, events: [a.b] }} }}\n"
        )
    };
    #[rustfmt::skip]
    let cases = [
        ("{ certificate: cert, key: other }", "secret `other` does not match the certificate"),
        ("{ certificate: key, key: key }",    "secret `key` has no certificate: expected -----BEGIN CERTIFICATE-----"),
        ("{ certificate: cert, key: cert }",  "secret `cert` has no private key: expected -----BEGIN PRIVATE KEY-----"),
        ("{ ca: key }",                       "secret `key` has no certificate: expected -----BEGIN CERTIFICATE-----"),
        ("{ certificate: cert }",             "a client certificate needs its key: `key` is missing"),
    ];
    for (tls, words) in cases {
        folder.write("redrive.yaml", book(tls));
        let run = folder.run(&["serve", "--listen", "127.0.0.1:0", "--rules", "redrive.yaml"]);
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(run.code != 0 && said.contains(words), "{tls}: {said}");
    }
}
