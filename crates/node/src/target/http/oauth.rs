//! Tokens of OAuth 2 issuers, fetched with client credentials and kept until shortly before they expire.
//!
//! Invariants: for each client there is one request to the issuer at a time, and after a failure none for some
//! seconds, so many calls never become many requests; a changed client secret is used at once; a token is in no
//! error, log or `Debug`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use redrive_core::book::connectors::http::{ClientProof, OAuthClient};
use redrive_core::book::model::Network;
use redrive_core::limits::DURATION_MAX;
use redrive_core::policy::answer::{BrokerError, ReplyKind, TargetReply};
use redrive_core::redact::hide_known;
use ring::digest;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use super::address::InvalidTargetAddress;
use super::fetch::{FetchAnswer, FetchBounds, FetchRequest, FetchedDocument, Unfetched};
use super::limits::{
    TOKEN_ANSWER_MAX, TOKEN_BYTES_MAX, TOKEN_FAILURE_KEPT, TOKEN_FETCH_MAX, TOKEN_LIFE_DEFAULT, TOKEN_MARGIN,
    TOKEN_REFUSAL_KEPT, TOKEN_RENEW_EVERY,
};
use super::pool::Pool;
use crate::credential::Credential;
use crate::secret::Secrets;

/// What an issuer says about a failure, in bytes.
const REASON_BYTES_MAX: usize = 200;

/// The clients of all targets, so that those with the same settings share tokens.
#[derive(Default)]
pub(super) struct TokenSources(Mutex<BTreeMap<(OAuthClient, Network), Weak<TokenSource>>>);

pub(super) struct TokenSource {
    client: OAuthClient,
    issuer: FetchedDocument,
    secret: Credential,
    secrets: Secrets,
    state: Mutex<TokenState>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct TokenState {
    token: Option<Arc<AccessToken>>,
    failure: Option<TokenFailure>,
}

pub(super) struct AccessToken {
    pub(super) header: HeaderValue,
    secret: SecretPrint,
    fetched_at: Instant,
    renew_at: Instant,
    expires_at: Instant,
}

struct TokenFailure {
    reply: TargetReply,
    secret: SecretPrint,
    until: Instant,
}

/// Identifies a client secret without keeping it.
type SecretPrint = [u8; 32];

enum KnownToken {
    Good(Arc<AccessToken>),
    /// Good, and about to expire.
    Due(Arc<AccessToken>),
    Failed(TargetReply),
    None,
}

impl TokenSources {
    /// Secrets are those of the first target with such a client.
    pub(super) fn source(
        &self,
        client: &OAuthClient,
        network: Network,
        secrets: &Secrets,
        pool: &Arc<Pool>,
    ) -> Result<Arc<TokenSource>, InvalidTargetAddress> {
        let mut sources = self.0.lock().expect("lock is not poisoned");
        let key = (client.clone(), network);
        if let Some(known) = sources.get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        sources.retain(|_, source| source.strong_count() > 0);
        let bounds = FetchBounds { whole: TOKEN_FETCH_MAX, bytes_max: TOKEN_ANSWER_MAX };
        let source = Arc::new(TokenSource {
            client: client.clone(),
            issuer: FetchedDocument::within(&client.token_url, network, Arc::clone(pool), bounds)?,
            secret: Credential::new(secrets, &client.secret, "call not made"),
            secrets: secrets.clone(),
            state: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        });
        sources.insert(key, Arc::downgrade(&source));
        Ok(source)
    }
}

impl TokenSource {
    pub(super) async fn token(&self, until: Instant) -> Result<Arc<AccessToken>, TargetReply> {
        let secret = self.secret.value(until.saturating_duration_since(Instant::now())).await?;
        let print = fingerprint(&secret);
        let _turn = match self.known(&print) {
            KnownToken::Good(token) => return Ok(token),
            KnownToken::Failed(reply) => return Err(reply),
            KnownToken::Due(token) => match self.turn.try_lock() {
                Ok(turn) => turn,
                // Another call renews it.
                Err(_) => return Ok(token),
            },
            KnownToken::None => match timeout_at(until, self.turn.lock()).await {
                Ok(turn) => turn,
                Err(_) => return Err(self.unavailable("it has not answered yet")),
            },
        };
        let old = match self.known(&print) {
            KnownToken::Good(token) => return Ok(token),
            KnownToken::Failed(reply) => return Err(reply),
            KnownToken::Due(token) => Some(token),
            KnownToken::None => None,
        };
        let fetched = self.fetch(&secret, print, until).await;
        let mut state = self.state();
        match fetched {
            Ok(token) => {
                let token = Arc::new(token);
                *state = TokenState { token: Some(Arc::clone(&token)), failure: None };
                Ok(token)
            }
            Err(reply) => {
                let is_down = reply.seen == ReplyKind::SecretUnavailable;
                let kept = if is_down { TOKEN_FAILURE_KEPT } else { TOKEN_REFUSAL_KEPT };
                let until = Instant::now() + kept;
                state.failure = Some(TokenFailure { reply: reply.clone(), secret: print, until });
                old.filter(|token| token.expires_at > Instant::now()).ok_or(reply)
            }
        }
    }

