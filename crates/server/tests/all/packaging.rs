//! What is delivered beside the binary: systemd's own tool has nothing to say against the unit.

use std::path::Path;
use std::process::Command;

use crate::run::Folder;

const INSTALLED: &str = "/usr/local/bin/redrive";

/// The unit of a folder, with the binary of this build in place of the one that would be installed.
fn unit() -> Folder {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders down");
    let unit = std::fs::read_to_string(root.join("packaging/redrive.service")).expect("it is there");
    let (_, command) = unit.split_once("\nExecStart=").expect("it starts something");
    assert!(command.starts_with(INSTALLED), "it starts what its head says to install: {command}");
    let here = unit
        .replace(&format!("ExecStart={INSTALLED}"), &format!("ExecStart={}", env!("CARGO_BIN_EXE_redrive")));
    Folder::with("redrive.service", &here)
}

/// Runs systemd's own tool on the unit, and gives back what it said if it liked it.
#[track_caller]
fn analyzed(arguments: &[&str]) -> String {
    let folder = unit();
    let run = Command::new("systemd-analyze").args(arguments).arg(folder.path("redrive.service")).output();
    let run =
        run.expect("`systemd-analyze` is there, from Debian's package `systemd`; `scripts/test` installs it");
    let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{arguments:?}: {said}");
    said
}

#[test]
fn systemd_understands_the_unit() {
    let said = analyzed(&["verify", "--man=no", "--recursive-errors=no"]);
    assert_eq!(said, "", "no warnings either");
}

#[test]
fn the_unit_leaves_little_of_the_machine_open() {
    // In tenths: systemd itself calls everything up to 2.0 `OK` or better.
    let said = analyzed(&["security", "--offline=yes", "--threshold=20", "--no-pager"]);
    assert!(said.contains("Overall exposure level"), "{said}");
}

#[test]
fn the_arguments_of_the_unit_are_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders down");
    let unit = std::fs::read_to_string(root.join("packaging/redrive.service")).expect("it is there");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("it starts something");
    let arguments: Vec<&str> = line.split_whitespace().skip(1).chain(["--help"]).collect();
    let help = crate::run::redrive(&arguments).printed();
    assert!(help.contains("--log-format"), "{help}");
}
