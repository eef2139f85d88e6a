//! The active rule book and the components that follow it.
//!
//! A reload builds the next [`ActiveBook`] completely, lets every component with state of its own prepare,
//! stores the book, and only then publishes it and lets the components switch. A failure before that changes
//! nothing.
//!
//! Invariants: no component sees half a reload; each event type is routed once per book.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use redrive_core::book::cel::CelExpression;
use redrive_core::book::event_schema::{EventSchema, SchemaViolation};
use redrive_core::book::model::ViolationAction;
use redrive_core::book::route::RouteMatch;
use redrive_core::book::{RuleBook, event_condition, model};
use redrive_core::engine::QueueName;
use redrive_core::event::Event;
use redrive_core::ids::{ChannelName, ServiceName};
use redrive_core::time::Timestamp;
use tokio::sync::watch;

use super::{Node, SubmitError};
use crate::activity::Activity;
use crate::store::{Addressee, OverflowPolicy, RetentionRules, StateChange, WaitingBound};
use crate::target::registry::Targets;

/// Cached event types; senders choose them, so they are bounded.
const TYPES_MAX: usize = 10_000;

pub(super) struct ActiveBook {
    /// Counts books since the start, from 1.
    pub(super) generation: u64,
    pub(super) book: Arc<RuleBook>,
    pub(super) text: Arc<str>,
    pub(super) read_at: Timestamp,
    pub(super) keep: RetentionRules,
    pub(super) targets: Targets,
    known: RwLock<HashMap<Box<str>, Arc<TypeRoutes>>>,
}

/// What the book says about one event type.
struct TypeRoutes {
    to: Vec<ConditionalRoute>,
    schema: Option<(EventSchema, ViolationAction)>,
    has_conditions: bool,
}

struct ConditionalRoute {
    addressee: Addressee,
    condition: Option<CelExpression>,
}

pub(super) type ActiveBooks = watch::Receiver<Arc<ActiveBook>>;

/// Switches a component to a book that it has prepared for; cannot fail.
pub type BookSwitch = Box<dyn FnOnce() + Send>;

/// Prepares a component for a book; an error refuses the book.
type Prepare = Box<dyn Fn(&Arc<RuleBook>) -> Result<BookSwitch, String> + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BookSwitchAt {
    /// Before the node routes and delivers by it: what targets need.
    BeforeNode,
    /// Afterwards: what accepts events.
    AfterNode,
}

struct BookFollower {
    part: &'static str,
    at: BookSwitchAt,
    prepare: Prepare,
}

/// Components that follow the active book, and the generation each has reached.
#[derive(Default)]
pub(super) struct BookFollowers {
    list: Mutex<Vec<BookFollower>>,
    reached: Mutex<BTreeMap<&'static str, u64>>,
}

