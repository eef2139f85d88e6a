//! Draws the life of a server in a few words: a book with one service, and what became of its deliveries.

use std::sync::Arc;
use std::time::Duration;

use crate::doctor::{
    BreakerTurn, DependencyState, DoctorEvidence, ExaminedDelivery, ExaminedState, HeldLetter, LetterKind,
    QueueState, Unrouted,
};
use redrive_core::book::connectors::built_in;
use redrive_core::book::{self, RuleBook};
use redrive_core::engine::attempt_record::{
    AttemptEnd, AttemptRecord, BookPosition, HoldReason, RecordedRetry, RecordedVerdict, UsedTime,
};
use redrive_core::engine::{HeldQueue, QueueName};
use redrive_core::figures::{ConcurrencyFigures, Figures};
use redrive_core::ids::{Attempt, DependencyName, ServiceName};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::policy::breaker::BreakerPhase;
use redrive_core::policy::category::{Category, FailureCode, codes};
use redrive_core::text::parse_duration;
use redrive_core::time::Timestamp;

/// Far enough from the start of time for all that is drawn.
pub(super) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// Deliveries come so far apart, unless it is said otherwise.
const APART: Duration = Duration::from_secs(1);

/// The life of a server whose one service is called `mail`.
#[derive(Clone)]
pub(super) struct Sketch {
    text: String,
    book: Arc<RuleBook>,
    apart: Duration,
    deliveries: Vec<ExaminedDelivery>,
    figures: Figures,
    queue: QueueState,
    turns: Vec<BreakerTurn>,
    in_flight: u32,
    letters: Vec<LetterKind>,
    held: Vec<HeldLetter>,
    unrouted: Vec<Unrouted>,
}

impl Sketch {
    /// A book whose service says that, beside other sections.
    pub(super) fn new(sections: &str, service: &str) -> Self {
        Self::with(sections, "[a.b]", service)
    }

    /// A book whose service has these rows, and says that beside them.
    pub(super) fn of_rows(rows: &str, service: &str) -> Self {
        Self::with("", rows, service)
    }

    /// A book with other services before the usual one.
    pub(super) fn with_services(others: &str) -> Self {
        Self::of(&format!("services:\n{others}{}", mail("[a.b]", "")))
    }

    fn with(sections: &str, rows: &str, service: &str) -> Self {
        Self::of(&format!("{sections}services:\n{}", mail(rows, service)))
    }

    fn of(sections: &str) -> Self {
        let text = format!("version: 1\n{sections}");
        let reading = book::read(&text, built_in());
        let book = reading.book.unwrap_or_else(|| panic!("{text}\n{:#?}", reading.problems));
        let queue = QueueState {
            name: queue(),
            waiting: 0,
            behind: 0,
            without_rule: 0,
            dead: 0,
            oldest_waiting_at: None,
            held: None,
        };
        Self {
            text,
            book: Arc::new(book),
            apart: APART,
            deliveries: Vec::new(),
            figures: Figures::default(),
            queue,
            turns: Vec::new(),
            in_flight: 0,
            letters: Vec::new(),
            held: Vec::new(),
            unrouted: Vec::new(),
        }
    }

    /// The book's text.
    pub(super) fn book(&self) -> String {
        self.text.clone()
    }

    /// From now on deliveries come so far apart.
    pub(super) fn apart(mut self, apart: &str) -> Self {
        self.apart = span(apart);
        self
    }

    /// So many deliveries, each of which went like this: attempts such as `ok 20ms`, `503 10ms`,
    /// `timeout 3s` or `held`, then nothing, `dead CODE` or `waits`, all with spaces between.
    pub(super) fn deliveries(mut self, count: usize, words: &str) -> Self {
        for _ in 0..count {
            let delivery = self.delivery(words);
            for earlier in &mut self.deliveries {
                shift(earlier, self.apart);
            }
            self.deliveries.push(delivery);
        }
        self
    }

