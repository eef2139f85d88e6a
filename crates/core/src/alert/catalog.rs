//! Alerts that every rule book may switch on by name, with the numbers that have proved themselves.
//!
//! `- { use: dead-letters, to: [on-call] }` switches one on. What the entry states itself (`when`, `severity`,
//! `action`, `name`) holds instead of what stands here, so that other numbers need no other words.

use crate::book::model::AlertSeverity;

/// An alert that may be switched on by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogAlert {
    /// Its name.
    pub name: &'static str,
    /// When it is raised.
    pub when: &'static str,
    /// How urgent it is.
    pub severity: AlertSeverity,
    /// What to do.
    pub action: &'static str,
}

/// All of them: shares of failures, retries, breakers, dead letters, what people must mend, and what waits.
#[rustfmt::skip]
pub const ALERTS: [CatalogAlert; 21] = [
    alert("high-error-rate",          "error_rate > 1% over 5m",                      AlertSeverity::Warning,  "Look which services and codes the failures have in common"),
    alert("error-rate-by-category",   "error_rate > 1% over 5m by category",          AlertSeverity::Warning,  "Tell failures of the network from those of the events themselves"),
    alert("critical-error-rate",      "error_rate > 5% over 2m",                      AlertSeverity::Critical, "Find the dependency that fails; pause what makes it worse"),
    alert("error-rate-over-target",   "error_rate > 10% over 5m",                     AlertSeverity::High,     "Find the dependency that fails; pause what makes it worse"),
    alert("transient-errors",         "transient_rate > 5% over 5m",                  AlertSeverity::Warning,  "Look at the health of the dependencies behind the failures"),
    alert("dependency-errors",        "error_rate > 5% over 5m by dependency",        AlertSeverity::Medium,   "Look at the health of this dependency"),
    alert("dependency-unavailable",   "unavailable_rate > 50% over 5m by dependency", AlertSeverity::High,     "It answers 503 most of the time: see whether it is being deployed, or overloaded"),
    alert("many-retries",             "retry_rate > 20% over 5m",                     AlertSeverity::Warning,  "See whether the failures are truly transient, and whether timeouts are too short"),
    alert("most-deliveries-retried",  "retry_rate > 50% over 5m",                     AlertSeverity::Warning,  "Look at the health of the dependencies: most deliveries fail at first"),
    alert("retries-exhausted",        "exhausted_rate > 2% over 5m",                  AlertSeverity::High,     "Give the policy more retries or longer delays, or mend what fails"),
    alert("breaker-opened",           "breaker_opened by dependency",                 AlertSeverity::Warning,  "Deliveries wait: see what happened to this dependency"),
    alert("breaker-open",             "breaker_open for 2m by dependency",            AlertSeverity::Medium,   "The dependency does not recover by itself: look after it"),
    alert("breaker-stays-open",       "breaker_open for 10m by dependency",           AlertSeverity::High,     "The dependency is down: fail over, or tell those who wait"),
    alert("dead-letters",             "dead_letters > 0",                             AlertSeverity::High,     "Find the cause by its failure group; replay once it is gone"),
    alert("dead-letters-pile-up",     "dead_letters > 100",                           AlertSeverity::Medium,   "Find the largest failure group and what its letters have in common"),
    alert("dead-letters-overflow",    "dead_letters > 1000",                          AlertSeverity::High,     "Letters come faster than they are dealt with: stop the cause first"),
    alert("dead-letter-spike",        "dead_letter_inflow > 10/m",                    AlertSeverity::Critical, "Something fails as a whole: check what is downstream"),
    alert("dead-letters-stale",       "dead_letter_age > 48h",                        AlertSeverity::Warning,  "Replay, edit or skip the oldest letters before they are forgotten"),
    alert("authentication-failures",  "auth_failures > 10/h",                         AlertSeverity::High,     "Mend the credentials; tell security if nobody has changed them"),
    alert("configuration-failures",   "config_failures > 0 over 1h",                  AlertSeverity::High,     "Mend the configuration, then resume the service"),
    alert("consumer-lag",             "consumer_lag > 10000 by service",              AlertSeverity::Warning,  "Give the service more calls at once, or find what slows it down"),
];

/// Their names.
pub const NAMES: [&str; ALERTS.len()] = {
    let mut names = [""; ALERTS.len()];
    let mut at = 0;
    while at < ALERTS.len() {
        names[at] = ALERTS[at].name;
        at += 1;
    }
    names
};

/// The one of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static CatalogAlert> {
    ALERTS.iter().find(|alert| alert.name == name)
}

const fn alert(
    name: &'static str,
    when: &'static str,
    severity: AlertSeverity,
    action: &'static str,
) -> CatalogAlert {
    CatalogAlert { name, when, severity, action }
}
