//! A replay: dead letters that are sent through the pipeline again, as a job that outlives the process.
//!
//! The letters of a replay are chosen when it begins and never grow. It sends them at its pace, counts what
//! came of each, and ends when every one has been answered for. How fast it may go on is decided in the
//! engine; what has been sent and what came of it is written by the store, in the transactions that send
//! and settle.
//!
//! Invariant: `total = waiting + in flight + delivered + failed + left`, at every moment that can be seen.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::DeliveryId;
use crate::letters::fingerprint::Fingerprint;
use crate::text::Rate;

/// Which replay: they are numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplayId(pub u64);

impl fmt::Display for ReplayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How fast a replay goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Letters a second, at most; none is as fast as deliveries go.
    pub rate: Option<Rate>,
    /// Letters that may be on their way at once.
    pub concurrency: u32,
    /// Whether it feels its way.
    pub manner: Manner,
}

/// How a replay begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manner {
    /// All of them, one after the other.
    Straight,
    /// One, then ten, then the rest; it stops by itself when the same failure comes back.
    Canary,
}

/// How far a canary has come. A replay that goes straight is in the rest from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Wave {
    /// Nothing has been sent.
    None,
    /// One.
    First,
    /// Ten.
    Second,
    /// All others.
    Rest,
}

impl Wave {
    /// The one that a replay begins with.
    #[must_use]
    pub const fn before_first(manner: Manner) -> Self {
        match manner {
            Manner::Straight => Self::Rest,
            Manner::Canary => Self::None,
        }
    }

    /// How many letters are in it at most.
    #[must_use]
    pub const fn letters_max(self) -> Option<u32> {
        match self {
            Self::None => Some(0),
            Self::First => Some(1),
            Self::Second => Some(10),
            Self::Rest => None,
        }
    }

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::None => Self::First,
            Self::First => Self::Second,
            Self::Second | Self::Rest => Self::Rest,
        }
    }
}

/// Where a replay stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReplayState {
    /// Its letters are still being listed.
    Gathering,
    /// It sends.
    Running,
    /// A person has halted it.
    Paused,
    /// It has halted itself: letters failed again.
    Stopped,
    /// A person has ended it; what was on its way then still arrives.
    Cancelled,
    /// Every letter is answered for.
    Done,
}

impl ReplayState {
    /// The word for it in lists.
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

/// Who began a replay; that decides what becomes of a letter that fails again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A person: what fails again is poison.
    Operator,
    /// The rule book, when a dependency was well again or it was time: a letter gets so many tries, then it is poison.
    Automatic {
        /// How many.
        times_max: u32,
    },
}

impl Origin {
    /// Where a replay stands that has stopped by itself. One that nobody began waits for nobody: its letters
    /// are free, and come back with the next.
    #[must_use]
    pub const fn state_when_stopped(self) -> ReplayState {
        match self {
            Self::Operator => ReplayState::Stopped,
            Self::Automatic { .. } => ReplayState::Cancelled,
        }
    }
}

/// What became of the letters of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Letters in all; it grows while they are being listed.
    pub total: u64,
    /// Letters that were sent.
    pub sent: u64,
    /// Those that have arrived.
    pub delivered: u64,
    /// Those that have failed again.
    pub failed: u64,
    /// Letters that stay as they are: one before them in their session failed, or they are no longer dead.
    pub left: u64,
}

impl Tally {
    /// Letters that are on their way.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.sent - self.delivered - self.failed
    }

    /// Letters that have not been sent and may be.
    #[must_use]
    pub const fn waiting(&self) -> u64 {
        self.total - self.sent - self.left
    }

    /// Whether every letter is answered for.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.waiting() == 0 && self.in_flight() == 0
    }
}

/// Why a replay has stopped by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Which.
    pub replay: ReplayId,
    /// What the letter failed of.
    pub fingerprint: Fingerprint,
    /// With which letter.
    pub delivery: DeliveryId,
}

/// A replay as the engine knows it: one that may send, or whose letters are on their way.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayJob {
    /// Which.
    pub id: ReplayId,
    /// Where it stands.
    pub state: ReplayState,
    /// How fast it goes on.
    pub pace: Pace,
    /// Who began it.
    pub origin: Origin,
    /// How far its canary has come.
    pub wave: Wave,
    /// What became of its letters.
    pub tally: Tally,
}

/// Whether the letters of a replay are all listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// There are more to look at.
    InPart,
    /// They are.
    Whole,
}

/// What may be done to a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(rename_all = "lowercase"))]
pub enum ReplayAct {
    /// It sends nothing more for now.
    Pause,
    /// It goes on; a canary begins with one letter again.
    Resume,
    /// It ends; letters that were not sent stay dead, and free for others.
    Cancel,
}

impl ReplayJob {
    /// The state and the wave after an act; none if it is over, or already as wanted.
    #[must_use]
    pub const fn after(&self, act: ReplayAct, listing: Listing) -> Option<(ReplayState, Wave)> {
        match (act, self.state) {
            (ReplayAct::Pause, ReplayState::Gathering | ReplayState::Running) => {
                Some((ReplayState::Paused, self.wave))
            }
            (ReplayAct::Resume, ReplayState::Paused | ReplayState::Stopped) => {
                let state = match listing {
                    Listing::InPart => ReplayState::Gathering,
                    Listing::Whole => ReplayState::Running,
                };
                Some((state, Wave::before_first(self.pace.manner)))
            }
            (ReplayAct::Cancel, state) if state.is_open() => Some((ReplayState::Cancelled, self.wave)),
            (ReplayAct::Pause | ReplayAct::Resume | ReplayAct::Cancel, _) => None,
        }
    }
}

/// A delivery that was dead and is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaying {
    /// By which replay.
    pub replay: ReplayId,
    /// How often it has been replayed, this time included.
    pub times: u32,
}
