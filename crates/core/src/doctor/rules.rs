//! The diagnoses, by what they look at.

mod breakers;
mod copies;
mod failing;
mod letters;
mod load;
mod queues;
mod retries;
mod timeouts;

use super::Diagnosis;

/// Every diagnosis.
pub(super) const FAMILIES: &[&[Diagnosis]] = &[
    failing::DIAGNOSES,
    timeouts::DIAGNOSES,
    retries::DIAGNOSES,
    breakers::DIAGNOSES,
    load::DIAGNOSES,
    queues::DIAGNOSES,
    letters::DIAGNOSES,
    copies::DIAGNOSES,
];
