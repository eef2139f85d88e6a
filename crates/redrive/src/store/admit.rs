//! Decides what becomes of a submission before anything of it is written: taken, known already, in
//! conflict with an earlier event, or too much for a service.
//!
//! Invariant: places are given without gaps, an event's first and its deliveries' after it; whoever carries
//! out an admission writes exactly these.

use std::collections::BTreeMap;

use redrive_core::event::Event;
use redrive_core::idempotency::DedupKey;
use redrive_core::ids::{Receipt, Seq, ServiceName};
use redrive_core::time::Timestamp;

use super::{Addressee, Refusal, Seen, Submission, Submitted, Taken, WhenFull, derive};

/// What a store knows that matters to a submission.
pub(super) trait Ledger {
    /// What may go wrong while looking.
    type Error;

    /// The event that came before with the same source and id.
    fn find(&mut self, event: &Event) -> Result<Option<Earlier>, Self::Error>;

    /// What waits for a service, over all its channels.
    fn waiting(&self, service: &ServiceName) -> Backlog;
}

/// What is known of an event that came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Earlier {
    pub(super) seq: Seq,
    pub(super) content: u64,
    pub(super) deliveries: u32,
    pub(super) accepted_at: Timestamp,
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backlog {
    pub(super) deliveries: u64,
    pub(super) bytes: u64,
}

/// What becomes of one event of a submission that is taken.
#[derive(Debug)]
pub(super) enum Admitted {
    /// It is written.
    New(New),
    /// It is already.
    Known(Taken),
}

/// An event with its places.
#[derive(Debug)]
pub(super) struct New {
    pub(super) seq: Seq,
    pub(super) content: u64,
    /// Of each addressee's delivery, which has the next place.
    pub(super) fits: Vec<Fit>,
}

/// Whether there is room for a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// There is.
    Waits,
    /// There is not, and it is dead at once.
    Overflows,
}

/// What becomes of each event of the submission, or why none of it is taken; `last` is the last place given.
pub(super) fn admit<L: Ledger>(
    ledger: &mut L,
    submission: &Submission,
    last: Seq,
    now: Timestamp,
) -> Result<Result<Vec<Admitted>, Refusal>, L::Error> {
    let mut added = Added::default();
    let mut within: BTreeMap<DedupKey<'_>, Earlier> = BTreeMap::new();
    let mut admitted: Vec<Admitted> = Vec::with_capacity(submission.events.len());
    let mut next = last.next();
    for (index, Submitted { event, routes }) in submission.events.iter().enumerate() {
        let content = derive::content_hash(event);
        let earlier = match within.get(&event.dedup_key()) {
            Some(earlier) => Some(*earlier),
            None => ledger.find(event)?,
        };
        if let Some(earlier) = earlier {
            let receipt = Receipt::of(earlier.seq);
            if earlier.content != content {
                // What is refused with the rest of its submission has no receipt.
                let first = (earlier.seq <= last).then_some(receipt);
                return Ok(Err(Refusal::Conflict { index, first }));
            }
            let Earlier { deliveries, accepted_at, .. } = earlier;
            let taken = Taken { receipt, seen: Seen::Again, deliveries, accepted_at };
            admitted.push(Admitted::Known(taken));
            continue;
        }
        let mut fits = Vec::with_capacity(routes.len());
        for addressee in routes {
            let Some(fit) = added.place(ledger, addressee, event) else {
                let service = addressee.queue.service.clone();
                return Ok(Err(Refusal::Full { index, service }));
            };
            fits.push(fit);
        }
        // Most submissions are of one event, which meets no other there.
        if submission.events.len() > 1 {
            let deliveries = deliveries(routes.len());
            within.insert(event.dedup_key(), Earlier { seq: next, content, deliveries, accepted_at: now });
        }
        admitted.push(Admitted::New(New { seq: next, content, fits }));
        next = Seq::new(next.get() + 1 + routes.len() as u64);
    }
    Ok(Ok(admitted))
}

/// Whether there is room for deliveries of an event to all of these, whatever they say of too many: it is
/// safe where it is, and can be routed when there is.
pub(super) fn all_fit<L: Ledger>(ledger: &L, routes: &[Addressee], event: &Event) -> bool {
    let mut added = Added::default();
    routes.iter().all(|addressee| added.place(ledger, addressee, event) == Some(Fit::Waits))
}

impl New {
    /// What the sender is told.
    pub(super) fn taken(&self, now: Timestamp) -> Taken {
        let receipt = Receipt::of(self.seq);
        Taken { receipt, seen: Seen::First, deliveries: deliveries(self.fits.len()), accepted_at: now }
    }
}

/// The number of deliveries of one event.
pub(super) fn deliveries(count: usize) -> u32 {
    u32::try_from(count).expect("a rule book has fewer claims than that")
}

/// What a submission itself adds to the backlog of services; an event is wanted by few, so a list will do.
#[derive(Default)]
struct Added<'a>(Vec<(&'a ServiceName, Backlog)>);

impl<'a> Added<'a> {
    /// Finds room for one more delivery; none if it is to be refused.
    fn place<L: Ledger>(&mut self, ledger: &L, addressee: &'a Addressee, event: &Event) -> Option<Fit> {
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
            return Some(Fit::Waits);
        }
        match bound.when_full {
            WhenFull::Refuse => None,
            WhenFull::DeadLetter => Some(Fit::Overflows),
        }
    }
}
