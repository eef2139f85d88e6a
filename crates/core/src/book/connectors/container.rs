//! The `container` target: runs a container for each delivery.

use std::sync::Arc;

use super::exec::{self, RunSettings};
use super::{CallProtocol, Connector, ConnectorSettings, Edge, Profile, SettingsReader};
use crate::book::parse;
use crate::book::schema::{ValueType, key};
use crate::limits::{CONTAINER_CPUS_MAX, CONTAINER_MEMORY_BYTES_MIN, CONTAINER_PROCESSES_MAX};
use crate::policy::catalog::DependencyKind;

pub static TARGET: Connector = Connector {
    beside: &[
        key(
            "command",
            ValueType::ListOf(&ValueType::Text),
            "With `container`: what runs in it, with arguments (default: what the image says).",
        ),
        key(
            "runtime",
            ValueType::Word(&["docker", "podman"]),
            "With `container`: the program that starts containers, found in PATH (default docker).",
        ),
        key(
            "cpus",
            ValueType::Number { min: 0.01, max: CONTAINER_CPUS_MAX },
            "With `container`: the CPU cores it may use (default: no limit).",
        ),
        key(
            "pids",
            ValueType::Count { min: 1, max: CONTAINER_PROCESSES_MAX },
            "With `container`: how many processes it may have (default: the runtime's).",
        ),
        key(
            "container_network",
            ValueType::Text,
            "With `container`: the network it is in, such as `none`, `host` or the name of one (default: the runtime's).",
        ),
        key(
            "user",
            ValueType::Text,
            "With `container`: the user it runs as, such as `1000:1000` (default: the image's).",
        ),
        key(
            "read_only",
            ValueType::Bool,
            "With `container`: whether its file system is read-only (default false).",
        ),
        key(
            "mounts",
            ValueType::ListOf(&ValueType::Text),
            "With `container`: folders or volumes to mount, such as `/srv/data:/data:ro`.",
        ),
        exec::FORMAT,
        exec::TIME_LIMIT,
        exec::SPAWN_LIMIT,
        exec::ON_TIMEOUT,
        exec::OUTPUT,
        exec::GRACE,
        exec::MEMORY,
        exec::OUTPUT_MAX,
        exec::ENV,
        exec::INHERIT,
    ],
    dependency: Some(DependencyKind::Process),
    speech: CallProtocol::Process,
    ..Connector::new(
        Edge::Target,
        "container",
        ValueType::Text,
        "An image; a container of it gets the event on standard input.",
        read,
    )
};

