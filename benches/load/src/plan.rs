//! Sizes of each scenario: seconds, minutes, or as long as the budgets require.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Only shows that everything works.
    Quick,
    Short,
    Full,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Interleaved rounds of everything with a baseline.
    pub rounds: u32,
    pub burst: Duration,
    /// Duration at a fixed rate.
    pub accept_timed: Duration,
    /// Duration at a fixed rate.
    pub deliver_timed: Duration,
    /// Interleaved rounds with good and bad neighbours, and their duration.
    pub neighbour_rounds: u32,
    pub neighbour_timed: Duration,
    pub waiting: u64,
    /// How long a backlog is drained.
    pub drained: Duration,
    pub stored: u64,
    /// Events per second, duration, and retention.
    pub retained_per_second: f64,
    pub retained_for: Duration,
    pub retention: Duration,
    /// Events of one session; many sessions have ten times as many.
    pub session_events: u64,
    pub letters: &'static [u64],
    /// Kills, and how long events are sent before and after.
    pub kills: u32,
    pub kill_after: Duration,
}

impl Length {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Short => "short",
            Self::Full => "full",
        }
    }

    pub(super) const fn plan(self) -> Plan {
        match self {
            Self::Quick => Plan {
                rounds: 1,
                burst: Duration::from_millis(400),
                accept_timed: Duration::from_secs(1),
                deliver_timed: Duration::from_secs(1),
                neighbour_rounds: 1,
                neighbour_timed: Duration::from_secs(2),
                waiting: 20_000,
                drained: Duration::from_millis(500),
                stored: 20_000,
                retained_per_second: 500.0,
                retained_for: Duration::from_secs(6),
                retention: Duration::from_secs(1),
                session_events: 500,
                letters: &[2_000],
                kills: 1,
                kill_after: Duration::from_millis(700),
            },
            Self::Short => Plan {
                rounds: 3,
                burst: Duration::from_secs(3),
                accept_timed: Duration::from_secs(20),
                deliver_timed: Duration::from_secs(15),
                neighbour_rounds: 5,
                neighbour_timed: Duration::from_secs(4),
                waiting: 1_000_000,
                drained: Duration::from_secs(3),
                stored: 1_000_000,
                retained_per_second: 2_000.0,
                retained_for: Duration::from_secs(60),
                retention: Duration::from_secs(10),
                session_events: 5_000,
                letters: &[100_000, 1_000_000],
                kills: 3,
                kill_after: Duration::from_secs(2),
            },
            Self::Full => Plan {
                rounds: 5,
                burst: Duration::from_secs(10),
                accept_timed: Duration::from_mins(10),
                deliver_timed: Duration::from_mins(2),
                neighbour_rounds: 5,
                neighbour_timed: Duration::from_secs(30),
                waiting: 10_000_000,
                drained: Duration::from_secs(10),
                stored: 10_000_000,
                retained_per_second: 5_000.0,
                retained_for: Duration::from_mins(30),
                retention: Duration::from_mins(5),
                session_events: 50_000,
                letters: &[100_000, 1_000_000],
                kills: 10,
                kill_after: Duration::from_secs(5),
            },
        }
    }
}
