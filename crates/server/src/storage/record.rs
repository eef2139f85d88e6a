//! A data folder that a command reads without a server.

use std::path::Path;

use redrive::clock::wall_clock;
use redrive_core::time::Timestamp;
use redrive_node::store::{self, StoreReader};

use crate::cli::CommandRefusal;

pub(crate) struct RecordFolder<'a> {
    pub(crate) path: &'a Path,
    pub(crate) reader: Box<dyn StoreReader>,
    pub(crate) now: Timestamp,
}

impl<'a> RecordFolder<'a> {
    pub(crate) fn open(path: &'a Path) -> Result<Self, CommandRefusal> {
        let reader = store::open_reader(path).map_err(CommandRefusal::of)?;
        Ok(Self { path, reader, now: wall_clock() })
    }
}
