//! Dead letters as other systems read and write them: envelopes out, and three forms in.

pub mod envelope;
pub mod import;

pub use envelope::envelope;
