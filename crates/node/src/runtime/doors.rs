//! What a node keeps for its doors: keys, bodies that were refused, and memos.

use redrive_core::alerts::{Trouble, TroubleSample, Troubles};

use super::{Node, ReadError, SubmitError};
use crate::store::Note;
use crate::store::door::{Deed, KEYS_MAX, KeyRecord, REFUSED_BODY_BYTES_MAX, RefusedBody};

/// Why a key was not kept; nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There are too many.
    #[error("there are {KEYS_MAX} keys already, revoked ones included: use one of them again")]
    TooMany,
    /// Those that there are could not be read.
    #[error(transparent)]
    NotRead(#[from] ReadError),
    /// It could not be written.
    #[error(transparent)]
    NotWritten(#[from] SubmitError),
}

impl Node {
    /// Every key, revoked ones included, the oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, ReadError> {
        self.read(|reader| reader.keys()).await
    }

    /// Keeps a key in the place of the one with its id, and puts on record who did so; both are durable when
    /// this returns.
    pub async fn put_key(&self, key: KeyRecord, deed: Deed) -> Result<(), KeyError> {
        let node = self.clone();
        // A task of its own: whoever stops waiting must not give away the turn before the key is durable.
        let putting = tokio::spawn(async move {
            let _turn = node.shared.changing_keys.lock().await;
            let keys = node.keys().await?;
            if keys.len() >= KEYS_MAX && keys.iter().all(|known| known.id != key.id) {
                return Err(KeyError::TooMany);
            }
            Ok(node.do_and_record(Note::Key(Box::new(key)), None, deed).await?)
        });
        putting.await.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // An aborted task belongs to a runtime that is going away.
            Err(_) => Err(SubmitError::Stopping.into()),
        })
    }

    /// Keeps a body that was refused, for people to look at. Nobody waits for it, and it is dropped when much
    /// is waiting: then this says false.
    #[must_use]
    pub fn refuse_body(&self, mut refused: RefusedBody) -> bool {
        refused.body.truncate(REFUSED_BODY_BYTES_MAX);
        self.shared.inbox.refuse_body(refused)
    }

    /// Counts that somebody came to that door with a bad key, token or signature: `/v1/hooks/NAME`, or `api`.
    pub fn count_unauthorized(&self, door: &str) {
        self.shared.feed.unauthorized(door);
    }

    /// Has people told at once of something that concerns a secret or the process, as the rule book routes it. One
    /// that lasts is told of once, until [`Self::clear_trouble`].
    pub fn raise_trouble(&self, trouble: Trouble, about: &str, why: &str) {
        let raise = |troubles: &mut Troubles, now| troubles.raise(trouble, about, why, now);
        self.shared.feed.with_troubles(|| self.now(), raise);
    }

    /// It is over.
    pub fn clear_trouble(&self, trouble: Trouble, about: &str) {
        self.shared.feed.troubles().clear(trouble, about);
    }

    /// All that people are told of at once, as it stands.
    pub(super) fn troubles(&self) -> Vec<TroubleSample> {
        self.shared.feed.with_troubles(|| self.now(), Troubles::samples)
    }

    /// What was last remembered under that name.
    pub async fn memo(&self, name: &str) -> Result<Option<String>, ReadError> {
        let name = name.to_owned();
        self.read(move |reader| reader.memo(&name)).await
    }

    /// Remembers something under a name of its own, or forgets it; durable when this returns.
    pub async fn set_memo(&self, name: &str, value: Option<String>) -> Result<(), SubmitError> {
        self.note(Note::Memo { name: name.to_owned(), value }, None).await
    }
}
