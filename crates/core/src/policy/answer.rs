//! What a connector saw of an attempt, before classification.
//!
//! Invariant: a connector reports what happened and decides nothing. It names no category, since the rule may
//! see it differently; [`crate::policy::classify`] does that.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct TargetAnswer<'a> {
    pub what: AnswerKind<'a>,
    pub message: &'a str,
    pub retry_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub enum AnswerKind<'a> {
    Http {
        status: u16,
        headers: &'a dyn AnswerHeaders,
        body: &'a str,
    },
    /// A success by its status that is not what the target expects.
    Unexpected {
        status: u16,
        headers: &'a dyn AnswerHeaders,
        body: &'a str,
    },
    Transport(TransportError),
    Process(Exit),
    Taken,
    Broker(BrokerError),
    Malformed(MalformedEvent),
    SignatureInvalid,
    ConfigMissing,
    SecretUnavailable,
    Internal,
    Reported {
        code: &'a str,
    },
}

impl AnswerKind<'_> {
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        let (Self::Http { status, .. } | Self::Unexpected { status, .. }) = self else { return None };
        Some(*status)
    }

    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let (Self::Http { headers, .. } | Self::Unexpected { headers, .. }) = self else { return None };
        headers.get(name)
    }

    #[must_use]
    pub const fn body(&self) -> &str {
        let (Self::Http { body, .. } | Self::Unexpected { body, .. }) = self else { return "" };
        body
    }
}

/// The headers of an answer, in the connector's own form; names are compared without case.
pub trait AnswerHeaders: std::fmt::Debug {
    fn get(&self, name: &str) -> Option<&str>;
}

impl AnswerHeaders for () {
    fn get(&self, _name: &str) -> Option<&str> {
        None
    }
}

impl AnswerHeaders for &[(&str, &str)] {
    fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }
}

impl<const N: usize> AnswerHeaders for [(&str, &str); N] {
    fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportError {
    Timeout(CallPart),
    Refused,
    Reset,
    Dns,
    Tls,
    Unreachable,
    /// The name resolves to an address that the rule book does not allow.
    AddressRefused,
    ClosedEarly,
    Protocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPart {
    Connect,
    Tls,
    /// Until the answer's headers are complete.
    Headers,
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0 is a success.
    Code(i32),
    Signal(i32),
    OutOfMemory,
    ReportedError,
    SpawnFailed,
    /// The runtime that starts containers does not answer.
    RuntimeUnavailable,
    TimeLimit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerError {
    LeaderElection,
    Unavailable,
    TimedOut,
    QuotaExceeded,
    /// A quota or rate limit of a store.
    StoreThrottled,
    /// The queue, topic or stream does not exist.
    QueueNotFound,
    Unauthorized,
    MessageTooLarge,
    Refused,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedEvent {
    DoesNotParse,
    /// It parses and violates its schema.
    ViolatesSchema,
}

/// An owned [`TargetAnswer`], passed from a connector to the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetReply {
    pub seen: ReplyKind,
    pub message: String,
    pub retry_after: Option<Duration>,
}

impl TargetReply {
    /// Without a requested wait.
    #[must_use]
    pub fn new(seen: ReplyKind, message: impl Into<String>) -> Self {
        Self { seen, message: message.into(), retry_after: None }
    }
}

/// An owned [`AnswerKind`].
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyKind {
    Http {
        status: u16,
        headers: HeaderPairs,
        body: String,
    },
    Unexpected {
        status: u16,
        headers: HeaderPairs,
        body: String,
    },
    Transport(TransportError),
    Process(Exit),
    /// A broker or a store accepted the event, or it was printed.
    Taken,
    Broker(BrokerError),
    Malformed(MalformedEvent),
    ConfigMissing,
    SecretUnavailable,
    Internal,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderPairs(pub Vec<(String, String)>);

impl AnswerHeaders for HeaderPairs {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

impl TargetReply {
    #[must_use]
    pub fn as_answer(&self) -> TargetAnswer<'_> {
        let what = match &self.seen {
            ReplyKind::Http { status, headers, body } => AnswerKind::Http { status: *status, headers, body },
            ReplyKind::Unexpected { status, headers, body } => {
                AnswerKind::Unexpected { status: *status, headers, body }
            }
            ReplyKind::Transport(error) => AnswerKind::Transport(*error),
            ReplyKind::Process(exit) => AnswerKind::Process(*exit),
            ReplyKind::Taken => AnswerKind::Taken,
            ReplyKind::Broker(error) => AnswerKind::Broker(*error),
            ReplyKind::Malformed(malformed) => AnswerKind::Malformed(*malformed),
            ReplyKind::ConfigMissing => AnswerKind::ConfigMissing,
            ReplyKind::SecretUnavailable => AnswerKind::SecretUnavailable,
            ReplyKind::Internal => AnswerKind::Internal,
        };
        TargetAnswer { what, message: &self.message, retry_after: self.retry_after }
    }
}
