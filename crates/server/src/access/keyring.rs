//! Valid keys in memory, changed together with the store and bounded by the store's limit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use redrive_core::time::Timestamp;
use redrive_node::store::access_store::KeyRecord;

use crate::keys;

#[derive(Debug)]
pub(crate) struct CachedKey {
    pub(crate) record: KeyRecord,
    /// When the key ends, in nanoseconds; atomic since holders must see a revocation.
    ends_at: AtomicU64,
    /// In nanoseconds; zero until used.
    used_at: AtomicU64,
}

impl CachedKey {
    fn new(record: KeyRecord) -> Self {
        let ends_at = AtomicU64::new(ends_at(&record).as_nanos());
        Self { record, ends_at, used_at: AtomicU64::new(0) }
    }

    pub(crate) fn is_good(&self, now: Timestamp) -> bool {
        now.as_nanos() < self.ends_at.load(Ordering::Acquire)
    }
}

fn ends_at(record: &KeyRecord) -> Timestamp {
    let expires_at = record.expires_at.unwrap_or(Timestamp::NEVER);
    // A clock set back must not revive a revoked key.
    if record.revoked_at.is_some() { Timestamp::EPOCH } else { expires_at }
}

/// Keys by id.
#[derive(Debug)]
pub(crate) struct Keyring(RwLock<HashMap<String, Arc<CachedKey>>>);

impl Keyring {
    pub(crate) fn new(records: Vec<KeyRecord>) -> Self {
        let held = records.into_iter().map(|record| (record.id.clone(), Arc::new(CachedKey::new(record))));
        Self(RwLock::new(held.collect()))
    }

    /// Adds or updates a key.
    pub(crate) fn put(&self, record: KeyRecord) {
        let mut keys = self.0.write().expect("no panic while changing keys");
        let held = Arc::new(CachedKey::new(record));
        if let Some(old) = keys.get(&held.record.id) {
            held.used_at.store(old.used_at.load(Ordering::Relaxed), Ordering::Relaxed);
            // Callers that hold the key see the change as well.
            old.ends_at.store(held.ends_at.load(Ordering::Acquire), Ordering::Release);
        }
        keys.insert(held.record.id.clone(), held);
    }

    pub(crate) fn find(&self, text: &str, now: Timestamp) -> Option<Arc<CachedKey>> {
        let id = keys::id_of(text)?;
        let held = self.get(id);
        // An unknown id takes as long as a wrong secret.
        let kept = held.as_ref().map_or([0; 32], |held| held.record.hash);
        let is_right = keys::is_same(&keys::hash_of(text), &kept);
        let held = held.filter(|held| is_right && held.is_good(now))?;
        held.used_at.store(now.as_nanos(), Ordering::Relaxed);
        Some(held)
    }

    pub(crate) fn has_good(&self, now: Timestamp) -> bool {
        self.0.read().expect("no panic while changing keys").values().any(|held| held.is_good(now))
    }

    pub(crate) fn last_used_at(&self, id: &str) -> Option<Timestamp> {
        let nanos = self.get(id)?.used_at.load(Ordering::Relaxed);
        (nanos > 0).then(|| Timestamp::from_nanos(nanos))
    }

    fn get(&self, id: &str) -> Option<Arc<CachedKey>> {
        self.0.read().expect("no panic while changing keys").get(id).map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::access::{AccessScope, Role};
    use std::time::Duration;

    use super::*;
    use crate::keys::{CreatedKey, KeySpec, make};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000 * seconds)
    }

    fn key(lives: Option<Duration>) -> CreatedKey {
        let spec = KeySpec {
            name: "deploy".to_owned(),
            role: Role::Viewer,
            scope: AccessScope::default(),
            rate: None,
            lives,
        };
        make(spec, |_| false, at(100)).expect("a key")
    }

    #[test]
    fn only_the_whole_key_is_found_and_only_while_it_is_good() {
        let (lasting, brief) = (key(None), key(Some(Duration::from_secs(10))));
        let keyring = Keyring::new(vec![lasting.record.clone(), brief.record.clone()]);
        let altered = format!("{}A", &lasting.text[..lasting.text.len() - 1]);
        let altered = if altered == lasting.text { altered.replace('A', "B") } else { altered };
        let strange = key(None);
        #[rustfmt::skip]
        let cases = [
            ("the key",                 &lasting.text,      at(100), true),
            ("years later",             &lasting.text,      at(1_000_000_000), true),
            ("with another end",        &altered,           at(100), false),
            ("its name alone",          &lasting.record.id, at(100), false),
            ("one that is not there",   &strange.text,      at(100), false),
            ("a brief one",             &brief.text,        at(109), true),
            ("to the second",           &brief.text,        at(110), false),
        ];
        for (name, text, now, expected) in cases {
            assert_eq!(keyring.find(text, now).is_some(), expected, "{name}");
        }
    }

    #[test]
    fn a_revoked_key_is_bad_for_those_who_are_in_already() {
        let made = key(None);
        let keyring = Keyring::new(vec![made.record.clone()]);
        assert_eq!(keyring.last_used_at(&made.record.id), None);
        let held = keyring.find(&made.text, at(100)).expect("it is good");
        assert!(held.is_good(at(200)));
        keyring.put(KeyRecord { revoked_at: Some(at(150)), ..made.record.clone() });
        assert!(!held.is_good(at(200)));
        for now in [at(120), at(200)] {
            assert!(keyring.find(&made.text, now).is_none(), "whatever the clock says");
        }
        assert_eq!(keyring.last_used_at(&made.record.id), Some(at(100)), "which is remembered");
    }
}
