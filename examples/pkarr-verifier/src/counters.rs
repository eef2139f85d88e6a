//! Counts what became of requests, and holds the counts against the alerts of the rule book.
//!
//! Invariant: nothing is counted by key or address; the codes are all that is kept of a request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use redrive::core::alerts::notice::AlertNotice;
use redrive::core::alerts::{AlertSample, AlertView, AlertWatch};
use redrive::core::book::RuleBook;
use redrive::core::engine::DependencyView;
use redrive::core::figures::{AttemptTally, DependencyFigures, Figures};
use redrive::core::ids::DependencyName;
use redrive::core::policy::category::Category;
use redrive::core::time::Timestamp;
use redrive::guard::BreakerState;
use serde::Serialize;

use crate::code::{ErrorCode, Kind};
use crate::verify::RELAYS;

/// What was counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorMetrics {
    /// Requests that were answered.
    pub total_requests: u64,
    /// Those of them that brought no verified contact, for whatever reason.
    pub total_errors: u64,
    /// Errors that may not come again.
    pub transient_errors: u64,
    /// Errors that come again.
    pub permanent_errors: u64,
    /// Requests with an error that was tried again, whatever came of it.
    pub retried_errors: u64,
    /// How often the breaker has opened.
    pub circuit_breaker_trips: u64,
    /// Errors by their code.
    pub errors_by_code: BTreeMap<ErrorCode, u64>,
}

/// How a request ended, to be counted.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Why it failed, if it did.
    pub error: Option<ErrorCode>,
    /// Whether more than one try was made for it.
    pub retried: bool,
}

impl ErrorMetrics {
    fn count(&mut self, Ended { error, retried }: Ended) {
        self.total_requests += 1;
        self.retried_errors += u64::from(retried);
        let Some(code) = error else { return };
        self.total_errors += 1;
        *self.errors_by_code.entry(code).or_default() += 1;
        match code.kind() {
            Kind::Transient => self.transient_errors += 1,
            Kind::Permanent => self.permanent_errors += 1,
            // Only what may heal is retried until the retries are spent.
            Kind::System if code == ErrorCode::MaxRetriesExceeded => self.transient_errors += 1,
            Kind::System => {}
        }
    }

    fn by_code(&self, code: ErrorCode) -> u64 {
        self.errors_by_code.get(&code).copied().unwrap_or_default()
    }

    /// The same in the words that alerts are held against: a request is what they call a delivery.
    fn tally(&self) -> AttemptTally {
        let mut failed = [0; Category::ALL.len()];
        failed[Category::Transient as usize] = self.transient_errors;
        failed[Category::Permanent as usize] = self.permanent_errors;
        failed[Category::Internal as usize] =
            self.total_errors - self.transient_errors - self.permanent_errors;
        AttemptTally {
            attempts: self.total_requests,
            failed,
            firsts: self.total_requests,
            retried: self.retried_errors,
            delivered: self.total_requests - self.total_errors,
            dead: self.total_errors,
            exhausted: self.by_code(ErrorCode::MaxRetriesExceeded),
            ..AttemptTally::default()
        }
    }
}

/// The counters of a service, shared by all its requests.
#[derive(Debug, Default)]
pub struct Counters(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    metrics: ErrorMetrics,
    /// Until when the breaker was open when it was last seen so: each trip has an end of its own.
    open_until: Option<Timestamp>,
}

impl Counters {
    /// Counts one request.
    pub fn count(&self, ended: Ended) {
        self.lock().metrics.count(ended);
    }

    /// Counts a trip of the breaker, if it is open and was not before.
    pub fn saw_breaker(&self, state: BreakerState) {
        let BreakerState::Open { until } = state else { return };
        let mut counted = self.lock();
        if counted.open_until.replace(until) != Some(until) {
            counted.metrics.circuit_breaker_trips += 1;
        }
    }

    /// The counts as they stand.
    #[must_use]
    pub fn metrics(&self) -> ErrorMetrics {
        self.lock().metrics.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().expect("nothing panics while it counts")
    }
}

/// The alerts of a rule book, held against the counts now and then.
#[derive(Debug)]
pub struct Monitor {
    book: Arc<RuleBook>,
    watch: AlertWatch,
}

impl Monitor {
    /// The alerts of that book; nothing has been counted yet.
    #[must_use]
    pub fn new(book: Arc<RuleBook>, now: Timestamp) -> Self {
        Self { watch: AlertWatch::new(&book, now), book }
    }

    /// Looks at the counts and says what somebody is to be told.
    pub fn look(&mut self, metrics: &ErrorMetrics, breaker: BreakerState, at: Timestamp) -> Vec<AlertNotice> {
        let relays = DependencyView {
            name: DependencyName::new(RELAYS).expect("a name as books have them"),
            breaker,
            failures: 0,
            not_closed_since: None,
            in_flight: 0,
            rate: None,
            held_until: None,
        };
        let mut figures = Figures::default();
        let of_relays = DependencyFigures {
            tally: metrics.tally(),
            trips: metrics.circuit_breaker_trips,
            ..DependencyFigures::default()
        };
        figures.dependencies.insert(relays.name.clone(), of_relays);
        self.watch.evaluate(&AlertSample {
            at,
            book: &self.book,
            figures: &figures,
            dependencies: &[relays],
            queues: &[],
            letters: None,
            incidents: &[],
            sources: &[],
        })
    }

    /// Every alert as it stands.
    #[must_use]
    pub fn views(&self) -> Vec<AlertView> {
        self.watch.views()
    }
}
