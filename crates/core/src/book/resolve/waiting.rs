//! How much may wait for a service: each bound from the service, else the defaults, else what is built in.

use super::{Known, Level};
use crate::book::model::{At, Sections, ServiceEntry, Waiting, WhenFull};
use crate::limits;

/// How much may wait for a service, over all its channels.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedWaiting {
    /// Events.
    pub events: Known<u64>,
    /// Bytes of their payloads.
    pub size_bytes: Known<u64>,
    /// Events behind a dead letter that holds their session.
    pub per_session: Known<u64>,
    /// What happens to one too many.
    pub when_full: Known<WhenFull>,
}

impl ResolvedWaiting {
    /// What happens to one too many that came in through a webhook. Where the book says nothing it is
    /// kept as a dead letter, since its sender may not send it again.
    #[must_use]
    pub fn when_full_of_webhook(&self) -> WhenFull {
        match self.when_full.origin.level {
            Level::BuiltIn => WhenFull::DeadLetter,
            Level::Row
            | Level::Channel
            | Level::Service
            | Level::Dependency
            | Level::Kind
            | Level::Defaults => self.when_full.value,
        }
    }
}

pub(super) fn waiting(book: &Sections, service: &ServiceEntry) -> ResolvedWaiting {
    let (own, general) = (&service.waiting, &book.waiting);
    ResolvedWaiting {
        events: first_of(own, general, |w| &w.events, limits::WAITING_EVENTS_DEFAULT),
        size_bytes: first_of(own, general, |w| &w.size_bytes, limits::WAITING_BYTES_DEFAULT),
        per_session: first_of(own, general, |w| &w.per_session, limits::WAITING_PER_SESSION_DEFAULT),
        when_full: first_of(own, general, |w| &w.when_full, WhenFull::Refuse),
    }
}

fn first_of<T: Copy>(
    own: &Waiting,
    general: &Waiting,
    pick: fn(&Waiting) -> &Option<At<T>>,
    default: T,
) -> Known<T> {
    let stated = |level, waiting| Some(Known::stated(level, pick(waiting).as_ref()?));
    let known = stated(Level::Service, own).or_else(|| stated(Level::Defaults, general));
    known.unwrap_or(Known::built_in(default))
}
