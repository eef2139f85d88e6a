//! Admission of a call: past the breaker and into a free place at the dependency's rate.
//!
//! Callers without room queue up. The head of the queue is woken when there is room or the rate allows;
//! leaving the queue, admitted or not, wakes the next.

use std::sync::Arc;

use redrive_core::policy::admission::{AdmissionGate, CallRequest};
use redrive_core::policy::decide::HoldCause;
use redrive_core::time::Timestamp;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::book::Terms;
use super::clock::GuardClock;
use super::dependency::{Asker, CallPass, CallTicket};

#[derive(Debug)]
pub(super) enum Entry {
    In(CallTicket<Arc<Terms>>),
    /// Not before that time.
    Held(HoldCause, Timestamp),
    /// The deadline came first.
    TooLate,
}

pub(super) async fn enter(
    terms: &Arc<Terms>,
    request: CallRequest,
    clock: &GuardClock,
    deadline: Option<Instant>,
) -> Entry {
    let dependency = &terms.dependency;
    if let Some(link) = dependency.link.get()
        && dependency.is_to_be_probed(clock.now())
    {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        link.refresh(dependency, clock, left).await;
    }
    match ask(terms, request, Asker::Newcomer, clock) {
        Ok(entry) => entry,
        Err(_) => match deadline {
            Some(deadline) => {
                timeout_at(deadline, line_up(terms, request, clock)).await.unwrap_or(Entry::TooLate)
            }
            None => line_up(terms, request, clock).await,
        },
    }
}

/// When the rate admits it; `None` if it waits for calls in flight.
struct NotYet(Option<Timestamp>);

fn ask(terms: &Arc<Terms>, request: CallRequest, asker: Asker, clock: &GuardClock) -> Result<Entry, NotYet> {
    match terms.dependency.admit(&terms.rule, request, asker, clock.now()) {
        AdmissionGate::Open(ticket) => {
            Ok(Entry::In(CallTicket::new(Arc::clone(terms), CallPass::asked(ticket))))
        }
        AdmissionGate::Held(cause, until) => Ok(Entry::Held(cause, until)),
        AdmissionGate::Paced(until) | AdmissionGate::OverBudget(until) => Err(NotYet(Some(until))),
        AdmissionGate::Busy => Err(NotYet(None)),
    }
}

async fn line_up(terms: &Arc<Terms>, request: CallRequest, clock: &GuardClock) -> Entry {
    let dependency = Arc::clone(&terms.dependency);
    let _waiting = dependency.wait();
    let _turn = dependency.turn.acquire().await.expect("the semaphore is never closed");
    loop {
        match ask(terms, request, Asker::First, clock) {
            Ok(entry) => return entry,
            Err(NotYet(None)) => dependency.room().await,
            Err(NotYet(Some(until))) => {
                tokio::select! {
                    biased;
                    () = dependency.room() => {}
                    () = sleep_until(clock.instant_of(until)) => {}
                }
            }
        }
    }
}
