//! What the twin keeps for the doors: keys, refused bodies, memos, and what was done by whom.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use redrive_core::ids::{Receipt, Seq};
use redrive_core::time::Timestamp;

use super::world::{Kept, World};
use crate::store::EventView;
use crate::store::access_store::{
    AuditActor, AuditEntry, KEYS_MAX, KeyRecord, REFUSED_BYTES_MAX, REFUSED_MAX, RefusedBody,
};

/// All of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Door {
    /// The oldest first.
    keys: Vec<KeyRecord>,
    /// The oldest first.
    refused: VecDeque<RefusedBody>,
    memos: BTreeMap<String, String>,
}

impl World {
    pub(super) fn save_key(&mut self, key: &KeyRecord) {
        let keys = &mut self.door.keys;
        match keys.iter().position(|known| known.id == key.id) {
            Some(known) => keys[known].clone_from(key),
            None if keys.len() < KEYS_MAX => keys.push(key.clone()),
            None => {}
        }
    }

    pub(super) fn save_refused(&mut self, refused: &RefusedBody, now: Timestamp) {
        let kept = &mut self.door.refused;
        let number = kept.back().map_or(0, |last| last.number) + 1;
        kept.push_back(refused.as_kept(number, now));
        while kept.len() > REFUSED_MAX
            || kept.iter().map(RefusedBody::kept_bytes).sum::<usize>() > REFUSED_BYTES_MAX
        {
            kept.pop_front();
        }
    }

    pub(super) fn save_memo(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.door.memos.insert(name.to_owned(), value.to_owned()),
            None => self.door.memos.remove(name),
        };
    }

    pub(super) fn save_audit_entry(&mut self, deed: &AuditEntry, now: Timestamp) {
        let AuditEntry { act, what, by, note } = deed;
        self.actor = by.clone();
        self.record(act, what.clone(), 0, note.clone(), now);
        self.actor = AuditActor::unknown();
    }

    pub(super) fn keys(&self) -> Vec<KeyRecord> {
        self.door.keys.clone()
    }

    pub(super) fn refused(&self, before: Option<u64>, rows_max: usize) -> Vec<RefusedBody> {
        let earlier = |one: &&RefusedBody| before.is_none_or(|before| one.number < before);
        let found = self.door.refused.iter().rev().filter(earlier).take(rows_max);
        found.map(|one| RefusedBody { body: Bytes::new(), ..one.clone() }).collect()
    }

    pub(super) fn refused_body(&self, number: u64) -> Option<RefusedBody> {
        self.door.refused.iter().find(|one| one.number == number).cloned()
    }

    pub(super) fn memo(&self, name: &str) -> Option<String> {
        self.door.memos.get(name).cloned()
    }

    pub(super) fn events_after(&self, after: Seq, rows_max: usize, bytes_max: usize) -> Vec<EventView> {
        let mut views: Vec<EventView> = Vec::new();
        let mut bytes = 0_usize;
        for (seq, kept) in self.events.range(after.next()..).filter(|(_, kept)| self.has_data(kept)) {
            bytes = bytes.saturating_add(kept.event.data.len());
            if views.len() == rows_max || bytes > bytes_max && !views.is_empty() {
                break;
            }
            views.push(EventView {
                receipt: Receipt::of(*seq),
                event: Arc::clone(&kept.event),
                received_at: kept.received_at,
                unrouted: kept.delivery_count == 0,
                deliveries: Vec::new(),
            });
        }
        views
    }

    /// Whether its data are as they came, be they none.
    fn has_data(&self, kept: &Kept) -> bool {
        kept.whole && (kept.delivery_count == 0 || !kept.deliveries().all(|seq| self.is_purged(seq)))
    }
}
