//! The book that a server goes by until it is given one: every event is printed.

/// Prints every event on standard output, so that the first event can be seen before a book is written.
pub const BUILTIN_BOOK: &str = r#"# What `redrive serve` goes by without `--rules`: it prints every event.
version: 1
services:
  log:
    target: { log: stdout }
    events: ["*"]
    allow: [{ lint: dead-letters-unwatched, because: "printing hardly fails, and nothing depends on it" }]
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::lint::check;

    #[test]
    fn it_takes_every_event_and_nothing_is_wrong_with_it() {
        let checked = check(BUILTIN_BOOK.as_bytes());
        assert_eq!(checked.problems, [], "nobody wants to be warned of what they did not write");
        assert_eq!((checked.left_out, checked.silenced), (0, 1));
        let book = checked.book.expect("a book of our own");
        for event_type in ["a", "orders.placed", "com.github.pull_request.opened"] {
            assert!(book.rule("log", None, event_type).is_some(), "{event_type} is printed");
        }
    }
}
