//! The stored record: backup, compaction, archive, audit.

pub(crate) mod archive;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod compact;
pub(crate) mod record;
