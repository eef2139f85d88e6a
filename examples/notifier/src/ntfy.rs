//! The push service: posts a message to a topic and gets the id of a notification.

use redrive::Classify;
use redrive::clock::wall_clock;
use redrive::core::answer::{Answer, CallPart, TransportError, What};
use redrive::core::retry_after;
use reqwest::{Url, header};
use serde::Deserialize;

use crate::message::Message;

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
    /// No answer came.
    #[error("ntfy could not be reached")]
    Unreachable(#[source] reqwest::Error),
    /// An answer came that is no good one.
    #[error("ntfy answered {status}")]
    Refused {
        /// Its status.
        status: u16,
        /// How long it asks us to wait.
        retry_after: Option<std::time::Duration>,
    },
    /// The answer names no notification.
    #[error("ntfy's answer names no notification")]
    Unreadable(#[source] serde_json::Error),
}

/// What was seen; what follows from it is in the rule book.
impl Classify for SendError {
    fn answer(&self) -> Answer<'_> {
        let (what, retry_after) = match self {
            Self::Unreachable(error) if error.is_timeout() => {
                (What::Transport(TransportError::Timeout(CallPart::Whole)), None)
            }
            Self::Unreachable(error) if error.is_connect() => {
                (What::Transport(TransportError::Refused), None)
            }
            Self::Unreachable(_) => (What::Transport(TransportError::Reset), None),
            Self::Refused { status, retry_after } => {
                (What::Http { status: *status, headers: &(), body: "" }, *retry_after)
            }
            Self::Unreadable(_) => (What::Transport(TransportError::Protocol), None),
        };
        Answer { what, message: "", retry_after }
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
        Self { client: reqwest::Client::new(), server, topic: topic.into() }
    }

    /// Sends a message and returns the id of its notification.
    pub async fn send(&self, message: &Message) -> Result<String, SendError> {
        let request = self.client.post(self.address(&self.topic)).header("Title", &message.title);
        let body = body_of(request.body(message.text.clone())).await?;
        let sent: Sent = serde_json::from_slice(&body).map_err(SendError::Unreadable)?;
        Ok(sent.id)
    }

    /// Whether it says of itself that it is well.
    pub async fn is_healthy(&self) -> Result<bool, SendError> {
        let body = body_of(self.client.get(self.address("v1/health"))).await?;
        let health: Health = serde_json::from_slice(&body).map_err(SendError::Unreadable)?;
        Ok(health.healthy)
    }

    fn address(&self, path: &str) -> Url {
        self.server.join(path).expect("a topic is a path")
    }
}

/// The body of a good answer.
async fn body_of(request: reqwest::RequestBuilder) -> Result<Vec<u8>, SendError> {
    let response = request.send().await.map_err(SendError::Unreachable)?;
    if !response.status().is_success() {
        let asked_for = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        return Err(SendError::Refused {
            status: response.status().as_u16(),
            retry_after: asked_for.and_then(|value| retry_after::parse(value, wall_clock())),
        });
    }
    Ok(response.bytes().await.map_err(SendError::Unreachable)?.into())
}
