//! One call from start to end: attempts, their results, and the waits between them.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use redrive_core::ids::{self, Seed};
use redrive_core::policy::admission::{BudgetClaim, CallRequest};
use redrive_core::policy::answer::{AnswerKind, CallPart, TargetAnswer, TransportError};
use redrive_core::policy::breaker::{CallEnd, Observation};
use redrive_core::policy::category::{Category, FailureCode, codes};
use redrive_core::policy::classify::{ConnectionStatus, Failure, Outcome, classify};
use redrive_core::policy::decide::{
    AttemptResult, DeadLetterReason, Decision, History, HoldCause, Moment, Verdict, VerdictBasis, decide,
};
use redrive_core::time::Timestamp;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::attempt::{Attempt, CallKey};
use super::book::Terms;
use super::clock::GuardClock;
use super::dependency::CallTicket;
use super::error::{CallError, Cause};
use super::queue::{Entry, enter};
use super::{Guard, Retries, WhenHeld};

pub(super) async fn call<T, E, J, F, Fut>(guard: &Guard, judge: J, mut work: F) -> Result<T, CallError<E>>
where
    J: for<'a> Fn(&'a Result<T, E>) -> Option<TargetAnswer<'a>>,
    F: FnMut(Attempt) -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let mut running = pin!(None);
    let begun =
        poll_fn(|context| Poll::Ready(begin(guard, &judge, &mut work, running.as_mut(), context))).await;
    let (mut call, mut under_way) = match begun {
        FirstAttempt::Done(value) => return Ok(value),
        FirstAttempt::UnderWay { ticket, at, key, result } => {
            let mut call = GuardedCall::begin(guard, ticket.terms(), at, key);
            let attempt = call.started(ticket, at);
            (call, Some((attempt, result)))
        }
        FirstAttempt::NotYet => {
            let (terms, at) = (guard.seat.terms(), guard.seat.clock().now());
            (GuardedCall::begin(guard, &terms, at, CallKey::new()), None)
        }
    };
    loop {
        let (started, ended) = match under_way.take() {
            Some((started, Some(result))) => (started, Some(result)),
            Some((started, None)) => {
                let ended = run(running.as_mut(), Polled::Once, started.ends_at).await;
                (started, ended)
            }
            None => {
                let started = call.start().await?;
                running.set(Some(work(started.attempt.clone())));
                let ended = run(running.as_mut(), Polled::NotYet, started.ends_at).await;
                (started, ended)
            }
        };
        running.set(None);
        match call.judge(ended, &judge, started.limit) {
            Ok(value) => {
                started.ticket.end_well(call.clock.now());
                return Ok(value);
            }
            Err(AttemptProblem::OutOfTime) => return Err(call.too_late()),
            Err(AttemptProblem::Accepted(last)) => {
                started.ticket.end_well(call.clock.now());
                return Err(call.accepted(last));
            }
            Err(AttemptProblem::Failed(last)) => {
                let due_at = call.failed(last, started.ticket)?;
                sleep_until(call.clock.instant_of(due_at)).await;
            }
        }
    }
}

enum FirstAttempt<T, E> {
    Done(T),
    /// The first attempt has started; `result` is set if it has ended.
    UnderWay {
        ticket: CallTicket<Arc<Terms>>,
        at: Timestamp,
        key: CallKey,
        result: Option<Result<T, E>>,
    },
    /// The call must ask the admission control, or wait.
    NotYet,
}

