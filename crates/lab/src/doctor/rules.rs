//! All diagnoses, by what they examine.

mod breakers;
mod copies;
mod failing;
mod letters;
mod load;
mod queues;
mod retries;
mod targets;
pub(super) mod timeouts;

use super::Diagnosis;

pub(super) const FAMILIES: &[&[Diagnosis]] = &[
    targets::DIAGNOSES,
    failing::DIAGNOSES,
    timeouts::DIAGNOSES,
    retries::DIAGNOSES,
    breakers::DIAGNOSES,
    load::DIAGNOSES,
    queues::DIAGNOSES,
    letters::DIAGNOSES,
    copies::DIAGNOSES,
];

/// Whether it explains most other findings.
pub(super) fn is_cause(code: &str) -> bool {
    targets::DIAGNOSES.iter().any(|diagnosis| diagnosis.code == code)
}
