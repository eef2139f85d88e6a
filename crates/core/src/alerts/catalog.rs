//! Alerts that a rule book can switch on by name, with proven thresholds.
//!
//! `- { use: dead-letters, to: [on-call] }` switches one on. `when`, `severity`, `action` and `name` of the
//! entry override those of the catalog.

use super::incident::Incident;
use crate::book::model::AlertSeverity;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogAlert {
    pub name: &'static str,
    pub when: &'static str,
    pub severity: AlertSeverity,
    pub action: &'static str,
}

/// Failure shares, retries, breakers, dead letters, credentials and configuration, backlog.
#[rustfmt::skip]
pub const ALERTS: [CatalogAlert; 21] = [
    alert("high-error-rate",          "error_rate > 1% over 5m",                      AlertSeverity::Warning,  "Find the services and codes that the failures have in common"),
    alert("error-rate-by-category",   "error_rate > 1% over 5m by category",          AlertSeverity::Warning,  "Separate network failures from failures caused by the events"),
    alert("critical-error-rate",      "error_rate > 5% over 2m",                      AlertSeverity::Critical, "Find the failing dependency; pause services that make it worse"),
    alert("error-rate-over-target",   "error_rate > 10% over 5m",                     AlertSeverity::High,     "Find the failing dependency; pause services that make it worse"),
    alert("transient-errors",         "transient_rate > 5% over 5m",                  AlertSeverity::Warning,  "Check the health of the failing dependencies"),
    alert("dependency-errors",        "error_rate > 5% over 5m by dependency",        AlertSeverity::Medium,   "Check the health of this dependency"),
    alert("dependency-unavailable",   "unavailable_rate > 50% over 5m by dependency", AlertSeverity::High,     "It mostly answers 503: check whether it is being deployed or overloaded"),
    alert("many-retries",             "retry_rate > 20% over 5m",                     AlertSeverity::Warning,  "Check whether the failures are really transient, and whether timeouts are too short"),
    alert("most-deliveries-retried",  "retry_rate > 50% over 5m",                     AlertSeverity::Warning,  "Check the health of the dependencies: most deliveries fail at first"),
    alert("retries-exhausted",        "exhausted_rate > 2% over 5m",                  AlertSeverity::High,     "Fix the failing target, or give the policy more retries or longer delays"),
    alert("breaker-opened",           "breaker_opened by dependency",                 AlertSeverity::Warning,  "Deliveries wait: find out what happened to this dependency"),
    alert("breaker-open",             "breaker_open for 2m by dependency",            AlertSeverity::Medium,   "The dependency does not recover by itself: investigate it"),
    alert("breaker-stays-open",       "breaker_open for 10m by dependency",           AlertSeverity::High,     "The dependency is down: fail over, or inform its users"),
    alert("dead-letters",             "dead_letters > 0",                             AlertSeverity::High,     "Find the cause by its failure group; replay once it is fixed"),
    alert("dead-letters-pile-up",     "dead_letters > 100",                           AlertSeverity::Medium,   "Find the largest failure group and what its dead letters have in common"),
    alert("dead-letters-overflow",    "dead_letters > 1000",                          AlertSeverity::High,     "Dead letters arrive faster than they are handled: stop the cause first"),
    alert("dead-letter-spike",        "dead_letter_inflow > 10/m",                    AlertSeverity::Critical, "Something fails completely: check the downstream systems"),
    alert("dead-letters-stale",       "dead_letter_age > 48h",                        AlertSeverity::Warning,  "Replay, edit or skip the oldest dead letters"),
    alert("authentication-failures",  "auth_failures > 10/h",                         AlertSeverity::High,     "Fix the credentials; inform security if they were not changed on purpose"),
    alert("configuration-failures",   "config_failures > 0 over 1h",                  AlertSeverity::High,     "Fix the configuration, then resume the service"),
    alert("consumer-lag",             "consumer_lag > 10000 by service",              AlertSeverity::Warning,  "Raise the service's `in_flight`, or find what slows it down"),
];

/// On by default for every receiver: incidents, which need no threshold.
#[rustfmt::skip]
pub const AT_ONCE: [CatalogAlert; Incident::ALL.len()] = [
    alert("credentials-refused",      "credentials_refused by service",               AlertSeverity::High,     "Renew the credentials for this target; find out who changed them"),
    alert("misconfigured",            "misconfigured by service",                     AlertSeverity::High,     "See `redrive why` for the delivery; fix the configuration, then replay"),
    alert("internal-failure",         "internal_failure by service",                  AlertSeverity::Critical, "See `redrive why` for the delivery, and report it"),
    alert("policy-exhausted",         "policy_exhausted by service",                  AlertSeverity::High,     "Find out why the target fails; replay the dead letters once it is healthy"),
    alert("event-damaged",            "event_damaged by service",                     AlertSeverity::Critical, "Check the disk; restore a backup; ask the sender to send it again"),
    alert("service-removed",          "service_removed by service",                   AlertSeverity::High,     "Restore the service, or send its deliveries to another one"),
    alert("secret-gone",              "secret_gone",                                  AlertSeverity::High,     "Find out why the secret cannot be fetched; calls that need it fail meanwhile"),
    alert("archive-stuck",            "archive_stuck",                                AlertSeverity::High,     "Give Redrive access to the archive; events wait for it in the store"),
    alert("archive-incomplete",       "archive_incomplete",                           AlertSeverity::Medium,   "Find out why the archive is slow; the event is in the store but not in the archive"),
    alert("issuer-gone",              "issuer_gone",                                  AlertSeverity::High,     "Find out why the issuer's keys cannot be fetched; tokens are refused meanwhile"),
    alert("certificate-refused",      "certificate_refused",                          AlertSeverity::High,     "Install a matching certificate and key; the old certificate stays in use"),
];

pub const NAMES: [&str; ALERTS.len() + AT_ONCE.len()] = {
    let mut names = [""; ALERTS.len() + AT_ONCE.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = if at < ALERTS.len() { ALERTS[at].name } else { AT_ONCE[at - ALERTS.len()].name };
        at += 1;
    }
    names
};

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