/// The fast path: makes the first attempt without taking the lock. Most calls end here with one atomic write.
#[inline]
fn begin<T, E, J, F, Fut>(
    guard: &Guard,
    judge: &J,
    work: &mut F,
    mut running: Pin<&mut Option<Fut>>,
    context: &mut Context<'_>,
) -> FirstAttempt<T, E>
where
    J: for<'a> Fn(&'a Result<T, E>) -> Option<TargetAnswer<'a>>,
    F: FnMut(Attempt) -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let terms = guard.seat.peek();
    let clock = guard.seat.clock();
    let at = clock.now();
    let Some(pass) = terms.dependency.start(terms.wants, at) else { return FirstAttempt::NotYet };
    let ticket = CallTicket::new(&**terms, pass);
    let key = CallKey::new();
    let deadline = guard.time_limit(&terms.rule).map(|limit| clock.instant_of(at + limit));
    let whole = &terms.rule.timeouts.whole;
    let (number, limit) = (ids::Attempt::FIRST, whole.first.min(whole.max));
    running.set(Some(work(Attempt { number, key, limit, deadline })));
    let polled = running.as_mut().as_pin_mut().expect("it was just set").poll(context);
    let result = match polled {
        Poll::Ready(result) => {
            let is_good = judge(&result).is_none();
            match result {
                Ok(value) if is_good => {
                    ticket.end_well(at);
                    return FirstAttempt::Done(value);
                }
                result => Some(result),
            }
        }
        Poll::Pending => None,
    };
    FirstAttempt::UnderWay { ticket: ticket.keep(|| Arc::clone(&terms)), at, key, result }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polled {
    NotYet,
    /// Just now, and it is pending.
    Once,
}

/// Runs an attempt until it ends or times out. Creates a timer only if the attempt is pending.
async fn run<Fut: Future>(
    mut running: Pin<&mut Option<Fut>>,
    polled: Polled,
    ends_at: Instant,
) -> Option<Fut::Output> {
    let mut work = running.as_mut().as_pin_mut().expect("it was just set");
    if polled == Polled::NotYet
        && let Poll::Ready(output) = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await
    {
        return Some(output);
    }
    let mut limit = pin!(sleep_until(ends_at));
    let mut is_polled = true;
    poll_fn(|context| {
        // This task has just polled it and is woken on progress.
        if !std::mem::take(&mut is_polled)
            && let Poll::Ready(output) = work.as_mut().poll(context)
        {
            return Poll::Ready(Some(output));
        }
        limit.as_mut().poll(context).map(|()| None)
    })
    .await
}

struct StartedAttempt {
    ticket: CallTicket<Arc<Terms>>,
    attempt: Attempt,
    limit: Duration,
    ends_at: Instant,
}

enum AttemptProblem<E> {
    Failed(LastFailure<E>),
    /// The rule accepts the error as success; there is no value to return.
    Accepted(LastFailure<E>),
    /// The call's deadline cut it off, which says nothing about the dependency.
    OutOfTime,
}

struct LastFailure<E> {
    failure: Box<Failure>,
    what: FailureCause<E>,
}

enum FailureCause<E> {
    Error(E),
    Value,
    Timeout { limit: Duration },
}

struct GuardedCall<'a, E> {
    guard: &'a Guard,
    clock: GuardClock,
    begun_at: Timestamp,
    deadline: Option<Timestamp>,
    key: CallKey,
    terms: Arc<Terms>,
    history: History,
    attempts: u32,
    last: Option<LastFailure<E>>,
}

impl<'a, E> GuardedCall<'a, E> {
    fn begin(guard: &'a Guard, terms: &Arc<Terms>, at: Timestamp, key: CallKey) -> Self {
        Self {
            guard,
            clock: *guard.seat.clock(),
            begun_at: at,
            deadline: guard.time_limit(&terms.rule).map(|limit| at + limit),
            key,
            terms: Arc::clone(terms),
            history: History::new(),
            attempts: 0,
            last: None,
        }
    }

    fn started(&mut self, ticket: CallTicket<Arc<Terms>>, now: Timestamp) -> StartedAttempt {
        let number = self.next_number();
        let limit = self.terms.rule.timeouts.whole.limit(number);
        let deadline = self.deadline.map(|at| self.clock.instant_of(at));
        self.history = self.history.started(now);
        self.attempts = number.get();
        let ends_at = self.clock.instant_of(now + limit);
        let ends_at = deadline.map_or(ends_at, |deadline| ends_at.min(deadline));
        StartedAttempt { ticket, attempt: Attempt { number, key: self.key, limit, deadline }, limit, ends_at }
    }

