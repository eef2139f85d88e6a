//! Who issues tokens in the tests: real keys, and a real server that publishes them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::rsa::{KeyPairComponents, PublicKeyComponents};
use ring::signature::{self, EcdsaKeyPair, KeyPair as _, RsaKeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The numbers of an RSA key, as a JWK writes them.
struct RsaNumbers {
    n: &'static str,
    d: &'static str,
    p: &'static str,
    q: &'static str,
    dp: &'static str,
    dq: &'static str,
    qi: &'static str,
}

/// The key of RFC 7515, A.2, which the whole world knows.
const RSA: RsaNumbers = RsaNumbers {
    n: "\
        ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0B\
        m4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5\
        z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7\
        aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
    d: "\
        Eq5xpGnNCivDflJsRQBXHx1hdR1k6Ulwe2JZD50LpXyWPEAeP88vLNO97IjlA7_GQ5sLKMgvfTeXZx9SE-7YwVol2N\
        XOoAJe46sui395IW_GO-pWJ1O0BkTGoVEn2bKVRUCgu-GjBVaYLU6f3l9kJfFNS3E0QbVdxzubSu3Mkqzjkn439X0M\
        _V51gfpRLI9JYanrC4D4qAdGcopV_0ZHHzQlBjudU2QvXt4ehNYTCBr6XCLQUShb1juUO1ZdiYoFaFQT5Tw8bGUl_x\
        _jTj3ccPDVZFD9pIuhLhBOneufuBiB4cS98l2SR_RQyGWSeWjnczT0QU91p1DhOVRuOopznQ",
    p: "\
        4BzEEOtIpmVdVEZNCqS7baC4crd0pqnRH_5IB3jw3bcxGn6QLvnEtfdUdiYrqBdss1l58BQ3KhooKeQTa9AB0Hw_Py\
        5PJdTJNPY8cQn7ouZ2KKDcmnPGBY5t7yLc1QlQ5xHdwW1VhvKn-nXqhJTBgIPgtldC-KDV5z-y2XDwGUc",
    q: "\
        uQPEfgmVtjL0Uyyx88GZFF1fOunH3-7cepKmtH4pxhtCoHqpWmT8YAmZxaewHgHAjLYsp1ZSe7zFYHj7C6ul7TjeLQ\
        eZD_YwD66t62wDmpe_HlB-TnBA-njbglfIsRLtXlnDzQkv5dTltRJ11BKBBypeeF6689rjcJIDEz9RWdc",
    dp: "\
        BwKfV3Akq5_MFZDFZCnW-wzl-CCo83WoZvnLQwCTeDv8uzluRSnm71I3QCLdhrqE2e9YkxvuxdBfpT_PI7Yz-FOKnu\
        1R6HsJeDCjn12Sk3vmAktV2zb34MCdy7cpdTh_YVr7tss2u6vneTwrA86rZtu5Mbr1C1XsmvkxHQAdYo0",
    dq: "\
        h_96-mK1R_7glhsum81dZxjTnYynPbZpHziZjeeHcXYsXaaMwkOlODsWa7I9xXDoRwbKgB719rrmI2oKr6N3Do9U0a\
        jaHF-NKJnwgjMd2w9cjz3_-kyNlxAr2v4IKhGNpmM5iIgOS1VZnOZ68m6_pbLBSp3nssTdlqvd0tIiTHU",
    qi: "\
        IYd7DHOhrWvxkwPQsRM2tOgrjbcrfvtQJipd-DlcxyVuuM9sQLdgjVk2oy26F0EmpScGLq2MowX7fhd_QJQ3ydy5cY\
        7YIBi87w93IKLEdfnbJtoOPLUW0ITrJReOgo1cq9SbsxYawBgfp_gh6A5603k2-ZQwVK0JKSHuLFkuQ3U",
};

pub(super) fn decoded(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).expect("base64")
}

pub(super) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What tokens are signed with.
pub(super) enum Signer {
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
    Shared(Vec<u8>),
}

impl Signer {
    /// The published key.
    pub(super) fn rsa() -> Self {
        let part = |text: &str| decoded(text);
        let components = KeyPairComponents {
            public_key: PublicKeyComponents { n: part(RSA.n), e: part("AQAB") },
            d: part(RSA.d),
            p: part(RSA.p),
            q: part(RSA.q),
            dP: part(RSA.dp),
            dQ: part(RSA.dq),
            qInv: part(RSA.qi),
        };
        Self::Rsa(RsaKeyPair::from_components(&components).expect("a key"))
    }

    /// A key that nobody has had before.
    pub(super) fn p256() -> Self {
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        Self::P256(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("a key"))
    }

    pub(super) fn shared(secret: &[u8]) -> Self {
        Self::Shared(secret.to_vec())
    }

    pub(super) fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::P256(_) => "ES256",
            Self::Shared(_) => "HS256",
        }
    }

    /// What the issuer publishes of it.
    pub(super) fn public(&self, kid: &str) -> Value {
        match self {
            Self::Rsa(_) => json!({ "kty": "RSA", "kid": kid, "use": "sig", "n": RSA.n, "e": "AQAB" }),
            Self::P256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "kid": kid, "crv": "P-256", "x": encoded(x), "y": encoded(y) })
            }
            Self::Shared(_) => panic!("nobody publishes a secret"),
        }
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signature).expect("signed");
                signature
            }
            Self::P256(key) => key.sign(&random, message).expect("signed").as_ref().to_vec(),
            Self::Shared(secret) => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message).as_ref().to_vec()
            }
        }
    }

    /// A token with these claims, by the key of that name.
    pub(super) fn token(&self, kid: &str, claims: &Value) -> String {
        self.token_of(&json!({ "typ": "JWT", "alg": self.algorithm(), "kid": kid }), claims)
    }

    /// The same with any header.
    pub(super) fn token_of(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let signature = encoded(self.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

/// A server that publishes keys, as long as it is not told otherwise.
pub(super) struct KeyServer {
    address: String,
    answer: Arc<Mutex<Vec<u8>>>,
    asked: Arc<AtomicUsize>,
}

impl KeyServer {
    pub(super) async fn start(keys: &[Value]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let server = Self { address, answer: Arc::default(), asked: Arc::default() };
        server.publish(keys);
        let (answer, asked) = (Arc::clone(&server.answer), Arc::clone(&server.asked));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                asked.fetch_add(1, Ordering::SeqCst);
                let answer = answer.lock().expect("lock is not poisoned").clone();
                tokio::spawn(async move {
                    // A small request comes in one piece; whoever hangs up early wants no answer.
                    let _ = stream.read(&mut [0; 4_096]).await;
                    let _ = stream.write_all(&answer).await;
                });
            }
        });
        server
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/keys", self.address)
    }

    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub(super) fn publish(&self, keys: &[Value]) {
        self.answer("200 OK", &json!({ "keys": keys }).to_string());
    }

    pub(super) fn answer(&self, status: &str, body: &str) {
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        *self.answer.lock().expect("lock is not poisoned") = answer.into_bytes();
    }
}
