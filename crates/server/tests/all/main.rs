//! All integration tests of the server in one binary: it links once, and helpers are shared.

mod addresses;
mod alerts;
mod answers;
mod archive;
mod auth;
mod backtest;
mod breakers;
mod check;
mod cli;
mod client;
mod completions;
mod connections;
mod contributing;
mod copies;
mod correlation;
mod dapr;
mod demo;
mod described;
mod dlq;
mod doctor;
mod durable;
mod earlier;
mod examples;
mod folder;
// One port for two sockets, one of which never listens.
#[cfg(target_os = "linux")]
mod foretold;
mod guard;
mod health;
mod hooks;
mod hostile;
mod http2;
mod identity;
mod imports;
mod inert;
mod init;
mod inside;
mod kill;
mod letters;
mod logs;
mod matrix;
mod metrics;
mod openapi;
mod operate;
mod packaging;
mod page;
mod plain_words;
mod prometheus_rules;
mod reference;
mod removed;
mod replay;
mod reported;
mod rules;
mod run;
mod schedules;
mod schema;
mod scripted;
mod seeing;
mod serve;
mod served_books;
mod server;
mod simulate;
mod simulate_books;
mod simulate_page;
mod simulate_progress;
mod sink;
mod sources;
mod status;
// Ctrl-C is a signal there, and one process may send it to another.
#[cfg(unix)]
mod tail;
mod target;
mod throttled;
mod tidy;
mod timeline;
mod tls;
mod traces;
mod try_out;
mod waits;
// Ctrl-C again.
#[cfg(unix)]
mod watch;
mod workers;
