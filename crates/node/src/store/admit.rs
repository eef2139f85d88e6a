//! Decides what becomes of a submission before anything of it is written: taken, known already, in
//! conflict with an earlier event, or too much for a service.
//!
//! Invariant: places are given without gaps, an event's first and its deliveries' after it; whoever carries
//! out an admission writes exactly these.

use std::collections::BTreeMap;

use redrive_core::event::Event;
use redrive_core::event::copies::Remembered;
use redrive_core::event::idempotency::DedupKey;
use redrive_core::ids::{Receipt, Seq, ServiceName};
use redrive_core::time::Timestamp;

use super::{Addressee, SubmissionRefusal, Occurrence, Submission, SubmittedEvent, AcceptedEvent, OverflowPolicy, derive};

/// What a store knows that matters to a submission.
pub(super) trait AdmissionLedger {
    /// What may go wrong while looking.
    type Error;

    /// What was sent before with the same source and id: see [`EarlierEvent::beside`].
    fn find(&mut self, event: &Event, content: u64) -> Result<Option<EarlierEvent>, Self::Error>;

    /// The event that was delivered before with that key, if it is still known.
    fn find_key(&mut self, key: &[u8], now: Timestamp) -> Result<Option<EarlierEvent>, Self::Error>;

    /// What waits for a service, over all its channels.
    fn waiting(&self, service: &ServiceName) -> Backlog;
}

/// What is known of an event that came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EarlierEvent {
    pub(super) seq: Seq,
    pub(super) content: u64,
    pub(super) deliveries: u32,
    pub(super) accepted_at: Timestamp,
    /// When one of the same source and id was last accepted, and whether one is still kept.
    pub(super) remembered: Remembered,
}

impl EarlierEvent {
    /// Two of the same source and id: the one with that content is told of, else the first of them.
    pub(super) fn beside(self, other: Self, content: u64) -> Self {
        let rank = |one: &Self| (one.content != content, one.seq);
        let remembered = Remembered {
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

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backlog {
    pub(super) deliveries: u64,
    pub(super) bytes: u64,
}

/// What becomes of one event of a submission that is taken.
#[derive(Debug)]
pub(super) enum EventAdmission {
    /// It is written.
    New(NewEvent),
    /// It is already.
    Known(AcceptedEvent),
}

/// An event with its places.
#[derive(Debug)]
pub(super) struct NewEvent {
    pub(super) seq: Seq,
    pub(super) content: u64,
    /// Of each addressee's delivery, which has the next place; none if it is a copy for that one.
    pub(super) fits: Vec<Option<BacklogFit>>,
    /// The keys of its deliveries.
    pub(super) keys: Vec<NewKey>,
}

/// A key that a delivery is known by from now on.
#[derive(Debug)]
pub(super) struct NewKey {
    pub(super) key: Vec<u8>,
    pub(super) until: Timestamp,
}

/// Whether there is room for a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BacklogFit {
    /// There is.
    Waits,
    /// There is not, and it is dead at once.
    Overflows,
}

/// What becomes of each event of the submission, or why none of it is taken; `last` is the last place given.
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
                // What is refused with the rest of its submission has no receipt.
                let first = (earlier.seq <= last).then_some(Receipt::of(earlier.seq));
                return Ok(Err(SubmissionRefusal::Conflict { index, first }));
            }
            if routes.iter().all(is_copy_for) {
                admitted.push(EventAdmission::Known(earlier.taken()));
                continue;
            }
        }
        let mut first = earlier;
        let mut new = NewEvent { seq: next, content, fits: Vec::with_capacity(routes.len()), keys: Vec::new() };
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
        // Most submissions are of one event, which meets no other there.
        if submission.events.len() > 1 {
            let remembered = Remembered { last_at: now, kept: true };
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

/// Who gets an event that nobody has wanted so far, with the keys of their deliveries.
#[derive(Debug)]
pub(super) struct RoutePlan<'a> {
    pub(super) to: Vec<&'a Addressee>,
    pub(super) keys: Vec<NewKey>,
}

/// Who of these gets an event that nobody has wanted so far: all for whom it is no copy by its key. None if it
/// is for all, or if there is no room with one of them, whatever they say of too many: it is safe where it
/// is, and can be routed when there is.
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
    /// What the sender is told.
    pub(super) fn taken(&self, now: Timestamp) -> AcceptedEvent {
        let receipt = Receipt::of(self.seq);
        AcceptedEvent { receipt, seen: Occurrence::First, deliveries: self.deliveries(), accepted_at: now }
    }

    /// How many deliveries it has.
    fn deliveries(&self) -> u32 {
        deliveries(self.fits.iter().flatten().count())
    }
}

/// The number of deliveries of one event.
pub(super) fn deliveries(count: usize) -> u32 {
    u32::try_from(count).expect("a rule book has fewer claims than that")
}

/// What a submission itself adds to the backlog of services; an event is wanted by few, so a list will do.
#[derive(Default)]
struct AddedBacklog<'a>(Vec<(&'a ServiceName, Backlog)>);

impl<'a> AddedBacklog<'a> {
    /// Finds room for one more delivery; none if it is to be refused.
    fn place<L: AdmissionLedger>(&mut self, ledger: &L, addressee: &'a Addressee, event: &Event) -> Option<BacklogFit> {
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
