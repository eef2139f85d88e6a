//! Redrive as a library: the same rules around any call.
//!
//! The deciding lives in [`core`]; this crate adds what touches the world.

#[cfg(unix)]
pub mod archive;
pub mod clock;
pub mod happening;
pub mod hook;
mod jwks;
pub mod letter;
pub mod load;
pub mod node;
mod receiver;
pub mod secret;
pub mod stale;
pub mod store;
pub mod target;
pub mod tls;
pub mod token;

pub use redrive_core as core;
