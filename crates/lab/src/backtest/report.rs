//! What a backtest came to: the same for people and for programs.

use serde::Serialize;

use super::{Certainty, Doubt};
use crate::simulate::Quantiles;
use redrive_core::time::Timestamp;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// From when on deliveries were looked at, if that was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Until when.
    pub until: Timestamp,
    /// When the first and the last of them were accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<(Timestamp, Timestamp)>,
    /// How many there were.
    pub deliveries: u64,
    /// How many ended as the record has it.
    pub before: Ends,
    /// How they would have ended by the new rules; those of which nobody knows are counted apart.
    pub after: Ends,
    /// Deliveries of which it is certain, of which it is likely, and of which nobody knows.
    pub certainty: Certainties,
    /// Deliveries that would have ended otherwise.
    pub changed: u64,
    /// The same by what would have become of them, the most frequent first.
    pub changes: Vec<Change>,
    /// Rows that were left off.
    pub changes_left_off: u64,
    /// Deliveries of which nobody knows how they would have ended, by what became of them.
    pub unknown: Vec<Change>,
    /// Calls to each dependency.
    pub dependencies: Vec<Load>,
    /// Retries of deliveries that died all the same.
    pub futile_retries: Pair,
    /// How long it took until deliveries arrived, of those that arrive either way.
    pub until_delivered: Times,
    /// How long it took until they were given up, of those that are given up either way.
    pub until_dead: Times,
    /// Events that services of the new book would take and that they did not get.
    pub newly_routed: Vec<NewRoute>,
    /// What the record cannot tell, and whom that concerns.
    pub untold: Vec<Untold>,
    /// An answer so long before or after is taken for the answer of a moment.
    pub near_ms: u64,
}

/// How many ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ends {
    /// They arrived.
    pub delivered: u64,
    /// They were given up.
    pub dead: u64,
    /// They wait still.
    pub waiting: u64,
    /// They wait for a person.
    pub paused: u64,
    /// Nobody wants them.
    pub not_sent: u64,
    /// Nobody knows.
    pub unknown: u64,
}

/// How far what is said can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Certainties {
    /// The new rules ask for the attempts that are on record.
    pub certain: u64,
    /// What others were answered at the time is known.
    pub likely: u64,
    /// Nothing is.
    pub unknown: u64,
}

impl Certainties {
    pub(super) const fn add(&mut self, certainty: Certainty) {
        match certainty {
            Certainty::Certain => self.certain += 1,
            Certainty::Likely => self.likely += 1,
            Certainty::Unknown => self.unknown += 1,
        }
    }

    /// The worst of them.
    #[must_use]
    pub const fn worst(&self) -> Certainty {
        match self {
            Self { unknown: 1.., .. } => Certainty::Unknown,
            Self { likely: 1.., .. } => Certainty::Likely,
            Self { .. } => Certainty::Certain,
        }
    }
}

/// The ways to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndName {
    /// It arrives.
    Delivered,
    /// It is given up.
    Dead,
    /// It waits still.
    Waiting,
    /// It waits for a person.
    Paused,
    /// Nobody wants it.
    NotSent,
}

/// Deliveries of a service to which the same would have happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// How they ended.
    pub from: EndName,
    /// How they would have.
    pub to: EndName,
    /// The service, or `service/channel`.
    pub service: String,
    /// Why they died, then or now; empty if they did not.
    pub code: String,
    /// The code of their last failure.
    pub failure: String,
    /// How many.
    pub deliveries: u64,
    /// How far that can be trusted, at worst.
    pub certainty: Certainty,
    /// Some of them, the first that were accepted.
    pub examples: Vec<String>,
}

/// Before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// As the record has it.
    pub before: u64,
    /// By the new rules.
    pub after: u64,
}

/// Calls to a dependency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Load {
    /// The dependency.
    pub name: String,
    /// Calls.
    pub calls: Pair,
    /// Of these, retries.
    pub retries: Pair,
    /// Of the calls by the new rules, those whose answer nobody knows.
    pub guessed: u64,
    /// Deliveries to it by how far the number of their calls can be trusted. Another breaker, throttle or hold leaves
    /// none of them certain.
    pub certainty: Certainties,
}

/// How long something took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// How many were compared.
    pub deliveries: u64,
    /// All of them together, in milliseconds.
    pub sum_ms: Pair,
    /// As the record has it.
    pub before: Quantiles,
    /// By the new rules.
    pub after: Quantiles,
}

/// Events that somebody would get who did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewRoute {
    /// The service, or `service/channel`.
    pub service: String,
    /// The type of the events.
    pub event_type: String,
    /// How many came.
    pub events: u64,
}

/// Something that cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Untold {
    /// What it is.
    pub doubt: UntoldKind,
    /// How many deliveries, or events, it concerns.
    pub count: u64,
    /// The same in words.
    pub text: String,
}

/// What cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", untagged)]
pub enum UntoldKind {
    /// Something about single deliveries.
    Delivery(Doubt),
    /// Something about all of them.
    Whole(Whole),
}

/// What concerns all deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Whole {
    /// How dependencies would have borne more or fewer calls.
    Load,
    /// What becomes of events that were never sent.
    NewRoutes,
}
