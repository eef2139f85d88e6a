//! The push service: posts a message to a topic and gets the id of a notification.

use std::time::Duration;

use redrive::Classify;
use redrive::core::policy::answer::{AnswerKind, TargetAnswer, TransportError};
use redrive::http::HttpError;
use redrive::http::reqwest::check;
use reqwest::{RequestBuilder, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::message::Message;

/// How long a connection may take to be made, the handshake of TLS included.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long nothing may come, the headers or more of the body.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// A topic of a push service that speaks as ntfy does.
#[derive(Clone, Debug)]
pub struct Ntfy {
    client: reqwest::Client,
    server: Url,
    topic: String,
}

/// Why a message was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No answer came, or none that is a success.
    #[error("ntfy: {0}")]
    Http(#[from] HttpError<reqwest::Error>),
    /// The answer is not what ntfy says.
    #[error("the answer names no notification")]
    Unreadable(#[from] serde_json::Error),
}

/// What was seen; what follows from it is in the rule book.
impl Classify for SendError {
    fn answer(&self) -> TargetAnswer<'_> {
        match self {
            Self::Http(error) => error.answer(),
            Self::Unreadable(_) => {
                let what = AnswerKind::Transport(TransportError::Protocol);
                TargetAnswer { what, message: "the answer names no notification", retry_after: None }
            }
        }
    }
}

#[derive(Deserialize)]
struct Sent {
    id: String,
}

#[derive(Deserialize)]
struct Health {
    healthy: bool,
}

impl Ntfy {
    /// That topic on that server.
    #[must_use]
    pub fn new(server: Url, topic: impl Into<String>) -> Self {
        Self { client: client(), server, topic: topic.into() }
    }

    /// Sends a message and returns the id of its notification.
    pub async fn send(&self, message: &Message) -> Result<String, SendError> {
        let request = self.client.post(self.address(&self.topic)).header("Title", &message.title);
        let sent: Sent = answer_to(request.body(message.text.clone())).await?;
        Ok(sent.id)
    }

    /// Whether it says of itself that it is well.
    pub async fn is_healthy(&self) -> Result<bool, SendError> {
        let health: Health = answer_to(self.client.get(self.address("v1/health"))).await?;
        Ok(health.healthy)
    }

    fn address(&self, path: &str) -> Url {
        self.server.join(path).expect("a topic is a path")
    }
}

/// A client that keeps the limits on the parts of a call; the guard keeps the one on the whole.
fn client() -> reqwest::Client {
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_LIMIT)
        .read_timeout(SILENCE_LIMIT)
        .pool_max_idle_per_host(10)
        .pool_idle_timeout(Duration::from_secs(90))
        .tcp_keepalive(Duration::from_secs(30));
    client.build().expect("these settings go together")
}

/// What a good answer says.
async fn answer_to<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, SendError> {
    let response = check(request.send().await.map_err(HttpError::from)?).await?;
    let body = response.bytes().await.map_err(HttpError::from)?;
    Ok(serde_json::from_slice(&body)?)
}
