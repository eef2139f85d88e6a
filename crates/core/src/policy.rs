//! The policy of one call: what an answer means, what follows from it, and when the next attempt may start.

pub mod admission;
pub mod answer;
pub mod backoff;
pub mod breaker;
pub mod budget;
pub mod catalog;
pub mod category;
pub mod classify;
pub mod decide;
pub mod history;
pub mod reported;
pub mod retry_after;
pub mod rule;
pub mod throttle;
pub mod window;
