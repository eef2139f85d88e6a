//! Alerts: conditions of the rule book that are held against what was counted, over windows of time.
//!
//! [`AlertWatch`] is all there is to ask: it is shown a [`AlertSample`] now and then and says who is to be told what. It
//! reads no clock and sends nothing.
//!
//! Invariants: one alert is one message, whatever it is raised for; what cannot be told now is owed, not
//! dropped; whoever was told that an alert fires is told that it is over; a restart changes none of this.

pub mod catalog;
pub mod scope;
mod gather;
pub mod notice;
mod sample;
mod series;
mod state;
mod notify;
mod latency;
mod incident;
pub mod value;
mod view;
mod watch;

pub use self::sample::{LetterSample, QueueSample, AlertSample, SourceSample, SampleNeeds};
pub use self::incident::{IncidentScope, DAMAGED, IncidentEnd, Incident, IncidentSample, Incidents};
pub use self::view::{AlertState, AlertView};
pub use self::watch::{SavedAlerts, AlertWatch};

/// The service that tells people of alerts. What becomes of its deliveries raises no alert: somebody who cannot
/// be told cannot be told of that either.
pub const OWN_SERVICE: &str = "redrive-alerts";
