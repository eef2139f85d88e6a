//! A replay: dead letters that are sent again, as a job that outlives the process.
//!
//! The letters of a replay are chosen when it begins. It sends them at its pace, counts what became of each,
//! and ends when all have been delivered, have failed or were left out. The engine decides the pace; the
//! store writes what was sent and what became of it, in the transactions that send and settle.
//!
//! Invariant: `total = waiting + in flight + delivered + failed + left`, at every observable moment.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::DeliveryId;
use crate::letters::fingerprint::Fingerprint;
use crate::text::Rate;

/// From 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplayId(pub u64);

impl fmt::Display for ReplayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayPace {
    /// Letters a second, at most; `None` is no limit.
    pub rate: Option<Rate>,
    pub concurrency: u32,
    pub manner: Manner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manner {
    Straight,
    /// One, then ten, then the rest; it stops by itself when letters fail again.
    Canary,
}

/// The progress of a canary. A straight replay is in `Rest` from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReplayWave {
    None,
    First,
    Second,
    Rest,
}

impl ReplayWave {
    #[must_use]
    pub const fn before_first(manner: Manner) -> Self {
        match manner {
            Manner::Straight => Self::Rest,
            Manner::Canary => Self::None,
        }
    }

    #[must_use]
    pub const fn letters_max(self) -> Option<u32> {
        match self {
            Self::None => Some(0),
            Self::First => Some(1),
            Self::Second => Some(10),
            Self::Rest => None,
        }
    }

    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::None => Self::First,
            Self::First => Self::Second,
            Self::Second | Self::Rest => Self::Rest,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReplayState {
    Gathering,
    Running,
    Paused,
    Stopped,
    /// An operator has ended it; letters in flight still finish.
    Cancelled,
    Done,
}

impl ReplayState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gathering => "gathering",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Cancelled => "cancelled",
            Self::Done => "done",
        }
    }

    /// Whether it still claims the letters that it has not sent.
    #[must_use]
    pub const fn is_open(self) -> bool {
        match self {
            Self::Gathering | Self::Running | Self::Paused | Self::Stopped => true,
            Self::Cancelled | Self::Done => false,
        }
    }
}

impl fmt::Display for ReplayState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Who began a replay; decides what becomes of a letter that fails again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayOrigin {
    Operator,
    /// The rule book, when a dependency recovered or by schedule: a letter gets `times_max` tries, then it is
    /// poison.
    Automatic {
        times_max: u32,
    },
}

impl ReplayOrigin {
    /// The state of a replay that stopped by itself. An automatic one waits for no operator: it releases its
    /// letters to the next.
    #[must_use]
    pub const fn state_when_stopped(self) -> ReplayState {
        match self {
            Self::Operator => ReplayState::Stopped,
            Self::Automatic { .. } => ReplayState::Cancelled,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayTally {
    /// Grows while letters are being listed.
    pub total: u64,
    pub sent: u64,
    pub delivered: u64,
    pub failed: u64,
    /// Letters that stay dead: one before them in their session failed, or they are no longer dead.
    pub left: u64,
}

impl ReplayTally {
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.sent - self.delivered - self.failed
    }

    #[must_use]
    pub const fn waiting(&self) -> u64 {
        self.total - self.sent - self.left
    }

    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.waiting() == 0 && self.in_flight() == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayStop {
    pub replay: ReplayId,
    pub fingerprint: Fingerprint,
    pub delivery: DeliveryId,
}

/// A replay as the engine knows it: one that may send, or has letters in flight.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayJob {
    pub id: ReplayId,
    pub state: ReplayState,
    pub pace: ReplayPace,
    pub origin: ReplayOrigin,
    pub wave: ReplayWave,
    pub tally: ReplayTally,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    InPart,
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(rename_all = "lowercase"))]
pub enum ReplayAct {
    Pause,
    /// It continues; a canary begins with one letter again.
    Resume,
    /// It ends; letters that were not sent stay dead, and free for others.
    Cancel,
}

impl ReplayJob {
    /// `None` if it has ended, or is already as requested.
    #[must_use]
    pub const fn after(&self, act: ReplayAct, listing: Listing) -> Option<(ReplayState, ReplayWave)> {
        match (act, self.state) {
            (ReplayAct::Pause, ReplayState::Gathering | ReplayState::Running) => {
                Some((ReplayState::Paused, self.wave))
            }
            (ReplayAct::Resume, ReplayState::Paused | ReplayState::Stopped) => {
                let state = match listing {
                    Listing::InPart => ReplayState::Gathering,
                    Listing::Whole => ReplayState::Running,
                };
                Some((state, ReplayWave::before_first(self.pace.manner)))
            }
            (ReplayAct::Cancel, state) if state.is_open() => Some((ReplayState::Cancelled, self.wave)),
            (ReplayAct::Pause | ReplayAct::Resume | ReplayAct::Cancel, _) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaying {
    pub replay: ReplayId,
    /// How often it has been replayed, this time included.
    pub times: u32,
}
