//! All integration tests of the server in one binary: it links once, and helpers are shared.

mod check;
mod client;
mod completions;
mod dapr;
mod durable;
mod examples;
mod hostile;
mod init;
mod kill;
mod matrix;
mod reference;
mod rules;
mod run;
mod schema;
mod serve;
mod server;
mod sink;
mod target;
mod tidy;
mod timeline;
mod try_out;
