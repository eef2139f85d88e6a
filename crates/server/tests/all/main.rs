//! All integration tests of the server in one binary: it links once, and helpers are shared.

mod answers;
mod archive;
mod bench;
mod check;
mod cli;
mod client;
mod completions;
mod correlation;
mod dapr;
mod described;
mod dlq;
mod durable;
mod examples;
mod guard;
mod hooks;
mod hostile;
mod identity;
mod init;
mod inside;
mod kill;
mod letters;
mod matrix;
mod metrics;
mod openapi;
mod operate;
mod prometheus_rules;
mod reference;
mod replay;
mod rules;
mod run;
mod schedules;
mod schema;
mod scripted;
mod serve;
mod server;
mod sink;
// Ctrl-C is a signal there, and one process may send it to another.
#[cfg(unix)]
mod tail;
mod target;
mod tidy;
mod timeline;
mod tls;
mod traces;
mod try_out;
