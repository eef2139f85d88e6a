//! Diagnoses for duplicate events.

use crate::doctor::change::{Patch, PatchStep, place_of};
use crate::doctor::evidence::EvidenceChart;
use crate::doctor::proof::ProposedChange;
use crate::doctor::words::{counted, rounded_up};
use crate::doctor::{Diagnosis, DiagnosisCheck, DiagnosisSign, Harm};
use redrive_core::text::{show_duration, show_rounded};

pub(super) const DIAGNOSES: &[Diagnosis] = &[Diagnosis {
    code: "dedup-window-too-short",
    harm: Harm::High,
    summary: "duplicates arrive about when their ids are forgotten, so later ones are delivered twice",
    explanation: "Senders and brokers send an event again when they are not sure that it arrived, sometimes much \
                  later. A duplicate is dropped while its id is remembered; after that it is delivered a second \
                  time without being noticed. These duplicates arrived when their ids were about to be \
                  forgotten. Remember ids for longer than the latest duplicate took.",
    needs: "3 duplicate events while the server runs",
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
        place.push(PatchStep::Key("idempotency".to_owned()));
        Patch::new().set(&place, "ttl", show_duration(wanted))
    });
    let stated = rule.and_then(|rule| rule.idempotency.ttl.origin.position());
    let (latest, remembered) = (show_rounded(longest), show_duration(window));
    Some(DiagnosisSign {
        title: "duplicates arrive about when their ids are forgotten".to_owned(),
        touched: intake.duplicates,
        evidence: vec![
            format!("{} recognised", counted(intake.duplicates, "duplicate")),
            format!("latest duplicate after {latest}; ids are remembered for {remembered}"),
        ],
        advice: format!("remember ids for {}", show_duration(wanted)),
        change: change.map(ProposedChange::unplayed),
        line: stated.map(|position| position.line),
        ..DiagnosisSign::default()
    })
}
