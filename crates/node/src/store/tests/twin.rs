//! The model of core as a [`Store`]: with duplicates, retention, kinds of letters and records around it, each in
//! the plainest way, so that a store that ships can be compared with it.

mod access_store;
mod commands;
mod deliveries;
mod housekeeping;
mod letter_questions;
mod letters;
mod questions;
mod reassign;
mod replays;
mod world;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redrive_core::engine::{LoadRequest, LoadedPage, QueueName};
use redrive_core::ids::{IdPrefix, Seq};
use redrive_core::letters::replay::ReplayId;
use redrive_core::time::Timestamp;

use self::questions::Stories;
use self::world::World;
use crate::store::access_store::{KeyRecord, RefusedBody};
use crate::store::letter::{
    AuditRecord, GroupView, HeldCursor, HeldPage, HeldSession, KindView, LetterFilter, LetterKey,
    LetterNumber, LetterPage, LetterQuery, LetterView, ReplayView, Selection, SelectionSurvey,
};
use crate::store::{
    Backup, BackupProgress, BatchResult, DeliveryFilter, DeliveryPage, DeliveryView, DiskRoom, EventKey,
    EventView, HousekeepingStep, Oldest, RecoveredState, RetentionRules, Store, StoreCounts, StoreError,
    StoreReader, WriteBatch,
};

/// A store in memory.
#[derive(Debug)]
pub(super) struct Twin {
    // Readers look at the same world from other threads; nobody holds the lock for longer than one verb.
    world: Arc<Mutex<World>>,
}

impl Twin {
    /// An empty one, whose hashes and jitter depend on the seed.
    #[must_use]
    pub(super) fn new(seed: u64) -> Self {
        Self { world: Arc::new(Mutex::new(World::new(seed))) }
    }

    /// The same store once more, as if it were opened from its folder: what one does, the other sees.
    #[must_use]
    pub(super) fn opened_again(&self) -> Self {
        Self { world: Arc::clone(&self.world) }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        locked(&self.world)
    }
}

