//! Letters of a selection are found alike, wherever they are looked for.

use std::collections::BTreeSet;

use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::time::Timestamp;
use rusqlite::Connection;

use crate::store::letter::{KindId, LetterFilter, Poison, Selection};
use crate::store::sqlite::reader::select_letters;
use crate::store::sqlite::schema;

const KINDS: i64 = 100;
const LETTERS: i64 = 1_000;

/// Letters of many kinds, one after the other; every tenth kind is poison.
fn filled(folder: &std::path::Path) -> Connection {
    let connection = schema::open(&folder.join("letters.db"), 1).expect("it opens");
    for kind in 1..=KINDS {
        let tier = if kind % 10 == 0 { "poison" } else { "dead" };
        let insert =
            "INSERT INTO kinds VALUES (?1, ?1, 1, 1, 'a', 'transient', 'C', 'F', ?2, 'n', 'g', 10, 1, 1)";
        connection.execute(insert, (kind, tier)).expect("it is SQL");
    }
    for number in 1..=LETTERS {
        let insert = "INSERT INTO letters VALUES (?1, ?1, ?2, ?1, NULL, NULL, NULL, 'boom')";
        connection.execute(insert, (number, kind_of(number))).expect("it is SQL");
    }
    connection
}

/// Neither in turn nor by chance.
const fn kind_of(number: i64) -> i64 {
    number * 37 % KINDS + 1
}

/// The numbers of all that is found, in steps, and how many were poison.
fn found(connection: &Connection, selection: &Selection, rows_max: usize) -> (Vec<i64>, u64) {
    let (mut numbers, mut poison, mut after) = (Vec::new(), 0, i64::MIN);
    loop {
        let looked = select_letters(connection, selection, after, rows_max).expect("it is readable");
        numbers.extend(looked.found.iter().map(|letter| letter.number));
        poison += looked.poison;
        match looked.upto {
            Some(upto) => after = upto,
            None => return (numbers, poison),
        }
    }
}

#[test]
fn letters_are_found_in_order_of_few_kinds_and_of_many() {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = filled(folder.path());
    let kinds = |upto: i64| -> BTreeSet<KindId> { (1..=upto).map(|id| KindId(id.cast_unsigned())).collect() };
    for (name, upto, from, until, rows_max) in [
        ("one kind", 1, 1, LETTERS, 3),
        ("a few kinds, in small steps", 7, 1, LETTERS, 5),
        ("a few kinds, at once", 7, 1, LETTERS, 2_000),
        ("as many as are merged", 64, 1, LETTERS, 33),
        ("too many to merge", 90, 1, LETTERS, 33),
        ("within a time", 7, 200, 300, 4),
        ("within a time, of many", 90, 200, 300, 7),
        ("none", 0, 1, LETTERS, 7),
    ] {
        let at = |nanos: i64| Timestamp::from_nanos(nanos.cast_unsigned());
        let filter = LetterFilter {
            kinds: Some(kinds(upto)),
            from: Some(at(from)),
            until: Some(at(until)),
            ..LetterFilter::default()
        };
        let mut selection =
            Selection { filter, letters: None, poison: Poison::Left, died_until: at(LETTERS) };
        let fits = |number: &i64| kind_of(*number) <= upto;
        let (dead, poison): (Vec<i64>, Vec<i64>) =
            (from..until).filter(fits).partition(|number| kind_of(*number) % 10 != 0);
        let expected = (dead, poison.len() as u64);
        assert_eq!(found(&connection, &selection, rows_max), expected, "{name}");
        selection.poison = Poison::Included;
        let expected: Vec<i64> = (from..until).filter(fits).collect();
        assert_eq!(found(&connection, &selection, rows_max), (expected, 0), "{name}, with poison");
    }
}

#[test]
fn letters_are_found_among_thousands_of_kinds() {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = filled(folder.path());
    let transaction = connection.unchecked_transaction().expect("it begins");
    for kind in KINDS + 1..5_000 {
        let insert =
            "INSERT INTO kinds VALUES (?1, ?1, 1, 1, 'a', 'transient', 'C', 'F', 'dead', 'n', 'g', 1, 1, 1)";
        transaction.execute(insert, [kind]).expect("it is SQL");
    }
    transaction.commit().expect("it ends");
    let filter = LetterFilter { tier: Some(Tier::Dead), ..LetterFilter::default() };
    let died_until = Timestamp::from_nanos(LETTERS.cast_unsigned());
    let selection = Selection { filter, letters: None, poison: Poison::Left, died_until };
    let expected = (1..=LETTERS).filter(|number| kind_of(*number) % 10 != 0).collect();
    assert_eq!(found(&connection, &selection, 33), (expected, 0));
}

#[test]
fn what_died_later_is_not_of_the_selection() {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = filled(folder.path());
    let filter = LetterFilter { fingerprint: Some(Fingerprint(38)), ..LetterFilter::default() };
    for filter in [filter, LetterFilter::default()] {
        let died_until = Timestamp::from_nanos(500);
        let selection = Selection { filter, letters: None, poison: Poison::Included, died_until };
        let (numbers, _) = found(&connection, &selection, 9);
        assert_eq!((numbers.first(), numbers.iter().find(|number| **number > 500)), (Some(&1), None));
    }
}
