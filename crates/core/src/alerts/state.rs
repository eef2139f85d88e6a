//! Where the condition of an alert stands for one thing: it holds for a while, it is raised, it has gone quiet.
//!
//! ```text
//!   quiet ── it holds ──▶ pending ── for as long as it must ──▶ firing
//!     ▲                      │ it does not                        │
//!     └──────────────────────┴───── not for `quiet_for` ──────────┘
//! ```
//!
//! What fires and is not heard of any more, because nothing is tried, stays: see [`SubjectEvidence`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Where it stands; what is quiet has no standing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SubjectState {
    /// Since when the condition holds.
    pub(super) since: Timestamp,
    /// The figure when it last held.
    pub(super) value: f64,
    /// Why, where there are words for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    pub(super) phase: SubjectPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SubjectPhase {
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
pub(super) enum SubjectEvidence {
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
pub(super) struct AlertTimes {
    /// For how long it must hold to be raised.
    pub(super) lasting: Duration,
    /// For how long it must not hold to be over.
    pub(super) quiet_for: Duration,
    /// For how long nothing must be heard of it to be over.
    pub(super) silent_for: Duration,
}

impl SubjectState {
    pub(super) const fn is_firing(&self) -> bool {
        match self.phase {
            SubjectPhase::Pending => false,
            SubjectPhase::Firing | SubjectPhase::Quiet { .. } | SubjectPhase::Silent { .. } => true,
        }
    }
}

/// Where it stands after a look.
pub(super) fn step(
    before: Option<SubjectState>,
    evidence: SubjectEvidence,
    times: AlertTimes,
    now: Timestamp,
) -> Option<SubjectState> {
    let since = before.as_ref().map_or(now, |before| before.since);
    let is_raised = before.as_ref().is_some_and(SubjectState::is_firing);
    match evidence {
        SubjectEvidence::Holds { value, why } => {
            let is_raised = is_raised || now.since(since) >= times.lasting;
            let phase = if is_raised { SubjectPhase::Firing } else { SubjectPhase::Pending };
            Some(SubjectState { since, value, why, phase })
        }
        SubjectEvidence::Hints => {
            before.filter(|_| is_raised).map(|before| SubjectState { phase: SubjectPhase::Firing, ..before })
        }
        SubjectEvidence::Not => quiet(before?, times, now),
        SubjectEvidence::Silent | SubjectEvidence::Barred => {
            let before = before?;
            let silent_since = match before.phase {
                SubjectPhase::Pending => return None,
                // It was already well when nothing was tried any more.
                SubjectPhase::Quiet { .. } => return quiet(before, times, now),
                SubjectPhase::Silent { since } if evidence == SubjectEvidence::Silent => since,
                SubjectPhase::Firing | SubjectPhase::Silent { .. } => now,
            };
            let is_over = now.since(silent_since) >= times.silent_for;
            (!is_over).then_some(SubjectState { phase: SubjectPhase::Silent { since: silent_since }, ..before })
        }
    }
}

fn quiet(before: SubjectState, times: AlertTimes, now: Timestamp) -> Option<SubjectState> {
    let quiet_since = match before.phase {
        SubjectPhase::Pending => return None,
        SubjectPhase::Firing | SubjectPhase::Silent { .. } => now,
        SubjectPhase::Quiet { since } => since,
    };
    let is_over = now.since(quiet_since) >= times.quiet_for;
    (!is_over).then_some(SubjectState { phase: SubjectPhase::Quiet { since: quiet_since }, ..before })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_is_one_trouble() {
        let at = |secs: u64| Timestamp::from_millis(secs * 1_000);
        let secs = Duration::from_secs;
        let times = AlertTimes { lasting: secs(10), quiet_for: secs(30), silent_for: secs(12) };
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
                        'x' => SubjectEvidence::Holds { value: 1.0, why: None },
                        'h' => SubjectEvidence::Hints,
                        's' => SubjectEvidence::Silent,
                        'b' => SubjectEvidence::Barred,
                        _ => SubjectEvidence::Not,
                    };
                    standing = step(standing.take(), evidence, times, at(second));
                    match standing.as_ref().map(|standing| standing.phase) {
                        None => '-',
                        Some(SubjectPhase::Pending) => 'p',
                        Some(SubjectPhase::Firing) => 'f',
                        Some(SubjectPhase::Quiet { .. }) => 'q',
                        Some(SubjectPhase::Silent { .. }) => 'u',
                    }
                })
                .collect();
            assert_eq!(stood, expected, "{name}");
        }
    }
}
