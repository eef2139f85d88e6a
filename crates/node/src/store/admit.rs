//! Decides whether a submission is accepted, a duplicate, in conflict with an earlier event, or over a backlog
//! limit, before anything is written.
//!
//! Invariant: sequence numbers have no gaps, the event's first and then its deliveries'; the caller writes exactly
//! these.

use std::collections::BTreeMap;

use redrive_core::event::Event;
use redrive_core::event::copy_rule::RememberedKeys;
use redrive_core::event::idempotency::DedupKey;
use redrive_core::ids::{Receipt, Seq, ServiceName};
use redrive_core::time::Timestamp;

use super::{
    AcceptedEvent, Addressee, Occurrence, OverflowPolicy, Submission, SubmissionRefusal, SubmittedEvent,
    derive,
};

/// What admission asks of a store.
pub(super) trait AdmissionLedger {
    type Error;

    /// The earlier event with the same source and id: see [`EarlierEvent::beside`].
    fn find(&mut self, event: &Event, content: u64) -> Result<Option<EarlierEvent>, Self::Error>;

    /// The event delivered before under that key, if still remembered.
    fn find_key(&mut self, key: &[u8], now: Timestamp) -> Result<Option<EarlierEvent>, Self::Error>;

    fn waiting(&self, service: &ServiceName) -> Backlog;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EarlierEvent {
    pub(super) seq: Seq,
    pub(super) content: u64,
    pub(super) deliveries: u32,
    pub(super) accepted_at: Timestamp,
    /// Of all events with this source and id.
    pub(super) remembered: RememberedKeys,
}

impl EarlierEvent {
    /// Of two events with the same source and id, prefers the one with that content, then the first.
    pub(super) fn beside(self, other: Self, content: u64) -> Self {
        let rank = |one: &Self| (one.content != content, one.seq);
        let remembered = RememberedKeys {
            last_at: self.remembered.last_at.max(other.remembered.last_at),
            kept: self.remembered.kept || other.remembered.kept,
        };
        Self { remembered, ..if rank(&self) <= rank(&other) { self } else { other } }
    }

