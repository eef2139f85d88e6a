//! The demo: five small services with habits of their own, orders for them, and one story to follow.
//!
//! Everything is real: the services are HTTP servers on loopback, the orders are events, and what becomes
//! of them is decided by a rule book that anybody may change while the demo runs. Only the deploy that breaks
//! `invoicing`, and the one that mends it, are a flag.

mod orders;
mod shops;
mod story;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redrive_core::engine::QueueName;
use redrive_core::ids::ServiceName;
use redrive_node::runtime::Node;

use self::shops::Shops;
use self::story::Telling;
pub(crate) use self::story::{Facts, Step};

/// How often the story looks whether it has gone on.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The service that the story is about.
const BROKEN: &str = "invoicing";
/// Its rule book, with places for the addresses of the services.
const BOOK: &str = include_str!("demo/book.yaml");

/// A demo at work; clones are the same demo.
#[derive(Clone)]
pub(crate) struct Demo(Arc<Stage>);

struct Stage {
    shops: Shops,
    /// Whether somebody has looked at why letters are dead.
    looked: AtomicBool,
}

/// What somebody does in the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Deploys the release of `invoicing` that works.
    Mend,
    /// Deploys the one that does not.
    Break,
    /// Looks at why letters are dead.
    Look,
}

impl Act {
    /// The act of that name.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        match word {
            "mend" => Some(Self::Mend),
            "break" => Some(Self::Break),
            "look" => Some(Self::Look),
            _ => None,
        }
    }
}

/// A service as it is introduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Introduced {
    /// Its name in the rule book.
    pub(crate) name: &'static str,
    /// What it is like, in a few words.
    pub(crate) habit: &'static str,
    /// Where it is.
    pub(crate) address: SocketAddr,
}

impl Demo {
    /// Opens the services.
    pub(crate) async fn open() -> std::io::Result<Self> {
        Ok(Self(Arc::new(Stage { shops: Shops::open().await?, looked: AtomicBool::new(false) })))
    }

    /// The rule book that delivers to them.
    pub(crate) fn book(&self) -> String {
        let mut book = BOOK.to_owned();
        for (name, address) in self.0.shops.addresses() {
            book = book.replace(&format!("{{{name}}}"), &address.to_string());
        }
        book
    }

    /// The services.
    pub(crate) fn services(&self) -> Vec<Introduced> {
        self.0.shops.introduced()
    }

    /// Sends orders, and tells the story as it goes on, for as long as the node works.
    pub(crate) fn begin(&self, node: &Node, tell: impl Fn(&Step) + Send + 'static) {
        tokio::spawn(orders::send(node.clone()));
        let (demo, node) = (self.clone(), node.clone());
        tokio::spawn(async move {
            let mut telling = Telling::default();
            let mut look = tokio::time::interval(LOOK_EVERY);
            while !demo.0.shops.are_closed() {
                look.tick().await;
                telling.goes_on(demo.facts(&node).await.as_ref()).iter().for_each(&tell);
            }
        });
    }

    /// Does it.
    pub(crate) fn act(&self, act: Act) {
        match act {
            Act::Mend => self.0.shops.mend(),
            Act::Break => {
                self.0.shops.break_again();
                self.0.looked.store(false, Ordering::Relaxed);
            }
            Act::Look => self.0.looked.store(true, Ordering::Relaxed),
        }
    }

    /// Where the story stands.
    pub(crate) async fn steps(&self, node: &Node) -> Option<Vec<Step>> {
        Some(story::steps(&self.facts(node).await?))
    }

    /// What the story depends on; none while the store cannot be read.
    async fn facts(&self, node: &Node) -> Option<Facts> {
        let service = ServiceName::new(BROKEN).expect("a short plain name");
        let queue = QueueName { service, channel: None };
        let counts = node.read(|reader| reader.counts()).await.ok()?;
        let mended_at = self.0.shops.mended_at();
        let replays = node.read(|reader| reader.replays(None, 1)).await.ok()?;
        let began_at = replays.first().map(|replay| replay.created_at);
        let on_their_way = replays.first().map_or(0, |replay| replay.tally.in_flight());
        Some(Facts {
            letters: counts.queues.get(&queue).map_or(0, |queue| queue.dead) + on_their_way,
            looked: self.0.looked.load(Ordering::Relaxed),
            mended: mended_at.is_some(),
            replayed: mended_at
                .is_some_and(|mended_at| began_at.is_some_and(|began_at| began_at >= mended_at)),
        })
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::book::connectors::built_in;
    use redrive_core::book::problem::Severity;
    use redrive_lab::lint;

    use super::*;

    #[tokio::test]
    async fn the_book_of_the_demo_has_nothing_that_check_warns_of() {
        let demo = Demo::open().await.expect("five free ports");
        let book = demo.book();
        assert!(!book.contains("{payments}"), "every address is filled in");
        let problems = lint::check(book.as_bytes(), built_in()).problems;
        let grave: Vec<_> = problems.iter().filter(|problem| problem.severity != Severity::Info).collect();
        assert!(grave.is_empty(), "{grave:?}");
    }
}
