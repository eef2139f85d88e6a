//! From what an examination found to what is shown: the same for the API, for programs and for people.

use redrive_lab::doctor::{Examined, Finding, Gain, LookedAt, TooLittle};

use crate::api::shape::doctor::{DoctorFinding, DoctorGain, DoctorLookedAt, DoctorReport, DoctorTooLittle};

/// Everything that was found.
pub(crate) fn report(examined: Examined) -> DoctorReport {
    let Examined { findings, change, looked_at, too_little } = examined;
    let LookedAt { deliveries, attempts, since } = looked_at;
    DoctorReport {
        looked_at: DoctorLookedAt { deliveries, attempts, since },
        findings: findings.into_iter().map(finding).collect(),
        change,
        too_little: too_little.into_iter().map(few).collect(),
    }
}

fn finding(finding: Finding) -> DoctorFinding {
    let Finding { code, harm, title, service, dependency, evidence, advice, change, gain, line, touched } =
        finding;
    let (code, gain) = (code.to_owned(), gain.map(gained));
    DoctorFinding { code, harm, title, service, dependency, evidence, advice, change, gain, line, touched }
}

fn gained(gain: Gain) -> DoctorGain {
    DoctorGain {
        words: gain.to_string(),
        figure: gain.figure().to_owned(),
        before: gain.before,
        after: gain.after,
        deliveries: gain.deliveries,
    }
}

fn few(few: TooLittle) -> DoctorTooLittle {
    let TooLittle { service, events, attempts } = few;
    DoctorTooLittle { service, events, attempts }
}