#[derive(Clone, Debug, PartialEq)]
pub struct ContainerSettings {
    pub image: String,
    /// Empty for the image's own.
    pub command: Vec<String>,
    pub runtime: ContainerRuntime,
    pub cpus: Option<f64>,
    pub processes_max: Option<u32>,
    pub network: Option<String>,
    pub user: Option<String>,
    pub file_system: FileSystemAccess,
    /// `SOURCE:PLACE` or `SOURCE:PLACE:OPTIONS`.
    pub mounts: Vec<String>,
    pub run: RunSettings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerRuntime {
    Docker,
    Podman,
}

impl ContainerRuntime {
    /// The program's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemAccess {
    Writable,
    ReadOnly,
}

fn read(from: &mut SettingsReader<'_>) -> Option<(Arc<dyn ConnectorSettings>, Profile)> {
    let image = from.own_text()?;
    if !is_argument(&image) {
        let message = format!("invalid image `{image}`");
        from.error("container", "bad-image", message, "use a name such as `registry.example/worker:1.2`");
    }
    let run = exec::read_run(from);
    check_run(from, &run);
    let mounts = from.texts("mounts");
    if let Some(mount) = mounts.iter().find(|mount| !is_mount(mount)) {
        let message = format!("invalid mount `{mount}`");
        from.error("mounts", "bad-mount", message, "use `/absolute/source:/place` or `volume:/place:ro`");
    }
    for key in ["container_network", "user"] {
        if let Some(text) = from.text(key).filter(|text| !is_argument(text)) {
            from.error(key, "bad-value", format!("invalid value `{text}` of `{key}`"), "use one word");
        }
    }
    let settings = ContainerSettings {
        image,
        command: from.texts("command"),
        runtime: if from.says("runtime", "podman") {
            ContainerRuntime::Podman
        } else {
            ContainerRuntime::Docker
        },
        cpus: parse::number_of(from.node, "cpus"),
        processes_max: parse::number_of(from.node, "pids"),
        network: from.text("container_network"),
        user: from.text("user"),
        file_system: if from.says("read_only", "true") {
            FileSystemAccess::ReadOnly
        } else {
            FileSystemAccess::Writable
        },
        mounts,
        run,
    };
    let shown = std::iter::once(&settings.image).chain(&settings.command);
    let shown = shown.map(String::as_str).collect::<Vec<_>>().join(" ");
    let profile = exec::run_profile(from, &settings.run, shown);
    Some((Arc::new(settings), profile))
}

/// What a program takes and a runtime does not.
fn check_run(from: &mut SettingsReader<'_>, run: &RunSettings) {
    if let Some(bytes) = run.memory_bytes.filter(|bytes| *bytes < CONTAINER_MEMORY_BYTES_MIN) {
        let message = format!("{bytes} bytes of memory are too few for a container");
        from.error("memory", "out-of-range", message, "give it 6MiB or more");
    }
    for (key, names) in
        [("env", run.env.keys().collect::<Vec<_>>()), ("inherit", run.inherit.iter().collect())]
    {
        if let Some(name) = names.into_iter().find(|name| !is_variable(name)) {
            let message = format!("invalid name `{name}` of a container's variable");
            from.error(key, "bad-variable", message, "use letters, digits, `_`, `.` and `-`");
        }
    }
}

/// One word that the runtime's program does not read as an option.
fn is_argument(text: &str) -> bool {
    !text.starts_with('-') && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Podman reads more, such as `*`, as a pattern.
fn is_variable(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    !name.is_empty() && !name.starts_with('-') && name.chars().all(fits)
}

/// A relative source would be the name of a volume.
fn is_mount(mount: &str) -> bool {
    let mut parts = mount.splitn(3, ':');
    let (source, place, options) = (parts.next(), parts.next(), parts.next());
    let is_source = source.is_some_and(|source| {
        !source.is_empty()
            && !source.starts_with(['-', '.'])
            && (source.starts_with('/') || !source.contains('/'))
    });
    is_source
        && place.is_some_and(|place| place.starts_with('/'))
        && options.is_none_or(|options| !options.is_empty())
        && !mount.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::connectors::built_in;
    use crate::book::read;

    fn book(target: &str) -> String {
        format!("version: 1\nservices: {{ s: {{ target: {{ {target} }}, events: [a] }} }}\n")
    }

    #[test]
    fn settings_that_a_runtime_would_refuse_are_refused_by_the_check() {
        #[rustfmt::skip]
        let cases = [
            ("an image alone",            "container: busybox",                                         ""),
            ("an image with a digest",    "container: \"r.test:5000/a/b@sha256:00\"",                   ""),
            ("an option as image",        "container: --privileged",                                    "bad-image"),
            ("two words as image",        "container: \"busybox --privileged\"",                        "bad-image"),
            ("an empty image",            "container: \"\"",                                            "wrong-type"),
            ("an unknown runtime",        "container: a, runtime: lxc",                                 "unknown-word"),
            ("too little memory",         "container: a, memory: 1MiB",                                 "out-of-range"),
            ("no CPU",                    "container: a, cpus: 0",                                      "out-of-range"),
            ("half a CPU",                "container: a, cpus: 0.5, pids: 10, memory: 6MiB",            ""),
            ("a variable with a colon",   "container: a, env: { \"A:B\": c }",                          "bad-variable"),
            ("a pattern of variables",    "container: a, inherit: [\"*\"]",                             "bad-variable"),
            ("a folder and a volume",     "container: a, mounts: [\"/a:/b\", \"cache:/c:ro\"]",         ""),
            ("a relative folder",         "container: a, mounts: [\"./a:/b\"]",                         "bad-mount"),
            ("a mount without a place",   "container: a, mounts: [/a]",                                 "bad-mount"),
            ("a network of two words",    "container: a, container_network: \"a b\"",                   "bad-value"),
            ("a program's folder",        "container: a, folder: b",                                    "excluded-key"),
            ("a container's key",         "exec: [a], runtime: docker",                                 "excluded-key"),
        ];
        for (name, target, expected) in cases {
            let problems = read(&book(target), built_in()).problems.into_sorted();
            let codes: Vec<_> = problems.iter().map(|problem| problem.code).collect();
            assert_eq!(codes.join(" "), expected, "{name}: {problems:?}");
        }
    }

    #[test]
    fn settings_are_read_as_written() {
        let text = book(
            "container: worker, command: [a, b], runtime: podman, cpus: 1.5, pids: 9, read_only: true, memory: 8MiB",
        );
        let book = read(&text, built_in()).book.expect("a book");
        let endpoint = &book.sections().services[0].target.endpoint;
        let settings: &ContainerSettings = endpoint.settings().expect("its own settings");
        assert_eq!((settings.cpus, settings.processes_max), (Some(1.5), Some(9)));
        assert_eq!(settings.runtime, ContainerRuntime::Podman);
        assert_eq!(settings.file_system, FileSystemAccess::ReadOnly);
        assert_eq!(settings.run.memory_bytes, Some(8 << 20));
        assert_eq!(endpoint.profile.shown, "worker a b");
    }
}
