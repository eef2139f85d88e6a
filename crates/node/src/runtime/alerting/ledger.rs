//! The state of all alerts, the notices still to be sent, and the recent ones.
//!
//! Invariant: the memo holds both the alert state and the notices that follow from it, so neither is restored
//! without the other.

use std::collections::VecDeque;
use std::sync::Arc;

use redrive_core::alerts::notice::{AlertNotice, AlertStage};
use redrive_core::alerts::{AlertView, AlertWatch, SampleNeeds, SavedAlerts};
use redrive_core::book::RuleBook;
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::sampler::SampledFigures;
use super::{AlertsView, is_firing};

const RECENT_MAX: usize = 50;

/// A notice that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SentNotice {
    /// When it was sent.
    pub at: Timestamp,
    /// The alert.
    pub alert: String,
    /// Firing, repeated or resolved.
    pub stage: AlertStage,
    /// The alert's severity.
    pub severity: String,
    /// One line of text.
    pub summary: String,
    /// Receivers.
    pub to: Vec<String>,
}

pub(super) struct AlertLedger {
    book: Arc<RuleBook>,
    watch: AlertWatch,
    /// Notices to be sent, oldest first.
    owed: VecDeque<AlertNotice>,
    /// Latest first.
    recent: VecDeque<SentNotice>,
    looked_at: Option<Timestamp>,
    written: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct AlertMemo {
    watch: SavedAlerts,
    #[serde(default)]
    owed: VecDeque<AlertNotice>,
    #[serde(default)]
    recent: VecDeque<SentNotice>,
}

impl AlertLedger {
    /// Restores what an earlier run stored, as far as the book still has it.
    pub(super) fn new(book: Arc<RuleBook>, memo: Option<&str>, now: Timestamp) -> Self {
        let mut watch = AlertWatch::new(&book, now);
        let written = memo.map(str::to_owned);
        let memo = memo.and_then(|text| match serde_json::from_str::<AlertMemo>(text) {
            Ok(memo) => Some(memo),
            Err(error) => {
                tracing::warn!(%error, "stored alert state is invalid, starting empty");
                None
            }
        });
        let AlertMemo { watch: saved, owed, recent } = memo.unwrap_or_default();
        watch.restore(saved);
        Self { book, watch, owed, recent, looked_at: None, written }
    }

    pub(super) fn change(&mut self, book: Arc<RuleBook>) {
        self.watch.change(&book);
        self.book = book;
    }

    /// Whether there is nothing to evaluate and nothing to send.
    pub(super) fn is_idle(&self) -> bool {
        self.owed.is_empty() && self.watch.save() == SavedAlerts::default()
    }

    pub(super) fn wants(&self) -> SampleNeeds {
        self.watch.needs()
    }

    pub(super) fn look(&mut self, seen: &SampledFigures) {
        self.looked_at = Some(seen.at);
        for notice in self.watch.evaluate(&seen.sample(&self.book)) {
            self.remember(&notice);
            self.owed.push_back(notice);
        }
    }

    pub(super) fn pending(&self) -> Option<&AlertNotice> {
        self.owed.front()
    }

    pub(super) fn sent(&mut self) {
        self.owed.pop_front();
    }

    /// The memo to store; none if it is unchanged.
    pub(super) fn memo(&self) -> Option<String> {
        let memo =
            AlertMemo { watch: self.watch.save(), owed: self.owed.clone(), recent: self.recent.clone() };
        let memo = serde_json::to_string(&memo).expect("texts and numbers");
        (self.written.as_ref() != Some(&memo)).then_some(memo)
    }

    pub(super) fn written(&mut self, memo: String) {
        self.written = Some(memo);
    }

    pub(super) fn firing(&self) -> Vec<AlertView> {
        self.watch.views().into_iter().filter(is_firing).collect()
    }

