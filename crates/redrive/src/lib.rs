//! Redrive as a library: the same rules around any call.
//!
//! The deciding lives in [`core`]; this crate adds what touches the world.

#[cfg(all(unix, feature = "node"))]
pub mod archive;
pub mod cache;
pub mod clock;
#[cfg(feature = "embedded")]
pub mod embedded;
pub mod guard;
#[cfg(feature = "node")]
pub mod happening;
#[cfg(feature = "node")]
pub mod hook;
#[cfg(feature = "node")]
mod jwks;
#[cfg(feature = "node")]
pub mod letter;
pub mod load;
#[cfg(feature = "node")]
pub mod node;
pub mod once;
#[cfg(feature = "embedded")]
pub mod outbox;
#[cfg(feature = "embedded")]
mod private;
#[cfg(feature = "node")]
mod receiver;
#[cfg(feature = "node")]
pub mod secret;
pub mod shared;
pub mod stale;
#[cfg(feature = "node")]
pub mod store;
#[cfg(feature = "node")]
pub mod target;
#[cfg(feature = "node")]
pub mod tls;
#[cfg(feature = "node")]
pub mod token;
pub mod transition;

pub use guard::{Attempt, Book, CallError, Cause, Classify, Guard};
pub use redrive_core as core;

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
