//! Where the condition of an alert stands for one thing: it holds for a while, it is raised, it has gone quiet.
//!
//! ```text
//!   quiet ── it holds ──▶ pending ── for as long as it must ──▶ firing
//!     ▲                      │ it does not                        │
//!     └──────────────────────┴───── not for `quiet_for` ──────────┘
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Where it stands; what is quiet has no standing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Standing {
    /// Since when the condition holds.
    pub(super) since: Timestamp,
    /// The figure when it last held.
    pub(super) value: f64,
    pub(super) phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Phase {
    /// It holds, and not yet for as long as it must.
    Pending,
    /// It is raised, and holds.
    Firing,
    /// It is raised, and has not held since then.
    Quiet {
        /// Since when.
        since: Timestamp,
    },
}

/// The times of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// For how long it must hold to be raised.
    pub(super) lasting: Duration,
    /// For how long it must not hold to be over.
    pub(super) quiet_for: Duration,
}

impl Standing {
    pub(super) const fn is_firing(&self) -> bool {
        match self.phase {
            Phase::Pending => false,
            Phase::Firing | Phase::Quiet { .. } => true,
        }
    }
}

/// Where it stands after a look that found the condition to hold with a figure, or not to hold.
pub(super) fn step(
    before: Option<Standing>,
    holds: Option<f64>,
    times: Times,
    now: Timestamp,
) -> Option<Standing> {
    let since = before.map_or(now, |before| before.since);
    let Some(value) = holds else {
        let before = before?;
        let quiet_since = match before.phase {
            Phase::Pending => return None,
            Phase::Firing => now,
            Phase::Quiet { since } => since,
        };
        let is_over = now.since(quiet_since) >= times.quiet_for;
        return (!is_over).then_some(Standing { phase: Phase::Quiet { since: quiet_since }, ..before });
    };
    let is_raised = before.is_some_and(|before| before.is_firing()) || now.since(since) >= times.lasting;
    Some(Standing { since, value, phase: if is_raised { Phase::Firing } else { Phase::Pending } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_is_one_trouble() {
        let at = |secs: u64| Timestamp::from_millis(secs * 1_000);
        let times = Times { lasting: Duration::from_secs(10), quiet_for: Duration::from_secs(30) };
        // A letter for each second: `x` if the condition holds; and where it then stands.
        #[rustfmt::skip]
        let cases = [
            ("too short",           "xxxxxxxxx.",                               "ppppppppp-"),
            ("long enough",         "xxxxxxxxxxxx",                             "ppppppppppff"),
            ("a gap begins anew",   "xxxxx.xxxxxxxxxxxx",                       "ppppp-ppppppppppff"),
            ("a gap ends nothing",  "xxxxxxxxxxx...x",                          "ppppppppppfqqqf"),
            ("quiet for long",      "xxxxxxxxxxx..............................!", "ppppppppppfqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq-"),
        ];
        for (name, holds, expected) in cases {
            let mut standing = None;
            let stood: String = holds
                .chars()
                .zip(0..)
                .map(|(holds, second)| {
                    standing = step(standing, (holds == 'x').then_some(1.0), times, at(second));
                    match standing.map(|standing| standing.phase) {
                        None => '-',
                        Some(Phase::Pending) => 'p',
                        Some(Phase::Firing) => 'f',
                        Some(Phase::Quiet { .. }) => 'q',
                    }
                })
                .collect();
            assert_eq!(stood, expected, "{name}");
        }
    }
}