    fn taken(&self) -> AcceptedEvent {
        let Self { seq, deliveries, accepted_at, .. } = *self;
        AcceptedEvent { receipt: Receipt::of(seq), seen: Occurrence::Duplicate, deliveries, accepted_at }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backlog {
    pub(super) deliveries: u64,
    pub(super) bytes: u64,
}

/// What happens to one event of an accepted submission.
#[derive(Debug)]
pub(super) enum EventAdmission {
    New(NewEvent),
    Known(AcceptedEvent),
}

#[derive(Debug)]
pub(super) struct NewEvent {
    pub(super) seq: Seq,
    pub(super) content: u64,
    /// Per addressee; `None` if the event is a duplicate for it.
    pub(super) fits: Vec<Option<BacklogFit>>,
    pub(super) keys: Vec<NewKey>,
}

/// A deduplication key of a delivery.
#[derive(Debug)]
pub(super) struct NewKey {
    pub(super) key: Vec<u8>,
    pub(super) until: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BacklogFit {
    Waits,
    /// Dead-lettered at once.
    Overflows,
    /// Poison at once: the event violates its schema.
    Violates,
}

/// Decides for each event, or why all are refused; `last` is the last sequence number in use.
pub(super) fn admit<L: AdmissionLedger>(
    ledger: &mut L,
    submission: &Submission,
    last: Seq,
    now: Timestamp,
) -> Result<Result<Vec<EventAdmission>, SubmissionRefusal>, L::Error> {
    let mut added = AddedBacklog::default();
    let mut within: BTreeMap<DedupKey<'_>, EarlierEvent> = BTreeMap::new();
    let mut keys_within: BTreeMap<Vec<u8>, EarlierEvent> = BTreeMap::new();
    let mut admitted: Vec<EventAdmission> = Vec::with_capacity(submission.events.len());
    let mut next = last.next();
    for (index, SubmittedEvent { event, routes }) in submission.events.iter().enumerate() {
        let content = derive::content_hash(event);
        let earlier = match within.get(&event.dedup_key()) {
            Some(earlier) => Some(*earlier),
            None => ledger.find(event, content)?,
        };
        let is_copy_for =
            |to: &Addressee| earlier.is_some_and(|earlier| to.copies.recall(earlier.remembered, now));
        if let Some(earlier) = &earlier {
            if earlier.content != content && (routes.is_empty() || routes.iter().any(is_copy_for)) {
                // An event refused with its submission has no receipt.
                let first = (earlier.seq <= last).then_some(Receipt::of(earlier.seq));
                return Ok(Err(SubmissionRefusal::Conflict { index, first }));
            }
            if routes.iter().all(is_copy_for) {
                admitted.push(EventAdmission::Known(earlier.taken()));
                continue;
            }
        }
        let mut first = earlier;
        let mut new =
            NewEvent { seq: next, content, fits: Vec::with_capacity(routes.len()), keys: Vec::new() };
        for addressee in routes {
            let key = derive::copy_key(addressee, event);
            let mut before = earlier.filter(|_| is_copy_for(addressee));
            if let Some(key) = key.as_ref().filter(|_| before.is_none()) {
                before = match keys_within.get(key) {
                    Some(earlier) => Some(*earlier),
                    None => ledger.find_key(key, now)?,
                };
            }
            if let Some(before) = before {
                first.get_or_insert(before);
                new.fits.push(None);
                continue;
            }
            let Some(fit) = added.place(ledger, addressee, event) else {
                let service = addressee.queue.service.clone();
                return Ok(Err(SubmissionRefusal::Full { index, service }));
            };
            new.fits.push(Some(fit));
            new.keys.extend(key.map(|key| NewKey { key, until: now + addressee.copies.ttl }));
        }
        if let Some(first) = first.filter(|_| !routes.is_empty() && new.deliveries() == 0) {
            admitted.push(EventAdmission::Known(first.taken()));
            continue;
        }
        // Most submissions have one event.
        if submission.events.len() > 1 {
            let remembered = RememberedKeys { last_at: now, kept: true };
            let deliveries = new.deliveries();
            let this = EarlierEvent { seq: next, content, deliveries, accepted_at: now, remembered };
            within.insert(event.dedup_key(), this);
            keys_within.extend(new.keys.iter().map(|new| (new.key.clone(), this)));
        }
        next = Seq::new(next.get() + 1 + u64::from(new.deliveries()));
        admitted.push(EventAdmission::New(new));
    }
    Ok(Ok(admitted))
}

/// Addressees of a formerly unrouted event.
#[derive(Debug)]
pub(super) struct RoutePlan<'a> {
    pub(super) to: Vec<&'a Addressee>,
    pub(super) keys: Vec<NewKey>,
}

/// Addressees of an unrouted event, without those for whom it is a duplicate. `None` if there are none or if one
/// has no room, whatever its overflow policy: the event stays unrouted.
pub(super) fn route<'a, L: AdmissionLedger>(
    ledger: &mut L,
    routes: &'a [Addressee],
    event: &Event,
    now: Timestamp,
) -> Result<Option<RoutePlan<'a>>, L::Error> {
    let mut added = AddedBacklog::default();
    let mut found = RoutePlan { to: Vec::with_capacity(routes.len()), keys: Vec::new() };
    for addressee in routes {
        let key = derive::copy_key(addressee, event);
        if let Some(key) = &key
            && ledger.find_key(key, now)?.is_some()
        {
            continue;
        }
        if added.place(ledger, addressee, event) != Some(BacklogFit::Waits) {
            return Ok(None);
        }
        found.to.push(addressee);
        found.keys.extend(key.map(|key| NewKey { key, until: now + addressee.copies.ttl }));
    }
    Ok(Some(found).filter(|found| !found.to.is_empty()))
}

impl NewEvent {
    pub(super) fn taken(&self, now: Timestamp) -> AcceptedEvent {
        let receipt = Receipt::of(self.seq);
        AcceptedEvent { receipt, seen: Occurrence::First, deliveries: self.deliveries(), accepted_at: now }
    }

    fn deliveries(&self) -> u32 {
        deliveries(self.fits.iter().flatten().count())
    }
}

pub(super) fn deliveries(count: usize) -> u32 {
    u32::try_from(count).expect("a rule book has fewer claims than that")
}

/// Backlog added by the submission itself. Few addressees, so a list will do.
#[derive(Default)]
struct AddedBacklog<'a>(Vec<(&'a ServiceName, Backlog)>);

impl<'a> AddedBacklog<'a> {
    /// `None` if the delivery is refused.
    fn place<L: AdmissionLedger>(
        &mut self,
        ledger: &L,
        addressee: &'a Addressee,
        event: &Event,
    ) -> Option<BacklogFit> {
        if addressee.violation.is_some() {
            return Some(BacklogFit::Violates);
        }
        let service = &addressee.queue.service;
        let index = self.0.iter().position(|(name, _)| *name == service).unwrap_or_else(|| {
            self.0.push((service, ledger.waiting(service)));
            self.0.len() - 1
        });
        let backlog = &mut self.0[index].1;
        let with_it = Backlog {
            deliveries: backlog.deliveries + 1,
            bytes: backlog.bytes.saturating_add(event.data.len() as u64),
        };
        let bound = addressee.bound;
        if with_it.deliveries <= bound.deliveries_max && with_it.bytes <= bound.bytes_max {
            *backlog = with_it;
            return Some(BacklogFit::Waits);
        }
        match bound.when_full {
            OverflowPolicy::Refuse => None,
            OverflowPolicy::DeadLetter => Some(BacklogFit::Overflows),
        }
    }
}
