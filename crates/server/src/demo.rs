//! The demo: five small services, orders for them, and a story to follow.
//!
//! The services are real HTTP servers on loopback, the orders are events, and the rule book may be changed
//! while the demo runs. Only the broken and the working deploy of `invoicing` are a flag.

pub(crate) mod command;
pub(crate) mod handlers;
mod orders;
mod shops;
mod story;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redrive_core::engine::QueueName;
use redrive_core::ids::ServiceName;
use redrive_node::runtime::Node;
use serde::Serialize;
use utoipa::ToSchema;

use crate::demo::shops::Shops;
use crate::demo::story::{DemoFacts, DemoProgress, DemoStep};

const LOOK_EVERY: Duration = Duration::from_millis(500);

const BROKEN: &str = "invoicing";

/// Its rule book, with placeholders for the addresses of the services.
const BOOK: &str = include_str!("demo/book.yaml");

/// Clones are the same demo.
#[derive(Clone)]
pub(crate) struct Demo(Arc<DemoStage>);

struct DemoStage {
    shops: Shops,
    /// Whether the user has seen the cause.
    looked: AtomicBool,
}

/// A service of the demo.
#[derive(Serialize, ToSchema)]
pub(crate) struct DemoService {
    pub(crate) service: &'static str,
    /// Its behaviour.
    pub(crate) habit: &'static str,
    pub(crate) address: String,
}

impl Demo {
    pub(crate) async fn open() -> std::io::Result<Self> {
        Ok(Self(Arc::new(DemoStage { shops: Shops::open().await?, looked: AtomicBool::new(false) })))
    }

    pub(crate) fn book(&self) -> String {
        let mut book = BOOK.to_owned();
        for (name, address) in self.0.shops.addresses() {
            book = book.replace(&format!("{{{name}}}"), &address.to_string());
        }
        book
    }

    pub(crate) fn services(&self) -> Vec<DemoService> {
        self.0.shops.introduced()
    }

    pub(crate) fn begin(&self, node: &Node, print: impl Fn(&DemoStep) + Send + 'static) {
        tokio::spawn(orders::send(node.clone()));
        let (demo, node) = (self.clone(), node.clone());
        tokio::spawn(async move {
            let mut progress = DemoProgress::default();
            let mut look = tokio::time::interval(LOOK_EVERY);
            while !demo.0.shops.are_closed() {
                look.tick().await;
                progress.advance(demo.facts(&node).await.as_ref()).iter().for_each(&print);
            }
        });
    }

    /// Deploys the working or the broken release of `invoicing`, or marks the cause as seen; `None` for any
    /// other word.
    pub(crate) fn act(&self, word: &str) -> Option<()> {
        match word {
            "fix" => self.0.shops.repair(),
            "break" => {
                self.0.shops.break_again();
                self.0.looked.store(false, Ordering::Relaxed);
            }
            "look" => self.0.looked.store(true, Ordering::Relaxed),
            _ => return None,
        }
        Some(())
    }

    pub(crate) async fn steps(&self, node: &Node) -> Option<Vec<DemoStep>> {
        Some(story::steps(&self.facts(node).await?))
    }

    /// `None` while the store cannot be read.
    async fn facts(&self, node: &Node) -> Option<DemoFacts> {
        let service = ServiceName::new(BROKEN).expect("a short plain name");
        let queue = QueueName { service, channel: None };
        let counts = node.read(|reader| reader.counts()).await.ok()?;
        let fixed_at = self.0.shops.repaired_at();
        let replays = node.read(|reader| reader.replays(None, 1)).await.ok()?;
        let began_at = replays.first().map(|replay| replay.created_at);
        let on_their_way = replays.first().map_or(0, |replay| replay.tally.in_flight());
        Some(DemoFacts {
            letters: counts.queues.get(&queue).map_or(0, |queue| queue.dead) + on_their_way,
            looked: self.0.looked.load(Ordering::Relaxed),
            fixed: fixed_at.is_some(),
            replayed: fixed_at.is_some_and(|fixed_at| began_at.is_some_and(|began_at| began_at >= fixed_at)),
        })
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::book::connectors::built_in;
    use redrive_core::book::problem::ProblemSeverity;
    use redrive_lab::lint;

    use super::*;

    #[tokio::test]
    async fn the_book_of_the_demo_has_nothing_that_check_warns_of() {
        let demo = Demo::open().await.expect("five free ports");
        let book = demo.book();
        assert!(!book.contains("{payments}"), "every address is filled in");
        let problems = lint::check(book.as_bytes(), built_in()).problems;
        let grave: Vec<_> =
            problems.iter().filter(|problem| problem.severity != ProblemSeverity::Info).collect();
        assert!(grave.is_empty(), "{grave:?}");
    }
}
