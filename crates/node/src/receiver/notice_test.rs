//! A notice for the tests of receivers.

use redrive_core::alerts::notice::{AlertNotice, AlertStage, AlertSubject};
use redrive_core::time::Timestamp;

/// A notice of that stage about three things, of which two are named.
pub(super) fn notice(stage: AlertStage) -> AlertNotice {
    let since = Timestamp::from_millis(1_761_057_000_250);
    let subject = |of: &str, secs: u64| AlertSubject {
        of: of.to_owned(),
        value: "open".to_owned(),
        since: since + std::time::Duration::from_secs(secs),
    };
    AlertNotice {
        alert: "breaker-open".to_owned(),
        covers: None,
        severity: "critical".to_owned(),
        stage,
        receiver: "ops".to_owned(),
        since,
        at: since + std::time::Duration::from_secs(125),
        told_before: 0,
        summary: "breaker-open: dependency=mail-api is open, and 2 more".to_owned(),
        condition: "breaker_open for 2m by dependency".to_owned(),
        subjects: vec![subject("dependency=mail-api", 0), subject("dependency=crm", 60)],
        more: 1,
        ended: Vec::new(),
        action: Some("look after it".to_owned()),
    }
}
