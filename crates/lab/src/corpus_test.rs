//! The fuzzers' corpus as a test: every file of it, and what becomes of them when they are mangled, keeps
//! the laws that the fuzz targets hold.
//!
//! A file whose name begins with `taken-` or `refused-` must also end so.

#[expect(unreachable_pub, reason = "the fuzz targets call it from another crate")]
#[path = "../../../fuzz/src/laws.rs"]
mod laws;

use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;

use self::laws::Came;

/// One way in, with the files that were made for it.
struct Target {
    name: &'static str,
    law: fn(&[u8]) -> Came,
    corpus: LazyLock<Vec<(String, Vec<u8>)>>,
}

static EVENT: Target = Target { name: "event", law: laws::event, corpus: LazyLock::new(|| files("event")) };
static EASY_EVENT: Target =
    Target { name: "easy_event", law: laws::easy_event, corpus: LazyLock::new(|| files("easy_event")) };
static RULE_BOOK: Target =
    Target { name: "rule_book", law: laws::rule_book, corpus: LazyLock::new(|| files("rule_book")) };
static SCENARIO: Target =
    Target { name: "scenario", law: laws::scenario, corpus: LazyLock::new(|| files("scenario")) };

/// Fewer files than this and the corpus was not found.
const FILES_MIN: usize = 10;

#[expect(clippy::disallowed_methods, reason = "the corpus is files; only a test reads them")]
fn files(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).expect("the corpus is part of the project");
    let mut files: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("the corpus can be listed");
            let bytes = std::fs::read(entry.path()).expect("a file of the corpus can be read");
            (entry.file_name().to_string_lossy().into_owned(), bytes)
        })
        .collect();
    // The order of a folder is the machine's, and a property test must draw the same on all.
    files.sort();
    files
}

#[test]
fn every_file_of_the_corpus_keeps_the_laws_and_ends_as_its_name_says() {
    let mut problems = Vec::new();
    for target in [&EVENT, &EASY_EVENT, &RULE_BOOK, &SCENARIO] {
        assert!(target.corpus.len() >= FILES_MIN, "{} has a corpus", target.name);
        for (name, bytes) in &*target.corpus {
            let came = (target.law)(bytes);
            let expected = match name.split('-').next() {
                Some("taken") => Came::Taken,
                Some("refused") => Came::Refused,
                _ => came,
            };
            if came != expected {
                problems.push(format!("{}/{name}: {came:?}", target.name));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// One blow to an input.
#[derive(Clone, Debug)]
enum Blow {
    /// One bit becomes the other.
    Flip(Index, u8),
    /// All behind a place is gone.
    Cut(Index),
    /// A part is gone.
    Drop(Index, Index),
    /// A part stands there twice.
    Repeat(Index, Index),
    /// A part of another input stands at a place.
    Splice(Index, Index, Index, Index),
    /// Some bytes stand at a place.
    Insert(Index, Vec<u8>),
}

fn blows() -> impl Strategy<Value = Vec<Blow>> {
    let place = any::<Index>;
    let blow = prop_oneof![
        (place(), 0..8_u8).prop_map(|(at, bit)| Blow::Flip(at, bit)),
        place().prop_map(Blow::Cut),
        (place(), place()).prop_map(|(one, other)| Blow::Drop(one, other)),
        (place(), place()).prop_map(|(one, other)| Blow::Repeat(one, other)),
        (place(), place(), place(), place())
            .prop_map(|(at, of, one, other)| Blow::Splice(at, of, one, other)),
        (place(), prop::collection::vec(any::<u8>(), 1..6)).prop_map(|(at, bytes)| Blow::Insert(at, bytes)),
    ];
    prop::collection::vec(blow, 1..4)
}

fn struck(bytes: &mut Vec<u8>, blow: &Blow, corpus: &[(String, Vec<u8>)]) {
    let place = |at: &Index, bytes: &[u8]| at.index(bytes.len() + 1);
    let part = |one: &Index, other: &Index, bytes: &[u8]| {
        let (one, other) = (place(one, bytes), place(other, bytes));
        one.min(other)..one.max(other)
    };
    match blow {
        Blow::Flip(at, bit) => {
            if let Some(byte) = bytes.len().checked_sub(1).map(|last| &mut bytes[at.index(last + 1)]) {
                *byte ^= 1 << bit;
            }
        }
        Blow::Cut(at) => bytes.truncate(place(at, bytes)),
        Blow::Drop(one, other) => drop(bytes.drain(part(one, other, bytes))),
        Blow::Repeat(one, other) => {
            let part = part(one, other, bytes);
            let copy = bytes[part.clone()].to_vec();
            bytes.splice(part.end..part.end, copy);
        }
        Blow::Splice(at, of, one, other) => {
            let (_, donor) = &corpus[of.index(corpus.len())];
            let at = place(at, bytes);
            bytes.splice(at..at, donor[part(one, other, donor)].iter().copied());
        }
        Blow::Insert(at, new) => {
            let at = place(at, bytes);
            bytes.splice(at..at, new.iter().copied());
        }
    }
}

fn mangled(target: &Target, which: Index, blows: &[Blow]) -> Vec<u8> {
    let (_, bytes) = &target.corpus[which.index(target.corpus.len())];
    let mut bytes = bytes.clone();
    for blow in blows {
        struck(&mut bytes, blow, &target.corpus);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn a_mangled_request_keeps_the_laws(which: Index, blows in blows()) {
        (EVENT.law)(&mangled(&EVENT, which, &blows));
        (EASY_EVENT.law)(&mangled(&EASY_EVENT, which, &blows));
    }

    #[test]
    fn a_mangled_rule_book_keeps_the_laws(which: Index, blows in blows()) {
        (RULE_BOOK.law)(&mangled(&RULE_BOOK, which, &blows));
    }
}

proptest! {
    // What is read is played, which takes longer than reading.
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_mangled_scenario_keeps_the_laws(which: Index, blows in blows()) {
        (SCENARIO.law)(&mangled(&SCENARIO, which, &blows));
    }
}
