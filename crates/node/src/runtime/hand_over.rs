//! Hands events over to the store, with one result per event for every source.

use std::sync::Arc;

use redrive_core::book::event_schema::SchemaViolation;
use redrive_core::event::Event;
use redrive_core::ids::Receipt;
use tokio::sync::oneshot;

use super::inbox::SubmitJob;
use super::{Node, SubmitError};
use crate::store::{AcceptedEvent, Occurrence, Submission, SubmissionRefusal, SubmittedEvent};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandOverResult {
    Durable(AcceptedEvent),
    Duplicate(AcceptedEvent),
    /// Another event with the same source and id exists; this one will never be accepted.
    Refused {
        first: Receipt,
    },
    /// The event violates the schema of its type; it will never be accepted.
    Invalid(SchemaViolation),
    /// Not accepted, or unknown: the same event may be handed over again.
    Busy(SubmitError),
}

/// Which limits on waiting deliveries apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntakeKind {
    /// Those of the service.
    Usual,
    /// Those for webhooks, whose senders may not send again.
    Webhook,
}

#[derive(Clone)]
struct RoutedEvent {
    event: SubmittedEvent,
    /// Set if the event is refused for it.
    violation: Option<SchemaViolation>,
}

fn first_violation(events: &[RoutedEvent]) -> Option<(usize, SchemaViolation)> {
    let mut violations = events.iter().map(|routed| routed.violation.clone()).enumerate();
    violations.find_map(|(index, violation)| Some((index, violation?)))
}

impl From<Result<AcceptedEvent, SubmitError>> for HandOverResult {
    fn from(answer: Result<AcceptedEvent, SubmitError>) -> Self {
        match answer {
            Ok(taken) => match taken.seen {
                Occurrence::First => Self::Durable(taken),
                Occurrence::Duplicate => Self::Duplicate(taken),
            },
            Err(SubmitError::Refused(SubmissionRefusal::Conflict { first: Some(first), .. })) => {
                Self::Refused { first }
            }
            Err(SubmitError::Refused(SubmissionRefusal::Invalid { violation, .. })) => {
                Self::Invalid(violation)
            }
            Err(error) => Self::Busy(error),
        }
    }
}

impl Node {
    pub async fn hand_over(&self, event: Event, way: IntakeKind) -> HandOverResult {
        let taken = self.submit_all(vec![self.routed(&Arc::new(event), way)]).await;
        taken.map(|taken| taken[0]).into()
    }

    /// Hands over events in order, each for itself. After the first [`HandOverResult::Busy`] all others are busy too,
    /// so that no event overtakes an earlier one.
    pub async fn hand_over_in_order(&self, events: &[Arc<Event>]) -> Vec<HandOverResult> {
        let submitted: Vec<_> = events.iter().map(|event| self.routed(event, IntakeKind::Usual)).collect();
        let (mut rest, mut upto) = (submitted.as_slice(), submitted.len());
        let mut handed = Vec::with_capacity(events.len());
        while !rest.is_empty() {
            match self.submit_all(rest[..upto].to_vec()).await {
                Ok(taken) => {
                    handed.extend(taken.into_iter().map(|taken| HandOverResult::from(Ok(taken))));
                    rest = &rest[upto..];
                }
                // Events before the refused one can be accepted.
                Err(SubmitError::Refused(refusal)) if refusal.index() > 0 => {
                    upto = refusal.index();
                    continue;
                }
                Err(error) => match HandOverResult::from(Err(error)) {
                    busy @ HandOverResult::Busy(_) => {
                        handed.resize(events.len(), busy);
                        return handed;
                    }
                    other => {
                        handed.push(other);
                        rest = &rest[1..];
                    }
                },
            }
            upto = rest.len();
        }
        handed
    }

    /// Accepts all events or none; they are durable when this returns.
    pub async fn submit(&self, events: Vec<Event>) -> Result<Vec<AcceptedEvent>, SubmitError> {
        let routed = |event| self.routed(&Arc::new(event), IntakeKind::Usual);
        self.submit_all(events.into_iter().map(routed).collect()).await
    }

    fn routed(&self, event: &Arc<Event>, way: IntakeKind) -> RoutedEvent {
        let active = self.active_book();
        let mut routes = match active.of(event) {
            Ok(routes) => routes,
            Err(violation) => {
                let event = SubmittedEvent { event: Arc::clone(event), routes: Vec::new() };
                return RoutedEvent { event, violation: Some(violation) };
            }
        };
        if way == IntakeKind::Webhook {
            for addressee in &mut routes {
                addressee.bound.when_full = active.when_full_of_webhook(&addressee.queue.service);
            }
        }
        RoutedEvent { event: SubmittedEvent { event: Arc::clone(event), routes }, violation: None }
    }

    async fn submit_all(&self, events: Vec<RoutedEvent>) -> Result<Vec<AcceptedEvent>, SubmitError> {
        if let Some((index, violation)) = first_violation(&events) {
            return Err(SubmitError::Refused(SubmissionRefusal::Invalid { index, violation }));
        }
        let events = events.into_iter().map(|routed| routed.event).collect();
        let (reply, answer) = oneshot::channel();
        let job = SubmitJob { submission: Submission { events }, reply };
        self.shared.inbox.submit(job).inspect_err(|_| self.shared.feed.refused())?;
        answer.await.unwrap_or(Err(SubmitError::Stopping))
    }
}
