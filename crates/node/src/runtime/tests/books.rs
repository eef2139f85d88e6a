//! Reloads: every part goes by the same rule book, or all stay with the old one.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::runtime::{BookSwitchAt, ChangeError};
use redrive_core::book::connectors::built_in;

impl Bench {
    async fn reload(&self, text: &str) -> Result<(), ChangeError> {
        let book = Arc::new(redrive_core::book::read(text, built_in()).book.expect("a book"));
        let targets = Targets::all_to(&book, &(Arc::clone(&self.gate) as Arc<dyn Target>));
        self.node.change_book(book, text.into(), targets).await
    }

    /// A part that remembers the hash of the book that it goes by.
    fn follow(&self, part: &'static str, at: BookSwitchAt) -> Arc<AtomicU64> {
        let seen = Arc::new(AtomicU64::new(self.node.book().hash()));
        let of_part = Arc::clone(&seen);
        self.node.follow_book(part, at, move |book| {
            let (seen, hash) = (Arc::clone(&of_part), book.hash());
            Ok(Box::new(move || seen.store(hash, Ordering::Release)))
        });
        seen
    }

    /// Waits until every part goes by that generation.
    async fn reaches(&self, generation: u64) {
        let parts = ["alerts", "doors", "engine", "keys", "schedules"];
        let expected: BTreeMap<_, _> = parts.into_iter().map(|part| (part, generation)).collect();
        self.until("all parts go by it", |bench| bench.node.book_generations() == expected).await;
        assert_eq!(self.node.active_book().generation, generation);
    }
}

#[tokio::test]
async fn all_parts_go_by_the_same_book_after_a_reload() {
    let bench = Bench::start(100);
    let first = bench.node.book().hash();
    let keys = bench.follow("keys", BookSwitchAt::BeforeNode);
    let doors = bench.follow("doors", BookSwitchAt::AfterNode);
    bench.reaches(1).await;
    let text = BOOK.replace("orders.*", "orders.placed");
    bench.reload(&text).await.expect("a sound book");
    let hash = bench.node.book().hash();
    assert_ne!(hash, first);
    assert_eq!([&keys, &doors].map(|seen| seen.load(Ordering::Acquire)), [hash; 2]);
    bench.reaches(2).await;
    let durable = bench.node.read(move |reader| reader.book(hash)).await.expect("it answers");
    assert_eq!(durable.as_deref(), Some(&*text));
}

#[tokio::test]
async fn a_book_that_one_part_cannot_go_by_changes_nothing() {
    let bench = Bench::start(100);
    let (first, text) = bench.node.book_and_text();
    let keys = bench.follow("keys", BookSwitchAt::BeforeNode);
    bench.node.follow_book("doors", BookSwitchAt::AfterNode, |_| Err("no such address".to_owned()));
    bench.reaches(1).await;
    let refused = bench.reload(&BOOK.replace("orders.*", "orders.placed")).await.expect_err("one part fails");
    assert_eq!(refused.to_string(), "doors: no such address");
    bench.reaches(1).await;
    let (book, text_now) = bench.node.book_and_text();
    assert_eq!((book.hash(), text_now), (first.hash(), text));
    assert_eq!(keys.load(Ordering::Acquire), first.hash());
    assert!(bench.node.health().book_refused.is_none(), "who asked for it says so");
}

#[tokio::test]
async fn a_book_that_cannot_be_written_down_changes_nothing() {
    let bench = Bench::start(100);
    let first = bench.node.book().hash();
    let keys = bench.follow("keys", BookSwitchAt::BeforeNode);
    let doors = bench.follow("doors", BookSwitchAt::AfterNode);
    bench.feels(Mood::Refuses);
    let text = BOOK.replace("orders.*", "orders.placed");
    let refused = bench.reload(&text).await.expect_err("the store takes no writes");
    assert!(matches!(refused, ChangeError::NotWritten(_)), "{refused}");
    assert_eq!(bench.node.book().hash(), first);
    assert_eq!([&keys, &doors].map(|seen| seen.load(Ordering::Acquire)), [first; 2]);
    bench.reaches(1).await;
}
