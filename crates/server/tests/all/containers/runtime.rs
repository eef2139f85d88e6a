//! The runtimes of these tests: podman where it runs containers here, and a scripted docker.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::run::Folder;
use crate::server::{Server, serve};

const SCRIPTED: &str = include_str!("scripted-docker");
/// Set where podman must run: without it the tests then fail.
const REQUIRED: &str = "REDRIVE_TEST_PODMAN";
/// A static binary of many programs.
const BUSYBOX: &str = "/bin/busybox";
const PROGRAMS: &str = "for name in sh cat echo env grep head id printenv sleep test touch tr true; do ln -s busybox bin/$name; done";

/// Runs the containers of one test.
pub(super) enum Runtime {
    /// With a store of its own.
    Podman(TempDir),
    /// No containers: processes.
    Scripted(TempDir),
}

impl Runtime {
    pub(super) fn scripted() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("state")).expect("made");
        let docker = folder.path().join("docker");
        fs::write(&docker, SCRIPTED).expect("written");
        fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).expect("it may run");
        Self::Scripted(folder)
    }

    /// `None` if podman runs no containers here.
    pub(super) fn podman() -> Option<Self> {
        static RUNS: OnceLock<Result<(), String>> = OnceLock::new();
        let runs = RUNS.get_or_init(|| {
            let podman = Self::new_podman()?;
            let output = podman.ask_podman(&["run", "--network=none", "worker", "true"]);
            if output.status.success() { Ok(()) } else { Err(said(&output)) }
        });
        match runs {
            Ok(()) => Some(Self::new_podman().expect("it just ran")),
            Err(reason) => {
                assert!(std::env::var_os(REQUIRED).is_none(), "podman must run containers here: {reason}");
                eprintln!("podman runs no containers here, the scripted docker only: {reason}");
                None
            }
        }
    }

    fn new_podman() -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        let (store, run) = (at.join("store"), at.join("run"));
        let storage = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n",
            store.display(),
            run.display()
        );
        fs::write(at.join("storage.conf"), storage).expect("written");
        // Limits that a container in a sandbox may set.
        let containers = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n\
             [engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\n";
        fs::write(at.join("containers.conf"), containers).expect("written");
        let script = format!(
            "mkdir -p root/bin root/tmp root/data && cp {BUSYBOX} root/bin/busybox && cd root && {PROGRAMS} && tar -cf ../root.tar ."
        );
        let packed = Command::new("sh").args(["-c", &script]).current_dir(at).output();
        let packed = packed.map_err(|error| error.to_string())?;
        if !packed.status.success() {
            return Err(said(&packed));
        }
        let podman = Self::Podman(folder);
        let imported = podman.ask_podman(&["import", "root.tar", "worker"]);
        if imported.status.success() { Ok(podman) } else { Err(said(&imported)) }
    }

    /// Every runtime that runs here.
    pub(super) fn all() -> Vec<Self> {
        std::iter::once(Self::scripted()).chain(Self::podman()).collect()
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Podman(_) => "podman",
            Self::Scripted(_) => "docker",
        }
    }

    /// The keys of a target that is not of the scripted runtime alone.
    pub(super) fn keys(&self) -> &'static str {
        match self {
            Self::Podman(_) => "runtime: podman, container_network: none",
            Self::Scripted(_) => "runtime: docker",
        }
    }

    pub(super) fn path(&self) -> &Path {
        let (Self::Podman(folder) | Self::Scripted(folder)) = self;
        folder.path()
    }

    pub(super) fn start(&self, folder: &Folder) -> Server {
        Server::run(self.serve(folder, &[]))
    }

    pub(super) fn serve(&self, folder: &Folder, arguments: &[&str]) -> Command {
        let mut command = serve(folder, &["--rules", "redrive.yaml"]);
        command.args(arguments);
        self.set_variables(&mut command);
        command
    }

    fn set_variables(&self, command: &mut Command) {
        match self {
            Self::Podman(folder) => {
                command.env("CONTAINERS_CONF", folder.path().join("containers.conf"));
                command.env("CONTAINERS_STORAGE_CONF", folder.path().join("storage.conf"));
            }
            Self::Scripted(folder) => {
                let path = std::env::var("PATH").unwrap_or_default();
                command.env("PATH", format!("{}:{path}", folder.path().display()));
            }
        }
    }

    fn ask_podman(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("podman");
        self.set_variables(&mut command);
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        command.output().unwrap_or_else(|error| Output {
            status: std::os::unix::process::ExitStatusExt::from_raw(1 << 8),
            stdout: Vec::new(),
            stderr: error.to_string().into_bytes(),
        })
    }

    /// The containers that there are, in any state.
    pub(super) fn containers(&self) -> Vec<String> {
        match self {
            Self::Podman(_) => {
                let output =
                    self.ask_podman(&["ps", "--all", "--quiet", "--filter", "label=redrive.delivery"]);
                assert!(output.status.success(), "{}", said(&output));
                String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
            }
            Self::Scripted(folder) => {
                let entries = fs::read_dir(folder.path().join("state")).expect("a folder").flatten();
                let folders = entries.filter(|entry| entry.path().is_dir());
                folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
            }
        }
    }

    /// Makes every command fail, as without a daemon; for the scripted docker.
    pub(super) fn set_down(&self, is_down: IsDown) {
        let file = self.path().join("state/down");
        match is_down {
            IsDown::Yes => fs::write(file, "").expect("written"),
            IsDown::No => fs::remove_file(file).expect("removed"),
        }
    }

    /// The arguments of all runs, for the scripted docker.
    pub(super) fn calls(&self) -> String {
        fs::read_to_string(self.path().join("state/calls")).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IsDown {
    Yes,
    No,
}

impl Drop for Runtime {
    fn drop(&mut self) {
        match self {
            Self::Podman(_) => drop(self.ask_podman(&["rm", "--all", "--force", "--time=0"])),
            Self::Scripted(folder) => {
                let entries = fs::read_dir(folder.path().join("state")).into_iter().flatten().flatten();
                for entry in entries.filter(|entry| entry.path().is_dir()) {
                    let name = entry.file_name();
                    let docker = folder.path().join("docker");
                    let _ = Command::new(docker).arg("rm").arg(name).output();
                }
            }
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}
