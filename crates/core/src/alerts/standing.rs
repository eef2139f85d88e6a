//! Where the condition of an alert stands for one thing: it holds for a while, it is raised, it has gone quiet.
//!
//! ```text
//!   quiet ── it holds ──▶ pending ── for as long as it must ──▶ firing
//!     ▲                      │ it does not                        │
//!     └──────────────────────┴───── not for `quiet_for` ──────────┘
//! ```
//!
//! What fires and is not heard of any more, because nothing is tried, stays: see [`Evidence`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Where it stands; what is quiet has no standing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Standing {
    /// Since when the condition holds.
    pub(super) since: Timestamp,
    /// The figure when it last held.
    pub(super) value: f64,
    /// Why, where there are words for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
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
    /// It is raised, and nothing was heard of it since then.
    Silent {
        /// Since when.
        since: Timestamp,
    },
}

/// What a look says of one thing.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Evidence {
    /// The condition holds.
    Holds {
        /// With which figure.
        value: f64,
        /// Why, where there are words for it.
        why: Option<String>,
    },
    /// It holds, for so few that they raise nothing; they do not end anything either.
    Hints,
    /// It does not hold.
    Not,
    /// Nothing was tried that could show it.
    Silent,
    /// Nothing was tried, and that is because a breaker is not closed.
    Barred,
}

/// The times of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// For how long it must hold to be raised.
    pub(super) lasting: Duration,
    /// For how long it must not hold to be over.
    pub(super) quiet_for: Duration,
    /// For how long nothing must be heard of it to be over.
    pub(super) silent_for: Duration,
}

impl Standing {
    pub(super) const fn is_firing(&self) -> bool {
        match self.phase {
            Phase::Pending => false,
            Phase::Firing | Phase::Quiet { .. } | Phase::Silent { .. } => true,
        }
    }
}

/// Where it stands after a look.
pub(super) fn step(
    before: Option<Standing>,
    evidence: Evidence,
    times: Times,
    now: Timestamp,
) -> Option<Standing> {
    let since = before.as_ref().map_or(now, |before| before.since);
    let is_raised = before.as_ref().is_some_and(Standing::is_firing);
    match evidence {
        Evidence::Holds { value, why } => {
            let is_raised = is_raised || now.since(since) >= times.lasting;
            let phase = if is_raised { Phase::Firing } else { Phase::Pending };
            Some(Standing { since, value, why, phase })
        }
        Evidence::Hints => {
            before.filter(|_| is_raised).map(|before| Standing { phase: Phase::Firing, ..before })
        }
        Evidence::Not => quiet(before?, times, now),
        Evidence::Silent | Evidence::Barred => {
            let before = before?;
            let silent_since = match before.phase {
                Phase::Pending => return None,
                // It was already well when nothing was tried any more.
                Phase::Quiet { .. } => return quiet(before, times, now),
                Phase::Silent { since } if evidence == Evidence::Silent => since,
                Phase::Firing | Phase::Silent { .. } => now,
            };
            let is_over = now.since(silent_since) >= times.silent_for;
            (!is_over).then_some(Standing { phase: Phase::Silent { since: silent_since }, ..before })
        }
    }
}

fn quiet(before: Standing, times: Times, now: Timestamp) -> Option<Standing> {
    let quiet_since = match before.phase {
        Phase::Pending => return None,
        Phase::Firing | Phase::Silent { .. } => now,
        Phase::Quiet { since } => since,
    };
    let is_over = now.since(quiet_since) >= times.quiet_for;
    (!is_over).then_some(Standing { phase: Phase::Quiet { since: quiet_since }, ..before })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_is_one_trouble() {
        let at = |secs: u64| Timestamp::from_millis(secs * 1_000);
        let secs = Duration::from_secs;
        let times = Times { lasting: secs(10), quiet_for: secs(30), silent_for: secs(12) };
        // A letter for each second: `x` if the condition holds, `h` if for few, `s` if nothing was heard, `b` if
        // nothing could be heard; and where it then stands.
        #[rustfmt::skip]
        let cases = [
            ("too short",           "xxxxxxxxx.",                               "ppppppppp-"),
            ("long enough",         "xxxxxxxxxxxx",                             "ppppppppppff"),
            ("a gap begins anew",   "xxxxx.xxxxxxxxxxxx",                       "ppppp-ppppppppppff"),
            ("a gap ends nothing",  "xxxxxxxxxxx...x",                          "ppppppppppfqqqf"),
            ("a hint raises nothing", "hhhhhhhhhhhhxh",                         "------------p-"),
            ("a hint ends nothing", "xxxxxxxxxxx.h..",                          "ppppppppppfqfqq"),
            ("silence is no end",   "xxxxxxxxxxxssssxss",                       "ppppppppppfuuuufuu"),
            ("for a while",         "xxxxxxxxxxxssssssssssssss",                "ppppppppppfuuuuuuuuuuuu--"),
            ("a breaker bars it",   "xxxxxxxxxxxbbbbbbbbbbbbbbbbs",             "ppppppppppfuuuuuuuuuuuuuuuuu"),
            ("silence raises nothing", "xxxxxs",                                "ppppp-"),
            ("well, then silent",   "xxxxxxxxxxx.sssssssssssssssssssssssssssss!", "ppppppppppfqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq-"),
            ("quiet for long",      "xxxxxxxxxxx..............................!", "ppppppppppfqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq-"),
        ];
        for (name, holds, expected) in cases {
            let mut standing = None;
            let stood: String = holds
                .chars()
                .zip(0..)
                .map(|(holds, second)| {
                    let evidence = match holds {
                        'x' => Evidence::Holds { value: 1.0, why: None },
                        'h' => Evidence::Hints,
                        's' => Evidence::Silent,
                        'b' => Evidence::Barred,
                        _ => Evidence::Not,
                    };
                    standing = step(standing.take(), evidence, times, at(second));
                    match standing.as_ref().map(|standing| standing.phase) {
                        None => '-',
                        Some(Phase::Pending) => 'p',
                        Some(Phase::Firing) => 'f',
                        Some(Phase::Quiet { .. }) => 'q',
                        Some(Phase::Silent { .. }) => 'u',
                    }
                })
                .collect();
            assert_eq!(stood, expected, "{name}");
        }
    }
}
