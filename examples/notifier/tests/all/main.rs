//! The notifier, tried with a push service that fails in every way, and with two processes on one folder.

mod batches;
mod figures;
mod processes;
mod push;
mod support;