    /// Forgets a token that the target refused; whether another may be had in its place.
    pub(super) fn give_up(&self, refused: &Arc<AccessToken>) -> bool {
        let mut state = self.state();
        let is_current = state.token.as_ref().is_some_and(|current| Arc::ptr_eq(current, refused));
        if is_current && refused.fetched_at.elapsed() < TOKEN_RENEW_EVERY {
            return false;
        }
        if is_current {
            state.token = None;
        }
        true
    }

    fn known(&self, secret: &SecretPrint) -> KnownToken {
        let (state, now) = (self.state(), Instant::now());
        let failure =
            state.failure.as_ref().filter(|failure| failure.secret == *secret && now < failure.until);
        let token = state.token.as_ref().filter(|token| token.secret == *secret && now < token.expires_at);
        match (token, failure) {
            (Some(token), None) if now >= token.renew_at => KnownToken::Due(Arc::clone(token)),
            (Some(token), _) => KnownToken::Good(Arc::clone(token)),
            (None, Some(failure)) => KnownToken::Failed(failure.reply.clone()),
            (None, None) => KnownToken::None,
        }
    }

    fn state(&self) -> MutexGuard<'_, TokenState> {
        self.state.lock().expect("lock is not poisoned")
    }

    async fn fetch(
        &self,
        secret: &str,
        print: SecretPrint,
        until: Instant,
    ) -> Result<AccessToken, TargetReply> {
        let (request, hidden) = self.request(secret)?;
        let asked_at = Instant::now();
        let answer = self.issuer.ask(request, until.saturating_duration_since(asked_at)).await;
        let FetchAnswer { status, bytes } = match answer {
            Ok(answer) => answer,
            Err(Unfetched::TooLarge) => return Err(self.unavailable("its answer is too long")),
            Err(Unfetched::Call(failure)) if failure.is_of_the_book() => return Err(failure.into_reply()),
            Err(Unfetched::Call(failure)) => return Err(self.unavailable(&failure.into_reply().message)),
        };
        let bytes = Zeroizing::new(bytes);
        if status != StatusCode::OK {
            return Err(self.refusal(status, &bytes, &hidden));
        }
        let (token, life) = parse(&bytes).map_err(|why| self.unavailable(why))?;
        self.secrets.note_token(&token);
        let mut header = HeaderValue::try_from(format!("Bearer {}", token.as_str()))
            .map_err(|_| self.unavailable("its token has characters not allowed in a header"))?;
        header.set_sensitive(true);
        let margin = TOKEN_MARGIN.min(life / 10);
        let (renew_at, expires_at) = (asked_at + life.saturating_sub(margin), asked_at + life);
        Ok(AccessToken { header, secret: print, fetched_at: Instant::now(), renew_at, expires_at })
    }

