//! The rule book of a server without `--rules`: it prints every event.

pub const BUILTIN_BOOK: &str = r#"# The rule book of `redrive serve` without `--rules`: it prints every event.
version: 1
services:
  log:
    target: { log: stdout }
    events: ["*"]
    allow: [{ lint: dead-letters-unwatched, because: "printing rarely fails, and nothing depends on it" }]
"#;
