//! One node of Redrive: the store, the engine's runtime, and the built-in sources, targets, secrets and
//! archive.
//!
//! The server adds the API, the commands and the page. Decisions are made in [`redrive_core`]; process
//! supervision and caches are in [`redrive`].

#[cfg(unix)]
pub mod activity;
pub mod archive;
pub mod connectors;
mod credential;
mod jwks;
pub mod letters;
mod mail;
mod ntfy;
mod outage;
mod receiver;
pub mod runtime;
pub mod secret;
pub mod source;
pub mod store;
pub mod target;
pub mod tls;
pub mod token;
pub mod webhook;
