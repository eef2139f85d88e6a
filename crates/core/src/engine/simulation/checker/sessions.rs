//! Whose turn it is in each session: the first that came, until it has ended, then the oldest of those that
//! wait. A dead letter that keeps its place holds the session when its turn comes.

use std::collections::{BTreeMap, BTreeSet};

use super::super::store::Lane;
use crate::ids::DeliveryId;

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions(BTreeMap<Lane, Session>);

#[derive(Debug, Default)]
struct Session {
    /// Those that have not ended, and dead letters that keep their place, by their turn.
    members: BTreeSet<(u64, DeliveryId)>,
    head: Option<DeliveryId>,
}

impl Sessions {
    /// It waits for its turn, which comes at once if nobody else is there.
    pub(super) fn join(&mut self, lane: &Lane, turn: u64, id: DeliveryId) {
        let session = self.0.entry(lane.clone()).or_default();
        session.members.insert((turn, id));
        session.head.get_or_insert(id);
    }

    /// It is gone from there, and the oldest has its turn.
    pub(super) fn leave(&mut self, lane: &Lane, turn: u64, id: DeliveryId) {
        let Some(session) = self.0.get_mut(lane) else { return };
        session.members.remove(&(turn, id));
        if session.head == Some(id) {
            session.head = session.members.first().map(|(_, first)| *first);
        }
    }

    /// Another takes its place.
    pub(super) fn replace(&mut self, lane: &Lane, turn: u64, old: DeliveryId, new: DeliveryId) {
        let session = self.0.entry(lane.clone()).or_default();
        session.members.remove(&(turn, old));
        session.members.insert((turn, new));
        if session.head.is_none_or(|head| head == old) {
            session.head = Some(new);
        }
    }

    /// Whose turn it is.
    pub(super) fn head(&self, lane: &Lane) -> Option<DeliveryId> {
        self.0.get(lane)?.head
    }
}
