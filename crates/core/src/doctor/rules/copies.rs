//! Diagnoses about events that come twice.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::doctor::change::{Change, Step, place_of};
use crate::doctor::evidence::{Chart, Member, SeenDelivery};
use crate::doctor::words::{counted, rounded_up};
use crate::doctor::{Diagnosis, Harm, Look, Sign};
use crate::text::{show_duration, show_rounded};

/// Events that must have come again too late to be recognised.
const COPIES_MIN: u64 = 3;

pub(super) const DIAGNOSES: &[Diagnosis] = &[Diagnosis {
    code: "dedup-window-too-short",
    harm: Harm::High,
    summary: "events come again after their ids were forgotten, and are delivered twice",
    explanation: "Senders and brokers send an event again when they are not sure that it arrived, and some do so \
                  much later. An event whose id is still remembered is recognised and dropped; these came after \
                  that and were delivered a second time. Remember ids for longer than the latest copy took to \
                  come.",
    needs: "3 events that came twice",
    look: Look::Row(window_too_short),
}];

fn window_too_short(_: &Chart<'_>, member: &Member<'_>) -> Option<Sign> {
    let mut by_event: BTreeMap<(&str, &str), Vec<&SeenDelivery>> = BTreeMap::new();
    for delivery in &member.deliveries {
        by_event.entry((&delivery.event_source, &delivery.event_id)).or_default().push(delivery);
    }
    let ttl = &member.rule.idempotency.ttl;
    let gaps: Vec<Duration> = by_event.values_mut().filter_map(|copies| late(copies, ttl.value)).collect();
    let (count, longest) = (gaps.len() as u64, gaps.iter().copied().max()?);
    if count < COPIES_MIN {
        return None;
    }
    let wanted = rounded_up(longest * 3 / 2);
    let mut place = place_of(&member.rule, ttl.origin.level);
    place.push(Step::Key("idempotency".to_owned()));
    Some(Sign {
        title: format!("`{}` gets events twice: their ids are forgotten too soon", member.queue),
        touched: count,
        evidence: vec![
            format!("{} came again and were delivered again", counted(count, "event")),
            format!(
                "the latest copy came after {}, and ids are remembered for {}",
                show_rounded(longest),
                show_duration(ttl.value)
            ),
        ],
        advice: format!("remember ids for {}", show_duration(wanted)),
        change: Some(Change::new().set(&place, "ttl", show_duration(wanted))),
        line: ttl.origin.position().map(|position| position.line),
        harm: None,
    })
}

/// How long after the one before it a copy came, if that was later than ids are remembered: what came sooner
/// and was taken all the same is no copy but another event, or a letter that was sent again.
fn late(copies: &mut [&SeenDelivery], ttl: Duration) -> Option<Duration> {
    copies.sort_by_key(|delivery| delivery.accepted_at);
    let pairs = copies.windows(2).filter(|pair| pair[0].receipt != pair[1].receipt);
    pairs.map(|pair| pair[1].accepted_at.since(pair[0].accepted_at)).filter(|gap| *gap > ttl).max()
}
