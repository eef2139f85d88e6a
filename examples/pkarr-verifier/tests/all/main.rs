//! The verifier, tried in every way: codes, answers, times, counters, alerts, and relays that really go away.

mod answers;
mod network;
mod relays;
mod support;
mod times;
mod watching;
