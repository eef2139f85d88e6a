//! A pool of read-only store connections; queries wait for a free one.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Semaphore;

use super::ReadError;
use crate::store::{Reader, Store, StoreError};

const READERS_MAX: usize = 4;

pub(super) struct Readers {
    /// One permit per reader; closed when the node stops.
    free: Semaphore,
    idle: Mutex<Vec<Box<dyn Reader>>>,
}

impl Readers {
    pub(super) fn new(store: &dyn Store) -> Result<Arc<Self>, StoreError> {
        let readers: Result<Vec<_>, _> = (0..READERS_MAX).map(|_| store.reader()).collect();
        Ok(Arc::new(Self { free: Semaphore::new(READERS_MAX), idle: Mutex::new(readers?) }))
    }

    pub(super) async fn ask<T, F>(self: Arc<Self>, question: F) -> Result<T, ReadError>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Reader) -> Result<T, StoreError> + Send + 'static,
    {
        // Waiting here keeps blocking threads free for DNS lookups.
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

    /// A store without readers can checkpoint when it closes.
    pub(super) fn close(&self) {
        self.free.close();
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Box<dyn Reader>>> {
        self.idle.lock().expect("lock is not poisoned")
    }
}
