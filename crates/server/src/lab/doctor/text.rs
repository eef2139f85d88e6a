//! Doctor report: each finding with its harm, evidence, advice and rule-book change; says plainly if there is
//! none or too little data.

use std::fmt::Write as _;

use redrive_core::text::counted;
use redrive_core::time::Timestamp;
use redrive_lab::doctor::{ATTEMPTS_MIN, Diagnosis, DoctorFinding, DoctorReport, ExaminedScope, Harm, all};

use crate::terminal::moment::rough;
use crate::terminal::{plain, style, wrap};

const TOO_LITTLE_SHOWN_MAX: usize = 5;

/// Text lines are no longer than this, however wide the terminal is.
const WIDTH_MAX: usize = 100;

const INDENT: &str = "  ";

pub(crate) fn page(report: &DoctorReport, whence: &str, now: Timestamp, columns: usize) -> String {
    let width = columns.min(WIDTH_MAX);
    let mut out = format!("{}\n", style::bold(format!("redrive doctor at {}", plain(whence))));
    let _ = writeln!(out, "{}", style::dim(looked_at(&report.looked_at, now)));
    for finding in &report.findings {
        out.push('\n');
        out.push_str(&shown(finding, width));
    }
    out.push('\n');
    out.push_str(&together(report));
    out.push_str(&summary(report));
    out
}

fn together(report: &DoctorReport) -> String {
    let several = report.findings.iter().filter(|finding| finding.change.is_some()).count() > 1;
    let Some(change) = report.change.as_ref().filter(|_| several) else { return String::new() };
    let mut out = format!("{}\n", style::bold("All changes in one:"));
    out.push_str(&added(change));
    out.push('\n');
    out
}

fn added(change: &str) -> String {
    let line = |line| format!("{INDENT}  {}\n", style::good(format!("+ {}", plain(line))));
    change.lines().map(line).collect()
}

fn looked_at(looked_at: &ExaminedScope, now: Timestamp) -> String {
    let ExaminedScope { deliveries, attempts, since } = looked_at;
    let Some(since) = since else { return "no deliveries".to_owned() };
    let (deliveries, attempts) = (counted(*deliveries, "delivery"), counted(*attempts, "attempt"));
    format!("examined {deliveries} of the last {} with {attempts}", rough(now.since(*since)))
}

fn badge(harm: Harm) -> String {
    let word = harm.as_str().to_uppercase();
    match harm {
        Harm::Critical | Harm::High => style::error(word),
        Harm::Medium => style::warning(word),
        Harm::Low => style::info(word),
    }
}

fn shown(finding: &DoctorFinding, width: usize) -> String {
    let (title, code) = (style::bold(plain(&finding.title)), style::dim(plain(&finding.code)));
    let mut out = format!("{}  {title}  {code}\n", badge(finding.harm));
    for line in &finding.evidence {
        out.push_str(&paragraph(&format!("{INDENT}• "), &plain(line), width));
    }
    let advice = paragraph(&format!("{INDENT}→ "), &plain(&finding.advice), width);
    out.push_str(&advice);
    if let Some(gain) = &finding.gain {
        let line = format!("simulated with the change: {}", plain(&gain.words));
        out.push_str(&paragraph(&format!("{INDENT}  "), &line, width));
    }
    if let Some(change) = &finding.change {
        let place = match finding.line {
            Some(line) => format!("rule-book change, instead of line {line}:"),
            None => "rule-book change:".to_owned(),
        };
        let _ = writeln!(out, "{INDENT}  {}", style::dim(place));
        out.push_str(&added(change));
    } else if let Some(line) = finding.line {
        let _ = writeln!(out, "{INDENT}  {}", style::dim(format!("line {line} of the rule book")));
    }
    out
}

fn paragraph(mark: &str, text: &str, width: usize) -> String {
    let indent = mark.chars().count();
    let lines = wrap(text, width.saturating_sub(indent));
    let mut out = String::new();
    for (place, line) in lines.lines().enumerate() {
        let before = if place == 0 { mark.to_owned() } else { " ".repeat(indent) };
        let _ = writeln!(out, "{before}{line}");
    }
    out
}

fn summary(report: &DoctorReport) -> String {
    let mut out = String::new();
    let of_harm = |harm| report.findings.iter().filter(|finding| finding.harm == harm).count();
    let parts = Harm::ALL.into_iter().map(|harm| (harm, of_harm(harm))).filter(|(_, count)| *count > 0);
    let parts: Vec<String> = parts.map(|(harm, count)| format!("{count} {harm}")).collect();
    if parts.is_empty() && report.looked_at.attempts == 0 {
        let _ = writeln!(out, "{} no attempts yet", style::info("?"));
    } else if parts.is_empty() {
        let deliveries = counted(report.looked_at.deliveries, "delivery");
        let _ = writeln!(out, "{} no problems found in the last {deliveries}", style::good("✓"));
    } else {
        let findings = counted(report.findings.len() as u64, "finding");
        let _ = writeln!(out, "{} {findings}: {}", style::error("✗"), parts.join(", "));
        let more = format!("details: `redrive doctor --explain {}`", plain(&report.findings[0].code));
        let _ = writeln!(out, "{}", style::dim(more));
    }
    for few in report.too_little.iter().take(TOO_LITTLE_SHOWN_MAX) {
        let attempts = counted(few.attempts, "attempt");
        let line = format!(
            "too few attempts to judge `{}` for `{}`: {attempts} of at least {ATTEMPTS_MIN}",
            plain(&few.service),
            plain(&few.events)
        );
        let _ = writeln!(out, "{} {}", style::info("?"), style::dim(line));
    }
    if let Some(more) = report.too_little.len().checked_sub(TOO_LITTLE_SHOWN_MAX).filter(|more| *more > 0) {
        let line = format!("and {}", counted(more as u64, "more row"));
        let _ = writeln!(out, "{}", style::dim(line));
    }
    out
}

pub(crate) fn list() -> String {
    let width = all().map(|diagnosis| diagnosis.code.len()).max().unwrap_or(0);
    let line = |diagnosis: &Diagnosis| {
        format!("{:width$}  {:8}  {}\n", diagnosis.code, diagnosis.harm.as_str(), diagnosis.summary)
    };
    all().map(line).collect()
}

pub(crate) fn explained(diagnosis: &Diagnosis) -> String {
    let Diagnosis { code, harm, summary, explanation, needs, .. } = diagnosis;
    format!(
        "{} {}: {summary}\n\n{}\n\n{}\n",
        badge(*harm),
        style::bold(code),
        wrap(explanation, 80),
        style::dim(format!("Needs {needs}."))
    )
}
