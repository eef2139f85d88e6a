//! How many calls a dependency takes at once, and how many in a time.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use super::{Known, Level, Origin, dependency_of, dependency_origin};
use crate::book::model::{At, ChannelEntry, Sections, ServiceEntry, TargetKind};
use crate::catalog::Kind;
use crate::ids::DependencyName;
use crate::limits;
use crate::text::Rate;
use crate::throttle::ThrottleSettings;

impl Sections {
    pub(super) fn permits(
        &self,
        dependency: &DependencyName,
        kind: Kind,
    ) -> (Known<u32>, Option<Known<Rate>>) {
        let entry = self.dependencies.get(dependency);
        let throttle = entry.and_then(|e| e.throttle.as_ref()).and_then(|at| self.throttles.get(&at.value));
        let stated = |at: &At<_>| Known { value: at.value, origin: dependency_origin(at.span) };
        let in_flight = entry
            .and_then(|e| e.permits.in_flight.as_ref())
            .or_else(|| throttle.and_then(|t| t.value.in_flight.as_ref()))
            .map(stated);
        let rate = entry
            .and_then(|e| e.permits.rate.as_ref())
            .or_else(|| throttle.and_then(|t| t.value.rate.as_ref()))
            .map(|at| Known { value: at.value, origin: dependency_origin(at.span) });
        let default = match kind {
            // More programs at once than there are cores only keep each other waiting.
            Kind::Process => {
                let origin = Origin { level: Level::Kind, span: None };
                Known { value: self.machine.cores.get(), origin }
            }
            _ => Known { value: limits::IN_FLIGHT_DEFAULT, origin: Origin::BUILT_IN },
        };
        (in_flight.unwrap_or(default), rate)
    }

    /// The dependencies that nobody declares and that are programs.
    pub(in crate::book) fn own_processes(&self) -> BTreeSet<DependencyName> {
        let is_process = |service: &ServiceEntry, channel: Option<&ChannelEntry>| {
            let target = channel.and_then(|channel| channel.target.as_ref()).unwrap_or(&service.target);
            matches!(target.kind, TargetKind::Exec(_))
        };
        let rows = self.rows().filter(|(service, channel, _)| is_process(service, *channel));
        let names = rows.map(|(service, channel, row)| dependency_of(service, channel, row).value);
        names.filter(|name| !self.dependencies.contains_key(name)).collect()
    }

    /// How calls to a dependency are held back.
    #[must_use]
    pub fn throttle(&self, dependency: &DependencyName, kind: Kind) -> ThrottleSettings {
        let (in_flight, rate) = self.permits(dependency, kind);
        // The format asks for one at least.
        let in_flight = NonZeroU32::new(in_flight.value).unwrap_or(NonZeroU32::MIN);
        ThrottleSettings { in_flight, rate: rate.map(|known| known.value) }
    }
}
