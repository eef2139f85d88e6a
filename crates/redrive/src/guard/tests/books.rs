//! Books that change under their guards.

use std::cell::Cell;
use std::sync::mpsc;
use std::time::Duration;

use tokio::time::sleep;

use super::super::{BookError, BreakerState, Cause};
use super::{Book, Oops};

const ONE: &str = "version: 1\ndependencies: { d: { kind: ntfy, retry: none, timeout: 1s } }\n";
const TWO: &str = "version: 1\ndependencies: { d: { kind: ntfy, retry: standard, timeout: 2s } }\n";

#[tokio::test(start_paused = true)]
async fn guards_follow_a_new_book_and_the_breaker_stays() {
    let book = Book::parse(ONE).expect("a sound book");
    let guard = book.guard("d").expect("the book has it");
    let limit = async || guard.call(|attempt| async move { Ok::<_, Oops>(attempt.limit().as_secs()) }).await;
    guard.call(|_| async { Err::<(), _>(Oops::Refused) }).await.expect_err("it is down");
    assert_eq!(limit().await.expect("it is well"), 1);
    book.reload(TWO).expect("a sound book");
    assert_eq!(limit().await.expect("it is well"), 2);
    assert_eq!(guard.breaker(), BreakerState::Closed { failures: 1 }, "what was counted counts on");

    let error = book.reload("version: 1\ndependencies: { d: { kind: ntfyy } }\n").expect_err("no such kind");
    let said = error.to_string();
    assert!(said.starts_with("rule book has 1 error\nrule book:2:28: error: "), "{said}");
    assert!(said.contains("did you mean `ntfy`?"), "{said}");
    assert_eq!(format!("{error:?}"), said, "a `main` that returns it prints this");
    assert_eq!(limit().await.expect("it is well"), 2, "a wrong book changes nothing");

    book.reload("version: 1\ndependencies: { e: { kind: ntfy } }\n").expect("a sound book");
    assert_eq!(limit().await.expect("it is well"), 2, "the last rule holds on");
    let unknown = book.guard("d").map(drop);
    assert!(unknown.is_ok(), "there is a guard for it still");
    let unknown = book.guard("f").map(drop).expect_err("nobody has it").to_string();
    assert_eq!(unknown, "the rule book has no dependency `f`: did you mean `e`?");
    assert!(matches!(book.reload_file(), Err(BookError::NoFile)));
    assert!(matches!(book.watch(), Err(BookError::NoFile)));
}

#[tokio::test(start_paused = true)]
async fn a_book_that_changes_in_mid_call_rules_on_the_next_attempt() {
    let with = |retries: u32| {
        format!(
            "version: 1\nretry_policies: {{ p: {{ delays: [1s], retries: {retries}, jitter: none }} }}\n\
             dependencies: {{ d: {{ kind: webhook, breaker: none, retry: p }} }}\n"
        )
    };
    let book = Book::parse(&with(9)).expect("a sound book");
    let guard = book.guard("d").expect("the book has it");
    let attempts = Cell::new(0);
    let called = guard.call(|attempt| {
        attempts.set(attempt.number());
        if attempt.number() == 2 {
            book.reload(&with(3)).expect("a sound book");
        }
        async { Err::<(), _>(Oops::Refused) }
    });
    let error = called.await.expect_err("it is down");
    assert_eq!((attempts.get(), error.code.as_str()), (4, "MAX_RETRIES_EXCEEDED"), "earlier retries count");
    assert!(matches!(error.cause, Cause::Failed(Oops::Refused)));
}

#[tokio::test]
async fn a_file_is_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, ONE).expect("written");
    let book = Book::open(&path).expect("a sound book");
    let guard = book.guard("d").expect("the book has it");
    book.watch().expect("it has a file");
    let limit =
        || async { guard.call(|attempt| async move { Ok::<_, Oops>(attempt.limit().as_secs()) }).await };
    std::fs::write(&path, "version: one and a half\n").expect("written");
    assert!(book.reload_file().expect_err("no version").to_string().contains("rules.yaml:1:10: error"));
    assert_eq!(limit().await.expect("it is well"), 1);
    std::fs::write(&path, TWO).expect("written");
    let mut looks = 0;
    while limit().await.expect("it is well") == 1 {
        looks += 1;
        assert!(looks < 600, "the file is looked at every second");
        sleep(Duration::from_millis(50)).await;
    }
    let error = Book::open(folder.path().join("none.yaml")).map(drop).expect_err("no such file");
    assert!(matches!(error, BookError::Unreadable(_)));
    assert!(format!("{error:?}").contains("none.yaml: No such file"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn the_rule_of_a_row_guards_what_the_row_delivers() {
    let book = Book::parse(
        "version: 1\ndependencies: { d: { kind: webhook, timeout: 3s } }\nservices:\n  s:\n    \
         target: { http: \"http://127.0.0.1:9\" }\n    depends_on: d\n    events: [{ type: a.b, timeout: 7s }]\n",
    )
    .expect("a sound book");
    let limit = |guard: super::Guard| async move {
        guard
            .call(|attempt| async move { Ok::<_, Oops>(attempt.limit().as_secs()) })
            .await
            .expect("it is well")
    };
    assert_eq!(limit(book.guard_for("s", None, "a.b").expect("the row")).await, 7);
    assert_eq!(limit(book.guard("d").expect("the dependency")).await, 3);
    let unknown = book.guard_for("s", Some("mail"), "a.b").map(drop).expect_err("no channel").to_string();
    assert_eq!(
        unknown,
        "the rule book has no rule for `a.b` of channel `mail` of service `s`: the service does not take such an \
         event there"
    );
}

/// Hears what is logged and asks the book for a guard each time, as one that sends alerts does.
struct Alerts {
    book: Book,
    heard: mpsc::Sender<String>,
}

impl tracing::Subscriber for Alerts {
    fn event(&self, event: &tracing::Event<'_>) {
        self.book.guard("alerts").expect("the book has it");
        // Who has given up waiting hears nothing.
        let _ = self.heard.send(event.metadata().level().to_string());
    }

    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn whoever_hears_of_a_new_book_may_use_it() {
    const WITH_D: &str = "version: 1\ndependencies: { alerts: { kind: ntfy }, d: { kind: ntfy } }\n";
    const WITHOUT_D: &str = "version: 1\ndependencies: { alerts: { kind: ntfy } }\n";
    let (heard, levels) = mpsc::channel();
    std::thread::spawn(move || {
        let book = Book::parse(WITH_D).expect("a sound book");
        let _guards = ["alerts", "d"].map(|name| book.guard(name).expect("the book has it"));
        // Once without a subscriber: another test that logs the same for the first time while a subscriber is made
        // would leave the line switched off for it.
        book.reload(WITHOUT_D).expect("a sound book");
        book.reload(WITH_D).expect("a sound book");
        let alerts = Alerts { book: book.clone(), heard };
        tracing::subscriber::with_default(alerts, || {
            book.reload(WITHOUT_D).expect("a sound book");
        });
    });
    for level in ["WARN", "INFO"] {
        let told = levels.recv_timeout(Duration::from_secs(60)).expect("nobody waits for itself");
        assert_eq!(told, level);
    }
}
