//! What a connector saw of an attempt, before anybody has said what it means.
//!
//! Invariant: a connector reports what happened and decides nothing. It names no category, since the
//! rule may see it differently; [`crate::policy::classify`] does that.

use std::time::Duration;

/// How an attempt ended, as the connector saw it.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// What happened.
    pub what: What<'a>,
    /// What happened, in words for people.
    pub message: &'a str,
    /// How long the other side asks us to wait.
    pub retry_after: Option<Duration>,
}

/// What happened.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// An HTTP answer came.
    Http {
        /// Its status.
        status: u16,
        /// Its headers.
        headers: &'a dyn Headers,
        /// The beginning of its body, as text.
        body: &'a str,
    },
    /// No answer came.
    Transport(TransportError),
    /// A process ended.
    Process(Exit),
    /// A broker or a store took the event.
    Taken,
    /// A broker or a store answered with an error.
    Broker(BrokerError),
    /// The event itself is bad.
    Malformed(Malformed),
    /// A signature does not fit.
    SignatureInvalid,
    /// Something the configuration should name is missing.
    ConfigMissing,
    /// The call was not made, for what it should be signed with cannot be had now.
    SecretUnavailable,
    /// Redrive itself failed.
    Internal,
    /// The caller's own code says what it was.
    Reported {
        /// The code, such as `RECORD_NOT_FOUND`.
        code: &'a str,
    },
}

impl What<'_> {
    /// The HTTP status, if there was an HTTP answer.
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        let Self::Http { status, .. } = self else { return None };
        Some(*status)
    }

    /// The value of that header, if there was an HTTP answer that has it.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let Self::Http { headers, .. } = self else { return None };
        headers.get(name)
    }

    /// The beginning of the answer's body; empty if there was none.
    #[must_use]
    pub const fn body(&self) -> &str {
        let Self::Http { body, .. } = self else { return "" };
        body
    }
}

/// The headers of an answer, in whatever form the connector has them.
pub trait Headers: std::fmt::Debug {
    /// The first value of that header; names are compared without regard to case.
    fn get(&self, name: &str) -> Option<&str>;
}

/// No headers at all.
impl Headers for () {
    fn get(&self, _name: &str) -> Option<&str> {
        None
    }
}

impl Headers for &[(&str, &str)] {
    fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }
}

impl<const N: usize> Headers for [(&str, &str); N] {
    fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }
}

/// Why no answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportError {
    /// It took too long.
    Timeout(CallPart),
    /// Nobody listens there.
    Refused,
    /// The connection broke off.
    Reset,
    /// The name could not be resolved.
    Dns,
    /// The TLS handshake failed.
    Tls,
    /// No way to that network.
    Unreachable,
    /// The name leads to an address that the book gives no leave to call.
    AddressRefused,
    /// The other side hung up before its answer was whole.
    ClosedEarly,
    /// The answer was not the protocol we speak.
    Protocol,
}

/// The parts of a call that have a limit of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPart {
    /// Making the connection.
    Connect,
    /// The TLS handshake.
    Tls,
    /// Until the answer's headers are there.
    Headers,
    /// The whole call.
    Whole,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with that status; 0 is a success.
    Code(i32),
    /// By that signal.
    Signal(i32),
    /// For the memory it took.
    OutOfMemory,
    /// By itself, after it reported an error on standard output.
    ReportedError,
    /// It could not be started within its limit.
    SpawnFailed,
    /// It ran past its time limit.
    TimeLimit,
}

/// What a broker or a store complains of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerError {
    /// It is choosing a leader.
    LeaderElection,
    /// It does not answer or is shutting down.
    Unavailable,
    /// It took too long.
    TimedOut,
    /// A quota is used up.
    QuotaExceeded,
    /// It asks for fewer writes.
    StoreThrottled,
    /// The queue, topic or stream does not exist.
    QueueNotFound,
    /// It does not know us, or does not let us.
    Unauthorized,
    /// It does not take a message of that size.
    MessageTooLarge,
    /// It does not take the message, now or later.
    Refused,
    /// Anything else.
    Other,
}

/// What is wrong with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It does not parse.
    DoesNotParse,
    /// It parses and violates its schema.
    ViolatesSchema,
}

/// An [`Answer`] that owns what it says, to be handed from a connector to the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// What happened.
    pub seen: Seen,
    /// What happened, in words for people.
    pub message: String,
    /// How long the other side asks us to wait.
    pub retry_after: Option<Duration>,
}

impl Reply {
    /// One that asks for no wait.
    #[must_use]
    pub fn new(seen: Seen, message: impl Into<String>) -> Self {
        Self { seen, message: message.into(), retry_after: None }
    }
}

/// [`What`] with everything it says.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// An HTTP answer came.
    Http {
        /// Its status.
        status: u16,
        /// Its headers.
        headers: HeaderPairs,
        /// The beginning of its body, as text.
        body: String,
    },
    /// No answer came.
    Transport(TransportError),
    /// A process ended.
    Process(Exit),
    /// A broker or a store took the event, or it was printed.
    Taken,
    /// A broker or a store answered with an error.
    Broker(BrokerError),
    /// The event itself is bad.
    Malformed(Malformed),
    /// Something the configuration should name is missing.
    ConfigMissing,
    /// The call was not made, for what it should be signed with cannot be had now.
    SecretUnavailable,
    /// Redrive itself failed.
    Internal,
}

/// Headers as names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderPairs(pub Vec<(String, String)>);

impl Headers for HeaderPairs {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

impl Reply {
    /// The same, borrowed.
    #[must_use]
    pub fn as_answer(&self) -> Answer<'_> {
        let what = match &self.seen {
            Seen::Http { status, headers, body } => What::Http { status: *status, headers, body },
            Seen::Transport(error) => What::Transport(*error),
            Seen::Process(exit) => What::Process(*exit),
            Seen::Taken => What::Taken,
            Seen::Broker(error) => What::Broker(*error),
            Seen::Malformed(malformed) => What::Malformed(*malformed),
            Seen::ConfigMissing => What::ConfigMissing,
            Seen::SecretUnavailable => What::SecretUnavailable,
            Seen::Internal => What::Internal,
        };
        Answer { what, message: &self.message, retry_after: self.retry_after }
    }
}
