//! The store's readers: each answers one question at a time, and whoever finds none waits for one.

use std::panic::AssertUnwindSafe;
use std::sync::{Condvar, Mutex, MutexGuard};

use super::{READERS_MAX, ReadError};
use crate::store::{Reader, Store, StoreError};

/// Readers, and who waits for one.
pub(super) struct Readers {
    idle: Mutex<Idle>,
    returned: Condvar,
}

struct Idle {
    readers: Vec<Box<dyn Reader>>,
    is_closed: bool,
}

impl Readers {
    pub(super) fn new(store: &dyn Store) -> Result<Self, StoreError> {
        let readers: Result<Vec<_>, _> = (0..READERS_MAX).map(|_| store.reader()).collect();
        let idle = Idle { readers: readers?, is_closed: false };
        Ok(Self { idle: Mutex::new(idle), returned: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().expect("nobody panics while holding this list")
    }

    pub(super) fn ask<T>(
        &self,
        question: impl FnOnce(&dyn Reader) -> Result<T, StoreError>,
    ) -> Result<T, ReadError> {
        let is_needed = |idle: &mut Idle| idle.readers.is_empty() && !idle.is_closed;
        let waited = self.returned.wait_while(self.lock(), is_needed);
        let reader = waited.expect("nobody panics while holding this list").readers.pop();
        let Some(reader) = reader else { return Err(ReadError::Stopping) };
        let answer = std::panic::catch_unwind(AssertUnwindSafe(|| question(reader.as_ref())));
        let mut idle = self.lock();
        if !idle.is_closed {
            idle.readers.push(reader);
        }
        drop(idle);
        self.returned.notify_one();
        Ok(answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
    }

    /// Answers no more questions: a store that nobody reads can put its file in order when it closes.
    pub(super) fn close(&self) {
        let closed = Idle { readers: Vec::new(), is_closed: true };
        let open = std::mem::replace(&mut *self.lock(), closed);
        self.returned.notify_all();
        drop(open);
    }
}