/// Why a rule book was not activated; the old one stays.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("{part}: {reason}")]
    NotBuilt { part: &'static str, reason: String },
    #[error(transparent)]
    NotWritten(#[from] SubmitError),
}

impl BookFollowers {
    /// Records that a component follows that generation.
    pub(super) fn reach(&self, part: &'static str, generation: u64) {
        locked(&self.reached).insert(part, generation);
    }

    fn prepare(
        &self,
        book: &Arc<RuleBook>,
    ) -> Result<Vec<(&'static str, BookSwitchAt, BookSwitch)>, ChangeError> {
        let prepared = |BookFollower { part, at, prepare }: &BookFollower| match prepare(book) {
            Ok(switch) => Ok((*part, *at, switch)),
            Err(reason) => Err(ChangeError::NotBuilt { part, reason }),
        };
        locked(&self.list).iter().map(prepared).collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    /// Activates a rule book in every component, or in none.
    pub async fn change_book(
        &self,
        book: Arc<RuleBook>,
        text: Arc<str>,
        targets: Targets,
    ) -> Result<(), ChangeError> {
        let _changing = self.shared.changing_book.lock().await;
        let generation = self.active_book().generation + 1;
        let next = Arc::new(ActiveBook::new(generation, book, text, targets, self.now()));
        let followers = &self.shared.followers;
        let prepared = followers.prepare(&next.book)?;
        self.note(StateChange::Book { hash: next.book.hash(), text: Arc::clone(&next.text) }, None).await?;
        let (before, after): (Vec<_>, Vec<_>) =
            prepared.into_iter().partition(|(_, at, _)| *at == BookSwitchAt::BeforeNode);
        let switch = |(part, _, switch): (&'static str, BookSwitchAt, BookSwitch)| {
            switch();
            followers.reach(part, generation);
        };
        before.into_iter().for_each(switch);
        self.shared.books.send_replace(next);
        after.into_iter().for_each(switch);
        self.shared.chart.book_read();
        self.publish(Activity::BookRead);
        if self.shared.engine.is_closed() { Err(SubmitError::Stopping.into()) } else { Ok(()) }
    }

    /// Makes a component follow the active book from the next reload on.
    pub fn follow_book(
        &self,
        part: &'static str,
        at: BookSwitchAt,
        prepare: impl Fn(&Arc<RuleBook>) -> Result<BookSwitch, String> + Send + Sync + 'static,
    ) {
        self.shared.followers.reach(part, self.active_book().generation);
        locked(&self.shared.followers.list).push(BookFollower { part, at, prepare: Box::new(prepare) });
    }

    /// The generation each component follows. The node's own tasks reach a new one soon after a reload, the
    /// others with it.
    #[cfg(test)]
    pub(super) fn book_generations(&self) -> BTreeMap<&'static str, u64> {
        locked(&self.shared.followers.reached).clone()
    }

    pub(super) fn active_book(&self) -> Arc<ActiveBook> {
        Arc::clone(&self.shared.books.borrow())
    }
}

impl ActiveBook {
    pub(super) fn new(
        generation: u64,
        book: Arc<RuleBook>,
        text: Arc<str>,
        targets: Targets,
        read_at: Timestamp,
    ) -> Self {
        let keep = keep(&book);
        Self { generation, book, text, read_at, keep, targets, known: RwLock::default() }
    }

    /// Who gets the event, or why it is refused.
    pub(super) fn of(&self, event: &Event) -> Result<Vec<Addressee>, SchemaViolation> {
        let routes = self.routes(event.event_type.as_str());
        match routes.violation(event) {
            None => Ok(routes.wanted_by(event)),
            Some((violation, ViolationAction::Refuse)) => Err(violation),
            Some((violation, ViolationAction::DeadLetter)) => {
                Ok(poisoned(routes.wanted_by(event), &violation))
            }
        }
    }

    /// Who gets an event of our own, which no sender could correct.
    pub(super) fn of_own(&self, event: &Event) -> Vec<Addressee> {
        let routes = self.routes(event.event_type.as_str());
        match routes.violation(event) {
            None => routes.wanted_by(event),
            Some((violation, _)) => poisoned(routes.wanted_by(event), &violation),
        }
    }

    /// For an event that was accepted before.
    pub(super) fn addressees(&self, event: &Event) -> Vec<Addressee> {
        self.routes(event.event_type.as_str()).wanted_by(event)
    }

    fn routes(&self, event_type: &str) -> Arc<TypeRoutes> {
        let known = self.known.read().expect("lock is not poisoned");
        if let Some(routes) = known.get(event_type) {
            return Arc::clone(routes);
        }
        drop(known);
        let routed = self.book.route(event_type);
        let to = routed.iter().map(|route| ConditionalRoute {
            addressee: self.addressee(route, event_type),
            condition: route.row.condition.as_ref().map(|at| at.value.clone()),
        });
        let entry = self.book.sections().event_types.get(event_type);
        let found = Arc::new(TypeRoutes {
            to: to.collect(),
            schema: entry.map(|entry| (entry.schema.clone(), entry.on_violation)),
            has_conditions: routed.iter().any(|route| route.row.condition.is_some()),
        });
        let mut known = self.known.write().expect("lock is not poisoned");
        if known.len() < TYPES_MAX {
            known.insert(event_type.into(), Arc::clone(&found));
        }
        found
    }

    /// The queue of an alert receiver; none if the book lacks it.
    pub(super) fn to_receiver(&self, receiver: &str, event_type: &str) -> Option<Addressee> {
        let routes = self.book.own()?.route(event_type);
        let is_theirs =
            |route: &&RouteMatch<'_>| route.channel.is_some_and(|one| one.name.as_str() == receiver);
        routes.iter().find(is_theirs).map(|route| self.addressee(route, event_type))
    }

    /// What happens to a webhook event when that service is full.
    pub(super) fn when_full_of_webhook(&self, service: &ServiceName) -> OverflowPolicy {
        let waiting = self.book.waiting(service.as_str()).expect("the book routes to services that it has");
        when_full(waiting.when_full_of_webhook)
    }

    fn addressee(&self, route: &RouteMatch<'_>, event_type: &str) -> Addressee {
        let service = route.service.name.clone();
        let waiting = self.book.waiting(service.as_str()).expect("the book routes to services that it has");
        let channel = route.channel.map(|channel| channel.name.clone());
        let letter =
            self.book.letter_rule(service.as_str(), channel.as_ref().map(ChannelName::as_str), event_type);
        let letter = letter.expect("the book routes to rows that it has");
        Addressee {
            subscription: route.subscription().into(),
            order: route.order(),
            copies: route.rule.copies.clone(),
            violation: None,
            letter_name: letter.name(event_type).into(),
            consumer_group: letter.consumer_group.as_str().into(),
            bound: WaitingBound {
                deliveries_max: waiting.events,
                bytes_max: waiting.size_bytes,
                per_session_max: waiting.per_session,
                when_full: when_full(waiting.when_full),
            },
            queue: Arc::new(QueueName { service, channel }),
        }
    }
}

fn poisoned(mut addressees: Vec<Addressee>, violation: &SchemaViolation) -> Vec<Addressee> {
    let reason: Arc<str> = violation.to_string().into();
    for addressee in &mut addressees {
        addressee.violation = Some(Arc::clone(&reason));
    }
    addressees
}

impl TypeRoutes {
    fn violation(&self, event: &Event) -> Option<(SchemaViolation, ViolationAction)> {
        let (schema, on_violation) = self.schema.as_ref()?;
        Some((schema.check(event).err()?, *on_violation))
    }

    fn wanted_by(&self, event: &Event) -> Vec<Addressee> {
        if !self.has_conditions {
            return self.to.iter().map(|route| route.addressee.clone()).collect();
        }
        let values = event_condition::values(event);
        let wants = |route: &&ConditionalRoute| {
            // What cannot be evaluated is not met.
            route.condition.as_ref().is_none_or(|condition| condition.holds(&values).unwrap_or(false))
        };
        self.to.iter().filter(wants).map(|route| route.addressee.clone()).collect()
    }
}

fn keep(book: &Arc<RuleBook>) -> RetentionRules {
    let rules = Arc::clone(book);
    let letters = move |queue: &QueueName, event_type: &str| {
        let channel = queue.channel.as_ref().map(ChannelName::as_str);
        let rule = rules.letter_rule(queue.service.as_str(), channel, event_type);
        rule.map_or(rules.letter_retention(), |rule| rule.retention)
    };
    RetentionRules {
        delivered: book.keep_delivered(),
        ids: book.dedup_ttl_max().max(book.keep_delivered()),
        letters: Arc::new(letters),
    }
}

const fn when_full(stated: model::QueueFullAction) -> OverflowPolicy {
    match stated {
        model::QueueFullAction::Refuse => OverflowPolicy::Refuse,
        model::QueueFullAction::DeadLetter => OverflowPolicy::DeadLetter,
    }
}
