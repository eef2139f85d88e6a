//! The text of a notice, shared by all receivers: a subject line, and a few lines with severity, start,
//! subjects, condition and action.

use redrive_core::alerts::notice::{AlertNotice, AlertStage, AlertSubject};
use redrive_core::text::show_rounded;
use redrive_core::time::Timestamp;

/// `[critical] invoicing has 12 dead letters`
pub(super) fn subject_line(notice: &AlertNotice) -> String {
    let AlertNotice { severity, summary, .. } = notice;
    let stage = match notice.stage {
        AlertStage::Firing => severity.clone(),
        AlertStage::Repeated => format!("still {severity}"),
        AlertStage::Resolved => "resolved".to_owned(),
        AlertStage::Test => "test".to_owned(),
    };
    one_line(&format!("[{stage}] {summary}"))
}

pub(super) fn lines(notice: &AlertNotice) -> Vec<String> {
    let mut lines = vec![one_line(&notice.summary)];
    if notice.stage == AlertStage::Test {
        return lines;
    }
    let lasted = show_rounded(notice.at.since(notice.since));
    lines.push(match notice.stage {
        AlertStage::Resolved => format!("Resolved. Started {}, lasted {lasted}.", moment(notice.since)),
        AlertStage::Firing | AlertStage::Repeated | AlertStage::Test => {
            format!("Severity {}, since {} ({lasted}).", notice.severity, moment(notice.since))
        }
    });
    lines.extend(notice.subjects.iter().filter(|subject| !subject.of.is_empty()).map(subject));
    if notice.more > 0 {
        lines.push(format!("- and {} more", notice.more));
    }
    lines.push(format!("Condition: {}", one_line(&notice.condition)));
    if let Some(action) = notice.action.as_deref().filter(|_| notice.stage != AlertStage::Resolved) {
        lines.push(format!("What to do: {}", one_line(action)));
    }
    lines
}

fn subject(subject: &AlertSubject) -> String {
    let AlertSubject { of, value, since } = subject;
    // Resolved subjects have no value.
    if value.is_empty() {
        return one_line(&format!("- {of}"));
    }
    one_line(&format!("- {of}: {value}, since {}", moment(*since)))
}

fn moment(at: Timestamp) -> String {
    let whole = Timestamp::from_millis(at.as_millis() / 1_000 * 1_000);
    whole.to_string().replace('T', " ").replace('Z', " UTC")
}

/// Without line breaks and control characters: names come from senders.
pub(crate) fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::notice_test::notice;
    use super::*;

    #[test]
    fn a_notice_reads_like_a_short_letter() {
        #[rustfmt::skip]
        let cases = [
            (AlertStage::Firing,   "[critical] breaker-open: dependency=mail-api is open, and 2 more"),
            (AlertStage::Repeated, "[still critical] breaker-open: dependency=mail-api is open, and 2 more"),
            (AlertStage::Resolved, "[resolved] breaker-open: dependency=mail-api is open, and 2 more"),
            (AlertStage::Test,     "[test] breaker-open: dependency=mail-api is open, and 2 more"),
        ];
        for (stage, expected) in cases {
            assert_eq!(subject_line(&notice(stage)), expected);
        }
        insta::assert_snapshot!(lines(&notice(AlertStage::Firing)).join("\n"), @r"
        breaker-open: dependency=mail-api is open, and 2 more
        Severity critical, since 2025-10-21 14:30:00 UTC (2m5s).
        - dependency=mail-api: open, since 2025-10-21 14:30:00 UTC
        - dependency=crm: open, since 2025-10-21 14:31:00 UTC
        - and 1 more
        Condition: breaker_open for 2m by dependency
        What to do: look after it
        ");
        insta::assert_snapshot!(lines(&notice(AlertStage::Resolved))[1], @"Resolved. Started 2025-10-21 14:30:00 UTC, lasted 2m5s.");
    }

    #[test]
    fn names_of_others_break_no_line() {
        let mut odd = notice(AlertStage::Firing);
        odd.summary = "two\r\nBcc: all@example.test\tof\u{1b}[2J them".to_owned();
        odd.subjects[0].of = "event_type=a\nb".to_owned();
        assert_eq!(subject_line(&odd), "[critical] two Bcc: all@example.test of [2J them");
        assert!(lines(&odd).iter().all(|line| line.chars().all(|c| !c.is_control())));
    }
}
