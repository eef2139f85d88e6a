//! The `log` target: prints one line for each event, for first steps and for looking on.
//!
//! A thread of its own does the writing, so that a reader who stops reading holds up nothing else; calls
//! then end at their limit like those of any other target. What an event says is shown harmless: a line
//! stays a line, and no terminal takes orders from it.

use std::fmt::Write as _;
use std::future::Future;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;

use redrive_core::answer::{BrokerError, CallPart, Reply, Seen, TransportError};
use redrive_core::engine::{Call, Ending, Waiting};
use redrive_core::limits::DURATION_MAX;
use redrive_core::text::show_duration;
use redrive_core::time::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::Target;

/// The part of the data that a line shows, in characters.
const DATA_SHOWN_MAX: usize = 120;

/// The longest attribute that a line shows, in characters.
const ATTRIBUTE_SHOWN_MAX: usize = 80;

/// Calls that wait for the thread to write them.
const WAITING_MAX: usize = 64;

/// Prints events.
#[derive(Debug)]
pub struct LogTarget {
    lines: mpsc::Sender<Lines>,
}

struct Lines {
    text: String,
    written: oneshot::Sender<io::Result<()>>,
}

impl LogTarget {
    /// Prints to standard output.
    #[must_use]
    pub fn stdout() -> Self {
        Self::new(io::stdout())
    }

    /// Prints to anything; the thread that does it ends with the target.
    #[must_use]
    pub fn new(mut to: impl Write + Send + 'static) -> Self {
        let (lines, mut waiting) = mpsc::channel::<Lines>(WAITING_MAX);
        std::thread::spawn(move || {
            while let Some(Lines { text, written }) = waiting.blocking_recv() {
                let result = to.write_all(text.as_bytes()).and_then(|()| to.flush());
                // Nobody waits any more if the call's limit is over.
                let _ = written.send(result);
            }
        });
        Self { lines }
    }

    async fn print(&self, text: String) -> io::Result<()> {
        let (written, done) = oneshot::channel();
        let gone = || io::Error::other("the thread that prints has ended");
        self.lines.send(Lines { text, written }).await.map_err(|_| gone())?;
        done.await.map_err(|_| gone())?
    }
}

impl Target for LogTarget {
    fn call(&self, call: Arc<Call>) -> Pin<Box<dyn Future<Output = Ending> + Send + '_>> {
        Box::pin(async move {
            let text = call.deliveries.iter().map(|delivery| line(delivery, call.started_at)).collect();
            let limit = call.limit.min(DURATION_MAX);
            let (seen, message) = match timeout(limit, self.print(text)).await {
                Ok(Ok(())) => (Seen::Taken, "printed".to_owned()),
                Ok(Err(error)) => {
                    (Seen::Broker(BrokerError::Unavailable), format!("could not print the event: {error}"))
                }
                Err(_) => (
                    Seen::Transport(TransportError::Timeout(CallPart::Whole)),
                    format!("nobody read what was printed within {}", show_duration(limit)),
                ),
            };
            Ending::Reply(Reply { seen, message, retry_after: None })
        })
    }
}

/// `2025-10-21T14:30:00.25Z orders.placed e-1 session=customer-7 attempt=2 {"total":12}`
fn line(delivery: &Waiting, started_at: Timestamp) -> String {
    let event = &*delivery.event;
    let started_at = Timestamp::from_millis(started_at.as_millis());
    let mut line = format!("{started_at} {} ", event.event_type);
    show(&mut line, event.id.as_str(), ATTRIBUTE_SHOWN_MAX);
    if let Some(session) = &event.session {
        line.push_str(" session=");
        show(&mut line, session.as_str(), ATTRIBUTE_SHOWN_MAX);
    }
    let attempt = delivery.next_attempt().get();
    if attempt > 1 {
        write!(line, " attempt={attempt}").expect("a String takes all");
    }
    line.push(' ');
    match std::str::from_utf8(&event.data) {
        Ok("") => line.push_str("(no data)"),
        Ok(text) => show(&mut line, text, DATA_SHOWN_MAX),
        Err(_) => write!(line, "({} bytes)", event.data.len()).expect("a String takes all"),
    }
    line.push('\n');
    line
}

/// Adds the beginning of a text: white space becomes a space, other characters that are not to be seen are
/// written as escapes.
fn show(line: &mut String, text: &str, shown_max: usize) {
    let mut characters = text.trim().chars();
    for character in characters.by_ref().take(shown_max) {
        match character {
            '\n' | '\r' | '\t' => line.push(' '),
            // These turn the direction of a line, or hide in it.
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                line.extend(character.escape_unicode());
            }
            _ if character.is_control() => line.extend(character.escape_default()),
            _ => line.push(character),
        }
    }
    if characters.next().is_some() {
        line.push('…');
    }
}