    /// With what must not be shown of it.
    fn request(&self, secret: &str) -> Result<(FetchRequest, Zeroizing<String>), TargetReply> {
        let OAuthClient { id, scope, audience, proof, .. } = &self.client;
        let mut form = Zeroizing::new("grant_type=client_credentials".to_owned());
        for (name, value) in [("scope", scope), ("audience", audience)] {
            if let Some(value) = value {
                *form += &format!("&{name}={}", form_encoded(value).as_str());
            }
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let (id, secret) = (form_encoded(id), form_encoded(secret));
        let hidden = match proof {
            ClientProof::Basic => {
                let pair = Zeroizing::new(format!("{}:{}", id.as_str(), secret.as_str()));
                let encoded = Zeroizing::new(STANDARD.encode(pair.as_bytes()));
                let header = HeaderValue::try_from(format!("Basic {}", encoded.as_str()));
                let mut header = header.map_err(|_| self.unavailable("the client's secret is too long"))?;
                header.set_sensitive(true);
                headers.insert(AUTHORIZATION, header);
                encoded
            }
            ClientProof::Body => {
                *form += &format!("&client_id={}&client_secret={}", id.as_str(), secret.as_str());
                secret
            }
        };
        let body = Bytes::copy_from_slice(form.as_bytes());
        Ok((FetchRequest { method: Method::POST, headers, body }, hidden))
    }

    /// Transient: no call was made, and none is counted.
    fn unavailable(&self, why: &str) -> TargetReply {
        let message = format!("call not made: no token from {}: {why}", self.issuer.origin());
        TargetReply::new(ReplyKind::SecretUnavailable, message)
    }

    fn refusal(&self, status: StatusCode, body: &[u8], hidden: &str) -> TargetReply {
        let said: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |key: &str| said[key].as_str().unwrap_or_default();
        let error = text("error");
        let seen = match (status.as_u16(), error) {
            (408 | 425 | 429 | 500.., _) => ReplyKind::SecretUnavailable,
            (401 | 403, _)
            | (_, "invalid_client" | "unauthorized_client" | "invalid_grant" | "access_denied") => {
                ReplyKind::Broker(BrokerError::Unauthorized)
            }
            _ => ReplyKind::ConfigMissing,
        };
        let mut why = status.as_u16().to_string();
        for words in [error, text("error_description")].into_iter().filter(|words| !words.is_empty()) {
            let words = redrive::http::answer::text(words.as_bytes());
            why += ": ";
            why += &hide_known(&self.secrets.hide(&words), [hidden]);
        }
        why.truncate(why.floor_char_boundary(REASON_BYTES_MAX));
        let OAuthClient { id, .. } = &self.client;
        let message =
            format!("call not made: {} gave no token to client `{id}`: {why}", self.issuer.origin());
        TargetReply::new(seen, message)
    }
}

/// The token, and for how long it is good.
fn parse(body: &[u8]) -> Result<(Zeroizing<String>, Duration), &'static str> {
    let mut answer: Value = serde_json::from_slice(body).map_err(|_| "its answer is not JSON")?;
    let token = match answer["access_token"].take() {
        Value::String(token) => Zeroizing::new(token),
        _ => return Err("its answer has no `access_token`"),
    };
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err("its token is empty or too long");
    }
    let kind = answer["token_type"].as_str().unwrap_or("bearer");
    if !kind.eq_ignore_ascii_case("bearer") {
        return Err("its token is not a bearer token");
    }
    // Some issuers write the number as a text.
    let life = &answer["expires_in"];
    let seconds = life.as_f64().or_else(|| life.as_str()?.parse().ok());
    let life = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok((token, life.unwrap_or(TOKEN_LIFE_DEFAULT).min(DURATION_MAX)))
}

fn form_encoded(text: &str) -> Zeroizing<String> {
    let mut encoded = Zeroizing::new(String::with_capacity(3 * text.len()));
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => encoded.push(byte.into()),
            b' ' => encoded.push('+'),
            byte => *encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

fn fingerprint(secret: &str) -> SecretPrint {
    let digest = digest::digest(&digest::SHA256, secret.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}
