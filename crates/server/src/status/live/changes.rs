//! Changes between two readings, and the part that a listener may see.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redrive_core::alerts::AlertState;
use redrive_core::book::RuleBook;
use redrive_core::engine::QueueName;
use redrive_core::figures::AttemptTally;
use redrive_core::ids::DependencyName;
use redrive_core::time::Timestamp;
use redrive_node::runtime::AlertsView;

use crate::access::caller::ApiCaller;
use crate::breakers::handlers::{DeclaredDependency, declared, state_of};
use crate::breakers::json::BreakerState;
use crate::services::condition::judge;
use crate::services::handlers::ServiceFigures;
use crate::status::live::{DependencyPulse, Pulse, ServicePulse};

/// Parts of the rule book needed for each pulse.
pub(crate) struct PulseLayout {
    pub hash: u64,
    queues: BTreeSet<QueueName>,
    dependencies: BTreeMap<DependencyName, DeclaredDependency>,
}

impl PulseLayout {
    pub(crate) fn of(book: &RuleBook) -> Self {
        let dependencies = declared(book);
        let queues = dependencies.values().flat_map(|declared| declared.queues.iter().cloned()).collect();
        Self { hash: book.hash(), queues, dependencies }
    }
}

pub(crate) struct PulseBeat {
    at: Timestamp,
    took: Duration,
    accepted: u64,
    calls: usize,
    firing_alerts: u64,
    /// Number of failure groups by service.
    causes: Vec<(String, u64)>,
    queues: Vec<QueueBeat>,
    dependencies: Vec<DependencyBeat>,
}

struct QueueBeat {
    service: String,
    /// Since the previous reading.
    tally: AttemptTally,
    /// Successful deliveries of the last minute.
    arrived: u64,
    ended: u64,
    oldest_waiting_at: Option<Timestamp>,
    pulse: ServicePulse,
}

struct DependencyBeat {
    services: BTreeSet<String>,
    pulse: DependencyPulse,
}

impl PulseBeat {
    pub(crate) fn between(
        before: &ServiceFigures,
        reading: &ServiceFigures,
        layout: &PulseLayout,
        alerts: &AlertsView,
    ) -> Self {
        let took = reading.at.since(before.at);
        let queues = layout.queues.iter().chain(reading.removed()).map(|name| {
            let tally = reading.tally_of(name).since(&before.tally_of(name));
            let signs = reading.signs(name);
            let counts = reading.counts_of(name);
            let pulse = ServicePulse {
                service: name.service.to_string(),
                channel: name.channel.as_ref().map(ToString::to_string),
                waiting: counts.waiting,
                dead: counts.dead,
                delivered_per_s: per_second(tally.delivered, took),
                failed_per_s: per_second(tally.failures(), took),
                health: judge(&signs).word,
            };
            QueueBeat {
                service: name.service.to_string(),
                tally,
                arrived: signs.lately.delivered,
                ended: signs.lately.delivered + signs.lately.dead,
                oldest_waiting_at: signs.oldest_waiting_at.filter(|_| counts.waiting > 0),
                pulse,
            }
        });
        let dependencies = layout.dependencies.iter().map(|(name, declared)| {
            let view = reading.snapshot.dependencies.iter().find(|view| view.name == *name);
            DependencyBeat {
                services: declared.queues.iter().map(|queue| queue.service.to_string()).collect(),
                pulse: DependencyPulse {
                    name: name.to_string(),
                    state: state_of(declared.settings.as_ref(), view),
                    in_flight: view.map_or(0, |view| view.in_flight),
                },
            }
        });
        let accepted = |reading: &ServiceFigures| reading.snapshot.figures.intake.accepted;
        Self {
            at: reading.at,
            took,
            accepted: accepted(reading).saturating_sub(accepted(before)),
            calls: reading.snapshot.calls,
            firing_alerts: alerts.alerts.iter().filter(|alert| alert.state == AlertState::Firing).count()
                as u64,
            causes: reading
                .causes
                .iter()
                .map(|(service, causes)| (service.to_string(), causes.len() as u64))
                .collect(),
            queues: queues.collect(),
            dependencies: dependencies.collect(),
        }
    }

    pub(crate) fn pulse(&self, caller: &ApiCaller, left_out: u64) -> Pulse {
        let is_bound = caller.is_bound();
        let queues: Vec<&QueueBeat> = self.queues.iter().filter(|beat| caller.sees(&beat.service)).collect();
        let concerns =
            |beat: &&DependencyBeat| !is_bound || beat.services.iter().any(|service| caller.sees(service));
        let dependencies: Vec<&DependencyPulse> =
            self.dependencies.iter().filter(concerns).map(|beat| &beat.pulse).collect();
        let mut tally = AttemptTally::default();
        for beat in &queues {
            tally.add(&beat.tally);
        }
        let (arrived, ended) =
            queues.iter().fold((0, 0), |(arrived, ended), beat| (arrived + beat.arrived, ended + beat.ended));
        let in_flight = if is_bound {
            dependencies.iter().map(|pulse| u64::from(pulse.in_flight)).sum()
        } else {
            self.calls as u64
        };
        Pulse {
            at: self.at,
            left_out,
            accepted_per_s: (!is_bound).then(|| per_second(self.accepted, self.took)),
            delivered_per_s: per_second(tally.delivered, self.took),
            failed_per_s: per_second(tally.failures(), self.took),
            retried_per_s: per_second(tally.retries, self.took),
            dead_per_s: per_second(tally.dead, self.took),
            success_rate: (ended > 0).then(|| arrived as f64 / ended as f64),
            waiting: queues.iter().map(|beat| beat.pulse.waiting).sum(),
            oldest_waiting_at: queues.iter().filter_map(|beat| beat.oldest_waiting_at).min(),
            dead: queues.iter().map(|beat| beat.pulse.dead).sum(),
            failure_groups: self
                .causes
                .iter()
                .filter(|(service, _)| caller.sees(service))
                .map(|(_, causes)| causes)
                .sum(),
            in_flight,
            open_breakers: dependencies
                .iter()
                .filter(|pulse| pulse.state == BreakerState::Open)
                .map(|pulse| pulse.name.clone())
                .collect(),
            firing_alerts: (!is_bound).then_some(self.firing_alerts),
            services: queues.iter().map(|beat| beat.pulse.clone()).collect(),
            dependencies: dependencies.into_iter().cloned().collect(),
        }
    }
}

/// Three decimals.
fn per_second(count: u64, took: Duration) -> f64 {
    let seconds = took.as_secs_f64().max(f64::MIN_POSITIVE);
    if count == 0 { 0.0 } else { (count as f64 / seconds * 1e3).round() / 1e3 }
}
