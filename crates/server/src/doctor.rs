//! Gathers what the doctor looks at, from a running server or from a data folder, in reads that are bounded.

pub(crate) mod gather;
