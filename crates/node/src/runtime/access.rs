//! API keys, refused request bodies, alerts raised at once, and memos.

use std::sync::Weak;
use std::time::Duration;

use redrive_core::alerts::{Incident, IncidentSample, Incidents};

use super::{Node, NodeShared, ReadError, SubmitError};
use crate::store::StateChange;
use crate::store::access_store::{AuditEntry, KEYS_MAX, KeyRecord, REFUSED_BODY_BYTES_MAX, RefusedBody};

const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("limit of {KEYS_MAX} keys reached, revoked ones included: reuse the id of an existing key")]
    TooMany,
    #[error(transparent)]
    NotRead(#[from] ReadError),
    #[error(transparent)]
    NotWritten(#[from] SubmitError),
}

impl Node {
    /// All keys, revoked ones included, oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, ReadError> {
        self.read(|reader| reader.keys()).await
    }

    /// Stores a key in place of the one with its id, with the audit entry; durable when this returns.
    pub async fn put_key(&self, key: KeyRecord, deed: AuditEntry) -> Result<(), KeyError> {
        let node = self.clone();
        // A task of its own: a caller that stops waiting must not release the lock before the key is durable.
        let putting = tokio::spawn(async move {
            let _turn = node.shared.changing_keys.lock().await;
            let keys = node.keys().await?;
            if keys.len() >= KEYS_MAX && keys.iter().all(|known| known.id != key.id) {
                return Err(KeyError::TooMany);
            }
            Ok(node.do_and_record(StateChange::Key(Box::new(key)), None, deed).await?)
        });
        putting.await.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // An aborted task belongs to a runtime that is shutting down.
            Err(_) => Err(SubmitError::Stopping.into()),
        })
    }

    /// Stores a refused body for inspection, without waiting. Returns false if it was dropped because too
    /// many are queued.
    #[must_use]
    pub fn refuse_body(&self, mut refused: RefusedBody) -> bool {
        refused.body.truncate(REFUSED_BODY_BYTES_MAX);
        self.shared.inbox.refuse_body(refused)
    }

    /// Counts a request with an invalid key, token or signature at an endpoint: `/v1/hooks/NAME` or `api`.
    pub fn count_unauthorized(&self, endpoint: &str) {
        self.shared.feed.unauthorized(endpoint);
    }

    /// Raises an alert about a secret or the process at once. A lasting one is raised once, until
    /// [`Self::clear_trouble`].
    pub fn raise_trouble(&self, trouble: Incident, about: &str, why: &str) {
        let raise = |troubles: &mut Incidents, now| troubles.raise(trouble, about, why, now);
        self.shared.feed.with_troubles(|| self.now(), raise);
    }

    pub fn clear_trouble(&self, trouble: Incident, about: &str) {
        self.shared.feed.troubles().clear(trouble, about);
    }

    pub(super) fn troubles(&self) -> Vec<IncidentSample> {
        self.shared.feed.with_troubles(|| self.now(), Incidents::samples)
    }

    pub async fn memo(&self, name: &str) -> Result<Option<String>, ReadError> {
        let name = name.to_owned();
        self.read(move |reader| reader.memo(&name)).await
    }

    /// Stores or deletes a value under a name; durable when this returns.
    pub async fn set_memo(&self, name: &str, value: Option<String>) -> Result<(), SubmitError> {
        self.note(StateChange::Memo { name: name.to_owned(), value }, None).await
    }
}

/// Retries until the memo is read; none when the node is gone.
pub(super) async fn recall(node: &Weak<NodeShared>, name: &str) -> Option<Option<String>> {
    loop {
        match (Node { shared: node.upgrade()? }).memo(name).await {
            Ok(memo) => return Some(memo),
            Err(error) => tracing::warn!(memo = name, %error, "stored state not read, retrying"),
        }
        tokio::time::sleep(READ_AGAIN_AFTER).await;
    }
}
