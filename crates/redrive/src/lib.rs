//! Redrive as a library: the same rules around any call.
//!
//! The deciding lives in [`core`]; this crate adds what touches the world.

#[cfg(all(unix, feature = "node"))]
pub mod archive;
pub mod clock;
#[cfg(feature = "node")]
pub mod happening;
#[cfg(feature = "node")]
pub mod hook;
#[cfg(feature = "node")]
mod jwks;
#[cfg(feature = "node")]
pub mod letter;
#[cfg(feature = "node")]
pub mod load;
#[cfg(feature = "node")]
pub mod node;
#[cfg(all(unix, feature = "process"))]
pub mod process;
#[cfg(feature = "node")]
mod receiver;
#[cfg(feature = "node")]
pub mod secret;
pub mod stale;
#[cfg(feature = "node")]
pub mod store;
#[cfg(feature = "node")]
pub mod target;
#[cfg(feature = "node")]
pub mod tls;
#[cfg(feature = "node")]
pub mod token;

pub use redrive_core as core;
