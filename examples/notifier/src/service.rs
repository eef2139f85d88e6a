//! Takes messages from the queue and sends each once.
//!
//! What becomes of a message: `created` → `queued` when the queue delivers it → `completed` when its reader was
//! told, or `failed` when nobody will be. Where the push service may yet recover, the message stays `queued`, and
//! the queue brings it again.
//!
//! Invariant: for the queue an item has failed until its message is `completed`. So what failed for good ends
//! where the queue puts what it has delivered in vain, and is not sent again on the way there.

use std::time::Duration;

use redrive::Guard;
use redrive::core::policy::category::Category;
use redrive::guard::{CallError, Cause};
use redrive::once::{Once, OnceError};
use redrive::transition::Applied;
use serde::{Deserialize, Serialize};

use crate::message::{Message, MessageError, Messages, Status};
use crate::ntfy::{Ntfy, SendError};

/// How long it is remembered that a notification was sent: longer than any queue keeps a message.
const REMEMBERED: Duration = Duration::from_hours(14 * 24);

/// What the queue delivers.
#[derive(Clone, Debug, Deserialize)]
pub struct Batch {
    /// The items.
    #[serde(rename = "Records")]
    pub records: Vec<Record>,
}

/// One item of the queue.
#[derive(Clone, Debug, Deserialize)]
pub struct Record {
    /// What the queue knows it by.
    #[serde(rename = "messageId")]
    pub item: String,
    /// What was put into the queue: `{"message_id": "…"}`.
    pub body: String,
}

/// Which items failed; the queue forgets the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    /// Those that failed.
    pub batch_item_failures: Vec<ItemFailure>,
}

/// An item that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemFailure {
    /// What the queue knows it by.
    pub item_identifier: String,
}

#[derive(Deserialize)]
struct Body {
    message_id: String,
}

/// Why an item failed.
#[derive(Debug, thiserror::Error)]
pub enum ItemError {
    /// It names no message.
    #[error("the item names no message")]
    Unreadable(#[source] serde_json::Error),
    /// There is no such message.
    #[error("there is no such message")]
    Unknown,
    /// Its message has failed for good before.
    #[error("the message has failed before")]
    FailedBefore,
    /// Another process sends it at this moment.
    #[error("another process is sending it")]
    InProgress,
    /// The push service would not take it.
    #[error("the notification was not sent: {0}")]
    NotSent(#[source] CallError<SendError>),
    /// The messages could not be reached.
    #[error(transparent)]
    Messages(#[from] MessageError),
    /// What was sent before could not be looked up.
    #[error("nobody knows whether it was sent: {0}")]
    Unsure(String),
}

/// The service.
pub struct Notifier {
    messages: Messages,
    ntfy: Ntfy,
    guard: Guard,
    once: Once,
}

impl Notifier {
    /// Sends these messages there, guarded and once.
    #[must_use]
    pub const fn new(messages: Messages, ntfy: Ntfy, guard: Guard, once: Once) -> Self {
        Self { messages, ntfy, guard, once }
    }

    /// The messages.
    #[must_use]
    pub const fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Takes a batch, and says which of its items failed.
    pub async fn take(&self, batch: Batch) -> BatchAnswer {
        let mut answer = BatchAnswer::default();
        for record in batch.records {
            if let Err(error) = self.process(&record).await {
                tracing::error!(item = record.item, error = %error, "failed to process message");
                answer.batch_item_failures.push(ItemFailure { item_identifier: record.item });
            }
        }
        answer
    }

    async fn process(&self, record: &Record) -> Result<(), ItemError> {
        let body: Body = serde_json::from_str(&record.body).map_err(ItemError::Unreadable)?;
        let message = self.messages.find(&body.message_id).await?.ok_or(ItemError::Unknown)?;
        match self.messages.queue(&message.message_id).await? {
            // It may have been queued before: then the queue brings it again, or another process has it.
            Applied::Changed | Applied::NotExpected { actual: Status::Created | Status::Queued } => {
                self.notify(&message).await
            }
            Applied::NotExpected { actual: Status::Completed } => Ok(()),
            Applied::NotExpected { actual: Status::Failed } => Err(ItemError::FailedBefore),
            Applied::Missing => Err(ItemError::Unknown),
        }
    }

    async fn notify(&self, message: &Message) -> Result<(), ItemError> {
        let id = &message.message_id;
        let key = format!("notification/{id}");
        let sending = || self.guard.call(|_| self.ntfy.send(message));
        let notification_id = match self.once.call(&key, REMEMBERED, sending).await {
            Ok(sent) => sent.into_value(),
            // It was sent, and only that could not be written down there: here it can.
            Err(OnceError::Unrecorded { value, .. }) => value,
            Err(OnceError::InProgress { .. }) => return Err(ItemError::InProgress),
            Err(OnceError::Failed(error)) => {
                self.give_up(message, &error).await?;
                return Err(ItemError::NotSent(error));
            }
            Err(other) => return Err(ItemError::Unsure(other.to_string())),
        };
        self.messages.complete(id, notification_id).await?;
        Ok(())
    }

    /// Fails the message, unless the push service may yet recover.
    async fn give_up(&self, message: &Message, error: &CallError<SendError>) -> Result<(), MessageError> {
        let Message { message_id, correlation_id, .. } = message;
        let reason = match (&error.cause, error.category) {
            (Cause::BreakerOpen { .. }, _) => {
                tracing::error!(message_id, correlation_id, "ntfy.sh circuit breaker open");
                "ntfy.sh service unavailable".to_owned()
            }
            (_, Category::Transient | Category::RateLimited | Category::Unknown) => {
                let retry_count = error.attempts.saturating_sub(1);
                tracing::warn!(message_id, correlation_id, retry_count, code = %error.code, "will come again");
                return Ok(());
            }
            _ => error.last().map_or_else(|| error.to_string(), ToString::to_string),
        };
        self.messages.fail(message_id, reason).await?;
        Ok(())
    }
}
