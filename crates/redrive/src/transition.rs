//! Conditional transitions: a state changes only from a state that allows it.
//!
//! This makes a handler idempotent: the second time it finds the state that the first one left, changes nothing and
//! reports so. The table is checked once and applied to a value in memory here, or to a row of the caller's database
//! by `transition::sqlite`.
//!
//! ```
//! use redrive::transition::{Applied, Transitions};
//!
//! #[derive(Clone, Copy, Debug, PartialEq)]
//! enum Status { Created, Queued, Completed, Failed }
//! use Status::{Completed, Created, Failed, Queued};
//!
//! let table = Transitions::new(&[(Created, &[Queued]), (Queued, &[Completed, Failed])])?;
//! let mut status = Queued;
//! assert_eq!(table.apply(Some(&mut status), Completed), Applied::Changed);
//! assert_eq!(table.apply(Some(&mut status), Completed), Applied::NotExpected { actual: Completed });
//! # Ok::<(), redrive::transition::InvalidTransitions<Status>>(())
//! ```
//!
//! Invariant: only listed transitions happen, and no state leads to itself, so a repetition is never a change.

#[cfg(feature = "embedded")]
pub mod sqlite;

use std::fmt;

/// The allowed transitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transitions<S> {
    rows: Vec<(S, Vec<S>)>,
}

/// The result of a transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied<S> {
    /// The state was changed.
    Changed,
    /// The current state does not allow it; nothing was changed.
    NotExpected {
        /// The current state.
        actual: S,
    },
    /// The row does not exist.
    Missing,
}

/// An invalid table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidTransitions<S> {
    /// It has no rows.
    Empty,
    /// A state has two rows.
    Twice(S),
    /// A state has no successors; leave final states out.
    Nowhere(S),
    /// A state leads to itself.
    ToItself(S),
    /// A successor is listed twice.
    Repeated {
        /// The state.
        from: S,
        /// The successor.
        to: S,
    },
}

impl<S: fmt::Debug> fmt::Display for InvalidTransitions<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the table of transitions is empty"),
            Self::Twice(state) => write!(f, "{state:?} has two rows"),
            Self::Nowhere(state) => {
                write!(f, "{state:?} has no successors: leave final states out")
            }
            Self::ToItself(state) => write!(f, "{state:?} leads to itself"),
            Self::Repeated { from, to } => write!(f, "{from:?} leads to {to:?} twice"),
        }
    }
}

impl<S: fmt::Debug> std::error::Error for InvalidTransitions<S> {}

impl<S: Copy + PartialEq> Transitions<S> {
    /// The table of successors by state; final states have no row.
    pub fn new(rows: &[(S, &[S])]) -> Result<Self, InvalidTransitions<S>> {
        if rows.is_empty() {
            return Err(InvalidTransitions::Empty);
        }
        for (number, (from, follow)) in rows.iter().enumerate() {
            if rows[..number].iter().any(|(before, _)| before == from) {
                return Err(InvalidTransitions::Twice(*from));
            }
            if follow.is_empty() {
                return Err(InvalidTransitions::Nowhere(*from));
            }
            if follow.contains(from) {
                return Err(InvalidTransitions::ToItself(*from));
            }
            let repeated = follow.iter().enumerate().find(|(place, to)| follow[..*place].contains(to));
            if let Some((_, to)) = repeated {
                return Err(InvalidTransitions::Repeated { from: *from, to: *to });
            }
        }
        Ok(Self { rows: rows.iter().map(|(from, follow)| (*from, follow.to_vec())).collect() })
    }

    /// The states that lead to `to`.
    #[must_use]
    pub fn expected(&self, to: S) -> Vec<S> {
        self.rows.iter().filter(|(_, follow)| follow.contains(&to)).map(|(from, _)| *from).collect()
    }

    /// Whether `to` may follow `from`.
    #[must_use]
    pub fn allows(&self, from: S, to: S) -> bool {
        self.rows.iter().any(|(state, follow)| *state == from && follow.contains(&to))
    }

    /// Whether the state is final.
    #[must_use]
    pub fn is_final(&self, state: S) -> bool {
        !self.rows.iter().any(|(from, _)| *from == state)
    }

    /// Changes the state if the table allows it; the caller holds the lock of a shared value.
    pub fn apply(&self, thing: Option<&mut S>, to: S) -> Applied<S> {
        match thing {
            None => Applied::Missing,
            Some(state) if self.allows(*state, to) => {
                *state = to;
                Applied::Changed
            }
            Some(state) => Applied::NotExpected { actual: *state },
        }
    }

    #[cfg(feature = "embedded")]
    fn states(&self) -> Vec<S> {
        let mut states: Vec<S> = Vec::new();
        for state in self.rows.iter().flat_map(|(from, follow)| std::iter::once(from).chain(follow)) {
            if !states.contains(state) {
                states.push(*state);
            }
        }
        states
    }
}

#[cfg(test)]
mod tests;
