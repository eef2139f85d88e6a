//! Runs one delivery through a script of answers, in virtual time.
//!
//! Classifier, breaker and verdicts are those of production. There is one delivery only, answers are immediate unless
//! they are timeouts, and the breaker starts closed.

use std::time::Duration;

use redrive_core::book::problem::nearest;
use redrive_core::ids::{Attempt, DeliveryId, Seed};
use redrive_core::limits;
use redrive_core::policy::answer::{
    AnswerKind, CallPart, Exit, MalformedEvent, TargetAnswer, TransportError,
};
use redrive_core::policy::breaker::{Admission, Breaker, BreakerState, Transition};
use redrive_core::policy::category::FailureCode;
use redrive_core::policy::classify::{Outcome, classify};
use redrive_core::policy::decide::{AttemptResult, Decision, History, Moment, Verdict, decide};
use redrive_core::policy::rule::{NamedBreaker, Rule};
use redrive_core::time::Timestamp;

/// Decides what a `timeout` of the script means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptKind {
    /// A network call without an answer in time.
    Call,
    /// A process that exceeds its time limit.
    Process,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptedAnswer {
    what: ScriptedReply,
    retry_after: Option<Duration>,
    message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ScriptedReply {
    Status(u16),
    Transport(TransportError),
    Process(Exit),
    Malformed,
    Taken,
    Code(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScript {
    #[error(
        "`{word}` is not an answer: write a status (503), a status with Retry-After in seconds (429:60), \
         timeout, refused, reset, dns, tls, crash, oom, invalid, ok or a CODE, optionally with =message \
         (500=quota exceeded) and *times (503*4)"
    )]
    Word { word: String },
    #[error("`{word}` is not an answer: did you mean `{near}`?")]
    NearWord { word: String, near: &'static str },
    #[error("`{word}` cannot have a Retry-After: only a status can, such as 429:60")]
    RetryAfter { word: String },
    #[error("the script is empty: write at least one answer, such as 200")]
    Empty,
    #[error("the script has more than {} answers", limits::SCRIPT_ANSWERS_MAX)]
    TooLong,
}

const WORDS: [(&str, ScriptedReply); 9] = [
    ("timeout", ScriptedReply::Transport(TransportError::Timeout(CallPart::Whole))),
    ("refused", ScriptedReply::Transport(TransportError::Refused)),
    ("reset", ScriptedReply::Transport(TransportError::Reset)),
    ("dns", ScriptedReply::Transport(TransportError::Dns)),
    ("tls", ScriptedReply::Transport(TransportError::Tls)),
    ("crash", ScriptedReply::Process(Exit::Code(1))),
    ("oom", ScriptedReply::Process(Exit::OutOfMemory)),
    ("invalid", ScriptedReply::Malformed),
    ("ok", ScriptedReply::Taken),
];

/// Reads a script such as `503,429:60,timeout,200`.
pub fn parse_script(text: &str) -> Result<Vec<ScriptedAnswer>, InvalidScript> {
    let mut script = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (one, times) = match word.rsplit_once('*') {
            Some((one, times)) => (one, times.parse::<usize>().map_err(|_| no_answer(word))?),
            None => (word, 1),
        };
        if script.len().saturating_add(times) > limits::SCRIPT_ANSWERS_MAX {
            return Err(InvalidScript::TooLong);
        }
        script.extend(std::iter::repeat_n(ScriptedAnswer::parse(one)?, times));
    }
    if script.is_empty() { Err(InvalidScript::Empty) } else { Ok(script) }
}

fn no_answer(word: &str) -> InvalidScript {
    InvalidScript::Word { word: word.to_owned() }
}

impl ScriptedAnswer {
    fn parse(text: &str) -> Result<Self, InvalidScript> {
        let (what, message) = match text.split_once('=') {
            Some((what, message)) => (what.trim(), Some(message)),
            None => (text, None),
        };
        let (what, seconds) = match what.split_once(':') {
            Some((what, seconds)) => (what, Some(seconds)),
            None => (what, None),
        };
        let what = ScriptedReply::parse(what)?;
        let retry_after = match (&what, seconds) {
            (_, None) => None,
            (ScriptedReply::Status(_), Some(seconds)) => {
                let seconds = seconds.trim_end_matches('s').parse().map_err(|_| no_answer(text))?;
                Some(Duration::from_secs(seconds))
            }
            (
                ScriptedReply::Transport(_)
                | ScriptedReply::Process(_)
                | ScriptedReply::Malformed
                | ScriptedReply::Taken
                | ScriptedReply::Code(_),
                Some(_),
            ) => return Err(InvalidScript::RetryAfter { word: text.to_owned() }),
        };
        let message = message.map_or_else(|| usual_message(&what), str::to_owned);
        Ok(Self { what, retry_after, message })
    }

    /// `503 Service Unavailable`, or `500: quota` with a message of its own.
    #[must_use]
    pub fn shown(&self) -> String {
        let usual = usual_message(&self.what);
        if self.message == usual {
            return usual;
        }
        let what = self.status().map_or(usual, |status| status.to_string());
        format!("{what}: {}", self.message)
    }

    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        match self.what {
            ScriptedReply::Status(status) => Some(status),
            ScriptedReply::Transport(_)
            | ScriptedReply::Process(_)
            | ScriptedReply::Malformed
            | ScriptedReply::Taken
            | ScriptedReply::Code(_) => None,
        }
    }

    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    const fn takes_the_whole_limit(&self) -> bool {
        matches!(
            self.what,
            ScriptedReply::Transport(TransportError::Timeout(_)) | ScriptedReply::Process(Exit::TimeLimit)
        )
    }

    /// For a process, a timeout is an exceeded time limit.
    fn for_kind(&self, kind: AttemptKind) -> Self {
        match (kind, &self.what) {
            (AttemptKind::Process, ScriptedReply::Transport(TransportError::Timeout(_))) => {
                let what = ScriptedReply::Process(Exit::TimeLimit);
                let is_usual = self.message == usual_message(&self.what);
                let message = if is_usual { usual_message(&what) } else { self.message.clone() };
                Self { what, retry_after: self.retry_after, message }
            }
            (AttemptKind::Call | AttemptKind::Process, _) => self.clone(),
        }
    }

    fn outcome(&self, rule: &Rule) -> Outcome {
        let seconds = self.retry_after.map(|wait| wait.as_secs().to_string()).unwrap_or_default();
        let headers = [("retry-after", seconds.as_str())];
        let headers = if seconds.is_empty() { &headers[..0] } else { &headers[..] };
        let what = match &self.what {
            ScriptedReply::Status(status) => {
                AnswerKind::Http { status: *status, headers: &headers, body: "" }
            }
            ScriptedReply::Transport(error) => AnswerKind::Transport(*error),
            ScriptedReply::Process(exit) => AnswerKind::Process(*exit),
            ScriptedReply::Malformed => AnswerKind::Malformed(MalformedEvent::DoesNotParse),
            ScriptedReply::Taken => AnswerKind::Taken,
            ScriptedReply::Code(code) => AnswerKind::Reported { code },
        };
        let answer = TargetAnswer { what, message: &self.message, retry_after: self.retry_after };
        classify(&answer, &rule.classify, rule.timeouts.category)
    }
}

