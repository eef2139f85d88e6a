//! Who wants which type of event, remembered so that each type is looked up in the book once.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use redrive_core::book::route::Route;
use redrive_core::book::{RuleBook, model};
use redrive_core::engine::QueueName;
use redrive_core::ids::{ChannelName, ServiceName};
use redrive_core::time::Timestamp;

use crate::store::{Addressee, WaitingBound, WhenFull};

/// Types that are remembered; senders choose them, so there is a bound.
const TYPES_MAX: usize = 10_000;

/// The routes of one book.
pub(super) struct Routes {
    book: Arc<RuleBook>,
    /// What it was read from.
    text: Arc<str>,
    /// Since when it holds.
    read_at: Timestamp,
    known: RwLock<HashMap<Box<str>, Arc<[Addressee]>>>,
}

impl Routes {
    pub(super) fn new(book: Arc<RuleBook>, text: Arc<str>, read_at: Timestamp) -> Self {
        Self { book, text, read_at, known: RwLock::default() }
    }

    pub(super) fn book(&self) -> &Arc<RuleBook> {
        &self.book
    }

    pub(super) fn text(&self) -> &Arc<str> {
        &self.text
    }

    pub(super) const fn read_at(&self) -> Timestamp {
        self.read_at
    }

    /// Who wants events of that type.
    pub(super) fn of(&self, event_type: &str) -> Arc<[Addressee]> {
        let known = self.known.read().expect("nobody panics while looking up");
        if let Some(routes) = known.get(event_type) {
            return Arc::clone(routes);
        }
        drop(known);
        let routes: Arc<[Addressee]> =
            self.book.route(event_type).iter().map(|route| self.addressee(route, event_type)).collect();
        let mut known = self.known.write().expect("nobody panics while adding");
        if known.len() < TYPES_MAX {
            known.insert(event_type.into(), Arc::clone(&routes));
        }
        routes
    }

    /// Where a notice to that receiver waits; none if the book does not know them.
    pub(super) fn to_receiver(&self, receiver: &str, event_type: &str) -> Option<Addressee> {
        let routes = self.book.own()?.route(event_type);
        let is_theirs = |route: &&Route<'_>| route.channel.is_some_and(|one| one.name.as_str() == receiver);
        routes.iter().find(is_theirs).map(|route| self.addressee(route, event_type))
    }

    /// What happens to an event of a webhook when that service is full.
    pub(super) fn when_full_of_webhook(&self, service: &ServiceName) -> WhenFull {
        let waiting = self.book.waiting(service.as_str()).expect("the book routes to services that it has");
        when_full(waiting.when_full_of_webhook)
    }

    fn addressee(&self, route: &Route<'_>, event_type: &str) -> Addressee {
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

const fn when_full(stated: model::WhenFull) -> WhenFull {
    match stated {
        model::WhenFull::Refuse => WhenFull::Refuse,
        model::WhenFull::DeadLetter => WhenFull::DeadLetter,
    }
}