    /// Waits until the next attempt may start.
    async fn start(&mut self) -> Result<StartedAttempt, CallError<E>> {
        let deadline = self.deadline.map(|at| self.clock.instant_of(at));
        loop {
            self.follow_book();
            let terms = Arc::clone(&self.terms);
            let request = CallRequest {
                limit: terms.rule.timeouts.whole.limit(self.next_number()),
                claim: if self.attempts == 0 { BudgetClaim::First } else { BudgetClaim::Granted },
            };
            let mut changed = pin!(terms.dependency.changed());
            match enter(&terms, request, &self.clock, deadline).await {
                Entry::In(ticket) => {
                    return Ok(self.started(ticket, self.clock.now()));
                }
                Entry::TooLate => return Err(self.too_late()),
                Entry::Held(cause, until) => {
                    let until = self.held(cause, until)?;
                    let until = self.clock.instant_of(until);
                    let until = deadline.map_or(until, |deadline| until.min(deadline));
                    // Asks again after either.
                    let _ = timeout_at(until, changed.as_mut()).await;
                }
            }
            if self.is_out_of_time() {
                return Err(self.too_late());
            }
        }
    }

    /// The newest book rules the next attempt; policies keep their counts by name.
    fn follow_book(&mut self) {
        let newest = self.guard.terms();
        if !Arc::ptr_eq(&newest, &self.terms) {
            self.history =
                self.history.carried_over(Some(&self.terms.rule.reactions), &newest.rule.reactions);
            self.terms = newest;
        }
    }

    fn next_number(&self) -> ids::Attempt {
        ids::Attempt::new(self.attempts.saturating_add(1)).unwrap_or(ids::Attempt::FIRST)
    }

    fn is_out_of_time(&self) -> bool {
        self.deadline.is_some_and(|deadline| self.clock.now() >= deadline)
    }