    pub(super) fn view(&self) -> AlertsView {
        AlertsView {
            looked_at: self.looked_at,
            alerts: self.watch.views(),
            recent: self.recent.iter().cloned().collect(),
        }
    }

    /// Notices of one alert to several receivers are one entry.
    fn remember(&mut self, notice: &AlertNotice) {
        let AlertNotice { at, alert, stage, severity, summary, receiver, .. } = notice.clone();
        let same = self.recent.iter_mut().find(|told| {
            told.at == at && told.alert == alert && told.stage == stage && told.summary == summary
        });
        match same {
            Some(told) => told.to.push(receiver),
            None => {
                self.recent.push_front(SentNotice {
                    at,
                    alert,
                    stage,
                    severity,
                    summary,
                    to: vec![receiver],
                });
            }
        }
        self.recent.truncate(RECENT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use redrive_core::book::connectors::built_in;

    const BOOK: &str = r#"version: 1
services: { shop: { target: { log: stdout }, events: [a] } }
receivers:
  desk: { webhook: "http://127.0.0.1:1/" }
  pager: { ntfy: "http://127.0.0.1:1/pager" }
alerts: [{ use: dead-letters, to: [desk, pager], repeat: 10m }]
"#;

    fn book(text: &str) -> Arc<RuleBook> {
        Arc::new(redrive_core::book::read(text, built_in()).book.expect("a book"))
    }

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(1_761_057_000_000) + Duration::from_secs(secs)
    }

    fn ids(ledger: &AlertLedger) -> Vec<String> {
        ledger.owed.iter().map(AlertNotice::id).collect()
    }

    #[test]
    fn what_was_found_and_not_said_is_said_by_the_next_run_and_not_found_again() {
        let mut first = AlertLedger::new(book(BOOK), None, at(0));
        first.look(&SampledFigures::of_letters(at(1), 0));
        assert_eq!(ids(&first).len(), 0, "nothing is wrong yet");
        first.look(&SampledFigures::of_letters(at(2), 3));
        assert_eq!(ids(&first).len(), 2, "both are told");
        let memo = first.memo().expect("something has changed");
        let mut second = AlertLedger::new(book(BOOK), Some(&memo), at(10));
        assert_eq!(ids(&second), ids(&first), "under the same ids");
        while second.pending().is_some() {
            second.sent();
        }
        second.look(&SampledFigures::of_letters(at(11), 3));
        assert_eq!(ids(&second).len(), 0, "they know already");
        second.look(&SampledFigures::of_letters(at(700), 3));
        let stages: Vec<AlertStage> = second.owed.iter().map(|notice| notice.stage).collect();
        assert_eq!(stages, [AlertStage::Repeated, AlertStage::Repeated]);
    }

    #[test]
    fn one_alert_is_one_entry_of_what_was_said() {
        let mut ledger = AlertLedger::new(book(BOOK), None, at(0));
        ledger.look(&SampledFigures::of_letters(at(1), 3));
        let view = ledger.view();
        assert_eq!(view.recent.len(), 1);
        assert_eq!(view.recent[0].to, ["desk", "pager"]);
        assert_eq!((view.looked_at, ledger.firing().len()), (Some(at(1)), 1));
    }

    #[test]
    fn what_is_remembered_is_not_written_twice() {
        let mut ledger = AlertLedger::new(book(BOOK), None, at(0));
        let memo = ledger.memo().expect("nothing is written yet");
        ledger.written(memo);
        assert_eq!(ledger.memo(), None);
    }

    #[test]
    fn a_book_without_alerts_is_left_alone_and_a_memo_that_is_none_too() {
        let quiet = "version: 1\nservices: { shop: { target: { log: stdout }, events: [a] } }\n";
        assert!(AlertLedger::new(book(quiet), None, at(0)).is_idle());
        assert!(AlertLedger::new(book(quiet), Some("{ nonsense"), at(0)).is_idle());
        assert!(!AlertLedger::new(book(BOOK), None, at(0)).is_idle());
    }
}
