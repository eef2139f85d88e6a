//! The book that a server goes by until it is given one: every event is printed.

/// Prints every event on standard output, so that the first event can be seen before a book is written.
pub const BUILTIN_BOOK: &str = r#"# The rule book of `redrive serve` without `--rules`: it prints every event.
version: 1
services:
  log:
    target: { log: stdout }
    events: ["*"]
    allow: [{ lint: dead-letters-unwatched, because: "printing rarely fails, and nothing depends on it" }]
"#;
