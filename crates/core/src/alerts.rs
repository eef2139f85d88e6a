//! Alerts: conditions of the rule book that are held against what was counted, over windows of time.
//!
//! [`Watch`] is all there is to ask: it is shown a [`Sample`] now and then and says who is to be told what. It
//! reads no clock and sends nothing.
//!
//! Invariants: one alert is one message, whatever it is raised for; what cannot be told now is owed, not
//! dropped; whoever was told that an alert fires is told that it is over; a restart changes none of this.

pub mod catalog;
pub mod covers;
mod gather;
pub mod notice;
mod sample;
mod series;
mod standing;
mod tell;
mod times;
mod trouble;
pub mod value;
mod view;
mod watch;

pub use self::sample::{LetterSample, QueueSample, Sample, SourceSample, Wants};
pub use self::trouble::{Concerns, DAMAGED, Lasts, Trouble, TroubleSample, Troubles};
pub use self::view::{AlertState, AlertView};
pub use self::watch::{Saved, Watch};

/// The service that tells people of alerts. What becomes of its deliveries raises no alert: somebody who cannot
/// be told cannot be told of that either.
pub const OWN_SERVICE: &str = "redrive-alerts";
