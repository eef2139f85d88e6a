//! `redrive completions`, `redrive version` and `--json`.

use crate::run::redrive;

#[test]
fn every_shell_learns_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = redrive(&["completions", shell]).printed();
        for command in
            ["check", "rules", "timeline", "send", "tail", "why", "export", "init", "schema", "completions"]
        {
            assert!(script.contains(command), "{shell} does not know `{command}`");
        }
    }
    assert_eq!(redrive(&["completions", "tcsh"]).code, 2, "a shell that is not known is wrong use");
}

#[test]
fn usual_spellings_work_too() {
    assert_eq!(redrive(&["version"]).printed(), redrive(&["--version"]).printed());
    let json = redrive(&["timeline", "standard", "--json"]).printed();
    assert_eq!(json, redrive(&["timeline", "standard", "--format", "json"]).printed());
    assert_eq!(redrive(&["timeline", "--", "--json"]).code, 1, "no option behind `--`");
}
