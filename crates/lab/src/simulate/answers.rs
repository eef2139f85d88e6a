//! Translates simulated answers into what a connector of each kind reports, so that rules classify them as they would
//! in production.

use std::time::Duration;

use super::agenda::SimulatedAnswer;
use redrive_core::book::connectors::Speech;
use redrive_core::policy::answer::{BrokerError, CallPart, Exit, HeaderPairs, Reply, Seen, TransportError};

pub(super) fn reply(speech: Speech, said: SimulatedAnswer) -> Reply {
    let retry_after = match said {
        SimulatedAnswer::TooMany(wait) => wait,
        SimulatedAnswer::Done
        | SimulatedAnswer::Status(_)
        | SimulatedAnswer::Refused
        | SimulatedAnswer::Nothing => None,
    };
    let seen = match speech {
        Speech::Http | Speech::HttpApi => http(said),
        Speech::Broker => broker(said),
        Speech::Process => process(said),
    };
    Reply { seen, message: message(said), retry_after: retry_after.filter(|wait| *wait > Duration::ZERO) }
}

pub(super) fn partly() -> Reply {
    let message = "the target reported it as failed".to_owned();
    Reply { seen: Seen::Broker(BrokerError::Other), message, retry_after: None }
}

fn message(said: SimulatedAnswer) -> String {
    match said {
        SimulatedAnswer::Done => String::new(),
        SimulatedAnswer::Status(status) => format!("target answered {status}"),
        SimulatedAnswer::TooMany(_) => "target answered 429".to_owned(),
        SimulatedAnswer::Refused => "connection refused".to_owned(),
        SimulatedAnswer::Nothing => "no answer in time".to_owned(),
    }
}

fn http(said: SimulatedAnswer) -> Seen {
    let status = match said {
        SimulatedAnswer::Done => 200,
        SimulatedAnswer::Status(status) => status,
        SimulatedAnswer::TooMany(_) => 429,
        SimulatedAnswer::Refused => return Seen::Transport(TransportError::Refused),
        SimulatedAnswer::Nothing => return Seen::Transport(TransportError::Timeout(CallPart::Whole)),
    };
    Seen::Http { status, headers: HeaderPairs::default(), body: String::new() }
}

const fn broker(said: SimulatedAnswer) -> Seen {
    Seen::Broker(match said {
        SimulatedAnswer::Done => return Seen::Taken,
        SimulatedAnswer::Status(401 | 403) => BrokerError::Unauthorized,
        SimulatedAnswer::Status(404) => BrokerError::QueueNotFound,
        SimulatedAnswer::Status(413) => BrokerError::MessageTooLarge,
        SimulatedAnswer::Status(429) | SimulatedAnswer::TooMany(_) => BrokerError::QuotaExceeded,
        SimulatedAnswer::Status(500..) | SimulatedAnswer::Refused => BrokerError::Unavailable,
        SimulatedAnswer::Status(_) => BrokerError::Refused,
        SimulatedAnswer::Nothing => BrokerError::TimedOut,
    })
}

const fn process(said: SimulatedAnswer) -> Seen {
    Seen::Process(match said {
        SimulatedAnswer::Done => Exit::Code(0),
        SimulatedAnswer::Status(_) | SimulatedAnswer::TooMany(_) => Exit::Code(1),
        SimulatedAnswer::Refused => Exit::SpawnFailed,
        SimulatedAnswer::Nothing => Exit::TimeLimit,
    })
}
