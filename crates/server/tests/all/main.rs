//! All integration tests of the server in one binary: it links once, and helpers are shared.

mod dapr;
mod tidy;