    fn delivery(&self, words: &str) -> ExaminedDelivery {
        let mut stories = Vec::new();
        let mut words = words.split_whitespace();
        let mut state = ExaminedState::Waiting;
        let mut wait = Duration::ZERO;
        let accepted_at = NOW - Duration::from_secs(1);
        while let Some(word) = words.next() {
            match word {
                "dead" => {
                    let code = FailureCode::reported(words.next().expect("a code"));
                    state = ExaminedState::Dead { at: NOW, code };
                }
                "waits" => state = ExaminedState::Waiting,
                "after" => wait = span(words.next().expect("a wait")),
                word => {
                    let took =
                        if word == "held" { Duration::ZERO } else { span(words.next().expect("a time")) };
                    let attempt =
                        stories.iter().filter(|story: &&AttemptRecord| story.is_attempt()).count() + 1;
                    let story =
                        self.story(word, took, u32::try_from(attempt).expect("few"), accepted_at + wait);
                    state = if word == "ok" { ExaminedState::Delivered } else { ExaminedState::Waiting };
                    stories.push(story);
                }
            }
        }
        let ends = matches!(state, ExaminedState::Dead { .. });
        if let (true, Some(last)) = (ends, stories.last_mut()) {
            last.verdict = RecordedVerdict::Dead {
                code: FailureCode::of(codes::MAX_RETRIES_EXCEEDED),
                tier: Tier::Dead,
            };
        }
        ExaminedDelivery { queue: queue(), event_type: "a.b".to_owned(), accepted_at, state, stories }
    }

