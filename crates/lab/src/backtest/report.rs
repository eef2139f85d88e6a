//! What a backtest came to: the same for people and for programs.

use serde::Serialize;

use super::{Certainty, BacktestDoubt};
use crate::simulate::Quantiles;
use redrive_core::time::Timestamp;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BacktestReport {
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
    pub changes: Vec<OutcomeChange>,
    /// Rows that were left off.
    pub changes_left_off: u64,
    /// Deliveries of which nobody knows how they would have ended, by what became of them.
    pub unknown: Vec<OutcomeChange>,
    /// Calls to each dependency.
    pub dependencies: Vec<DependencyLoad>,
    /// Retries of deliveries that died all the same.
    pub futile_retries: Pair,
    /// How long it took until deliveries arrived, of those that arrive either way.
    pub until_delivered: DurationComparison,
    /// How long it took until they were given up, of those that are given up either way.
    pub until_dead: DurationComparison,
    /// Events that services of the new book would take and that they did not get.
    pub newly_routed: Vec<NewRoute>,
    /// What the record cannot tell, and whom that concerns.
    pub untold: Vec<UnknownItem>,
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
pub struct OutcomeChange {
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
pub struct DependencyLoad {
    /// The dependency.
    pub name: String,
    /// Calls.
    pub calls: Pair,
    /// Of these, retries.
    pub retries: Pair,
    /// Of the calls by the new rules, those whose answer nobody knows.
    pub guessed: u64,
}

/// How long something took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DurationComparison {
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
pub struct UnknownItem {
    /// What it is.
    pub doubt: UnknownKind,
    /// How many deliveries, or events, it concerns.
    pub count: u64,
    /// The same in words.
    pub text: String,
}

/// What cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", untagged)]
pub enum UnknownKind {
    /// Something about single deliveries.
    Delivery(BacktestDoubt),
    /// Something about all of them.
    Whole(UnknownWhole),
}

/// What concerns all deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownWhole {
    /// How dependencies would have borne more or fewer calls.
    Load,
    /// What becomes of events that were never sent.
    NewRoutes,
}
