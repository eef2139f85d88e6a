//! A pool of read-only store connections; queries wait for a free one.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Semaphore;

use super::ReadError;
use crate::store::{Store, StoreError, StoreReader};

const READERS_MAX: usize = 4;

pub(super) struct Readers {
    /// One permit per reader; closed when the node stops.
    free: Semaphore,
    idle: Mutex<Vec<Box<dyn StoreReader>>>,
}

impl Readers {
    pub(super) fn new(store: &dyn Store) -> Result<Arc<Self>, StoreError> {
        let readers: Result<Vec<_>, _> = (0..READERS_MAX).map(|_| store.reader()).collect();
        Ok(Arc::new(Self { free: Semaphore::new(READERS_MAX), idle: Mutex::new(readers?) }))
    }

    pub(super) async fn ask<T, F>(self: Arc<Self>, question: F) -> Result<T, ReadError>
    where
        T: Send + 'static,
        F: FnOnce(&dyn StoreReader) -> Result<T, StoreError> + Send + 'static,
    {
        // Waiting here keeps blocking threads free for DNS lookups.
        let permit = self.free.acquire().await.map_err(|_| ReadError::Stopping)?;
        permit.forget();
        let slot = Arc::new(Mutex::new(Some(question)));
        let (readers, handed_over) = (Arc::clone(&self), Arc::clone(&slot));
        let work = move || {
            let question = take(&handed_over).ok_or(ReadError::Stopping)?;
            let reader = readers.idle().pop().ok_or(ReadError::Stopping)?;
            let answer = std::panic::catch_unwind(AssertUnwindSafe(|| question(reader.as_ref())));
            let mut idle = readers.idle();
            if !readers.free.is_closed() {
                idle.push(reader);
            }
            drop(idle);
            readers.free.add_permits(1);
            Ok(answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
        };
        // Where the system has no thread, tokio panics and may run the work later: it finds no question then, and
        // the reader stays free for the next one.
        let Ok(asked) = std::panic::catch_unwind(AssertUnwindSafe(|| tokio::task::spawn_blocking(work)))
        else {
            if take(&slot).is_some() {
                self.free.add_permits(1);
            }
            return Err(StoreError::NotWritten("no thread could be started".into()).into());
        };
        asked.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// A store without readers can checkpoint when it closes.
    pub(super) fn close(&self) {
        self.free.close();
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Box<dyn StoreReader>>> {
        self.idle.lock().expect("lock is not poisoned")
    }
}

fn take<F>(slot: &Mutex<Option<F>>) -> Option<F> {
    slot.lock().expect("nothing panics while the slot is locked").take()
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::store::sqlite::{Options, Sqlite};

    #[test]
    fn readers_are_free_again_after_no_thread_could_be_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Sqlite::open(folder.path(), Options::default()).expect("it opens");
        let readers = Readers::new(&store).expect("it reads");
        for _ in 0..2 * READERS_MAX {
            // Without a runtime `spawn_blocking` panics, as it does without a thread.
            let asked = std::pin::pin!(Arc::clone(&readers).ask(|reader| reader.counts()));
            let polled = asked.poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Ready(Err(ReadError::Store(StoreError::NotWritten(_))))));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let counts = runtime.block_on(readers.ask(|reader| reader.counts())).expect("it answers");
        assert_eq!(counts.events, 0);
    }
}
