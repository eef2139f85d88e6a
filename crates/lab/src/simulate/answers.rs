//! Translates simulated answers into what a connector of each kind reports, so that rules classify them as they would
//! in production.

use std::time::Duration;

use super::agenda::CallAnswer;
use redrive_core::book::connectors::CallProtocol;
use redrive_core::policy::answer::{
    BrokerError, CallPart, Exit, HeaderPairs, ReplyKind, TargetReply, TransportError,
};

pub(super) fn reply(speech: CallProtocol, said: CallAnswer) -> TargetReply {
    let retry_after = match said {
        CallAnswer::TooMany(wait) => wait,
        CallAnswer::Done | CallAnswer::Status(_) | CallAnswer::Refused | CallAnswer::Nothing => None,
    };
    let seen = match speech {
        CallProtocol::Http | CallProtocol::HttpApi => http(said),
        CallProtocol::Broker => broker(said),
        CallProtocol::Process => process(said),
    };
    TargetReply {
        seen,
        message: message(said),
        retry_after: retry_after.filter(|wait| *wait > Duration::ZERO),
    }
}

pub(super) fn partly() -> TargetReply {
    let message = "the target reported it as failed".to_owned();
    TargetReply { seen: ReplyKind::Broker(BrokerError::Other), message, retry_after: None }
}

fn message(said: CallAnswer) -> String {
    match said {
        CallAnswer::Done => String::new(),
        CallAnswer::Status(status) => format!("target answered {status}"),
        CallAnswer::TooMany(_) => "target answered 429".to_owned(),
        CallAnswer::Refused => "connection refused".to_owned(),
        CallAnswer::Nothing => "no answer in time".to_owned(),
    }
}

fn http(said: CallAnswer) -> ReplyKind {
    let status = match said {
        CallAnswer::Done => 200,
        CallAnswer::Status(status) => status,
        CallAnswer::TooMany(_) => 429,
        CallAnswer::Refused => return ReplyKind::Transport(TransportError::Refused),
        CallAnswer::Nothing => return ReplyKind::Transport(TransportError::Timeout(CallPart::Whole)),
    };
    ReplyKind::Http { status, headers: HeaderPairs::default(), body: String::new() }
}

const fn broker(said: CallAnswer) -> ReplyKind {
    ReplyKind::Broker(match said {
        CallAnswer::Done => return ReplyKind::Taken,
        CallAnswer::Status(401 | 403) => BrokerError::Unauthorized,
        CallAnswer::Status(404) => BrokerError::QueueNotFound,
        CallAnswer::Status(413) => BrokerError::MessageTooLarge,
        CallAnswer::Status(429) | CallAnswer::TooMany(_) => BrokerError::QuotaExceeded,
        CallAnswer::Status(500..) | CallAnswer::Refused => BrokerError::Unavailable,
        CallAnswer::Status(_) => BrokerError::Refused,
        CallAnswer::Nothing => BrokerError::TimedOut,
    })
}

const fn process(said: CallAnswer) -> ReplyKind {
    ReplyKind::Process(match said {
        CallAnswer::Done => Exit::Code(0),
        CallAnswer::Status(_) | CallAnswer::TooMany(_) => Exit::Code(1),
        CallAnswer::Refused => Exit::SpawnFailed,
        CallAnswer::Nothing => Exit::TimeLimit,
    })
}
