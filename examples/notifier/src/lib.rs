//! A notification service: messages come from a queue, and each is sent to a push service once.
//!
//! The queue delivers a message at least once, the push service is sometimes down, and more than one process may
//! be at work. What keeps this in order:
//! - [`message`]: a message changes its status only from a status that allows it;
//! - [`service`]: the id of a sent notification is kept, so that nobody sends it again;
//! - [`ntfy`]: calls go through a guard, whose breaker all processes share;
//! - [`metrics`]: figures that cannot be had are served as they were, or in part;
//! - [`api`]: the doors, with errors of one form.

pub mod api;
pub mod message;
pub mod metrics;
pub mod ntfy;
pub mod service;
