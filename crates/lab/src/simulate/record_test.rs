//! Keeps the stories of a simulation as a store would, for tests that need a record of a whole day.

use std::cell::RefCell;
use std::collections::BTreeMap;

use redrive_core::engine::attempt_record::AttemptRecord;
use redrive_core::engine::{Settlement, SettlementResult};
use redrive_core::ids::DeliveryId;

/// The attempts of every delivery of one node.
pub(crate) type Stories = BTreeMap<DeliveryId, Vec<AttemptRecord>>;

thread_local! {
    static STORIES: RefCell<Option<Stories>> = const { RefCell::new(None) };
}

/// Keeps what is written while something is played.
pub(crate) fn kept<T>(play: impl FnOnce() -> T) -> (T, Stories) {
    STORIES.set(Some(Stories::new()));
    let played = play();
    (played, STORIES.take().unwrap_or_default())
}

/// Something was written, or was not.
pub(super) fn settled(settlement: &Settlement, fate: SettlementResult) {
    let Some(story) = settlement.record.as_deref().filter(|_| fate == SettlementResult::Written) else {
        return;
    };
    STORIES.with_borrow_mut(|stories| {
        if let Some(stories) = stories {
            stories.entry(settlement.delivery).or_default().push(story.clone());
        }
    });
}
