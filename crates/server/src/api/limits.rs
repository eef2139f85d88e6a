//! Limits on callers: rate, failed logins, connections per address, loopback only, time to write.

pub(crate) mod connection;
pub(crate) mod failed_logins;
pub(crate) mod loopback_only;
pub(crate) mod per_address;
pub(crate) mod rate;
