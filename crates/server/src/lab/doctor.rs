//! The doctor: reads the record of a server or a data folder, reports problems and the rule-book change for each.

pub(crate) mod command;
mod evidence;
pub(crate) mod handlers;
mod text;
