//! Alerts: conditions of the rule book, evaluated against counters over windows of time.
//!
//! [`AlertWatch`] is the interface: it gets an [`AlertSample`] regularly and returns the notices to send. It
//! reads no clock and sends nothing.
//!
//! Invariants: one alert is one notice, however many subjects it has; a notice that cannot be sent now is sent
//! later, not dropped; every receiver of "firing" also gets "resolved"; a restart changes none of this.

pub mod catalog;
mod gather;
mod incident;
mod latency;
pub mod notice;
mod notify;
mod sample;
pub mod scope;
mod series;
mod state;
pub mod value;
mod view;
mod watch;

pub use self::incident::{DAMAGED, Incident, IncidentEnd, IncidentSample, IncidentScope, Incidents};
pub use self::sample::{AlertSample, LetterSample, QueueSample, SampleNeeds, SourceSample};
pub use self::view::{AlertState, AlertView};
pub use self::watch::{AlertWatch, SavedAlerts};

/// The service that delivers notices. Its own deliveries raise no alerts, since such an alert could not be
/// delivered either.
pub const OWN_SERVICE: &str = "redrive-alerts";
