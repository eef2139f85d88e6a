//! What a node does for webhooks: their events are taken even where a service is full.

use std::sync::Arc;

use redrive_core::event::Event;
use tokio::sync::oneshot;

use super::inbox::SubmitJob;
use super::{Node, SubmitError};
use crate::store::{Submission, Submitted, Taken};

impl Node {
    /// Takes an event of a webhook, whose sender may not send it again: it goes by the waiting limits for
    /// those. It is durable when this returns.
    pub async fn submit_hook(&self, event: Event) -> Result<Taken, SubmitError> {
        let active = self.active_book();
        let mut addressees = active.of(event.event_type.as_str()).to_vec();
        for addressee in &mut addressees {
            addressee.bound.when_full = active.when_full_of_webhook(&addressee.queue.service);
        }
        let submission =
            Submission { events: vec![Submitted { event: Arc::new(event), routes: addressees }] };
        let (reply, answer) = oneshot::channel();
        self.put(SubmitJob { submission, reply })?;
        let taken = answer.await.unwrap_or(Err(SubmitError::Stopping))?;
        Ok(taken[0])
    }
}
