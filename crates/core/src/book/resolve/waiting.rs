//! Backlog limits of a service: from the service, else the defaults, else built in.

use super::{ResolvedValue, RuleLevel};
use crate::book::model::{At, QueueFullAction, Sections, ServiceEntry, WaitingEntry};
use crate::limits;

#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedWaiting {
    pub events: ResolvedValue<u64>,
    pub size_bytes: ResolvedValue<u64>,
    pub per_session: ResolvedValue<u64>,
    pub when_full: ResolvedValue<QueueFullAction>,
}

impl ResolvedWaiting {
    /// Without a setting, an event from a webhook becomes a dead letter, since its sender may not send again.
    #[must_use]
    pub fn when_full_of_webhook(&self) -> QueueFullAction {
        match self.when_full.origin.level {
            RuleLevel::BuiltIn => QueueFullAction::DeadLetter,
            RuleLevel::Row
            | RuleLevel::Channel
            | RuleLevel::Service
            | RuleLevel::Dependency
            | RuleLevel::Kind
            | RuleLevel::Defaults => self.when_full.value,
        }
    }
}

pub(super) fn waiting(book: &Sections, service: &ServiceEntry) -> ResolvedWaiting {
    let (own, general) = (&service.waiting, &book.waiting);
    ResolvedWaiting {
        events: first_of(own, general, |w| &w.events, limits::WAITING_EVENTS_DEFAULT),
        size_bytes: first_of(own, general, |w| &w.size_bytes, limits::WAITING_BYTES_DEFAULT),
        per_session: first_of(own, general, |w| &w.per_session, limits::WAITING_PER_SESSION_DEFAULT),
        when_full: first_of(own, general, |w| &w.when_full, QueueFullAction::Refuse),
    }
}

fn first_of<T: Copy>(
    own: &WaitingEntry,
    general: &WaitingEntry,
    pick: fn(&WaitingEntry) -> &Option<At<T>>,
    default: T,
) -> ResolvedValue<T> {
    let stated = |level, waiting| Some(ResolvedValue::stated(level, pick(waiting).as_ref()?));
    let known = stated(RuleLevel::Service, own).or_else(|| stated(RuleLevel::Defaults, general));
    known.unwrap_or(ResolvedValue::built_in(default))
}
