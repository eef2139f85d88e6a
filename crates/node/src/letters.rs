//! Dead letters in exchange formats: envelopes out, three forms in.

pub mod envelope;
pub mod import;

pub use envelope::envelope;
