//! An HTTP call without a successful response.
//!
//! Invariant: it has all that a rule looks at, and the client's own error if there was one.

use std::error::Error;
use std::fmt;

use redrive_core::policy::answer::{ReplyKind, TargetAnswer, TargetReply};

use crate::guard::Classify;

/// An HTTP call without a successful response.
#[derive(Debug)]
pub enum HttpError<E> {
    /// The response was unsuccessful.
    Refused(Box<TargetReply>),
    /// No response, or only part of one.
    Unanswered {
        /// What was seen.
        seen: Box<TargetReply>,
        /// The client's error.
        error: E,
    },
}

impl<E> HttpError<E> {
    pub(super) fn unanswered(seen: ReplyKind, message: String, error: E) -> Self {
        Self::Unanswered { seen: Box::new(TargetReply { seen, message, retry_after: None }), error }
    }

    /// What was seen.
    #[must_use]
    pub const fn seen(&self) -> &TargetReply {
        match self {
            Self::Refused(seen) | Self::Unanswered { seen, .. } => seen,
        }
    }

    /// The status, if there was a response.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.seen().as_answer().what.status()
    }
}

impl<E> Classify for HttpError<E> {
    fn answer(&self) -> TargetAnswer<'_> {
        self.seen().as_answer()
    }
}

impl<E> fmt::Display for HttpError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.seen().message)
    }
}

impl<E: Error + 'static> Error for HttpError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(_) => None,
            Self::Unanswered { error, .. } => Some(error),
        }
    }
}
