//! Collects from a store what the doctor examines.
//!
//! Invariant: every read is bounded, so that neither the write-ahead log nor other queries wait for long.

use std::collections::BTreeMap;

use redrive_core::book::RuleBook;
use redrive_core::engine::{HeldQueue, QueueName};
use redrive_core::ids::{DependencyName, Seq};
use redrive_lab::doctor::{
    BreakerTurn, DELIVERIES_MAX, DependencyState, DoctorEvidence, ExaminedDelivery, ExaminedState,
    HeldLetter, LetterKind, QueueState, Unrouted,
};
use redrive_node::runtime::{BreakerHistory, Snapshot};
use redrive_node::store::letter::{KindView, LetterFilter};
use redrive_node::store::{
    DeliveryFilter, DeliveryPage, DeliveryState, DeliveryView, Oldest, StoreCounts, StoreError, StoreReader,
};

const PAGE: usize = 500;

const UNROUTED_MAX: usize = 200;

const HELD_MAX: usize = 100;

/// Deliveries searched for those of one service, so that an idle service does not cost a full scan.
const LOOKED_AT_MAX: u64 = 200_000;

#[derive(Debug, Default)]
pub(crate) struct DeliveryEvidence {
    service: Option<String>,
    seen: Vec<ExaminedDelivery>,
    before: Option<Seq>,
    /// Hash of the book that judged the latest attempt.
    latest_book: Option<u64>,
    at_the_end: bool,
    /// Deliveries read, including those of other services.
    looked_at: u64,
}

impl DeliveryEvidence {
    pub(crate) fn of(service: Option<String>) -> Self {
        Self { service, ..Self::default() }
    }

    /// The next query; `None` when there is nothing more to read.
    pub(crate) fn wanted(&self) -> Option<DeliveryFilter> {
        let missing = DELIVERIES_MAX - self.seen.len().min(DELIVERIES_MAX);
        let is_done = self.at_the_end || missing == 0;
        (!is_done).then(|| DeliveryFilter {
            service: self.service.clone(),
            before: self.before,
            rows_max: missing.min(PAGE),
            ..DeliveryFilter::default()
        })
    }

    pub(crate) fn add(&mut self, listed: DeliveryPage) {
        let DeliveryPage { deliveries: views, next, looked_at } = listed;
        self.looked_at += looked_at;
        self.at_the_end = next.is_none() || self.looked_at >= LOOKED_AT_MAX;
        self.before = next;
        let books = views.iter().filter_map(|view| view.stories.last()).map(|story| story.book);
        self.latest_book = self.latest_book.or_else(|| books.into_iter().next());
        self.seen.extend(views.into_iter().map(seen));
    }

    pub(crate) const fn count(&self) -> usize {
        self.seen.len()
    }

    pub(crate) const fn latest_book(&self) -> Option<u64> {
        self.latest_book
    }
}

fn seen(view: DeliveryView) -> ExaminedDelivery {
    ExaminedDelivery {
        queue: view.queue,
        event_type: view.event_type,
        accepted_at: view.accepted_at,
        state: match view.state {
            DeliveryState::Ready | DeliveryState::Due { .. } | DeliveryState::Behind => {
                ExaminedState::Waiting
            }
            DeliveryState::Delivered { .. } => ExaminedState::Delivered,
            DeliveryState::Dead { at, death } => ExaminedState::Dead { at, code: death.code },
            DeliveryState::Closed { .. } => ExaminedState::Closed,
        },
        stories: view.stories,
    }
}

#[derive(Debug)]
pub(crate) struct StoreEvidence {
    counts: StoreCounts,
    oldest: BTreeMap<QueueName, Oldest>,
    letters: Vec<LetterKind>,
    held: Vec<HeldLetter>,
    unrouted: Vec<Unrouted>,
    pub(crate) text: Option<String>,
}

