//! How events enter: from the scenario's streams, derived from settlements, or submitted again after a rejection.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::agenda::AgendaEvent;
use super::chance::{below, unit};
use super::ledger::DeliveryRoute;
use super::store::SubmittedDelivery;
use super::world::{NodeCondition, QueueSubscriber, SimulatedWorld};
use redrive_core::book::model::DeliveryOrder;
use redrive_core::engine::{Input, PendingDelivery, Settlement};
use redrive_core::event::Event;
use redrive_core::event::attribute::{EventId, EventSource, EventType, SessionKey};
use redrive_core::hash::stable_64_of;

struct SentEvent {
    event: Arc<Event>,
    session: Option<u32>,
    number: u64,
    content: u64,
    is_poison: bool,
}

impl SimulatedWorld<'_> {
    pub(super) fn arrive(&mut self, stream: usize) {
        match self.streams[stream].next(Some(self.now)) {
            Some(at) => self.agenda.plan(at, AgendaEvent::Arrive { stream }),
            None => self.streams_open -= 1,
        }
        let mut accepted: Vec<Vec<PendingDelivery>> = vec![Vec::new(); self.nodes.len()];
        for _ in 0..self.streams[stream].at_once() {
            self.send(stream, &mut accepted);
        }
        self.hand_on(accepted);
    }

    fn send(&mut self, stream: usize, accepted: &mut [Vec<PendingDelivery>]) {
        let arrival = &self.scenario.arrivals[stream];
        self.ledger.event();
        let number = self.streams[stream].next_number();
        let session = arrival.sessions.map(|count| {
            let drawn = below(self.sessions.draw(number), u64::from(count));
            u32::try_from(drawn).expect("less than the count")
        });
        let is_poison = unit(self.poison.draw(number)) < arrival.poison.get();
        let event = self.events[stream].entry(session);
        let event =
            Arc::clone(event.or_insert_with(|| Arc::new(event_of(&arrival.event_type.value, session))));
        let content = self.content.draw(number);
        for taker in 0..self.takers[stream].len() {
            let sent = SentEvent { event: Arc::clone(&event), session, number, content, is_poison };
            self.hand_over(self.takers[stream][taker], sent, accepted);
        }
    }

    fn hand_over(&mut self, taker: QueueSubscriber, sent: SentEvent, accepted: &mut [Vec<PendingDelivery>]) {
        let QueueSubscriber { belongs, key, order } = taker;
        let SentEvent { event, session, number, content, is_poison } = sent;
        let session = session.filter(|_| order != DeliveryOrder::None);
        let share = stable_64_of(key, session.map_or(number, |session| u64::from(session) << 32));
        let node = usize::try_from(below(stable_64_of(share, 7), self.nodes.len() as u64)).expect("a node");
        let clock = self.clock();
        let DeliveryRoute { queue, dependency } = belongs;
        let content = stable_64_of(content, key);
        let new = SubmittedDelivery { queue, dependency, session, event, content, sent_at: clock, is_poison };
        self.ledger.sent(belongs);
        let node_at = &mut self.nodes[node];
        match node_at.health {
            NodeCondition::Well => accepted[node].extend(node_at.store.accept(new, clock)),
            NodeCondition::Down { .. } | NodeCondition::Stalled { .. } => node_at.rejected.push(new),
        }
    }

    pub(super) fn derive(&mut self, settlement: &Settlement) {
        let mut accepted: Vec<Vec<PendingDelivery>> = vec![Vec::new(); self.nodes.len()];
        for (event, place) in settlement.emits.iter().zip(0_u64..) {
            let event_type = &event.event_type;
            if !self.derived.contains_key(event_type) {
                self.derived.insert(event_type.clone(), self.takers_of(event_type));
            }
            let takers = self.derived[event_type].clone();
            if takers.is_empty() {
                continue;
            }
            self.ledger.event();
            let session = event.session.as_ref().and_then(number_of);
            let number =
                stable_64_of(settlement.delivery.content(), u64::from(settlement.attempts) << 8 | place);
            for taker in takers {
                let (event, content) = (Arc::clone(event), number);
                self.hand_over(
                    taker,
                    SentEvent { event, session, number, content, is_poison: false },
                    &mut accepted,
                );
            }
        }
        self.hand_on(accepted);
    }

    fn hand_on(&mut self, accepted: Vec<Vec<PendingDelivery>>) {
        for (node, rows) in accepted.into_iter().enumerate() {
            if !rows.is_empty() {
                self.nodes[node].inbox.push_back(Input::Accepted(rows));
                self.pump(node);
            }
        }
    }

    pub(super) fn accept_rejected(&mut self, node: usize) {
        let clock = self.clock();
        let well = &mut self.nodes[node];
        let accepted: Vec<_> = std::mem::take(&mut well.rejected)
            .into_iter()
            .filter_map(|new| well.store.accept(new, clock))
            .collect();
        well.inbox.push_back(Input::Accepted(accepted));
        self.pump(node);
    }
}

/// The inverse of the naming in [`event_of`].
fn number_of(session: &SessionKey) -> Option<u32> {
    session.as_str().strip_prefix("session-")?.parse().ok()
}

/// All events of one type and session are equal: nothing here reads their data.
fn event_of(event_type: &EventType, session: Option<u32>) -> Event {
    Event {
        id: EventId::new("simulated").expect("an id"),
        source: EventSource::new("/simulation").expect("a source"),
        event_type: event_type.clone(),
        subject: None,
        time: None,
        content_type: None,
        session: session.map(|number| SessionKey::new(&format!("session-{number}")).expect("a key")),
        correlation_id: None,
        traceparent: None,
        extensions: BTreeMap::new(),
        data: bytes::Bytes::new(),
    }
}
