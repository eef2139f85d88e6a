//! Alerts that every rule book may switch on by name, with the numbers that have proved themselves.
//!
//! `- { use: dead-letters, to: [on-call] }` switches one on. What the entry states itself (`when`, `severity`,
//! `action`, `name`) holds instead of what stands here, so that other numbers need no other words.

use super::incident::Incident;
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

/// Those that need no figures and are on without being named, for every receiver: what people are told of at once.
#[rustfmt::skip]
pub const AT_ONCE: [CatalogAlert; Incident::ALL.len()] = [
    alert("credentials-refused",      "credentials_refused by service",               AlertSeverity::High,     "Renew the credentials for this target; find out who changed them"),
    alert("misconfigured",            "misconfigured by service",                     AlertSeverity::High,     "See `redrive why` for the delivery; correct the configuration, then replay"),
    alert("internal-failure",         "internal_failure by service",                  AlertSeverity::Critical, "See `redrive why` for the delivery, and report it"),
    alert("policy-exhausted",         "policy_exhausted by service",                  AlertSeverity::High,     "See why the target fails; replay the dead letters once it is well"),
    alert("event-damaged",            "event_damaged by service",                     AlertSeverity::Critical, "Check the disk; restore a backup; ask the sender to send it again"),
    alert("service-removed",          "service_removed by service",                   AlertSeverity::High,     "Put the service back, or send what waits to another one"),
    alert("secret-gone",              "secret_gone",                                  AlertSeverity::High,     "See why the secret cannot be fetched; what needs it is refused meanwhile"),
    alert("archive-stuck",            "archive_stuck",                                AlertSeverity::High,     "Give Redrive access to the archive; events wait for it in the store"),
    alert("archive-incomplete",       "archive_incomplete",                           AlertSeverity::Medium,   "See why the archive is slow; the event is in the store and not in the archive"),
    alert("issuer-gone",              "issuer_gone",                                  AlertSeverity::High,     "See why the keys of the issuer cannot be fetched; tokens are refused meanwhile"),
    alert("certificate-refused",      "certificate_refused",                          AlertSeverity::High,     "Install a certificate and a key that belong together; the old one serves"),
];

/// The names of all of both.
pub const NAMES: [&str; ALERTS.len() + AT_ONCE.len()] = {
    let mut names = [""; ALERTS.len() + AT_ONCE.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = if at < ALERTS.len() { ALERTS[at].name } else { AT_ONCE[at - ALERTS.len()].name };
        at += 1;
    }
    names
};

/// The one of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static CatalogAlert> {
    ALERTS.iter().chain(&AT_ONCE).find(|alert| alert.name == name)
}

const fn alert(
    name: &'static str,
    when: &'static str,
    severity: AlertSeverity,
    action: &'static str,
) -> CatalogAlert {
    CatalogAlert { name, when, severity, action }
}
