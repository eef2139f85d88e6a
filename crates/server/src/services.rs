//! Services: condition, pause and resume, services that the rule book no longer has.

pub(crate) mod condition;
pub(crate) mod handlers;
pub(crate) mod json;
pub(crate) mod name_check;
pub(crate) mod pause;
pub(crate) mod removed;