fn locked(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for Twin {
    fn recover(&mut self, now: Timestamp) -> Result<RecoveredState, StoreError> {
        Ok(self.world().recover(now))
    }

    fn write(&mut self, batch: &WriteBatch, now: Timestamp) -> Result<BatchResult, StoreError> {
        Ok(self.world().write(batch, now))
    }

    fn load(&mut self, load: &LoadRequest) -> Result<LoadedPage, StoreError> {
        Ok(self.world().model.load(load))
    }

    fn housekeep(&mut self, keep: &RetentionRules, now: Timestamp) -> Result<HousekeepingStep, StoreError> {
        Ok(self.world().housekeep(keep, now))
    }

    fn back_up(&mut self, _step: &mut Backup) -> Result<BackupProgress, StoreError> {
        Err(StoreError::NotWritten("a store in memory has no folder to copy".into()))
    }

    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError> {
        Ok(Box::new(TwinReader { world: Arc::clone(&self.world) }))
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn has_room(&mut self) -> Result<DiskRoom, StoreError> {
        Ok(DiskRoom::Enough)
    }

    fn close(self: Box<Self>, now: Timestamp) -> Result<(), StoreError> {
        self.world().close(now);
        Ok(())
    }
}

/// Looks at it from elsewhere.
struct TwinReader {
    world: Arc<Mutex<World>>,
}

impl StoreReader for TwinReader {
    fn events(&self, key: &EventKey) -> Result<Vec<EventView>, StoreError> {
        Ok(locked(&self.world).events(key))
    }

    fn deliveries(&self, prefix: &IdPrefix, rows_max: usize) -> Result<Vec<DeliveryView>, StoreError> {
        Ok(locked(&self.world).deliveries(*prefix, rows_max))
    }

    fn list(&self, filter: &DeliveryFilter) -> Result<DeliveryPage, StoreError> {
        Ok(locked(&self.world).list(filter, Stories::Left))
    }

    fn deliveries_with_attempts(&self, filter: &DeliveryFilter) -> Result<DeliveryPage, StoreError> {
        Ok(locked(&self.world).list(filter, Stories::Told))
    }

    fn unrouted(&self, after: Seq, rows_max: usize) -> Result<Vec<EventView>, StoreError> {
        Ok(locked(&self.world).unrouted(after, rows_max))
    }

    fn book(&self, hash: u64) -> Result<Option<String>, StoreError> {
        Ok(locked(&self.world).book(hash))
    }

    fn counts(&self) -> Result<StoreCounts, StoreError> {
        Ok(locked(&self.world).counts())
    }

    fn oldest(&self) -> Result<BTreeMap<QueueName, Oldest>, StoreError> {
        Ok(locked(&self.world).oldest())
    }

    fn letters(&self, query: &LetterQuery) -> Result<LetterPage, StoreError> {
        Ok(locked(&self.world).letters(query))
    }

    fn letter(&self, key: &LetterKey) -> Result<Option<LetterView>, StoreError> {
        Ok(locked(&self.world).letter(key))
    }

    fn imported_letters(&self, key: &str) -> Result<Vec<LetterView>, StoreError> {
        Ok(locked(&self.world).imported_letters(key))
    }

    fn export(
        &self,
        selection: &Selection,
        after: Option<LetterNumber>,
        rows_max: usize,
    ) -> Result<LetterPage, StoreError> {
        Ok(locked(&self.world).export(selection, after, rows_max))
    }

    fn kinds(&self, filter: &LetterFilter) -> Result<Vec<KindView>, StoreError> {
        Ok(locked(&self.world).kinds(filter))
    }

    fn groups(
        &self,
        filter: &LetterFilter,
        now: Timestamp,
        rows_max: usize,
    ) -> Result<Vec<GroupView>, StoreError> {
        Ok(locked(&self.world).groups(filter, now, rows_max))
    }

    fn survey(&self, selection: &Selection) -> Result<SelectionSurvey, StoreError> {
        Ok(locked(&self.world).survey(selection))
    }

    fn replay(&self, id: ReplayId) -> Result<Option<ReplayView>, StoreError> {
        Ok(locked(&self.world).replay_view(id))
    }

    fn replays(&self, before: Option<ReplayId>, rows_max: usize) -> Result<Vec<ReplayView>, StoreError> {
        Ok(locked(&self.world).replays(before, rows_max))
    }

    fn held_sessions(&self, rows_max: usize) -> Result<Vec<HeldSession>, StoreError> {
        Ok(locked(&self.world).held_sessions(rows_max))
    }

    fn held_page(&self, after: Option<HeldCursor>, rows_max: usize) -> Result<HeldPage, StoreError> {
        Ok(locked(&self.world).held_page(after, rows_max))
    }

    fn keys(&self) -> Result<Vec<KeyRecord>, StoreError> {
        Ok(locked(&self.world).keys())
    }

    fn refused(&self, before: Option<u64>, rows_max: usize) -> Result<Vec<RefusedBody>, StoreError> {
        Ok(locked(&self.world).refused(before, rows_max))
    }

    fn refused_body(&self, number: u64) -> Result<Option<RefusedBody>, StoreError> {
        Ok(locked(&self.world).refused_body(number))
    }

    fn memo(&self, name: &str) -> Result<Option<String>, StoreError> {
        Ok(locked(&self.world).memo(name))
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn seed(&self) -> Result<u64, StoreError> {
        Ok(locked(&self.world).seed)
    }

    fn last_place(&self) -> Result<Seq, StoreError> {
        Ok(locked(&self.world).model.last())
    }

    fn events_after(
        &self,
        after: Seq,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<EventView>, StoreError> {
        Ok(locked(&self.world).events_after(after, rows_max, bytes_max))
    }

    fn audit(&self, before: Option<u64>, rows_max: usize) -> Result<Vec<AuditRecord>, StoreError> {
        Ok(locked(&self.world).audit(before, rows_max))
    }
}
