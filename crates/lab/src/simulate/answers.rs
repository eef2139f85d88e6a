//! What a connector of each kind would report of an answer, so that the rules of the book judge what they would
//! judge in earnest.

use std::time::Duration;

use super::agenda::Said;
use redrive_core::book::connectors::Speech;
use redrive_core::policy::answer::{BrokerError, CallPart, Exit, HeaderPairs, Reply, Seen, TransportError};

/// What a connector that speaks so reports.
pub(super) fn reply(speech: Speech, said: Said) -> Reply {
    let retry_after = match said {
        Said::TooMany(wait) => wait,
        Said::Done | Said::Status(_) | Said::Refused | Said::Nothing => None,
    };
    let seen = match speech {
        Speech::Http | Speech::HttpApi => http(said),
        Speech::Broker => broker(said),
        Speech::Process => process(said),
    };
    Reply { seen, message: message(said), retry_after: retry_after.filter(|wait| *wait > Duration::ZERO) }
}

/// What it reports of a batch of which some were taken and others not.
pub(super) fn partly() -> Reply {
    let message = "the target named it among those that failed".to_owned();
    Reply { seen: Seen::Broker(BrokerError::Other), message, retry_after: None }
}

fn message(said: Said) -> String {
    match said {
        Said::Done => String::new(),
        Said::Status(status) => format!("target answered {status}"),
        Said::TooMany(_) => "target answered 429".to_owned(),
        Said::Refused => "connection refused".to_owned(),
        Said::Nothing => "no answer in time".to_owned(),
    }
}

fn http(said: Said) -> Seen {
    let status = match said {
        Said::Done => 200,
        Said::Status(status) => status,
        Said::TooMany(_) => 429,
        Said::Refused => return Seen::Transport(TransportError::Refused),
        Said::Nothing => return Seen::Transport(TransportError::Timeout(CallPart::Whole)),
    };
    Seen::Http { status, headers: HeaderPairs::default(), body: String::new() }
}

const fn broker(said: Said) -> Seen {
    Seen::Broker(match said {
        Said::Done => return Seen::Taken,
        Said::Status(401 | 403) => BrokerError::Unauthorized,
        Said::Status(404) => BrokerError::QueueNotFound,
        Said::Status(413) => BrokerError::MessageTooLarge,
        Said::Status(429) | Said::TooMany(_) => BrokerError::QuotaExceeded,
        Said::Status(500..) | Said::Refused => BrokerError::Unavailable,
        Said::Status(_) => BrokerError::Refused,
        Said::Nothing => BrokerError::TimedOut,
    })
}

const fn process(said: Said) -> Seen {
    Seen::Process(match said {
        Said::Done => Exit::Code(0),
        Said::Status(_) | Said::TooMany(_) => Exit::Code(1),
        Said::Refused => Exit::SpawnFailed,
        Said::Nothing => Exit::TimeLimit,
    })
}
