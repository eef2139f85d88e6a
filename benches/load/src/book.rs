//! Rule books of the benchmark: numbered services, each with its event type and target behaviour.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use redrive_core::text::show_duration;

#[derive(Clone, Debug)]
pub(super) struct Service {
    pub name: String,
    pub event_type: String,
    pub manner: Manner,
    pub order: Order,
}

/// Target behaviour; the sink reads it from the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Takes,
    Slow,
    Hangs,
    /// Refuses everything until the sink is fixed.
    Breaks,
}

/// Whether deliveries keep the order of their session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    None,
    Session,
}

impl Service {
    pub(super) fn taking(number: u64, order: Order) -> Self {
        let (name, event_type) = (format!("s{number}"), format!("bench.s{number}"));
        Self { name, event_type, manner: Manner::Takes, order }
    }
}

/// Retention and deduplication window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keep(pub Duration);

#[derive(Clone, Debug)]
pub(super) struct Hook {
    pub source: String,
    pub secret: String,
}

pub(super) fn edges(hook: &Hook, secret: &Path, archive: &Path) -> String {
    let (source, secret, archive) = (&hook.source, secret.display(), archive.display());
    format!(
        "secrets:\n  hook: {{ file: \"{secret}\" }}\nsources:\n  {source}:\n    webhook: {{ scheme: github, secret: hook }}\n    \
         type: \"bench.{{header.x-github-event}}\"\narchive: {{ folder: \"{archive}\" }}\n"
    )
}

pub(super) fn text(sink: SocketAddr, services: &[Service], keep: Option<Keep>) -> String {
    let mut text = "version: 1\n".to_owned();
    if let Some(Keep(keep)) = keep {
        let keep = show_duration(keep);
        text +=
            &format!("defaults:\n  keep_delivered: {keep}\n  idempotency: {{ by: event-id, ttl: {keep} }}\n");
    }
    text += "services:\n";
    for Service { name, event_type, manner, order } in services {
        // Hangs for as long as it is measured.
        let (manner, timeout) = match manner {
            Manner::Takes => ("take", "10s"),
            Manner::Slow => ("slow", "10s"),
            Manner::Hangs => ("hang", "1h"),
            Manner::Breaks => ("break", "10s"),
        };
        let order = match order {
            Order::None => "none",
            Order::Session => "session",
        };
        text += &format!(
            "  {name}:\n    target: {{ http: \"http://{sink}/{manner}/{name}\" }}\n    timeout: {timeout}\n    \
             order: {order}\n    events: [{event_type}]\n"
        );
    }
    text
}

/// The body has the bytes of the event's data, so that the sink can read it.
pub(super) fn templates(sink: SocketAddr, service: &Service, token: &Path) -> String {
    let (Service { name, event_type, .. }, token) = (service, token.display());
    let field = |name: &str| format!("        {name}: \"{{{{ data.{name} }}}}\"\n");
    let body: String = ["at", "number", "lane", "session", "pad"].into_iter().map(field).collect();
    format!(
        "version: 1\nsecrets: {{ token: {{ file: \"{token}\" }} }}\nservices:\n  {name}:\n    target:\n      \
         http: \"http://{sink}/take\"\n      path: /{name}\n      query: {{ lane: \"{{{{ data.lane }}}}\" }}\n      \
         headers: {{ x-number: \"{{{{ data.number }}}}\" }}\n      auth: {{ bearer: token }}\n      body:\n{body}    \
         timeout: 10s\n    events: [{event_type}]\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::book::connectors::built_in;

    #[test]
    fn every_book_can_be_read() {
        let sink = SocketAddr::from(([127, 0, 0, 1], 9_000));
        let manners = [Manner::Takes, Manner::Slow, Manner::Hangs, Manner::Breaks];
        let services = [Order::None, Order::Session].into_iter().flat_map(|order| {
            manners.map(move |manner| Service {
                manner,
                ..Service::taking(manner as u64 * 2 + order as u64, order)
            })
        });
        let services: Vec<_> = services.collect();
        for keep in [None, Some(Keep(Duration::from_secs(5)))] {
            let reading = redrive_core::book::read(&text(sink, &services, keep), built_in());
            assert!(reading.book.is_some(), "{:?}", reading.problems);
        }
        let shaped = templates(sink, &Service::taking(0, Order::None), Path::new("a/token"));
        let reading = redrive_core::book::read(&shaped, built_in());
        assert!(reading.book.is_some(), "{:?}\n{shaped}", reading.problems);
        let hook = Hook { source: "bench".to_owned(), secret: "hunter2".to_owned() };
        let edges = edges(&hook, Path::new("a/secret"), Path::new("an/archive"));
        let reading = redrive_core::book::read(&(text(sink, &services, None) + &edges), built_in());
        assert!(reading.book.is_some(), "{:?}", reading.problems);
    }
}
