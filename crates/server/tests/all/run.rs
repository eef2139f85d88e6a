//! Runs the real `redrive` in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder that goes away with the test.
pub(crate) struct Folder(TempDir);

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder for the test can be made"))
    }

    /// A folder in memory where the system has one, in which nobody waits for a disk.
    pub(crate) fn quick() -> Self {
        tempfile::tempdir_in("/dev/shm").map_or_else(|_| Self::new(), Self)
    }

    /// A folder with one file in it.
    pub(crate) fn with(name: &str, text: &str) -> Self {
        let folder = Self::new();
        folder.write(name, text);
        folder
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).expect("a file for the test can be written");
    }

    /// Puts a pipe where a file was; nobody is at its other end.
    pub(crate) fn replace_by_pipe(&self, name: &str) {
        std::fs::remove_file(self.path(name)).expect("it is there");
        let made = Command::new("mkfifo").arg(self.path(name)).status();
        assert!(made.expect("mkfifo is everywhere").success());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        run_in(self.0.path(), arguments)
    }
}

impl Run {
    /// What was printed, if all went well.
    #[track_caller]
    pub(crate) fn printed(self) -> String {
        assert_eq!(self.code, 0, "{}", self.stderr);
        assert_eq!(self.stderr, "");
        self.stdout
    }

    /// What was said to a command that was refused.
    #[track_caller]
    pub(crate) fn refused(self) -> String {
        assert_eq!(self.code, 1, "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        self.stderr
    }
}

/// Runs it in the root of the project, where the examples are.
pub(crate) fn redrive(arguments: &[&str]) -> Run {
    let server = Path::new(env!("CARGO_MANIFEST_DIR"));
    run_in(server.ancestors().nth(2).expect("crates/server lies two folders down"), arguments)
}

fn run_in(folder: &Path, arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
    // What a developer's shell asks for must not change what a test sees.
    for variable in ["CLICOLOR_FORCE", "FORCE_COLOR", "REDRIVE_CA", "REDRIVE_KEY", "REDRIVE_SERVER"] {
        command.env_remove(variable);
    }
    let output = command.args(arguments).current_dir(folder).output();
    let Output { status, stdout, stderr } = output.expect("the binary was built for this test");
    let text = |bytes| String::from_utf8(bytes).expect("redrive prints text");
    Run { code: status.code().expect("no signal ends it"), stdout: text(stdout), stderr: text(stderr) }
}
