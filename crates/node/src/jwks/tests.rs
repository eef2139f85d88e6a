//! Sets of keys, as issuers write them.

use serde_json::{Value, json};

use super::*;

fn rsa_key(changes: &Value) -> Value {
    changed(json!({ "kty": "RSA", "kid": "a", "n": encoded(&[0xff; 256]), "e": "AQAB" }), changes)
}

fn ec_key(changes: &Value) -> Value {
    let coordinate = encoded(&[7; 32]);
    changed(json!({ "kty": "EC", "kid": "a", "crv": "P-256", "x": coordinate, "y": coordinate }), changes)
}

fn changed(mut key: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().expect("an object") {
        key[name] = value.clone();
    }
    key
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The algorithms of the keys that were taken, or why none was.
fn taken(set: &Value) -> Result<Vec<KeyAlgorithm>, String> {
    let set = KeySet::parse(set.to_string().as_bytes()).map_err(|error| error.to_string())?;
    Ok(set.keys.iter().map(PublicKey::algorithm).collect())
}

#[test]
fn keys_are_taken_if_they_are_fit_to_check_a_token() {
    const RS: Option<KeyAlgorithm> = Some(KeyAlgorithm::Rs256);
    const ES: Option<KeyAlgorithm> = Some(KeyAlgorithm::Es256);
    let padded = encoded(&[[0].as_slice(), &[0xff; 256]].concat());
    #[rustfmt::skip]
    let cases = [
        ("RSA",                          rsa_key(&json!({})),                              RS),
        ("RSA for RS256",                rsa_key(&json!({ "alg": "RS256", "use": "sig" })), RS),
        ("RSA for another algorithm",    rsa_key(&json!({ "alg": "PS256" })),              None),
        ("RSA for encryption",           rsa_key(&json!({ "use": "enc" })),                None),
        ("RSA that only signs",          rsa_key(&json!({ "key_ops": ["sign"] })),         None),
        ("RSA that verifies",            rsa_key(&json!({ "key_ops": ["verify"] })),       RS),
        ("RSA with a nought before",     rsa_key(&json!({ "n": padded })),                 RS),
        ("RSA of 1024 bits",             rsa_key(&json!({ "n": encoded(&[0xff; 128]) })),  None),
        ("RSA of 8192 bits",             rsa_key(&json!({ "n": encoded(&[0xff; 1024]) })), RS),
        ("RSA of more",                  rsa_key(&json!({ "n": encoded(&[0xff; 1025]) })), None),
        ("RSA of nought",                rsa_key(&json!({ "n": encoded(&[0; 256]) })),     None),
        ("RSA with a huge exponent",     rsa_key(&json!({ "e": encoded(&[0xff; 5]) })),    None),
        ("RSA without an exponent",      rsa_key(&json!({ "e": null })),                   None),
        ("RSA in another base64",        rsa_key(&json!({ "e": "AQ+B" })),                 None),
        ("P-256",                        ec_key(&json!({})),                               ES),
        ("P-256 for ES256",              ec_key(&json!({ "alg": "ES256" })),               ES),
        ("P-256 for agreement",          ec_key(&json!({ "alg": "ECDH-ES" })),             None),
        ("P-384",                        ec_key(&json!({ "crv": "P-384" })),               None),
        ("P-256 with a short number",    ec_key(&json!({ "x": encoded(&[7; 31]) })),       None),
        ("P-256 with half a point",      ec_key(&json!({ "y": null })),                    None),
        ("a shared secret",              json!({ "kty": "oct", "k": "aHVudGVyMg" }),       None),
        ("another kind",                 json!({ "kty": "OKP", "crv": "Ed25519" }),        None),
        ("a name that is a number",      rsa_key(&json!({ "kid": 7 })),                    None),
        ("no object",                    json!("RSA"),                                     None),
    ];
    for (name, key, expected) in cases {
        // Whatever one key is, the next is taken.
        let set = json!({ "keys": [key, ec_key(&json!({ "kid": "last" }))] });
        let expected: Vec<KeyAlgorithm> = expected.into_iter().chain(ES).collect();
        assert_eq!(taken(&set), Ok(expected), "{name}");
    }
}

#[test]
fn a_set_is_bounded_and_not_empty() {
    let key = ec_key(&json!({}));
    assert_eq!(taken(&json!({ "keys": vec![&key; 100] })).map(|keys| keys.len()), Ok(100));
    let many = taken(&json!({ "keys": vec![&key; 101] }));
    assert_eq!(many, Err("response has more than 100 keys".to_owned()));
    assert_eq!(taken(&json!({ "keys": [] })), Err("response has no key for RS256 or ES256".to_owned()));
    for other in [json!({}), json!([]), json!({ "keys": "none" })] {
        assert_eq!(taken(&other), Err("response is not a key set".to_owned()));
    }
}

#[test]
fn a_name_chooses_the_key_and_no_name_needs_a_single_one() {
    let named = |key: Value, kid: &str| changed(key, &json!({ "kid": kid }));
    let (rsa, ec) = (rsa_key(&json!({})), ec_key(&json!({})));
    let set =
        json!({ "keys": [named(rsa, "r"), named(ec.clone(), "e"), named(ec.clone(), "f"), named(ec, "f")] });
    let set = KeySet::parse(set.to_string().as_bytes()).expect("a set");
    #[rustfmt::skip]
    let cases = [
        ("by name",                    Some("r"), KeyAlgorithm::Rs256, 1),
        ("of another algorithm",       Some("r"), KeyAlgorithm::Es256, 0),
        ("of nobody",                  Some("x"), KeyAlgorithm::Es256, 0),
        ("an empty name",              Some(""),  KeyAlgorithm::Rs256, 0),
        ("two of one name",            Some("f"), KeyAlgorithm::Es256, 2),
        ("no name, a single key",      None,      KeyAlgorithm::Rs256, 1),
        ("no name, several keys",      None,      KeyAlgorithm::Es256, 0),
    ];
    for (name, id, algorithm, expected) in cases {
        assert_eq!(set.fitting(id, algorithm).0.len(), expected, "{name}");
    }
}
