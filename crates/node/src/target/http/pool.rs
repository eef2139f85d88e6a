//! Keeps connections that have carried a call for the next one to the same host.
//!
//! Invariants: at most [`IDLE_MAX`] wait in all and as many per host as its dependency has permits; none
//! waits longer than [`IDLE_TIME_MAX`], even if nobody calls any more; and one that the other side has
//! closed is not handed out, as far as anybody knows by then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use redrive_core::trace::Sampler;
use rustls::client::ClientConfig;
use tokio::time::{Instant, sleep_until};

use super::address::Origin;
use super::connect::Sender;
use super::limits::{CALLED_WITHIN, IDLE_MAX, IDLE_TIME_MAX, JUST_USED, Reuse};
use super::resolve::Resolver;
use crate::tls::{Roots, client_config};

/// The connections of all HTTP targets, whom they trust, and what they tell of traces.
#[derive(Debug)]
pub struct Pool {
    roots: Roots,
    resolver: Resolver,
    config: OnceLock<Arc<ClientConfig>>,
    sampler: OnceLock<Sampler>,
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    /// The one that came last stands last; no list is empty.
    by_origin: BTreeMap<Arc<Origin>, Vec<Resting>>,
    count: usize,
    sweeper: Sweeper,
}

#[derive(Debug)]
struct Resting {
    sender: Sender,
    since: Instant,
}

impl Resting {
    /// Until when a call may be written to it that must not be sent twice. A machine that was late to read an answer
    /// takes a connection for fresher than it is to the other side, so the last call counts, too.
    fn expires_at(&self) -> Instant {
        (self.since + JUST_USED).min(self.sender.called_at + CALLED_WITHIN)
    }
}

/// Whether a task waits for connections to grow too old.
#[derive(Debug, Default, PartialEq, Eq)]
enum Sweeper {
    #[default]
    Absent,
    Waits,
}

impl Pool {
    /// An empty one.
    #[must_use]
    pub fn new(roots: Roots) -> Self {
        Self {
            roots,
            resolver: Resolver::default(),
            config: OnceLock::new(),
            sampler: OnceLock::new(),
            idle: Mutex::default(),
        }
    }

    /// From now on every call says which trace it belongs to, also of events that came without one: somebody
    /// is told of traces, and records those of this sampler. Only the first one counts.
    pub fn tell_traces(&self, sampler: Sampler) {
        let _ = self.sampler.set(sampler);
    }

    /// Which traces are told of; none if nobody is told of any.
    pub(in crate::target) fn sampler(&self) -> Option<Sampler> {
        self.sampler.get().copied()
    }

    /// The same with another idea of what names stand for.
    #[cfg(test)]
    pub(super) fn resolving(self, list: fn(&str) -> Vec<std::net::IpAddr>) -> Self {
        Self { resolver: Resolver::Listed(list), ..self }
    }

    /// Whom its connections trust.
    pub(crate) const fn roots(&self) -> &Roots {
        &self.roots
    }

    pub(super) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// How TLS is spoken. The first time reads the system's certificates, which takes some milliseconds.
    pub(super) fn tls(&self) -> Arc<ClientConfig> {
        Arc::clone(self.config.get_or_init(|| client_config(&self.roots)))
    }

    /// The connection to that host that has waited least, if it is good enough.
    pub(super) fn take(&self, origin: &Origin, reuse: Reuse) -> Option<Sender> {
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
                // Others may take it.
                return None;
            }
            let resting = idle.remove(origin, End::Newest)?;
            if is_usable {
                if reuse == Reuse::JustUsed {
                    // It may take a while until the request is written.
                    resting.sender.line.arm(resting.expires_at());
                }
                return Some(resting.sender);
            }
        }
    }

    /// Keeps a connection for the next call; where there are too many, the oldest goes.
    pub(super) fn put(self: &Arc<Self>, origin: &Arc<Origin>, sender: Sender, per_host_max: usize) {
        let mut idle = self.lock();
        let resting = idle.by_origin.entry(Arc::clone(origin)).or_default();
        resting.push(Resting { sender, since: Instant::now() });
        let too_many = resting.len() > per_host_max;
        idle.count += 1;
        if too_many {
            idle.remove(origin, End::Oldest);
        } else if idle.count > IDLE_MAX {
            let oldest = idle.oldest().map(|(origin, _)| Arc::clone(origin));
            idle.remove(&oldest.expect("there are more than none"), End::Oldest);
        }
        if idle.sweeper == Sweeper::Absent {
            idle.sweeper = Sweeper::Waits;
            tokio::spawn(sweep(Arc::downgrade(self), Instant::now() + IDLE_TIME_MAX));
        }
    }

    /// Drops what is too old; says when to look again, if anything is left.
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
            idle.remove(&origin, End::Oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().expect("nothing panics while it holds the pool")
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().count
    }

    /// How many would be handed out.
    #[cfg(test)]
    pub(super) fn ready_count(&self) -> usize {
        self.lock().by_origin.values().flatten().filter(|resting| resting.sender.requests.is_ready()).count()
    }
}

/// Which connection of a host.
#[derive(Clone, Copy)]
enum End {
    Newest,
    Oldest,
}

impl Idle {
    fn remove(&mut self, origin: &Origin, end: End) -> Option<Resting> {
        let resting = self.by_origin.get_mut(origin)?;
        let taken = match end {
            End::Newest => resting.pop(),
            End::Oldest => (!resting.is_empty()).then(|| resting.remove(0)),
        };
        if resting.is_empty() {
            self.by_origin.remove(origin);
        }
        self.count -= usize::from(taken.is_some());
        taken
    }

    fn oldest(&self) -> Option<(&Arc<Origin>, Instant)> {
        let firsts =
            self.by_origin.iter().filter_map(|(origin, resting)| Some((origin, resting.first()?.since)));
        firsts.min_by_key(|(_, since)| *since)
    }
}

/// Goes on as long as there is a pool with something in it.
async fn sweep(pool: Weak<Pool>, first_at: Instant) {
    let mut next_at = Some(first_at);
    while let Some(at) = next_at {
        sleep_until(at).await;
        next_at = pool.upgrade().and_then(|pool| pool.swept(Instant::now()));
    }
}
