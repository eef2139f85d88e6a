//! What people, and the rule book by itself, want done with dead letters; each is one transaction.

use std::sync::Arc;

use crate::book::RuleBook;
use crate::event::Event;
use crate::ids::{DeliveryId, DependencyName, ServiceName};
pub(super) use crate::letters::replay::ReplayAct;
use crate::letters::replay::{ReplayId, ReplayJob, ReplayOrigin, ReplayPace};

/// One order.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Replay(Box<NewReplay>),
    Change(ReplayId, ReplayAct),
    Skip(DeliveryId),
    LetGo(DeliveryId),
    Purge(Purge),
    Edit(DeliveryId, Arc<Event>),
}

/// A replay to begin.
#[derive(Clone, Debug)]
pub(super) struct NewReplay {
    pub choice: Choice,
    pub pace: ReplayPace,
    pub origin: ReplayOrigin,
    pub poison: Poison,
}

/// Which letters a replay is to send.
#[derive(Clone, Debug)]
pub(super) enum Choice {
    /// All of a service.
    Service(ServiceName),
    /// Those that the book brings back so many times when that dependency is well again.
    Book { rules: Arc<RuleBook>, dependency: DependencyName, times_max: u32 },
}

/// Whether letters of the tier `poison` are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Poison {
    Left,
    Included,
}

/// A step of a purge: letters of that service with numbers between these.
#[derive(Clone, Debug)]
pub(super) struct Purge {
    pub service: ServiceName,
    pub after: u64,
    pub until: u64,
}

/// What an order came to; one that was refused has changed nothing.
#[derive(Clone, Debug)]
pub(super) enum Ordered {
    Replay(ReplayJob),
    /// There is more to purge.
    Purging(Purge),
    Done,
    Refused,
}
