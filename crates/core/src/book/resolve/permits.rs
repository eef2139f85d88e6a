//! Throttle of a dependency: calls in flight, rate and ramp-up.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use super::{ResolvedValue, RuleLevel, ValueOrigin, dependency_of};
use crate::book::model::{At, ChannelEntry, DependencyEntry, Permits, Sections, ServiceEntry};
use crate::ids::DependencyName;
use crate::limits;
use crate::policy::catalog::DependencyKind;
use crate::policy::throttle::ThrottleSettings;
use crate::text::{Rate, Share};

pub(super) struct ResolvedPermits {
    pub in_flight: ResolvedValue<u32>,
    pub rate: Option<ResolvedValue<Rate>>,
    pub ramp: ResolvedValue<Duration>,
    pub rate_growth: ResolvedValue<Share>,
    pub rate_memory: ResolvedValue<Duration>,
}

fn or<T: Clone>(stated: Option<At<T>>, default: ResolvedValue<T>) -> ResolvedValue<T> {
    stated.map_or(default, |at| ResolvedValue::stated(RuleLevel::Dependency, &at))
}

impl Sections {
    /// The dependency's own settings, else those of its named throttle.
    #[must_use]
    pub fn permits_of(&self, entry: &DependencyEntry) -> Permits {
        let throttle = entry.throttle.as_ref().and_then(|at| self.throttles.get(&at.value));
        let (own, other) = (entry.permits.clone(), throttle.map(|at| at.value.clone()).unwrap_or_default());
        Permits {
            in_flight: own.in_flight.or(other.in_flight),
            rate: own.rate.or(other.rate),
            ramp: own.ramp.or(other.ramp),
            rate_growth: own.rate_growth.or(other.rate_growth),
            rate_memory: own.rate_memory.or(other.rate_memory),
        }
    }

    pub(super) fn permits(&self, dependency: &DependencyName, kind: DependencyKind) -> ResolvedPermits {
        let entry = self.dependencies.get(dependency);
        let stated = entry.map(|entry| self.permits_of(entry)).unwrap_or_default();
        let in_flight = match kind {
            // More programs than cores only slow each other down.
            DependencyKind::Process => {
                let origin = ValueOrigin { level: RuleLevel::Kind, span: None };
                ResolvedValue { value: self.machine.cores.get(), origin }
            }
            _ => ResolvedValue::built_in(limits::IN_FLIGHT_DEFAULT),
        };
        ResolvedPermits {
            in_flight: or(stated.in_flight, in_flight),
            rate: stated.rate.map(|at| ResolvedValue::stated(RuleLevel::Dependency, &at)),
            ramp: or(stated.ramp, ResolvedValue::built_in(limits::RAMP_DEFAULT)),
            rate_growth: or(stated.rate_growth, ResolvedValue::built_in(limits::RATE_GROWTH_DEFAULT)),
            rate_memory: or(stated.rate_memory, ResolvedValue::built_in(limits::RATE_MEMORY_DEFAULT)),
        }
    }

    /// Undeclared dependencies that are programs.
    pub(in crate::book) fn own_processes(&self) -> BTreeSet<DependencyName> {
        let is_process = |service: &ServiceEntry, channel: Option<&ChannelEntry>| {
            let target = channel.and_then(|channel| channel.target.as_ref()).unwrap_or(&service.target);
            target.endpoint.profile.run.is_some()
        };
        let rows = self.rows().filter(|(service, channel, _)| is_process(service, *channel));
        let names = rows.map(|(service, channel, row)| dependency_of(service, channel, row).value);
        names.filter(|name| !self.dependencies.contains_key(name)).collect()
    }

    #[must_use]
    pub fn throttle(&self, dependency: &DependencyName, kind: DependencyKind) -> ThrottleSettings {
        let permits = self.permits(dependency, kind);
        // The schema requires at least one.
        let in_flight = NonZeroU32::new(permits.in_flight.value).unwrap_or(NonZeroU32::MIN);
        ThrottleSettings {
            in_flight,
            rate: permits.rate.map(|known| known.value),
            growth: permits.rate_growth.value,
            memory: permits.rate_memory.value,
        }
    }

    /// Time after an outage until calls start at twice the usual rate.
    #[must_use]
    pub fn ramp(&self, dependency: &DependencyName) -> Duration {
        let stated = self.dependencies.get(dependency).and_then(|entry| self.permits_of(entry).ramp);
        stated.map_or(limits::RAMP_DEFAULT, |at| at.value)
    }
}
