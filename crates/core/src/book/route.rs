//! Routing: finds subscribers by walking an event type through a tree of all patterns.
//!
//! Each segment of a pattern is one level of the tree, so a type only meets patterns that match so far, however
//! many services there are. Invariant: a service or channel gets an event once, by its most specific row, in
//! book order.

use std::cmp::Reverse;
use std::sync::Arc;

use super::model::{ChannelEntry, DeliveryOrder, EventRow, Sections, ServiceEntry};
use super::pattern::{EventPattern, Segment};
use super::resolve::{default_subscription, order_of};
use super::{RowRules, RuleBook, ServiceRules};
use crate::hash::Map;
use crate::ids::{DependencyName, ServiceName};
use crate::policy::rule::Rule;

/// A service or channel subscribed to an event.
#[derive(Clone, Copy, Debug)]
pub struct RouteMatch<'a> {
    pub service: &'a ServiceEntry,
    pub channel: Option<&'a ChannelEntry>,
    pub row: &'a EventRow,
    pub rule: &'a Arc<Rule>,
}

impl RouteMatch<'_> {
    #[must_use]
    pub fn subscription(&self) -> String {
        let stated = self.row.subscription.clone();
        stated.unwrap_or_else(|| default_subscription(&self.service.name, self.channel, self.row))
    }

    #[must_use]
    pub fn order(&self) -> DeliveryOrder {
        order_of(self.service).value
    }

    #[must_use]
    pub fn dependency(&self) -> &DependencyName {
        &self.rule.dependency
    }
}

impl RuleBook {
    /// All subscribers of an event type, in book order.
    #[must_use]
    pub fn route<'a>(&'a self, event_type: &str) -> Vec<RouteMatch<'a>> {
        let mut found = Vec::new();
        self.routes.collect(ROOT, Some(event_type), &mut found);
        found.sort_unstable_by_key(|claim| (claim.subscriber, Reverse(claim.specificity)));
        found.dedup_by_key(|claim| claim.subscriber);
        let route = |found: &'a IndexedClaim| {
            let service = &self.sections.services[found.subscriber.service];
            let channel = found.subscriber.channel.map(|channel| &service.channels[channel]);
            RouteMatch { service, channel, row: &found.claim.row, rule: &found.claim.rule }
        };
        found.into_iter().map(route).collect()
    }
}

/// All rows by the segments of their patterns.
#[derive(Clone, Debug)]
pub(super) struct RouteIndex {
    nodes: Vec<RouteNode>,
    claims: Vec<IndexedClaim>,
}

/// Half the size of a `usize`, since there are many.
type NodeIndex = u32;
type ClaimIndex = u32;

const ROOT: NodeIndex = 0;

/// The state after some segments.
#[derive(Clone, Debug, Default)]
struct RouteNode {
    words: Map<Box<str>, NodeIndex>,
    any_word: Option<NodeIndex>,
    /// Rows that match if the type ends here.
    ending: Vec<ClaimIndex>,
    /// Rows that match any further segments.
    going_on: Vec<ClaimIndex>,
}

#[derive(Clone, Debug)]
struct IndexedClaim {
    subscriber: RouteSubscriber,
    specificity: (usize, usize),
    claim: RowRules,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RouteSubscriber {
    service: usize,
    channel: Option<usize>,
}

impl RouteIndex {
    pub(super) fn new(sections: &Sections, services: &Map<ServiceName, ServiceRules>) -> Self {
        let mut index = Self { nodes: vec![RouteNode::default()], claims: Vec::new() };
        for (place, entry) in sections.services.iter().enumerate() {
            let rules = &services[&entry.name];
            let mut insert = |channel, claim: &RowRules| {
                index.insert(&claim.row.pattern.value, RouteSubscriber { service: place, channel }, claim);
            };
            rules.own.claims().for_each(|claim| insert(None, claim));
            for (channel, entry) in entry.channels.iter().enumerate() {
                rules.channels[&entry.name].claims().for_each(|claim| insert(Some(channel), claim));
            }
        }
        index
    }

    fn insert(&mut self, pattern: &EventPattern, subscriber: RouteSubscriber, claim: &RowRules) {
        let small = |count: usize| u32::try_from(count).expect("a book has a million values at most");
        let own = small(self.claims.len());
        self.claims.push(IndexedClaim {
            subscriber,
            specificity: pattern.specificity(),
            claim: claim.clone(),
        });
        let mut at = ROOT;
        for segment in pattern.segments() {
            let new = small(self.nodes.len());
            let node = &mut self.nodes[at as usize];
            at = match segment {
                Segment::Word(word) => match node.words.get(word) {
                    Some(known) => *known,
                    None => *node.words.entry(word.clone()).or_insert(new),
                },
                Segment::One => *node.any_word.get_or_insert(new),
                Segment::Rest => return node.going_on.push(own),
            };
            if at == new {
                self.nodes.push(RouteNode::default());
            }
        }
        self.nodes[at as usize].ending.push(own);
    }