impl ScriptedReply {
    fn parse(word: &str) -> Result<Self, InvalidScript> {
        if let Some((_, known)) = WORDS.into_iter().find(|(name, _)| *name == word) {
            return Ok(known);
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let status = word.parse().ok().filter(|status| (100..=599).contains(status));
            return status.map(Self::Status).ok_or_else(|| no_answer(word));
        }
        // `TIMEOUT` is probably a typo; with an underscore it is a code.
        let is_surely_a_code = is_code(word) && word.contains('_');
        match nearest(word, WORDS.map(|(name, _)| name)) {
            Some(near) if !is_surely_a_code => Err(InvalidScript::NearWord { word: word.to_owned(), near }),
            Some(_) | None if is_code(word) => Ok(Self::Code(word.to_owned())),
            Some(_) | None => Err(no_answer(word)),
        }
    }
}

fn is_code(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

fn usual_message(what: &ScriptedReply) -> String {
    match what {
        ScriptedReply::Status(status) => match reason_phrase(*status) {
            Some(reason) => format!("{status} {reason}"),
            None => status.to_string(),
        },
        ScriptedReply::Transport(TransportError::Timeout(_)) => "no answer in time".to_owned(),
        ScriptedReply::Transport(TransportError::Refused) => "connection refused".to_owned(),
        ScriptedReply::Transport(TransportError::Dns) => "the name does not resolve".to_owned(),
        ScriptedReply::Transport(TransportError::Tls) => "the TLS handshake failed".to_owned(),
        ScriptedReply::Transport(TransportError::AddressRefused) => {
            "the address is in a private network, which this target may not call".to_owned()
        }
        ScriptedReply::Transport(
            TransportError::Reset
            | TransportError::Unreachable
            | TransportError::ClosedEarly
            | TransportError::Protocol,
        ) => "connection reset".to_owned(),
        ScriptedReply::Process(Exit::OutOfMemory) => "the process ran out of memory".to_owned(),
        ScriptedReply::Process(Exit::TimeLimit) => "process exceeded its time limit".to_owned(),
        ScriptedReply::Process(_) => "the process ended with status 1".to_owned(),
        ScriptedReply::Malformed => "the message does not parse".to_owned(),
        ScriptedReply::Taken => "taken".to_owned(),
        ScriptedReply::Code(code) => code.clone(),
    }
}

const fn reason_phrase(status: u16) -> Option<&'static str> {
    Some(match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        425 => "Too Early",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        529 => "Overloaded",
        _ => return None,
    })
}