pub(crate) fn rest(reader: &dyn StoreReader, book: Option<u64>) -> Result<StoreEvidence, StoreError> {
    let letters = reader.kinds(&LetterFilter::default())?;
    let held = reader.held_sessions(HELD_MAX)?;
    let mut unrouted: BTreeMap<String, u64> = BTreeMap::new();
    for view in reader.unrouted(Seq::NONE, UNROUTED_MAX)? {
        *unrouted.entry(view.event.event_type.to_string()).or_default() += 1;
    }
    Ok(StoreEvidence {
        counts: reader.counts()?,
        oldest: reader.oldest()?,
        letters: letters.into_iter().map(letter_kind).collect(),
        held: held
            .into_iter()
            .map(|held| HeldLetter {
                queue: held.queue,
                session: held.session,
                letter: held.letter.to_string(),
                since: held.since,
                behind: held.behind,
            })
            .collect(),
        unrouted: unrouted.into_iter().map(|(event_type, count)| Unrouted { event_type, count }).collect(),
        text: match book {
            Some(hash) => reader.book(hash)?,
            None => None,
        },
    })
}

fn letter_kind(view: KindView) -> LetterKind {
    let KindView { queue, event_type, category, code, failure_code, tier, fingerprint, count, .. } = view;
    let KindView { first_at, last_at, .. } = view;
    LetterKind {
        queue,
        event_type,
        category,
        code,
        failure_code,
        tier,
        fingerprint,
        count,
        first_at,
        last_at,
    }
}

pub(crate) fn evidence(
    book: std::sync::Arc<RuleBook>,
    deliveries: DeliveryEvidence,
    rest: StoreEvidence,
    turns: &BreakerHistory,
    living: Option<&Snapshot>,
    now: redrive_core::time::Timestamp,
) -> DoctorEvidence {
    let in_service = |queue: &QueueName| {
        deliveries.service.as_deref().is_none_or(|service| is_of(service, &queue.to_string()))
    };
    let queues =
        rest.counts.queues.iter().filter(|(name, _)| in_service(name)).map(|(name, counts)| QueueState {
            name: name.clone(),
            waiting: counts.waiting,
            behind: counts.behind,
            without_rule: counts.without_rule,
            dead: counts.dead,
            oldest_waiting_at: rest.oldest.get(name).and_then(|oldest| oldest.waiting_since),
            held: match living {
                Some(snapshot) => {
                    snapshot.queues.iter().find(|queue| *queue.name == *name).and_then(|queue| queue.held)
                }
                None => (!is_known(&book, name)).then_some(HeldQueue::Removed),
            },
        });
    let queues: Vec<_> = queues.collect();
    let letters = rest.letters.into_iter().filter(|kind| in_service(&kind.queue)).collect();
    let held = rest.held.into_iter().filter(|held| in_service(&held.queue)).collect();
    let unrouted = if deliveries.service.is_some() { Vec::new() } else { rest.unrouted };
    DoctorEvidence {
        now,
        dependencies: dependencies(&book, turns, living),
        book,
        text: rest.text.map(Into::into),
        figures: living.map(|snapshot| std::sync::Arc::clone(&snapshot.figures)),
        queues,
        deliveries: deliveries.seen,
        letters,
        held,
        unrouted,
    }
}

fn is_of(service: &str, name: &str) -> bool {
    name == service || name.strip_prefix(service).is_some_and(|rest| rest.starts_with('/'))
}

fn is_known(book: &RuleBook, queue: &QueueName) -> bool {
    book.queues().any(|(service, channel)| *service == queue.service && channel == queue.channel.as_ref())
}

fn dependencies(book: &RuleBook, turns: &BreakerHistory, living: Option<&Snapshot>) -> Vec<DependencyState> {
    let sections = book.sections();
    let mut states: BTreeMap<DependencyName, DependencyState> = BTreeMap::new();
    for (service, channel, row) in sections.rows() {
        let name = redrive_core::book::resolve::dependency_of(service, channel, row).value;
        let in_flight = living
            .and_then(|snapshot| snapshot.dependencies.iter().find(|dependency| dependency.name == name));
        let in_flight = in_flight.map_or(0, |dependency| dependency.in_flight);
        states.entry(name.clone()).or_insert_with(|| {
            let turn = |turn: &redrive_node::runtime::BreakerChange| BreakerTurn {
                at: turn.at,
                from: turn.from,
                to: turn.to,
            };
            // Manual trips and resets say nothing about the settings.
            let own = turns.of(name.as_str()).filter(|turn| turn.hand.is_none()).map(turn);
            let mut turns: Vec<BreakerTurn> = own.collect();
            turns.reverse();
            DependencyState { name, in_flight, turns }
        });
    }
    states.into_values().collect()
}