    /// Adds the rows that match the rest of a type. No node is visited twice, and the walk is no deeper than a
    /// pattern.
    fn collect<'a>(&'a self, at: NodeIndex, left: Option<&str>, found: &mut Vec<&'a IndexedClaim>) {
        let node = &self.nodes[at as usize];
        let claims = |indexes: &'a [ClaimIndex]| indexes.iter().map(|index| &self.claims[*index as usize]);
        let Some(left) = left else {
            found.extend(claims(&node.ending));
            return;
        };
        let (word, left) = match left.split_once('.') {
            Some((word, left)) => (word, Some(left)),
            None => (left, None),
        };
        if !word.is_empty() {
            found.extend(claims(&node.going_on));
        }
        if let Some(next) = node.words.get(word) {
            self.collect(*next, left, found);
        }
        if let Some(next) = node.any_word {
            self.collect(next, left, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::book::connectors::built_in;
    use proptest::prelude::*;

    use super::*;
    use crate::book;

    fn read(text: &str) -> RuleBook {
        let reading = book::read(text, built_in());
        reading.book.unwrap_or_else(|| panic!("{text}\n{:#?}", reading.problems))
    }

    const BOOK: &str = "version: 1
dependencies: { disk: { kind: process } }
services:
  audit: { target: { log: stdout }, order: session, events: [\"*\"] }
  orders:
    target: { log: stdout }
    events: [{ type: shop.order.created, depends_on: disk }, { type: \"shop.order.*\", subscription: all-orders }, \"bank.*.failed\"]
    channels: { mail: { events: [shop.order.created, \"*.*.refunded\"] } }
  empty-handed: { target: { log: stdout }, events: [never] }
";

    #[test]
    fn events_go_to_all_who_want_them() {
        let book = read(BOOK);
        #[rustfmt::skip]
        let cases: [(&str, &str, &[&str]); 7] = [
            ("an exact row wins",              "shop.order.created",
                &["audit/* Session audit", "orders/shop.order.created None disk", "orders/mail/shop.order.created None orders"]),
            ("else the narrowest pattern",     "shop.order.packed",       &["audit/* Session audit", "all-orders None orders"]),
            ("a tail takes many segments",     "shop.order.a.b.c",        &["audit/* Session audit", "all-orders None orders"]),
            ("a star in the middle takes one", "bank.card.failed",        &["audit/* Session audit", "orders/bank.*.failed None orders"]),
            ("two stars",                      "bank.card.refunded",      &["audit/* Session audit", "orders/mail/*.*.refunded None orders"]),
            ("a beginning is not enough",      "shop.order",              &["audit/* Session audit"]),
            ("what is no type",                "",                        &[]),
        ];
        for (name, event_type, expected) in cases {
            let shown: Vec<String> = book
                .route(event_type)
                .iter()
                .map(|route| format!("{} {:?} {}", route.subscription(), route.order(), route.dependency()))
                .collect();
            assert_eq!(shown, expected, "{name}");
        }
    }

    fn patterns() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("([ab*]\\.){0,3}[ab*]", 1..6)
    }

    /// The patterns that can stand beside those before them: the book refuses those that cross.
    fn sound(patterns: Vec<String>) -> String {
        let mut kept: Vec<EventPattern> = Vec::new();
        for pattern in patterns {
            use super::super::pattern::Relation::{Ambiguous, Apart, Narrower, Same, Wider};
            let pattern = EventPattern::parse(&pattern).expect("made of words and stars");
            let fits = kept.iter().all(|earlier| match pattern.relation(earlier) {
                Same | Ambiguous => false,
                Narrower | Wider | Apart => true,
            });
            if fits {
                kept.push(pattern);
            }
        }
        kept.iter().map(|pattern| format!("\"{pattern}\"")).collect::<Vec<_>>().join(", ")
    }

    proptest! {
        #[test]
        fn the_tree_agrees_with_asking_everyone(
            services in prop::collection::vec((patterns(), prop::option::of(patterns())), 1..5),
            types in prop::collection::vec("([ab]?\\.){0,4}[abc]?", 1..20),
        ) {
            let mut text = "version: 1\nservices:\n".to_owned();
            for (index, (own, channel)) in services.into_iter().enumerate() {
                let channel = channel.map(|rows| format!(", channels: {{ c: {{ events: [{}] }} }}", sound(rows)));
                text.push_str(&format!(
                    "  s{index}: {{ target: {{ log: stdout }}, events: [{}]{} }}\n",
                    sound(own), channel.unwrap_or_default()
                ));
            }
            let book = read(&text);
            for event_type in types {
                let asked = book.subscribers(&event_type);
                let asked: Vec<_> = asked.iter().map(|subscriber| (subscriber.subscription(), &subscriber.rule)).collect();
                let found = book.route(&event_type);
                let found: Vec<_> = found.iter().map(|route| (route.subscription(), &**route.rule)).collect();
                prop_assert_eq!(found, asked, "{}\n{}", event_type, text);
            }
        }
    }
}
