//! The command line of a run, and what answers of a runtime mean.

use super::client::{ContainerState, MemoryUse, end_of};
use super::record::ContainerRecord;
use super::*;
