//! Guards calls of reqwest by a rule book: `cargo run --example reqwest --features reqwest [ADDRESS]`.
//!
//! Without an address it posts to a little server of its own, which is busy at first: the guard waits as long as
//! that asks for and tries again. What follows on which answer is in the book and not in the code.

use redrive::http::HttpError;
use redrive::http::reqwest::check;
use redrive::{Book, CallError, Guard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The rules of this program; most have them in a file: `Book::open("rules.yaml")`.
pub(crate) const RULES: &str = "
version: 1
retry_policies:
  quick: { delays: [100ms, 200ms, 400ms], retries: 3, jitter: none }
breakers:
  five: { trip: { consecutive: 5 }, open: 30s }
dependencies:
  ntfy:
    kind: ntfy
    retry: quick
    breaker: five
    # Their way to say that they had it before.
    classify: [{ status: 409, as: delivered, because: it is there already }]
";

/// Posts a note, and gives what was answered.
pub(crate) async fn post(
    client: &reqwest::Client,
    guard: &Guard,
    address: &str,
    note: &str,
) -> Result<String, CallError<HttpError<reqwest::Error>>> {
    let call = guard.call(|attempt| {
        // The same key for each attempt: who had the note already can say so.
        let key = attempt.idempotency_key().to_string();
        let request = client.post(address).header("idempotency-key", key).body(note.to_owned());
        async move {
            // An answer of 503 is no error of reqwest's: `check` makes it one, with the wait that it asks for.
            let response = check(request.send().await?).await?;
            Ok(response.text().await?)
        }
    });
    call.await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = match std::env::args().nth(1) {
        Some(address) => address,
        None => busy_at_first().await?,
    };
    let guard = Book::parse(RULES)?.guard("ntfy")?.wait_when_open();
    match post(&reqwest::Client::new(), &guard, &address, "the disk is full").await {
        Ok(answer) => println!("{answer}"),
        // An answer that the book takes for a success is here too, since it brings no value.
        Err(error) => println!("{error}"),
    }
    Ok(())
}

/// A server that is busy for two calls, and then takes what comes.
pub(crate) async fn busy_at_first() -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}/alerts", listener.local_addr()?);
    tokio::spawn(async move {
        for number in 1.. {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            let mut request = [0; 4_096];
            let _ = stream.read(&mut request).await;
            let answer = if number <= 2 {
                "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            } else {
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 13\r\n\r\nthe note came"
            };
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    Ok(address)
}
