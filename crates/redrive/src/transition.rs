//! Conditional transitions: a thing gets its new state only if it is in one from which that may be reached.
//!
//! This is what makes a handler idempotent whose thing has a status of its own: the second time it finds the
//! thing where the first has left it, changes nothing and says so. The table is data, checked once; it is
//! applied to what is in memory here, and to a row of the caller's own database by `transition::sqlite`.
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
//! Invariant: what is not in the table does not happen, and no state leads to itself, so a repetition is never
//! taken for a change.

#[cfg(feature = "embedded")]
pub mod sqlite;

use std::fmt;

/// Which state may follow which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transitions<S> {
    rows: Vec<(S, Vec<S>)>,
}

/// What became of a transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied<S> {
    /// The thing has its new state.
    Changed,
    /// The thing is in a state from which that one cannot be reached; it was left there.
    NotExpected {
        /// The state that it is in.
        actual: S,
    },
    /// There is no such thing.
    Missing,
}

/// A table that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidTransitions<S> {
    /// It has no rows.
    Empty,
    /// A state has two rows.
    Twice(S),
    /// A state leads nowhere; one that nothing follows is left out.
    Nowhere(S),
    /// A state leads to itself.
    ToItself(S),
    /// A state leads to another twice.
    Repeated {
        /// The state.
        from: S,
        /// What it leads to twice.
        to: S,
    },
}

impl<S: fmt::Debug> fmt::Display for InvalidTransitions<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a table of transitions needs at least one"),
            Self::Twice(state) => write!(f, "{state:?} has two rows"),
            Self::Nowhere(state) => {
                write!(f, "{state:?} leads nowhere: leave out what nothing follows")
            }
            Self::ToItself(state) => write!(f, "{state:?} leads to itself"),
            Self::Repeated { from, to } => write!(f, "{from:?} leads to {to:?} twice"),
        }
    }
}

impl<S: fmt::Debug> std::error::Error for InvalidTransitions<S> {}

impl<S: Copy + PartialEq> Transitions<S> {
    /// The table of what may follow each state; a state that nothing follows has no row.
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

    /// The states from which that one may be reached; none for one that the table does not lead to.
    #[must_use]
    pub fn expected(&self, to: S) -> Vec<S> {
        self.rows.iter().filter(|(_, follow)| follow.contains(&to)).map(|(from, _)| *from).collect()
    }

    /// Whether the one may follow the other.
    #[must_use]
    pub fn allows(&self, from: S, to: S) -> bool {
        self.rows.iter().any(|(state, follow)| *state == from && follow.contains(&to))
    }

    /// Whether nothing follows that state.
    #[must_use]
    pub fn is_final(&self, state: S) -> bool {
        !self.rows.iter().any(|(from, _)| *from == state)
    }

    /// Gives a thing its new state if the table allows it; who shares the thing holds its lock meanwhile.
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

    /// Every state that the table names, each once.
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
