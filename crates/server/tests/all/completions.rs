//! `redrive completions`: each shell gets a script that knows the commands.

use crate::run::redrive;

#[test]
fn every_shell_learns_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = redrive(&["completions", shell]).printed();
        for command in
            ["check", "rules", "timeline", "send", "tail", "why", "export", "init", "schema", "completions"]
        {
            assert!(script.contains(command), "{shell} does not know `{command}`");
        }
    }
    assert_eq!(redrive(&["completions", "tcsh"]).code, 2, "a shell that is not known is wrong use");
}