    fn story(&self, word: &str, took: Duration, attempt: u32, started_at: Timestamp) -> AttemptRecord {
        let failed = |category, code: &'static str, status| AttemptEnd::Failed {
            category,
            code: FailureCode::of(code),
            status,
            message: format!("answered {word}"),
            response: String::new(),
        };
        let end = match word {
            "ok" => AttemptEnd::Delivered { status: Some(200), message: String::new() },
            "held" => AttemptEnd::Held { by: HoldReason::Breaker },
            "timeout" => failed(Category::Transient, codes::NETWORK_TIMEOUT, None),
            "refused" => failed(Category::Transient, codes::CONNECTION_REFUSED, None),
            "429" => failed(Category::RateLimited, codes::RATE_LIMITED, Some(429)),
            "422" => failed(Category::Permanent, codes::UNPROCESSABLE, Some(422)),
            "404" => failed(Category::Permanent, codes::NOT_FOUND, Some(404)),
            "404*" => failed(Category::Transient, codes::NOT_FOUND, Some(404)),
            "503" => failed(Category::Transient, codes::SERVICE_UNAVAILABLE, Some(503)),
            other => panic!("{other} is no attempt"),
        };
        let rule = self.book.explain("mail", None, "a.b").expect("the service takes it");
        let policy = rule.retry_policy();
        let used = UsedTime { used_nanos: 0, limit_nanos: None };
        let retry = policy.filter(|_| matches!(end, AttemptEnd::Failed { .. })).map(|policy| RecordedRetry {
            policy: policy.name.to_string(),
            by_policy: (attempt, policy.backoff.retries()),
            in_total: (attempt, policy.backoff.retries()),
            by_category: None,
            backoff_nanos: 0,
            retry_after_nanos: None,
            window: used,
            held: used,
            deadline: used,
        });
        AttemptRecord {
            attempt: Attempt::new(attempt).expect("from 1"),
            started_at,
            took_nanos: u64::try_from(took.as_nanos()).expect("short"),
            book: 0,
            verdict: match end {
                AttemptEnd::Delivered { .. } => RecordedVerdict::Delivered,
                AttemptEnd::Failed { .. } => RecordedVerdict::Retry { due_at: NOW },
                AttemptEnd::Held { .. } => RecordedVerdict::Hold { until: NOW },
            },
            end,
            classified_at: (word == "404*").then_some(BookPosition { line: 1, column: 1 }),
            reaction_at: None,
            retry,
            held_nanos: 0,
        }
    }

    /// So many events came again, so long after the first.
    pub(super) fn copies(mut self, count: u64, apart: &str) -> Self {
        let intake = &mut self.figures.intake;
        intake.duplicates += count;
        (0..count).for_each(|_| intake.latest_copies.add(span(apart)));
        self
    }

    /// What waits.
    pub(super) fn waiting(mut self, waiting: u64, behind: u64) -> Self {
        (self.queue.waiting, self.queue.behind) = (waiting, behind);
        self
    }

    /// Since when the oldest waits.
    pub(super) fn oldest(mut self, ago: &str) -> Self {
        self.queue.oldest_waiting_at = Some(NOW - span(ago));
        self
    }

    /// The service is paused.
    pub(super) fn paused(mut self, ago: &str) -> Self {
        self.queue.held = Some(HeldQueue::Paused { since: NOW - span(ago) });
        self
    }

    /// The service is not in the book any more.
    pub(super) fn removed(mut self) -> Self {
        self.queue.held = Some(HeldQueue::Removed);
        self
    }

    /// So many wait that no row takes.
    pub(super) fn without_rule(mut self, without_rule: u64) -> Self {
        self.queue.without_rule = without_rule;
        self
    }

    /// What the breaker did, the oldest first: `open`, `half`, `closed`, so far apart.
    pub(super) fn turns(mut self, apart: &str, phases: &[&str]) -> Self {
        let phase = |word: &str| match word {
            "open" => BreakerPhase::Open,
            "half" => BreakerPhase::HalfOpen,
            _ => BreakerPhase::Closed,
        };
        let mut from = self.turns.last().map_or(BreakerPhase::Closed, |turn| turn.to);
        for word in phases {
            self.turns.iter_mut().for_each(|turn| turn.at = turn.at - span(apart));
            self.turns.push(BreakerTurn { at: NOW, from, to: phase(word) });
            from = phase(word);
        }
        self
    }

    /// How calls went by how many were at once: range, calls, failed, each took.
    pub(super) fn beside(mut self, range: usize, calls: u64, failed: u64, took: &str) -> Self {
        let dependency = self.figures.dependencies.entry(dependency()).or_default();
        let micros = u64::try_from(span(took).as_micros()).expect("short");
        dependency.beside[range] = ConcurrencyFigures { calls, failed, took_micros: calls * micros };
        self
    }

    /// Calls under way now.
    pub(super) fn in_flight(mut self, calls: u32) -> Self {
        self.in_flight = calls;
        self
    }

    /// Dead letters of one cause.
    pub(super) fn letters(mut self, count: u64, cause: u64, first_ago: &str, tier: Tier) -> Self {
        self.queue.dead += count;
        self.letters.push(LetterKind {
            queue: queue(),
            event_type: "a.b".to_owned(),
            category: Category::Permanent,
            code: FailureCode::of(codes::UNPROCESSABLE),
            failure_code: FailureCode::of(codes::UNPROCESSABLE),
            tier,
            fingerprint: Fingerprint(cause),
            count,
            first_at: NOW - span(first_ago),
            last_at: NOW,
        });
        self
    }

    /// A dead letter that holds its session.
    pub(super) fn held(mut self, ago: &str, behind: u64) -> Self {
        let (session, letter) = ("customer-1".to_owned(), "0123".to_owned());
        self.held.push(HeldLetter { queue: queue(), session, letter, since: NOW - span(ago), behind });
        self
    }

    /// Events that nobody wants.
    pub(super) fn unrouted(mut self, event_type: &str, count: u64) -> Self {
        self.unrouted.push(Unrouted { event_type: event_type.to_owned(), count });
        self
    }

    pub(super) fn evidence(&self) -> DoctorEvidence {
        let state =
            DependencyState { name: dependency(), in_flight: self.in_flight, turns: self.turns.clone() };
        DoctorEvidence {
            now: NOW,
            book: Arc::clone(&self.book),
            text: Some(self.text.as_str().into()),
            figures: Some(Arc::new(self.figures.clone())),
            queues: vec![self.queue.clone()],
            dependencies: vec![state],
            deliveries: self.deliveries.clone(),
            letters: self.letters.clone(),
            held: self.held.clone(),
            unrouted: self.unrouted.clone(),
        }
    }
}

/// The service that all is about.
fn mail(rows: &str, says: &str) -> String {
    let says = says.lines().map(|line| format!("    {}\n", line.trim_start_matches("| ")));
    let says: String = says.collect();
    format!("  mail:\n    target: {{ http: \"http://127.0.0.1:9/\" }}\n    events: {rows}\n{says}")
}

fn shift(delivery: &mut ExaminedDelivery, by: Duration) {
    delivery.accepted_at = delivery.accepted_at - by;
    delivery.stories.iter_mut().for_each(|story| story.started_at = story.started_at - by);
    if let ExaminedState::Dead { at, .. } = &mut delivery.state {
        *at = *at - by;
    }
}

fn queue() -> QueueName {
    QueueName { service: ServiceName::new("mail").expect("a name"), channel: None }
}

fn dependency() -> DependencyName {
    DependencyName::new("mail").expect("a name")
}

fn span(text: &str) -> Duration {
    parse_duration(text).unwrap_or_else(|error| panic!("{error}"))
}
