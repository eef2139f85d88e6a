//! From what an examination found to what is shown: the same for the API, for programs and for people.

use redrive::core::doctor::{Examined, Finding, LookedAt, TooLittle};

use crate::api::shape::doctor::{DoctorFinding, DoctorLookedAt, DoctorReport, DoctorTooLittle};

/// Everything that was found.
pub(crate) fn report(examined: Examined) -> DoctorReport {
    let Examined { findings, looked_at, too_little } = examined;
    let LookedAt { deliveries, attempts, since } = looked_at;
    DoctorReport {
        looked_at: DoctorLookedAt { deliveries, attempts, since },
        findings: findings.into_iter().map(finding).collect(),
        too_little: too_little.into_iter().map(few).collect(),
    }
}

fn finding(finding: Finding) -> DoctorFinding {
    let Finding { code, harm, title, service, dependency, evidence, advice, change, line, touched } = finding;
    let code = code.to_owned();
    DoctorFinding { code, harm, title, service, dependency, evidence, advice, change, line, touched }
}

fn few(few: TooLittle) -> DoctorTooLittle {
    let TooLittle { service, events, attempts } = few;
    DoctorTooLittle { service, events, attempts }
}
