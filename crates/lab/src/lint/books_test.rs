//! Books as a whole: the built-in one is free of findings, and any bytes end in a book or in problems.

use proptest::prelude::*;
use redrive_core::book::BUILTIN_BOOK;
use redrive_core::book::connectors::built_in;

use crate::lint::check;

const BOOK: &str = include_str!("../../../server/tests/books/todo.yaml");

#[test]
fn it_takes_every_event_and_nothing_is_wrong_with_it() {
    let checked = check(BUILTIN_BOOK.as_bytes(), built_in());
    assert_eq!(checked.problems, [], "the built-in book has no finding");
    assert_eq!((checked.left_out, checked.silenced), (0, 1));
    let book = checked.book.expect("a book of our own");
    for event_type in ["a", "orders.placed", "com.github.pull_request.opened"] {
        assert!(book.rule("log", None, event_type).is_some(), "{event_type} is printed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_end_in_a_book_or_in_problems(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let checked = check(&bytes, built_in());
        prop_assert!(checked.book.is_some() || !checked.problems.is_empty());
    }

    #[test]
    fn a_mangled_book_ends_in_a_book_or_in_problems(at in 0..BOOK.len(), cut in 0..60_usize, new in "[ -~\\n]{0,12}") {
        let start = (0..=at).rev().find(|index| BOOK.is_char_boundary(*index)).unwrap_or(0);
        let end = (start + cut..=BOOK.len()).find(|index| BOOK.is_char_boundary(*index)).unwrap_or(BOOK.len());
        let text = format!("{}{new}{}", &BOOK[..start], &BOOK[end..]);
        let checked = check(text.as_bytes(), built_in());
        prop_assert!(checked.book.is_some() || !checked.problems.is_empty());
        for problem in checked.problems {
            let line = problem.span.position.line as usize;
            prop_assert!(line <= text.lines().count() + 1, "line {line} is not there");
        }
    }
}
