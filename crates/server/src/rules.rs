//! The rule book: handlers, `check`, `rules`, `schema`, `timeline`, `try`, `init`.

pub(crate) mod check;
pub(crate) mod command;
pub(crate) mod file;
pub(crate) mod handlers;
pub(crate) mod init;
pub(crate) mod json;
pub(crate) mod schema;
mod text;
pub(crate) mod timeline;
pub(crate) mod trial;
