//! The store's readers: each answers one question at a time, and a question that finds none waits for one.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Semaphore;

use super::ReadError;
use crate::store::{Reader, Store, StoreError};

/// Readers, and so questions answered at once.
const READERS_MAX: usize = 4;

/// The idle readers.
pub(super) struct Readers {
    /// As many permits as there are readers; closed when no more questions are answered.
    free: Semaphore,
    idle: Mutex<Vec<Box<dyn Reader>>>,
}

impl Readers {
    pub(super) fn new(store: &dyn Store) -> Result<Arc<Self>, StoreError> {
        let readers: Result<Vec<_>, _> = (0..READERS_MAX).map(|_| store.reader()).collect();
        Ok(Arc::new(Self { free: Semaphore::new(READERS_MAX), idle: Mutex::new(readers?) }))
    }

    /// Answers a question on a thread that may wait for the disk.
    pub(super) async fn ask<T, F>(self: Arc<Self>, question: F) -> Result<T, ReadError>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Reader) -> Result<T, StoreError> + Send + 'static,
    {
        // Questions wait here, and not on the threads that names of targets are looked up on.
        let permit = self.free.acquire().await.map_err(|_| ReadError::Stopping)?;
        permit.forget();
        let asked = tokio::task::spawn_blocking(move || {
            let reader = self.idle().pop().ok_or(ReadError::Stopping)?;
            let answer = std::panic::catch_unwind(AssertUnwindSafe(|| question(reader.as_ref())));
            let mut idle = self.idle();
            if !self.free.is_closed() {
                idle.push(reader);
            }
            drop(idle);
            self.free.add_permits(1);
            Ok(answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
        });
        asked.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// Answers no more questions: a store without readers can put its file in order when it closes.
    pub(super) fn close(&self) {
        self.free.close();
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Box<dyn Reader>>> {
        self.idle.lock().expect("nothing panics while the list is locked")
    }
}
