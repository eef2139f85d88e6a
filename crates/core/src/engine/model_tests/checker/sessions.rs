//! Whose turn it is in each session: the first that came, until it has ended, then the oldest of those that
//! wait. A dead letter that keeps its place holds the session when its turn comes; an older letter that comes
//! back meanwhile goes before it.

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
    head: Option<(u64, DeliveryId)>,
}

impl Sessions {
    /// It waits for its turn, which comes at once if the session is empty or has only a dead one behind it.
    pub(super) fn join(
        &mut self,
        lane: Lane,
        turn: u64,
        id: DeliveryId,
        is_dead: impl Fn(&DeliveryId) -> bool,
    ) {
        let session = self.0.entry(lane).or_default();
        session.members.insert((turn, id));
        if session.head.is_none_or(|(of_head, head)| turn < of_head && is_dead(&head)) {
            session.head = Some((turn, id));
        }
    }

    /// It is gone from there, and the oldest has its turn.
    pub(super) fn leave(&mut self, lane: Lane, turn: u64, id: DeliveryId) {
        let Some(session) = self.0.get_mut(&lane) else { return };
        session.members.remove(&(turn, id));
        self.holds(lane, turn, id);
    }

    /// It is dead and keeps its place: the oldest has its turn, which may be an older letter that came back.
    pub(super) fn holds(&mut self, lane: Lane, turn: u64, id: DeliveryId) {
        let Some(session) = self.0.get_mut(&lane) else { return };
        if session.head == Some((turn, id)) {
            session.head = session.members.first().copied();
        }
    }

    /// Another takes its place.
    pub(super) fn replace(
        &mut self,
        lane: Lane,
        turn: u64,
        (old, new): (DeliveryId, DeliveryId),
        is_dead: impl Fn(&DeliveryId) -> bool,
    ) {
        let session = self.0.entry(lane).or_default();
        session.members.remove(&(turn, old));
        session.head = session.head.filter(|head| *head != (turn, old));
        self.join(lane, turn, new, is_dead);
    }

    /// Whose turn it is.
    pub(super) fn head(&self, lane: Lane) -> Option<DeliveryId> {
        self.0.get(&lane)?.head.map(|(_, id)| id)
    }
}
