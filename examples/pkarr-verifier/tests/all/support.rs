//! What the tests share: the rule book in its own times and in short ones, a contact, and a scripted lookup.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pkarr::{Keypair, PublicKey, SignedPacket};
use pkarr_verifier::code::ErrorCode;
use pkarr_verifier::lookup::{Looking, Lookup, LookupError};
use pkarr_verifier::verify::{Contact, LIFETIMES, RECORD, Verifier};
use redrive::Book;
use redrive::core::freshness::Lifetimes;
use tokio::time::Instant;

/// The rule book of the service.
pub const RULES: &str = include_str!("../../rules.yaml");
pub const ADDRESS: &str = "alice@example.test";

/// The same book with times that a test can wait for.
pub fn quick_rules() -> String {
    changed(
        RULES,
        &[
            ("open: 30s", "open: 1s"),
            ("timeout: verification", "timeout: 300ms"),
            ("deadline: 10s", "deadline: 5s"),
            ("retry: relay", "retry: quick"),
            ("rate-limited: relay", "rate-limited: quick"),
            (
                "\ndependencies:",
                "\nretry_policies:\n  quick: { from: relay, initial: 10ms, max: 80ms }\n\ndependencies:",
            ),
        ],
    )
}

/// A book with other words in it.
pub fn changed(rules: &str, words: &[(&str, &str)]) -> String {
    words.iter().fold(rules.to_owned(), |rules, (own, other)| {
        assert!(rules.contains(own), "the book has {own}");
        rules.replace(own, other)
    })
}

/// What was found and what failed is looked up anew at once, and what was found is kept.
pub const QUICK_LIFETIMES: Lifetimes = Lifetimes {
    fresh: Duration::from_millis(100),
    kept: Duration::from_mins(1),
    failure: Duration::from_millis(100),
};

pub fn alice() -> Keypair {
    Keypair::from_secret_key(&[7; 32])
}

/// A contact whose record nobody has asked for yet.
pub fn someone() -> Keypair {
    Keypair::random()
}

pub fn contact(keys: &Keypair) -> Contact {
    Contact { public_key: keys.public_key().to_z32(), nip05: ADDRESS.to_owned() }
}

pub fn packet(keys: &Keypair) -> SignedPacket {
    packet_naming(keys, ADDRESS)
}

pub fn packet_naming(keys: &Keypair, address: &str) -> SignedPacket {
    let name = RECORD.try_into().expect("a name");
    let text = address.try_into().expect("a short text");
    SignedPacket::builder().txt(name, text, 300).sign(keys).expect("a small packet")
}

/// The verifier by its own book and in its own times.
pub fn verifier(lookup: Arc<dyn Lookup>) -> Verifier {
    verifier_by(RULES, lookup, LIFETIMES)
}

/// The verifier in short times, but for the breaker, which stays open, and for what is remembered.
pub fn quick_verifier(lookup: Arc<dyn Lookup>) -> Verifier {
    verifier_by(&changed(&quick_rules(), &[("open: 1s", "open: 10m")]), lookup, LIFETIMES)
}

pub fn verifier_by(rules: &str, lookup: Arc<dyn Lookup>, lifetimes: Lifetimes) -> Verifier {
    let book = Book::parse(rules).expect("a sound book");
    Verifier::new(&book, lookup, lifetimes).expect("the book has the relays")
}

/// How a lookup ends.
#[derive(Clone)]
pub enum Step {
    Found(SignedPacket),
    Fails(ErrorCode),
    Hangs,
}

/// Looks nothing up: each try ends as the script says, the last step again and again.
pub struct Script {
    steps: Mutex<VecDeque<Step>>,
    calls: Mutex<Vec<Instant>>,
}

impl Script {
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Arc<Self> {
        Arc::new(Self { steps: Mutex::new(steps.into_iter().collect()), calls: Mutex::default() })
    }

    /// What follows from now on.
    pub fn turn_to(&self, step: Step) {
        *self.steps.lock().expect("no panic") = VecDeque::from([step]);
    }

    /// When each try began.
    pub fn calls(&self) -> Vec<Instant> {
        self.calls.lock().expect("no panic").clone()
    }
}

impl Lookup for Script {
    fn lookup<'a>(&'a self, _key: &'a PublicKey, _attempt: u32) -> Looking<'a> {
        Box::pin(async move {
            self.calls.lock().expect("no panic").push(Instant::now());
            let step = {
                let mut steps = self.steps.lock().expect("no panic");
                let step = steps.front().expect("a script has a step").clone();
                if steps.len() > 1 {
                    steps.pop_front();
                }
                step
            };
            match step {
                Step::Found(packet) => Ok(packet),
                Step::Fails(code) => Err(LookupError::new(code, "as the script says")),
                Step::Hangs => std::future::pending().await,
            }
        })
    }
}