#[derive(Clone, Debug, PartialEq)]
pub enum RehearsalStep {
    Attempt(Box<RehearsedAttempt>),
    /// The breaker held the attempt back.
    Held {
        at: Timestamp,
        decision: Box<Decision>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct RehearsedAttempt {
    pub attempt: Attempt,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub answer: ScriptedAnswer,
    /// None for a success.
    pub code: Option<FailureCode>,
    pub decision: Decision,
    /// After the attempt.
    pub breaker: Option<BreakerState>,
    /// Of the breaker.
    pub transition: Option<Transition>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RehearsalEnd {
    /// Delivered, dead-lettered or paused.
    Settled { at: Timestamp, verdict: Verdict },
    /// The script ended before the delivery did.
    Waiting { due_at: Timestamp },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rehearsal {
    pub steps: Vec<RehearsalStep>,
    pub end: RehearsalEnd,
}

/// Starts at time 0.
#[must_use]
pub fn rehearse(rule: &Rule, kind: AttemptKind, script: &[ScriptedAnswer], seed: Seed) -> Rehearsal {
    let delivery = DeliveryId(1);
    let mut breaker = Breaker::new();
    let mut history = History::new();
    let mut steps = Vec::new();
    let mut answers = script.iter().map(|answer| answer.for_kind(kind));
    let mut attempt = Attempt::FIRST;
    let mut now = Timestamp::EPOCH;
    loop {
        let limit = rule.timeouts.whole.limit(attempt);
        let moment = |now| Moment { now, seed, delivery, attempt };
        let admission = rule.breaker.as_ref().map(|b| breaker.admit(&b.settings, limit, now));
        let permit = match admission {
            Some(Admission::WaitUntil(until)) => {
                let decision = decide(rule, &history, &AttemptResult::BreakerOpen { until }, &moment(now));
                history = history.after(&decision, now);
                steps.push(RehearsalStep::Held { at: now, decision: Box::new(decision) });
                match decision.verdict {
                    Verdict::Hold { until } => now = until,
                    verdict => return Rehearsal { steps, end: RehearsalEnd::Settled { at: now, verdict } },
                }
                continue;
            }
            Some(Admission::Allowed(permit)) => Some(permit),
            None => None,
        };
        let Some(answer) = answers.next() else {
            return Rehearsal { steps, end: RehearsalEnd::Waiting { due_at: now } };
        };
        let started_at = now;
        history = history.started(started_at);
        if answer.takes_the_whole_limit() {
            now = now + limit;
        }
        let outcome = answer.outcome(rule);
        let code = match &outcome {
            Outcome::Failed(failure) => Some(failure.code.clone()),
            Outcome::Delivered { .. } => None,
        };
        let decision = decide(rule, &history, &AttemptResult::Outcome(outcome), &moment(now));
        history = history.after(&decision, now);
        let mut transition = None;
        if let (Some(NamedBreaker { settings, .. }), Some(permit)) = (&rule.breaker, permit) {
            transition = breaker.settle(permit, decision.observation, settings, now);
        }
        steps.push(RehearsalStep::Attempt(Box::new(RehearsedAttempt {
            attempt,
            started_at,
            ended_at: now,
            answer,
            code,
            decision,
            breaker: rule.breaker.is_some().then(|| breaker.state(now)),
            transition,
        })));
        match decision.verdict {
            Verdict::Retry { due_at } => now = due_at,
            Verdict::Hold { until } => now = until,
            verdict @ (Verdict::Deliver | Verdict::DeadLetter { .. } | Verdict::Pause) => {
                return Rehearsal { steps, end: RehearsalEnd::Settled { at: now, verdict } };
            }
        }
        attempt = attempt.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::book;
    use redrive_core::book::connectors::built_in;
    use redrive_core::letters::envelope::Tier;
    use redrive_core::policy::decide::DeadLetterReason;

    fn rehearsal(extra: &str, kind: AttemptKind, script: &str) -> Rehearsal {
        let target = match kind {
            AttemptKind::Call => "http: \"http://127.0.0.1/\"",
            AttemptKind::Process => "exec: [work]",
        };
        let text = format!(
            "version: 1\nservices:\n  s:\n    target: {{ {target} }}\n    events: [{{ type: a.b{extra} }}]\n"
        );
        let reading = book::read(&text, built_in());
        let book = reading.book.expect("a sound book");
        let rule = book.rule("s", None, "a.b").expect("wanted");
        rehearse(rule, kind, &parse_script(script).unwrap(), Seed(1))
    }

    fn play(extra: &str, script: &str) -> (usize, RehearsalEnd) {
        let rehearsal = rehearsal(extra, AttemptKind::Call, script);
        let attempts =
            rehearsal.steps.iter().filter(|step| matches!(step, RehearsalStep::Attempt(_))).count();
        (attempts, rehearsal.end)
    }

    #[test]
    fn scripts_are_played_to_their_end() {
        let dead = |reason| Verdict::DeadLetter { reason, tier: Tier::Dead };
        #[rustfmt::skip]
        let cases = [
            ("a success ends it",                "",                    "200",           1, Verdict::Deliver),
            ("a failure and a success",          "",                    "503,200",       2, Verdict::Deliver),
            ("no retries",                       ", retry: none",       "503,200",       1, dead(DeadLetterReason::RetriesExceeded)),
            ("a refusal ends it",                "",                    "404,200",       1, dead(DeadLetterReason::Refused)),
            ("patience is bounded",              ", retry: aggressive", "503*9",         4, dead(DeadLetterReason::RetriesExceeded)),
            ("an unknown failure is retried twice", "",                    "500*9",         3, dead(DeadLetterReason::RetriesExceeded)),
            ("a rule may know it after all",     ", on_failure: { 500: standard, unknown: none }", "500*4,200", 5, Verdict::Deliver),
            ("or its category",                  ", on_failure: { unknown: standard }", "500*4,200", 5, Verdict::Deliver),
            ("a bad message is poison",          "",                    "invalid",       1, Verdict::DeadLetter { reason: DeadLetterReason::Refused, tier: Tier::Poison }),
            ("a rule may pause the service",     ", on_failure: { fatal: pause }", "401", 1, Verdict::Pause),
            ("an open breaker holds, burns no retry", ", retry: critical", "503*9,200", 10, Verdict::Deliver),
            ("or ends it",                       ", retry: critical, when_open: dead-letter", "503*9,200", 5, dead(DeadLetterReason::BreakerOpen)),
        ];
        for (name, extra, script, attempts, verdict) in cases {
            let (seen, end) = play(extra, script);
            let RehearsalEnd::Settled { verdict: ended, .. } = end else {
                panic!("{name}: still waiting: {end:?}")
            };
            assert_eq!((seen, ended), (attempts, verdict), "{name}");
        }
    }

    fn tried(rehearsal: &Rehearsal) -> impl Iterator<Item = &RehearsedAttempt> {
        rehearsal.steps.iter().filter_map(|step| match step {
            RehearsalStep::Attempt(tried) => Some(&**tried),
            RehearsalStep::Held { .. } => None,
        })
    }

    #[test]
    fn a_target_that_hangs_keeps_its_breaker_open() {
        for timeout in ["5s", "30s", "31s", "2m"] {
            let extra = format!(", retry: critical, timeout: {timeout}");
            let rehearsal = rehearsal(&extra, AttemptKind::Call, "timeout*9");
            let states: Vec<_> = tried(&rehearsal).filter_map(|tried| tried.breaker).collect();
            assert_eq!(states.len(), 9, "{timeout}");
            let are_open = states[4..].iter().all(|state| matches!(state, BreakerState::Open { .. }));
            assert!(are_open, "{timeout}: {states:?}");
        }
    }

    #[test]
    fn a_timeout_is_what_the_target_makes_of_it() {
        use AttemptKind::{Call, Process};
        #[rustfmt::skip]
        let cases = [
            ("a call",               Call,    "timeout",      "NETWORK_TIMEOUT",     "no answer in time"),
            ("a process",            Process, "timeout",      "TIME_LIMIT_EXCEEDED", "process exceeded its time limit"),
            ("in words of one's own", Process, "timeout=slow", "TIME_LIMIT_EXCEEDED", "slow"),
            ("another end",          Process, "crash",        "PROCESS_CRASHED",     "the process ended with status 1"),
        ];
        for (name, kind, script, code, message) in cases {
            let rehearsal = rehearsal(", timeout: 20s", kind, script);
            let tried = tried(&rehearsal).next().expect("an attempt");
            assert_eq!(tried.code.as_ref().map(FailureCode::as_str), Some(code), "{name}");
            assert_eq!(tried.answer.message(), message, "{name}");
            let took = tried.ended_at.since(tried.started_at);
            assert_eq!(took.is_zero(), script == "crash", "{name}: {took:?}");
        }
    }

    #[test]
    fn a_rate_limit_is_waited_out() {
        let (_, RehearsalEnd::Settled { at, .. }) = play("", "429:60,200") else { panic!("not settled") };
        assert_eq!(at, Timestamp::from_millis(60_000));
    }

    #[test]
    fn a_script_that_ends_too_early_says_so() {
        assert!(matches!(play("", "503"), (1, RehearsalEnd::Waiting { .. })));
    }

    #[test]
    fn what_is_no_script_is_refused() {
        use InvalidScript::{Empty, TooLong};
        let word = |word: &str| InvalidScript::Word { word: word.to_owned() };
        let near = |word: &str, near| InvalidScript::NearWord { word: word.to_owned(), near };
        let retry_after = |word: &str| InvalidScript::RetryAfter { word: word.to_owned() };
        #[rustfmt::skip]
        let cases = [
            ("soon",                      word("soon")),
            ("99",                        word("99")),
            ("600",                       word("600")),
            ("429:x",                     word("429:x")),
            ("503*x",                     word("503*x")),
            ("503*99999999999999999999",  word("503*99999999999999999999")),
            ("503*9999999",               TooLong),
            ("",                          Empty),
            (" , ",                       Empty),
            ("503*0",                     Empty),
            ("timout",                    near("timout", "timeout")),
            ("TIMEOUT",                   near("TIMEOUT", "timeout")),
            ("Refused",                   near("Refused", "refused")),
            ("200,OK*2",                  near("OK", "ok")),
            ("timeout:5",                 retry_after("timeout:5")),
            ("ok:5",                      retry_after("ok:5")),
            ("RATE_LIMITED:5",            retry_after("RATE_LIMITED:5")),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_script(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn answers_are_shown_with_what_they_are() {
        #[rustfmt::skip]
        let cases: [(&str, &[&str]); 7] = [
            ("503*2, 429:60",      &["503 Service Unavailable", "503 Service Unavailable", "429 Too Many Requests"]),
            ("500=quota exceeded", &["500: quota exceeded"]),
            ("timeout=slow",       &["no answer in time: slow"]),
            ("DHT_UNAVAILABLE=x",  &["DHT_UNAVAILABLE: x"]),
            ("TIME_OUT",           &["TIME_OUT"]),
            ("QUOTA",              &["QUOTA"]),
            ("599",                &["599"]),
        ];
        for (text, expected) in cases {
            let shown: Vec<String> = parse_script(text).unwrap().iter().map(ScriptedAnswer::shown).collect();
            assert_eq!(shown, expected, "{text}");
        }
    }
}
