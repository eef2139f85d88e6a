//! The example with reqwest, run against its own server.

use redrive::Book;
use redrive::core::policy::category::Category;
use redrive::guard::Cause;

use self::reqwest_example::{RULES, busy_at_first, post};

#[path = "../examples/reqwest.rs"]
#[expect(dead_code, reason = "an example has a `main`")]
mod reqwest_example;

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

#[tokio::test]
async fn a_server_that_is_busy_at_first_gets_the_note_in_the_end() {
    let address = busy_at_first().await.expect("a port");
    let guard = Book::parse(RULES).expect("a book").guard("ntfy").expect("it is there");
    let answer = post(&client(), &guard, &address, "the disk is full").await.expect("the third goes well");
    assert_eq!(answer, "the note came");
}

#[tokio::test]
async fn nobody_at_the_address_is_told_with_all_that_is_known() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}/", listener.local_addr().expect("it has one"));
    drop(listener);
    let guard = Book::parse(RULES).expect("a book").guard("ntfy").expect("it is there");
    let error = post(&client(), &guard, &address, "anybody?").await.expect_err("nobody is there");
    assert_eq!((error.attempts, error.category), (4, Category::Transient));
    assert!(matches!(&error.cause, Cause::Failed(_)), "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
}
