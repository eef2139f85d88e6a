//! The answer of a recorded attempt, in a form that any rule can classify again.
//!
//! A record keeps the status, message, start of the body and Retry-After of an answer, but no headers. A header is
//! known only where a `classify` row of the book in force matched by it.

use std::time::Duration;

use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord, BookPosition};
use redrive_core::ids::Attempt;
use redrive_core::policy::answer::{
    BrokerError, CallPart, Exit, HeaderPairs, MalformedEvent, ReplyKind, TargetReply, TransportError,
};
use redrive_core::policy::backoff::nanos;
use redrive_core::policy::category::{Category, FailureCode, codes};
use redrive_core::policy::classify::{ConnectionStatus, Failure, Outcome, classify, fits_but_for_header};
use redrive_core::policy::reported;
use redrive_core::policy::rule::{HeaderMatch, Override, Rule};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum AnswerEvidence {
    /// Accepted as part of a batch.
    Taken,
    Answer {
        reply: TargetReply,
        /// Headers that it is known not to have had.
        lacking: Vec<HeaderMatch>,
    },
    AsJudged(Box<Failure>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct JudgedAnswer {
    pub outcome: Outcome,
    /// At most the rule's limit.
    pub took: Duration,
    pub sureness: Sureness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sureness {
    Sure,
    HeadersUnknown,
    /// It timed out, and the rule would wait longer.
    MightHaveCome,
    OnlyJudged,
}

impl AnswerEvidence {
    /// `None` if there was no attempt. `then` is the rule that classified it.
    pub(super) fn of(story: &AttemptRecord, then: Option<&Rule>) -> Option<Self> {
        let row = story.classified_at.and_then(|place| row_at(then?, place));
        let answer = |reply: TargetReply| {
            let lacking = then.map(|then| headers_lacking(&reply, then, row)).unwrap_or_default();
            Self::Answer { reply, lacking }
        };
        match &story.end {
            AttemptEnd::Held { .. } => None,
            AttemptEnd::Delivered { status: None, .. } => Some(answer(plain(ReplyKind::Taken))),
            AttemptEnd::Delivered { status: Some(status), .. } => {
                let is_part = !(200..300).contains(status) && story.classified_at.is_none();
                let seen = http(*status, "", headers_of(row));
                Some(if is_part { Self::Taken } else { answer(plain(seen)) })
            }
            AttemptEnd::Failed { category, code, status, message, response } => {
                let retry_after = story.retry.as_ref().and_then(|weighed| weighed.retry_after_nanos);
                let retry_after = retry_after.map(Duration::from_nanos);
                let usual_code = row.and_then(|row| row.when.code.as_ref()).unwrap_or(code);
                let seen = match status {
                    Some(status) => {
                        let mut headers = headers_of(row);
                        if *status == 403 && usual_code.as_str() == codes::RATE_LIMITED {
                            headers.push(("x-ratelimit-remaining".to_owned(), "0".to_owned()));
                        }
                        // The stated code may have come from a header.
                        if row.is_none_or(|row| row.code.is_none() || row.when.code.is_some()) {
                            headers.push((reported::HEADER.to_owned(), usual_code.to_string()));
                        }
                        // Only a row that names the status can make a success a failure.
                        let is_success = (200..300).contains(status);
                        let is_unexpected = is_success && row.is_none_or(|row| row.when.statuses.is_empty());
                        Some(if is_unexpected {
                            ReplyKind::Unexpected {
                                status: *status,
                                headers: HeaderPairs(headers),
                                body: response.clone(),
                            }
                        } else {
                            http(*status, response, headers)
                        })
                    }
                    None => seen_by_code(usual_code.as_str(), message),
                };
                Some(match seen {
                    Some(seen) => answer(TargetReply { seen, message: message.clone(), retry_after }),
                    None => Self::AsJudged(Box::new(as_judged(*category, code, message, retry_after))),
                })
            }
        }
    }

    /// `waited_for` is the limit under which it was recorded.
    pub(super) fn judged(
        &self,
        rule: &Rule,
        attempt: Attempt,
        took: Duration,
        waited_for: Option<Duration>,
    ) -> JudgedAnswer {
        let limit = rule.timeouts.whole.limit(attempt);
        let waits_less = waited_for.is_none_or(|waited| limit < waited);
        if took > limit && waits_less && !self.is_about_time() {
            return JudgedAnswer { outcome: timed_out(self, rule), took: limit, sureness: Sureness::Sure };
        }
        let waits_longer = waited_for.is_some_and(|waited| limit > waited) && limit > took;
        // A call ends slightly after its limit, in the record and with the new rule.
        let took = if self.is_about_time() && waits_less { took.min(limit) } else { took };
        match self {
            Self::Taken => {
                JudgedAnswer { outcome: Outcome::Delivered { matched: None }, took, sureness: Sureness::Sure }
            }
            Self::AsJudged(failure) => JudgedAnswer {
                outcome: Outcome::Failed((**failure).clone()),
                took,
                sureness: if failure.code.as_str() == codes::INTERRUPTED {
                    Sureness::Sure
                } else {
                    Sureness::OnlyJudged
                },
            },
            Self::Answer { reply, lacking } => {
                let outcome = classify(&reply.as_answer(), &rule.classify, rule.timeouts.category);
                let sureness = if self.is_about_time() && waits_longer {
                    Sureness::MightHaveCome
                } else if might_have_headers(reply, lacking, rule) {
                    Sureness::HeadersUnknown
                } else {
                    Sureness::Sure
                };
                JudgedAnswer { outcome, took, sureness }
            }
        }
    }

    /// Without `classify` rows; `None` is a success.
    pub(super) fn usual_category(&self) -> Option<Category> {
        match self {
            Self::Taken => None,
            Self::AsJudged(failure) => Some(failure.category),
            Self::Answer { reply, .. } => match classify(&reply.as_answer(), &[], Category::Transient) {
                Outcome::Delivered { .. } => None,
                Outcome::Failed(failure) => Some(failure.category),
            },
        }
    }

    pub(super) fn kind(&self) -> TimedAnswer {
        match self {
            Self::Taken => TimedAnswer { status: None, code: FailureCode::of("") },
            Self::AsJudged(failure) => TimedAnswer { status: failure.status, code: failure.code.clone() },
            Self::Answer { reply, .. } => match classify(&reply.as_answer(), &[], Category::Transient) {
                Outcome::Delivered { .. } => {
                    TimedAnswer { status: reply.as_answer().what.status(), code: FailureCode::of("") }
                }
                Outcome::Failed(failure) => TimedAnswer { status: failure.status, code: failure.code },
            },
        }
    }

    fn is_about_time(&self) -> bool {
        match self {
            Self::Answer { reply, .. } => matches!(
                reply.seen,
                ReplyKind::Transport(TransportError::Timeout(_))
                    | ReplyKind::Process(Exit::TimeLimit)
                    | ReplyKind::Broker(BrokerError::TimedOut)
            ),
            Self::Taken | Self::AsJudged(_) => false,
        }
    }
}

/// A success has no code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TimedAnswer {
    pub status: Option<u16>,
    pub code: FailureCode,
}

fn row_at(rule: &Rule, place: BookPosition) -> Option<&Override> {
    rule.classify.iter().find(|row| BookPosition::from(row.position) == place)
}

fn plain(seen: ReplyKind) -> TargetReply {
    TargetReply { seen, message: String::new(), retry_after: None }
}

fn headers_of(row: Option<&Override>) -> Vec<(String, String)> {
    let fitted = row.and_then(|row| row.when.header.as_ref());
    fitted.map(|header| (header.name.clone(), header.value.clone().unwrap_or_default())).into_iter().collect()
}

fn http(status: u16, body: &str, headers: Vec<(String, String)>) -> ReplyKind {
    ReplyKind::Http { status, headers: HeaderPairs(headers), body: body.to_owned() }
}

fn headers_lacking(reply: &TargetReply, then: &Rule, fitted: Option<&Override>) -> Vec<HeaderMatch> {
    let before = then.classify.iter().take_while(|row| fitted.is_none_or(|fitted| *row != fitted));
    let lacking = before.filter(|row| fits_but_for_header(&row.when, &reply.as_answer()));
    lacking.filter_map(|row| row.when.header.clone()).collect()
}

/// Whether a row may have matched by an unknown header.
fn might_have_headers(reply: &TargetReply, lacking: &[HeaderMatch], rule: &Rule) -> bool {
    let answer = reply.as_answer();
    let is_unknown =
        |header: &HeaderMatch| !lacking.contains(header) && answer.what.header(&header.name).is_none();
    reply.as_answer().what.status().is_some()
        && rule.classify.iter().any(|row| {
            row.when.header.as_ref().is_some_and(is_unknown) && fits_but_for_header(&row.when, &answer)
        })
}

fn timed_out(evidence: &AnswerEvidence, rule: &Rule) -> Outcome {
    let seen = match evidence {
        AnswerEvidence::Answer { reply: TargetReply { seen: ReplyKind::Process(_), .. }, .. } => {
            ReplyKind::Process(Exit::TimeLimit)
        }
        AnswerEvidence::Taken | AnswerEvidence::Answer { .. } | AnswerEvidence::AsJudged(_) => {
            ReplyKind::Transport(TransportError::Timeout(CallPart::Whole))
        }
    };
    let reply = TargetReply { message: "no answer in time".to_owned(), ..plain(seen) };
    classify(&reply.as_answer(), &rule.classify, rule.timeouts.category)
}

fn as_judged(
    category: Category,
    code: &FailureCode,
    message: &str,
    retry_after: Option<Duration>,
) -> Failure {
    Failure {
        category,
        code: code.clone(),
        status: None,
        message: message.to_owned(),
        retry_after,
        matched: None,
        default_category: Some(category),
        connection: ConnectionStatus::Made,
    }
}

fn seen_by_code(code: &str, message: &str) -> Option<ReplyKind> {
    Some(match code {
        codes::NETWORK_TIMEOUT => ReplyKind::Transport(TransportError::Timeout(part_of(message))),
        codes::CONNECTION_REFUSED => ReplyKind::Transport(TransportError::Refused),
        // The second is the text of earlier versions, which is still in stores and in the library.
        codes::CONNECTION_RESET
            if ["response was complete", "answer was whole"].iter().any(|end| message.ends_with(end)) =>
        {
            ReplyKind::Transport(TransportError::ClosedEarly)
        }
        codes::CONNECTION_RESET => ReplyKind::Transport(TransportError::Reset),
        codes::DNS_FAILURE => ReplyKind::Transport(TransportError::Dns),
        codes::TLS_FAILURE => ReplyKind::Transport(TransportError::Tls),
        codes::NETWORK_UNREACHABLE => ReplyKind::Transport(TransportError::Unreachable),
        codes::ADDRESS_REFUSED => ReplyKind::Transport(TransportError::AddressRefused),
        codes::PROTOCOL_ERROR => ReplyKind::Transport(TransportError::Protocol),
        codes::PROCESS_CRASHED => ReplyKind::Process(Exit::Code(1)),
        codes::PROCESS_KILLED => ReplyKind::Process(Exit::Signal(9)),
        codes::OUT_OF_MEMORY => ReplyKind::Process(Exit::OutOfMemory),
        codes::PROCESS_ERROR => ReplyKind::Process(Exit::ReportedError),
        codes::SPAWN_FAILED => ReplyKind::Process(Exit::SpawnFailed),
        codes::RUNTIME_UNAVAILABLE => ReplyKind::Process(Exit::RuntimeUnavailable),
        codes::TIME_LIMIT_EXCEEDED => ReplyKind::Process(Exit::TimeLimit),
        codes::LEADER_ELECTION => ReplyKind::Broker(BrokerError::LeaderElection),
        codes::BROKER_UNAVAILABLE => ReplyKind::Broker(BrokerError::Unavailable),
        codes::QUOTA_EXCEEDED => ReplyKind::Broker(BrokerError::QuotaExceeded),
        codes::STORE_THROTTLED => ReplyKind::Broker(BrokerError::StoreThrottled),
        codes::QUEUE_NOT_FOUND => ReplyKind::Broker(BrokerError::QueueNotFound),
        codes::UNAUTHORIZED => ReplyKind::Broker(BrokerError::Unauthorized),
        codes::MESSAGE_TOO_LARGE => ReplyKind::Broker(BrokerError::MessageTooLarge),
        codes::MESSAGE_REFUSED => ReplyKind::Broker(BrokerError::Refused),
        codes::UNKNOWN_ERROR => ReplyKind::Broker(BrokerError::Other),
        codes::DESERIALIZATION_FAILED => ReplyKind::Malformed(MalformedEvent::DoesNotParse),
        codes::SCHEMA_VIOLATION => ReplyKind::Malformed(MalformedEvent::ViolatesSchema),
        codes::CONFIG_MISSING => ReplyKind::ConfigMissing,
        codes::SECRET_UNAVAILABLE => ReplyKind::SecretUnavailable,
        codes::INTERNAL_ERROR => ReplyKind::Internal,
        _ => return None,
    })
}

/// From the message texts of connectors.
fn part_of(message: &str) -> CallPart {
    if message.starts_with("no connection") {
        CallPart::Connect
    } else if message.starts_with("no TLS handshake") {
        CallPart::Tls
    } else {
        CallPart::Whole
    }
}

pub(super) fn took(story: &AttemptRecord) -> Duration {
    Duration::from_nanos(story.took_nanos.min(nanos(Duration::from_hours(24 * 365))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::book;
    use redrive_core::book::connectors::built_in;
    use redrive_core::engine::attempt_record::AttemptFacts;
    use redrive_core::ids::{DeliveryId, Seed};
    use redrive_core::policy::decide::{AttemptResult, History, Moment, decide};
    use redrive_core::time::Timestamp;

    fn rule(classify: &str) -> Rule {
        let text = format!(
            "version: 1\nservices:\n  shop:\n    target: {{ http: \"http://127.0.0.1:9000/\" }}\n    retry: standard\n    classify: [{classify}]\n    timeout: 5s\n    events: [\"*\"]\n"
        );
        let reading = book::read(&text, built_in());
        let book = reading.book.unwrap_or_else(|| panic!("{text}\n{:?}", reading.problems));
        (**book.rule("shop", None, "a").expect("it is wanted")).clone()
    }

    /// The story that is told of a reply, and what the rule made of it.
    fn story(rule: &Rule, reply: &TargetReply, took: Duration) -> (AttemptRecord, Outcome) {
        let outcome = classify(&reply.as_answer(), &rule.classify, rule.timeouts.category);
        let started_at = Timestamp::from_millis(1_000_000);
        let now = started_at + took;
        let moment = Moment { now, seed: Seed(1), delivery: DeliveryId(1), attempt: Attempt::FIRST };
        let history = History::new().started(started_at);
        let decision = decide(rule, &history, &AttemptResult::Outcome(outcome.clone()), &moment);
        let response = match &reply.seen {
            ReplyKind::Http { body, .. } => body.as_str(),
            _ => "",
        };
        let facts = AttemptFacts {
            attempt: Attempt::FIRST,
            started_at,
            ended_at: now,
            book: 1,
            rule,
            outcome: Some(&outcome),
            status: reply.as_answer().what.status(),
            response,
            receipt: "",
            held: Duration::ZERO,
        };
        (AttemptRecord::of(&facts, &decision), outcome)
    }

    fn answered(status: u16, headers: &[(&str, &str)], body: &str, retry_after: Option<u64>) -> TargetReply {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let seen = ReplyKind::Http { status, headers: HeaderPairs(headers), body: body.to_owned() };
        let retry_after = retry_after.map(Duration::from_secs);
        TargetReply { seen, message: format!("{status} said"), retry_after }
    }

    fn reported(seen: ReplyKind, message: &str) -> TargetReply {
        TargetReply { seen, message: message.to_owned(), retry_after: None }
    }

    /// Everything that a connector may report.
    fn replies() -> Vec<TargetReply> {
        let transport = |error, message| reported(ReplyKind::Transport(error), message);
        let mut replies = vec![
            answered(200, &[], "", None),
            answered(202, &[("x-odd", "1")], "{\"error\": \"quota\"}", None),
            answered(403, &[], "", None),
            answered(403, &[("x-ratelimit-remaining", "0")], "", None),
            answered(404, &[], "", None),
            answered(409, &[], "", None),
            answered(429, &[], "", Some(30)),
            answered(500, &[("x-odd", "1")], "", None),
            answered(500, &[("x-odd", "2")], "quota exceeded", None),
            answered(503, &[], "", Some(7)),
            transport(TransportError::Timeout(CallPart::Connect), "no connection to a within 5s"),
            transport(TransportError::Timeout(CallPart::Tls), "no TLS handshake with a within 5s"),
            transport(TransportError::Timeout(CallPart::Whole), "no answer from a within 5s"),
            transport(TransportError::Refused, "the connection was refused"),
            transport(TransportError::Reset, "the connection was reset"),
            transport(TransportError::ClosedEarly, "a hung up before its answer was whole"),
            transport(
                TransportError::ClosedEarly,
                "a closed the connection before the response was complete",
            ),
            transport(TransportError::Dns, "no such name"),
            transport(TransportError::Tls, "bad certificate"),
            transport(TransportError::Unreachable, "no way"),
            transport(TransportError::AddressRefused, "a private address"),
            transport(TransportError::Protocol, "no HTTP"),
        ];
        let others = [
            ReplyKind::Taken,
            ReplyKind::Process(Exit::Code(3)),
            ReplyKind::Process(Exit::Signal(9)),
            ReplyKind::Process(Exit::OutOfMemory),
            ReplyKind::Process(Exit::ReportedError),
            ReplyKind::Process(Exit::SpawnFailed),
            ReplyKind::Process(Exit::RuntimeUnavailable),
            ReplyKind::Process(Exit::TimeLimit),
            ReplyKind::Broker(BrokerError::LeaderElection),
            ReplyKind::Broker(BrokerError::Unavailable),
            ReplyKind::Broker(BrokerError::TimedOut),
            ReplyKind::Broker(BrokerError::QuotaExceeded),
            ReplyKind::Broker(BrokerError::StoreThrottled),
            ReplyKind::Broker(BrokerError::QueueNotFound),
            ReplyKind::Broker(BrokerError::Unauthorized),
            ReplyKind::Broker(BrokerError::MessageTooLarge),
            ReplyKind::Broker(BrokerError::Refused),
            ReplyKind::Broker(BrokerError::Other),
            ReplyKind::Malformed(MalformedEvent::DoesNotParse),
            ReplyKind::Malformed(MalformedEvent::ViolatesSchema),
            ReplyKind::ConfigMissing,
            ReplyKind::SecretUnavailable,
            ReplyKind::Internal,
        ];
        replies.extend(others.map(|seen| reported(seen, "so it was")));
        replies
    }

    /// Rows of all kinds: by status, header, words and code, with a code of their own.
    const ROWS: &str = "{ status: 409, as: delivered }, { header: \"x-odd: 1\", status: 500, as: permanent }, \
        { message: quota, as: rate-limited, give_code: OUR_QUOTA }, { code: CONNECTION_REFUSED, as: fatal, give_code: OUR_DOOR }, \
        { code: BROKER_UNAVAILABLE, as: transient, give_code: OUR_BROKER }";

    #[test]
    fn a_story_tells_enough_to_judge_it_again() {
        // A call that is given up takes a little longer than its limit, which is 5s.
        for (rows, lasting) in [("", 1_000), (ROWS, 1_000), ("", 5_003), (ROWS, 5_003)] {
            let (rule, lasting) = (rule(rows), Duration::from_millis(lasting));
            for reply in replies() {
                let (story, outcome) = story(&rule, &reply, lasting);
                let evidence = AnswerEvidence::of(&story, Some(&rule)).expect("it was an attempt");
                let judged =
                    evidence.judged(&rule, Attempt::FIRST, took(&story), Some(Duration::from_secs(5)));
                assert_eq!(
                    (judged.outcome, judged.sureness, judged.took),
                    (outcome, Sureness::Sure, lasting),
                    "{reply:?} by {rows}"
                );
            }
        }
    }

    #[test]
    fn what_the_record_does_not_have_is_not_sure() {
        let (plain, odd) = (rule(""), rule("{ header: \"x-odd: 1\", status: 500, as: permanent }"));
        let refused = rule("{ code: CONNECTION_REFUSED, as: fatal, give_code: OUR_DOOR }");
        let reply_500 = answered(500, &[], "", None);
        let closed = reported(ReplyKind::Transport(TransportError::Refused), "refused");
        let slow =
            reported(ReplyKind::Transport(TransportError::Timeout(CallPart::Whole)), "no answer in time");
        let five = Some(Duration::from_secs(5));
        #[rustfmt::skip]
        let cases = [
            ("headers that nobody looked at",   &plain,   &reply_500, Some(&plain),   &odd,     five,                         Sureness::HeadersUnknown),
            ("headers that were looked for",    &odd,     &reply_500, Some(&odd),     &odd,     five,                         Sureness::Sure),
            ("a code of a book that is known",  &refused, &closed,    Some(&refused), &plain,   five,                         Sureness::Sure),
            ("a code of one that is not",       &refused, &closed,    None,           &plain,   five,                         Sureness::OnlyJudged),
            ("a timeout that stays",            &plain,   &slow,      Some(&plain),   &plain,   five,                         Sureness::Sure),
            ("a timeout that was shorter",      &plain,   &slow,      Some(&plain),   &plain,   Some(Duration::from_secs(1)), Sureness::MightHaveCome),
        ];
        for (name, then, reply, known, now, waited_for, expected) in cases {
            let (story, _) = story(then, reply, Duration::from_secs(1));
            let evidence = AnswerEvidence::of(&story, known).expect("it was an attempt");
            assert_eq!(
                evidence.judged(now, Attempt::FIRST, took(&story), waited_for).sureness,
                expected,
                "{name}"
            );
        }
    }
}
