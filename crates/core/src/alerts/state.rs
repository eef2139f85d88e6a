//! The state of an alert's condition for one subject.
//!
//! ```text
//!   quiet ── holds ──▶ pending ── for `lasting` ──▶ firing
//!     ▲                   │ does not hold             │
//!     └───────────────────┴──── not for `quiet_for` ──┘
//! ```
//!
//! A firing subject without attempts stays firing: see [`SubjectEvidence`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A quiet subject has no state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SubjectState {
    pub(super) since: Timestamp,
    /// The value when the condition last held.
    pub(super) value: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    pub(super) phase: SubjectPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SubjectPhase {
    Pending,
    Firing,
    /// Raised, but the condition does not hold any more.
    Quiet {
        since: Timestamp,
    },
    /// Raised, but there is no data any more.
    Silent {
        since: Timestamp,
    },
}

/// The result of one evaluation for one subject.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SubjectEvidence {
    Holds {
        value: f64,
        why: Option<String>,
    },
    /// Holds for too few samples to raise the alert, or to end it.
    Hints,
    Not,
    /// No attempts, so no data.
    Silent,
    /// No attempts, because a breaker is not closed.
    Barred,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AlertTimes {
    /// How long the condition must hold to raise the alert.
    pub(super) lasting: Duration,
    /// How long it must not hold to resolve the alert.
    pub(super) quiet_for: Duration,
    /// How long there must be no data to resolve the alert.
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
                // It had recovered before attempts stopped.
                SubjectPhase::Quiet { .. } => return quiet(before, times, now),
                SubjectPhase::Silent { since } if evidence == SubjectEvidence::Silent => since,
                SubjectPhase::Firing | SubjectPhase::Silent { .. } => now,
            };
            let is_over = now.since(silent_since) >= times.silent_for;
            (!is_over)
                .then_some(SubjectState { phase: SubjectPhase::Silent { since: silent_since }, ..before })
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
            let mut subject_state = None;
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
                    subject_state = step(subject_state.take(), evidence, times, at(second));
                    match subject_state.as_ref().map(|subject_state| subject_state.phase) {
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
