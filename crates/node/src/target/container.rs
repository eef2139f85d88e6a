//! The `container` target: the runtime's command line for a delivery. `exec.rs` runs it.

use std::sync::Arc;

use redrive_core::book::connectors;
use redrive_core::book::connectors::container::{ContainerSettings, FileSystemAccess};
use redrive_core::engine::PendingDelivery;

use super::exec::{Launch, WorkerTarget};
use crate::connectors::{Driver, Make, settings};
use redrive::process::ContainerCommand;

pub(crate) const DRIVER: Driver = Driver {
    connector: &connectors::container::TARGET,
    make: Make::Target(|endpoint, site| {
        let settings: &ContainerSettings = settings(endpoint);
        let runtime = settings.runtime.as_str().to_owned();
        let launch = Launch::Container { runtime, settings: Box::new(settings.clone()) };
        Ok(Arc::new(WorkerTarget::new(launch, &settings.run, site)?))
    }),
};

/// Without input.
pub(super) fn command(
    runtime: &str,
    settings: &ContainerSettings,
    delivery: &PendingDelivery,
    variables: &[(&'static str, String)],
) -> ContainerCommand {
    let mut command = ContainerCommand::new(runtime, &settings.image)
        .key(delivery.id.to_string())
        .option(format!("--label=redrive.delivery={}", delivery.id))
        .option(format!("--label=redrive.service={}", delivery.queue.service));
    for option in options(settings) {
        command = command.option(option);
    }
    for name in &settings.run.inherit {
        command = command.inherit(name);
    }
    for (name, value) in &settings.run.env {
        command = command.variable(name, value);
    }
    for (name, value) in variables {
        command = command.variable(name, value);
    }
    for word in &settings.command {
        command = command.argument(word);
    }
    command
}

fn options(settings: &ContainerSettings) -> Vec<String> {
    let ContainerSettings { cpus, processes_max, network, user, file_system, mounts, .. } = settings;
    let stated = [
        cpus.map(|cpus| format!("--cpus={cpus}")),
        processes_max.map(|max| format!("--pids-limit={max}")),
        network.as_ref().map(|network| format!("--network={network}")),
        user.as_ref().map(|user| format!("--user={user}")),
        (*file_system == FileSystemAccess::ReadOnly).then(|| "--read-only".to_owned()),
    ];
    let mounts = mounts.iter().map(|mount| format!("--volume={mount}"));
    stated.into_iter().flatten().chain(mounts).collect()
}
