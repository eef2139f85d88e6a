//! Keeps idle connections for the next call to the same host.
//!
//! Invariants: at most [`IDLE_MAX`] in all, and per host as many as its dependency has permits; none is kept
//! longer than [`IDLE_TIME_MAX`]; none that is known to be closed is handed out.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use redrive_core::trace::Sampler;
use rustls::client::ClientConfig;
use tokio::time::{Instant, sleep_until};

use super::address::HttpOrigin;
use super::connect::ConnectionSender;
use super::limits::{CALLED_WITHIN, IDLE_MAX, IDLE_TIME_MAX, JUST_USED, Reuse};
use super::oauth::TokenSources;
use super::resolve::Resolver;
use super::shared::SharedConnections;
use crate::tls::{Roots, client_config, offering_http2};

/// Connections, trusted roots and trace sampling of all HTTP targets.
pub struct Pool {
    roots: Roots,
    resolver: Resolver,
    config: OnceLock<TlsConfigs>,
    sampler: OnceLock<Sampler>,
    idle: Mutex<Idle>,
    tokens: TokenSources,
    shared: SharedConnections,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("idle", &self.idle).finish_non_exhaustive()
    }
}

pub(super) struct TlsConfigs {
    /// Offers HTTP/1.1 only.
    pub(super) http1: Arc<ClientConfig>,
    /// Prefers HTTP/2.
    pub(super) http2: Arc<ClientConfig>,
}

#[derive(Debug, Default)]
struct Idle {
    /// The newest is last; no list is empty.
    by_origin: BTreeMap<Arc<HttpOrigin>, Vec<IdleConnection>>,
    count: usize,
    sweeper: Sweeper,
}

#[derive(Debug)]
struct IdleConnection {
    sender: ConnectionSender,
    since: Instant,
}

impl IdleConnection {
    /// Until when a request that must not be sent twice may use it. If we were late to read a response, the
    /// connection is older to the other side, so the time of the last request counts too.
    fn expires_at(&self) -> Instant {
        (self.since + JUST_USED).min(self.sender.called_at + CALLED_WITHIN)
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Sweeper {
    #[default]
    Absent,
    Waits,
}

impl Pool {
    #[must_use]
    pub fn new(roots: Roots) -> Self {
        Self {
            roots,
            resolver: Resolver::default(),
            config: OnceLock::new(),
            sampler: OnceLock::new(),
            idle: Mutex::default(),
            tokens: TokenSources::default(),
            shared: SharedConnections::default(),
        }
    }

    /// From now on calls carry a trace context even for events without one. Only the first sampler counts.
    pub fn export_traces(&self, sampler: Sampler) {
        let _ = self.sampler.set(sampler);
    }

    /// None if traces are not exported.
    pub(in crate::target) fn sampler(&self) -> Option<Sampler> {
        self.sampler.get().copied()
    }

    #[cfg(test)]
    pub(super) fn resolving(self, list: fn(&str) -> Vec<std::net::IpAddr>) -> Self {
        Self { resolver: Resolver::Listed(list), ..self }
    }

    pub(super) const fn tokens(&self) -> &TokenSources {
        &self.tokens
    }

    pub(crate) const fn roots(&self) -> &Roots {
        &self.roots
    }

    pub(super) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    pub(super) const fn shared(&self) -> &SharedConnections {
        &self.shared
    }

    /// The first call reads the system's certificates, which takes some milliseconds.
    pub(super) fn tls(&self) -> &TlsConfigs {
        self.config.get_or_init(|| {
            let http1 = client_config(&self.roots);
            TlsConfigs { http2: offering_http2(&http1), http1 }
        })
    }

    pub(super) fn take(&self, origin: &HttpOrigin, reuse: Reuse) -> Option<ConnectionSender> {
        let mut idle = self.lock();
        loop {
            let newest = idle.by_origin.get(origin)?.last()?;
            let is_good = match reuse {
                Reuse::None => return None,
                Reuse::Any => true,
                Reuse::JustUsed => newest.expires_at() > Instant::now() && newest.sender.line.is_quiet(),
            };
            let is_usable = newest.sender.requests.is_ready() && newest.since.elapsed() < IDLE_TIME_MAX;
            if is_usable && !is_good {
                // Another call may use it.
                return None;
            }
            let resting = idle.remove(origin, PoolEnd::Newest)?;
            if is_usable {
                if reuse == Reuse::JustUsed {
                    // The write may be delayed.
                    resting.sender.line.arm(resting.expires_at());
                }
                return Some(resting.sender);
            }
        }
    }

    /// Where there are too many, the oldest goes.
    pub(super) fn put(
        self: &Arc<Self>,
        origin: &Arc<HttpOrigin>,
        sender: ConnectionSender,
        per_host_max: usize,
    ) {
        let mut idle = self.lock();
        let resting = idle.by_origin.entry(Arc::clone(origin)).or_default();
        resting.push(IdleConnection { sender, since: Instant::now() });
        let too_many = resting.len() > per_host_max;
        idle.count += 1;
        if too_many {
            idle.remove(origin, PoolEnd::Oldest);
        } else if idle.count > IDLE_MAX {
            let oldest = idle.oldest().map(|(origin, _)| Arc::clone(origin));
            idle.remove(&oldest.expect("there are more than none"), PoolEnd::Oldest);
        }
        if idle.sweeper == Sweeper::Absent {
            idle.sweeper = Sweeper::Waits;
            tokio::spawn(sweep(Arc::downgrade(self), Instant::now() + IDLE_TIME_MAX));
        }
    }

    fn swept(&self, now: Instant) -> Option<Instant> {
        let mut idle = self.lock();
        loop {
            let Some((origin, since)) = idle.oldest() else {
                idle.sweeper = Sweeper::Absent;
                return None;
            };
            if since + IDLE_TIME_MAX > now {
                return Some(since + IDLE_TIME_MAX);
            }
            let origin = Arc::clone(origin);
            idle.remove(&origin, PoolEnd::Oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().expect("lock is not poisoned")
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().count
    }

    #[cfg(test)]
    pub(super) fn ready_count(&self) -> usize {
        self.lock().by_origin.values().flatten().filter(|resting| resting.sender.requests.is_ready()).count()
    }
}

#[derive(Clone, Copy)]
enum PoolEnd {
    Newest,
    Oldest,
}

impl Idle {
    fn remove(&mut self, origin: &HttpOrigin, end: PoolEnd) -> Option<IdleConnection> {
        let resting = self.by_origin.get_mut(origin)?;
        let taken = match end {
            PoolEnd::Newest => resting.pop(),
            PoolEnd::Oldest => (!resting.is_empty()).then(|| resting.remove(0)),
        };
        if resting.is_empty() {
            self.by_origin.remove(origin);
        }
        self.count -= usize::from(taken.is_some());
        taken
    }

    fn oldest(&self) -> Option<(&Arc<HttpOrigin>, Instant)> {
        let firsts =
            self.by_origin.iter().filter_map(|(origin, resting)| Some((origin, resting.first()?.since)));
        firsts.min_by_key(|(_, since)| *since)
    }
}

async fn sweep(pool: Weak<Pool>, first_at: Instant) {
    let mut next_at = Some(first_at);
    while let Some(at) = next_at {
        sleep_until(at).await;
        next_at = pool.upgrade().and_then(|pool| pool.swept(Instant::now()));
    }
}