    fn judge<T, J>(
        &self,
        ended: Option<Result<T, E>>,
        judge: &J,
        limit: Duration,
    ) -> Result<T, AttemptProblem<E>>
    where
        J: for<'b> Fn(&'b Result<T, E>) -> Option<TargetAnswer<'b>>,
    {
        let Some(result) = ended else {
            if self.is_out_of_time() {
                return Err(AttemptProblem::OutOfTime);
            }
            let answer = TargetAnswer {
                what: AnswerKind::Transport(TransportError::Timeout(CallPart::Whole)),
                message: "no answer in time",
                retry_after: None,
            };
            return Err(self.meaning(&answer).with(FailureCause::Timeout { limit }));
        };
        let meaning = match judge(&result) {
            Some(answer) => self.meaning(&answer),
            None => match result {
                Ok(value) => return Ok(value),
                Err(error) => {
                    let what = AnswerKind::Reported { code: codes::UNKNOWN_ERROR };
                    let answer = TargetAnswer { what, message: "", retry_after: None };
                    return Err(self.meaning(&answer).with(FailureCause::Error(error)));
                }
            },
        };
        match (result, meaning) {
            (Ok(value), AnswerMeaning::Good(_)) => Ok(value),
            (Ok(_), meaning @ AnswerMeaning::AttemptProblem(_)) => Err(meaning.with(FailureCause::Value)),
            (Err(error), meaning) => Err(meaning.with(FailureCause::Error(error))),
        }
    }

    fn meaning(&self, answer: &TargetAnswer<'_>) -> AnswerMeaning {
        let rule = &self.terms.rule;
        match classify(answer, &rule.classify, rule.timeouts.category) {
            Outcome::Failed(failure) => AnswerMeaning::AttemptProblem(Box::new(failure)),
            Outcome::Delivered { .. } => match classify(answer, &[], rule.timeouts.category) {
                Outcome::Failed(failure) => AnswerMeaning::Good(Some(Box::new(failure))),
                Outcome::Delivered { .. } => AnswerMeaning::Good(None),
            },
        }
    }

    /// Decides what follows a failure: the time of the next attempt, or the end of the call.
    fn failed(
        &mut self,
        last: LastFailure<E>,
        ticket: CallTicket<Arc<Terms>>,
    ) -> Result<Timestamp, CallError<E>> {
        let now = self.clock.now();
        let terms = Arc::clone(&self.terms);
        let number = ids::Attempt::new(self.attempts).unwrap_or(ids::Attempt::FIRST);
        let moment = Moment { now, seed: Seed::default(), delivery: self.key.as_delivery(), attempt: number };
        let ended = AttemptResult::Outcome(Outcome::Failed((*last.failure).clone()));
        let decision = decide(&terms.rule, &self.history, &ended, &moment);
        self.history = self.history.after(&decision, now);
        if last.failure.category == Category::RateLimited {
            terms.dependency.throttled(last.failure.retry_after, now);
        }
        let next = self.next(&decision, &last, now);
        let seen = match (&next, decision.observation) {
            (Err(_), Observation::Failure(CallEnd::WillRetry)) => Observation::Failure(CallEnd::Final),
            (_, seen) => seen,
        };
        ticket.settle(seen, now);
        self.last = Some(last);
        next.map_err(|end| self.end(end, &decision))
    }

    fn next(
        &self,
        decision: &Decision,
        last: &LastFailure<E>,
        now: Timestamp,
    ) -> Result<Timestamp, EndReason> {
        match decision.verdict {
            Verdict::Retry { .. } | Verdict::Hold { .. } if self.guard.retries == Retries::Never => {
                Err(EndReason::Failed(last.failure.code.clone()))
            }
            Verdict::Retry { due_at } | Verdict::Hold { until: due_at } => {
                if self.deadline.is_some_and(|deadline| due_at > deadline) {
                    Err(EndReason::Deadline)
                } else if !self.terms.dependency.grant_retry(now) {
                    Err(EndReason::Budget)
                } else {
                    Ok(due_at)
                }
            }
            Verdict::DeadLetter { reason: DeadLetterReason::DeadlineExceeded, .. } => {
                Err(EndReason::Deadline)
            }
            Verdict::DeadLetter { reason, .. } => Err(EndReason::Failed(
                reason.code().map_or_else(|| last.failure.code.clone(), FailureCode::of),
            )),
            Verdict::Pause | Verdict::Deliver => Err(EndReason::Failed(last.failure.code.clone())),
        }
    }

    /// How long the call waits for the breaker or the dependency, or its end.
    fn held(&mut self, cause: HoldCause, until: Timestamp) -> Result<Timestamp, CallError<E>> {
        let now = self.clock.now();
        let retry_after = until.since(now);
        if self.guard.when_held == WhenHeld::FailFast {
            let code = match cause {
                HoldCause::BreakerOpen => codes::CIRCUIT_BREAKER_OPEN,
                HoldCause::AskedToWait => codes::RATE_LIMITED,
            };
            return Err(self.not_let_in(cause, retry_after, code));
        }
        let ended = match cause {
            HoldCause::BreakerOpen => AttemptResult::BreakerOpen { until },
            HoldCause::AskedToWait => AttemptResult::AskedToWait { until },
        };
        let moment = Moment {
            now,
            seed: Seed::default(),
            delivery: self.key.as_delivery(),
            attempt: self.next_number(),
        };
        let decision = decide(&self.terms.rule, &self.history, &ended, &moment);
        self.history = self.history.after(&decision, now);
        match decision.verdict {
            Verdict::Hold { until } | Verdict::Retry { due_at: until } => Ok(until),
            Verdict::DeadLetter { reason: DeadLetterReason::DeadlineExceeded, .. } => Err(self.too_late()),
            Verdict::DeadLetter { reason, .. } => {
                let code = reason.code().unwrap_or(codes::CIRCUIT_BREAKER_OPEN);
                Err(self.not_let_in(cause, retry_after, code))
            }
            Verdict::Deliver | Verdict::Pause => unreachable!("what did not start is held or ends"),
        }
    }

    fn not_let_in(&mut self, cause: HoldCause, retry_after: Duration, code: &'static str) -> CallError<E> {
        let category = match cause {
            HoldCause::BreakerOpen => Category::Transient,
            HoldCause::AskedToWait => Category::RateLimited,
        };
        self.error(FailureCode::of(code), category, |last| match cause {
            HoldCause::BreakerOpen => Cause::BreakerOpen { retry_after, last },
            HoldCause::AskedToWait => Cause::AskedToWait { retry_after, last },
        })
    }

    fn too_late(&mut self) -> CallError<E> {
        let code = FailureCode::of(codes::DEADLINE_EXCEEDED);
        self.error(code, Category::Transient, |last| Cause::Deadline { last })
    }

    fn end(&mut self, end: EndReason, decision: &Decision) -> CallError<E> {
        match end {
            EndReason::Deadline => self.too_late(),
            EndReason::Budget => {
                let code = FailureCode::of(codes::RETRY_BUDGET_SPENT);
                self.error(code, Category::Transient, |last| Cause::BudgetSpent { last })
            }
            EndReason::Failed(code) => {
                let category = match &decision.why {
                    VerdictBasis::Failed(ruling) => ruling.category,
                    VerdictBasis::Delivered { .. } | VerdictBasis::Held(_) | VerdictBasis::Interrupted => {
                        Category::Unknown
                    }
                };
                let fault = self.last.take().expect("it has just failed");
                let LastFailure { failure, what } = fault;
                let cause = match what {
                    FailureCause::Error(error) => Cause::Failed(error),
                    FailureCause::Value => Cause::FaultFound,
                    FailureCause::Timeout { limit } => Cause::TimedOut { limit },
                };
                self.error_of(code, category, Some(failure), cause)
            }
        }
    }

    fn accepted(&mut self, last: LastFailure<E>) -> CallError<E> {
        let (code, category) = (last.failure.code.clone(), last.failure.category);
        let LastFailure { failure, what } = last;
        let cause = match what {
            FailureCause::Error(error) => Cause::Accepted(error),
            FailureCause::Value => Cause::FaultFound,
            FailureCause::Timeout { limit } => Cause::TimedOut { limit },
        };
        self.error_of(code, category, Some(failure), cause)
    }

    /// The error of a call that ended for another reason than its last failure.
    fn error(
        &mut self,
        code: FailureCode,
        category: Category,
        cause: impl FnOnce(Option<E>) -> Cause<E>,
    ) -> CallError<E> {
        let (failure, last) = match self.last.take() {
            Some(LastFailure { failure, what: FailureCause::Error(error) }) => (Some(failure), Some(error)),
            Some(LastFailure { failure, what: FailureCause::Value | FailureCause::Timeout { .. } }) => {
                (Some(failure), None)
            }
            None => (None, None),
        };
        let category = failure.as_ref().map_or(category, |failure| failure.category);
        self.error_of(code, category, failure, cause(last))
    }

    fn error_of(
        &self,
        code: FailureCode,
        category: Category,
        failure: Option<Box<Failure>>,
        cause: Cause<E>,
    ) -> CallError<E> {
        CallError {
            dependency: self.terms.rule.dependency.clone(),
            category,
            code,
            attempts: self.attempts,
            elapsed: self.clock.now().since(self.begun_at),
            failure,
            cause,
        }
    }
}

enum EndReason {
    Failed(FailureCode),
    Deadline,
    Budget,
}

enum AnswerMeaning {
    AttemptProblem(Box<Failure>),
    /// Success, with the failure that it would be without the rule.
    Good(Option<Box<Failure>>),
}

impl AnswerMeaning {
    fn with<E>(self, what: FailureCause<E>) -> AttemptProblem<E> {
        match self {
            Self::AttemptProblem(failure) => AttemptProblem::Failed(LastFailure { failure, what }),
            Self::Good(Some(failure)) => AttemptProblem::Accepted(LastFailure { failure, what }),
            // An error that reports success has no other name.
            Self::Good(None) => {
                let failure = Failure {
                    category: Category::Unknown,
                    code: FailureCode::of(codes::UNKNOWN_ERROR),
                    status: None,
                    message: String::new(),
                    retry_after: None,
                    matched: None,
                    default_category: None,
                    connection: ConnectionStatus::Made,
                };
                AttemptProblem::Accepted(LastFailure { failure: Box::new(failure), what })
            }
        }
    }
}
