//! Diagnoses for duplicate events.

use crate::doctor::change::{Patch, Step, place_of};
use crate::doctor::evidence::EvidenceChart;
use crate::doctor::proof::ProposedChange;
use crate::doctor::words::{counted, rounded_up};
use crate::doctor::{Diagnosis, Harm, DiagnosisCheck, DiagnosisSign};
use redrive_core::text::{show_duration, show_rounded};

pub(super) const DIAGNOSES: &[Diagnosis] = &[Diagnosis {
    code: "dedup-window-too-short",
    harm: Harm::High,
    summary: "events come again about when their ids are forgotten, and the next ones are delivered twice",
    explanation: "Senders and brokers send an event again when they are not sure that it arrived, and some do so \
                  much later. An event whose id is still remembered is recognised and dropped; one that comes \
                  after that is delivered a second time, and nobody can tell any more that it came before. \
                  These were recognised when their ids were about to be forgotten. Remember ids for longer than \
                  the latest copy took to come.",
    needs: "3 events that came twice while the server runs",
    look: DiagnosisCheck::Whole(window_too_short),
}];

fn window_too_short(chart: &EvidenceChart<'_>) -> Option<DiagnosisSign> {
    let intake = &chart.evidence.figures.as_ref()?.intake;
    let book = &chart.evidence.book;
    // The longest of all rows, and at least as long as delivered events are kept.
    let window = book.dedup_ttl_max().max(book.keep_delivered());
    let [longest, _, third] = intake.latest_copies.times();
    if third * 3 / 2 <= window {
        return None;
    }
    let wanted = rounded_up(longest * 3 / 2);
    let rule = book.sections().resolved().max_by_key(|rule| rule.idempotency.ttl.value);
    let change = rule.as_ref().map(|rule| {
        let mut place = place_of(rule, rule.idempotency.ttl.origin.level);
        place.push(Step::Key("idempotency".to_owned()));
        Patch::new().set(&place, "ttl", show_duration(wanted))
    });
    let stated = rule.and_then(|rule| rule.idempotency.ttl.origin.position());
    let (latest, remembered) = (show_rounded(longest), show_duration(window));
    Some(DiagnosisSign {
        title: "events come again about when their ids are forgotten".to_owned(),
        touched: intake.duplicates,
        evidence: vec![
            format!("{} came again and were recognised", counted(intake.duplicates, "event")),
            format!("the latest copy came after {latest}, and ids are remembered for {remembered}"),
        ],
        advice: format!("remember ids for {}", show_duration(wanted)),
        change: change.map(ProposedChange::unplayed),
        line: stated.map(|position| position.line),
        ..DiagnosisSign::default()
    })
}
