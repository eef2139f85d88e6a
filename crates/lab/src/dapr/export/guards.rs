//! Retry policies, breakers and timeouts in Dapr's form.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{DaprExporter, Variant, is_never, named_policies, unique};
use crate::dapr::duration::show;
use crate::dapr::losses::layers;
use crate::dapr::model::{
    CircuitBreaker, ELAPSED_MAX, FACTOR, FOR_EVER, INITIAL, NO_LIMIT, Retry, RetryPace, SPREAD, TripOn,
    UNLIMITED,
};
use redrive_core::book::model::{At, BreakerEntry, DependencyEntry, PolicyEntry, TimeoutParts};
use redrive_core::book::problem::BookSpan;
use redrive_core::book::resolve::Resolved;
use redrive_core::ids::{BreakerName, PolicyName};
use redrive_core::limits;
use redrive_core::policy::backoff::{Backoff, Jitter};
use redrive_core::policy::breaker::{BreakerSettings, CountingUnit, Trip};
use redrive_core::policy::catalog;
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::{GrowingTimeout, NamedBreaker};

const DEFAULT_POLICY: &str = "standard";
const CALL_LIMIT_DEFAULT: Duration = Duration::from_secs(10);

impl DaprExporter<'_> {
    /// Catalog policies first, then in the order of the book.
    pub(super) fn policies(&mut self) {
        self.all_retries();
        self.all_timeouts();
        self.all_breakers();
    }

    fn all_retries(&mut self) {
        let sections = self.sections;
        let mut used: Vec<&PolicyName> = sections.policies.keys().collect();
        let all = layers(sections);
        used.extend(all.iter().flat_map(|(_, layer)| named_policies(layer)));
        let standard = PolicyName::new(DEFAULT_POLICY).expect("the catalog's names are names");
        if sections.dependencies.values().any(|entry| entry.dapr.is_some() && states_no_retry(entry))
            && sections.defaults.reactions.iter().all(|(kind, _)| !is_transient(*kind))
        {
            used.push(&standard);
        }
        used.sort_by_key(|name| {
            let listed = catalog::policies().iter().position(|policy| policy.name == name.as_str());
            (listed.unwrap_or(usize::MAX), sections.policies.get(*name).map(|at| at.span), *name)
        });
        used.dedup();
        for name in used {
            let Some(entry) = sections.policy(name) else { continue };
            if is_never(&entry.backoff) {
                continue;
            }
            let shown = self.give_name(name.as_str(), |given| &mut given.retries);
            let retry = self.retry(&shown, &entry);
            self.variants.insert(name.clone(), vec![Variant { name: shown.clone(), statuses: None }]);
            self.resiliency.retries.push((shown, retry));
        }
    }

    fn retry(&mut self, name: &str, entry: &PolicyEntry) -> Retry {
        let backoff = &entry.backoff;
        let mut lose = |key: &str, why: &str| self.losses.add(name, format!("`{key}`: {why}"));
        let pace = pace(backoff);
        match pace {
            RetryPace::Constant(_) => {
                if backoff.jitter() != Jitter::None {
                    lose(
                        "jitter",
                        "Dapr's constant delays have no jitter: callers that failed together retry together",
                    );
                }
                if backoff.window().is_some() {
                    lose("window", "Dapr ends constant retries only by their number");
                }
            }
            RetryPace::Exponential { .. } if is_dapr_exponential(backoff) => {}
            RetryPace::Exponential { .. } => {
                if backoff.listed().is_some() {
                    lose(
                        "delays",
                        "Dapr has no list of delays: exponential delays up to the longest come closest",
                    );
                } else {
                    if backoff.initial() != INITIAL {
                        lose("initial", "Dapr's exponential delays start at 500ms, which cannot be changed");
                    }
                    if backoff.factor() != Some(FACTOR) {
                        lose("factor", "Dapr's exponential delays grow by 1.5, which cannot be changed");
                    }
                }
                if !is_dapr_jitter(backoff.jitter()) {
                    lose("jitter", "Dapr's exponential jitter is 50 % up and down, which cannot be changed");
                }
            }
        }
        if matches!(pace, RetryPace::Exponential { .. }) && backoff.window() != Some(ELAPSED_MAX) {
            if backoff.window().is_some() {
                lose(
                    "window",
                    "Dapr has no window: exponential retries end by their number or after 15 minutes",
                );
            } else if backoff.is_unlimited() || backoff.wait_max_total() >= ELAPSED_MAX {
                lose(
                    "retries beyond 15 minutes",
                    "Dapr ends exponential retries after 15 minutes, whatever `maxRetries` says",
                );
            }
        }
        if entry.alert_when_exhausted {
            lose("alert_when_exhausted", "Dapr has no alerts");
        }
        let retries = (!backoff.is_unlimited()).then(|| backoff.retries());
        Retry { pace, retries, statuses: None }
    }

    fn all_timeouts(&mut self) {
        let sections = self.sections;
        let mut used: BTreeMap<(usize, Option<BookSpan>, &str), &TimeoutParts> = BTreeMap::new();
        let mut add = |name: &str, parts| {
            let listed = catalog::TIMEOUTS.iter().position(|timeout| timeout.name == name);
            let own = sections.timeouts.get_key_value(name);
            let listed_name = listed.map(|index| catalog::TIMEOUTS[index].name);
            let Some(name) = own.map(|(name, _)| name.as_str()).or(listed_name) else { return };
            used.insert((listed.unwrap_or(usize::MAX), own.map(|(_, at)| at.span), name), parts);
        };
        for (name, at) in &sections.timeouts {
            add(name, &at.value);
        }
        let all = layers(sections);
        for parts in all.iter().filter_map(|(_, layer)| layer.timeout.as_ref()).map(|At { value, .. }| value)
        {
            if let Some(name) = &parts.name {
                add(name, parts);
            }
        }
        for ((_, _, name), parts) in used {
            let whole = parts.whole.unwrap_or(GrowingTimeout::fixed(CALL_LIMIT_DEFAULT));
            if means_unlimited(parts) {
                continue;
            }
            let shown = self.give_name(name, |given| &mut given.timeouts);
            self.lose_parts(&format!("timeout {name}"), parts);
            self.resiliency.timeouts.push((shown, whole.max));
        }
    }

    fn lose_parts(&mut self, what: &str, parts: &TimeoutParts) {
        if parts.whole.is_some_and(|whole| whole.first < whole.max) {
            self.losses.add(what, "Dapr's timeouts do not grow with the attempts; the file has the longest");
        }
        if parts.connect.is_some() || parts.tls.is_some() || parts.headers.is_some() {
            self.losses
                .add(what, "Dapr only limits a call as a whole: `connect`, `tls` and `headers` are left out");
        }
        if parts.category.is_some_and(|category| category != Category::Transient) {
            self.losses
                .add(what, "Dapr retries after every timeout; the category of the timeout is left out");
        }
    }

    /// `None` for no limit.
    pub(super) fn timeout_of(&mut self, entry: &DependencyEntry, resolved: &Resolved<'_>) -> Option<String> {
        let limit = resolved.rule.timeouts.whole.max;
        let levels = [entry.layer.timeout.as_ref(), self.sections.defaults.timeout.as_ref()];
        let of_whole = levels.into_iter().flatten().find(|at| at.value.whole.is_some());
        if of_whole.is_some_and(|at| means_unlimited(&at.value)) {
            let why = "it means no limit, so these targets have no timeout";
            self.losses.add(format!("the timeout `{UNLIMITED}`"), why);
            return None;
        }
        let stated = levels.into_iter().flatten().next();
        let inline = format!("t-{}", show(limit));
        let wanted = match stated.map(|at| &at.value) {
            Some(TimeoutParts { name: Some(name), .. }) => name.clone(),
            Some(parts) => {
                self.lose_parts(&format!("timeout of {}", entry.name), parts);
                inline.clone()
            }
            None => inline.clone(),
        };
        let known = self.resiliency.timeouts.iter().find(|(name, known)| *name == wanted && *known == limit);
        if let Some((name, _)) = known {
            return Some(name.clone());
        }
        let name = unique(&mut self.names.timeouts, &inline);
        self.resiliency.timeouts.push((name.clone(), limit));
        Some(name)
    }

    fn all_breakers(&mut self) {
        let sections = self.sections;
        let mut used: Vec<&BreakerName> = sections.breakers.keys().collect();
        let all = layers(sections);
        used.extend(
            all.iter().filter_map(|(_, layer)| layer.breaker.as_ref().and_then(|at| at.value.as_ref())),
        );
        used.sort_by_key(|name| {
            let listed = catalog::BREAKERS.iter().position(|breaker| breaker.name == name.as_str());
            (listed.unwrap_or(usize::MAX), sections.breakers.get(*name).map(|at| at.span), *name)
        });
        used.dedup();
        for name in used {
            let Some(entry) = sections.breaker_named(name) else { continue };
            let shown = self.give_name(name.as_str(), |given| &mut given.breakers);
            self.add_breaker(shown, &entry);
        }
    }

    fn add_breaker(&mut self, name: String, entry: &BreakerEntry) {
        let BreakerEntry { settings, ignores, counts, from: _ } = entry;
        let mut lose = |key: &str, why: &str| self.losses.add(&*name, format!("`{key}`: {why}"));
        if settings.close_after() != settings.probes() {
            lose(
                "probes",
                "Dapr has one number for probes and for successes that close the breaker; the file has \
                 `close_after`",
            );
        }
        match (settings.trip(), settings.reset()) {
            (Trip::Consecutive(_), None) => {}
            (Trip::Consecutive(_), Some(_)) => {
                lose("reset", "Dapr resets failures after every `interval`, even within a run of failures");
            }
            (Trip::Failures { .. } | Trip::FailureRate { .. }, reset) => {
                lose(
                    "within",
                    "Dapr's `interval` does not slide: it restarts at 0, so the breaker may open later",
                );
                if reset.is_some() {
                    lose("reset", "`interval` already holds the breaker's `within`");
                }
            }
        }
        if settings.count() == CountingUnit::Call {
            lose("count: call", "Dapr counts every attempt");
        }
        if !ignores.is_empty() || !counts.is_empty() {
            lose("ignores and counts", "Dapr counts every failure");
        }
        self.resiliency.breakers.push((name, circuit_breaker(settings)));
    }

    pub(super) fn breaker_of(&mut self, entry: &DependencyEntry, breaker: &NamedBreaker) -> String {
        let wanted = match &breaker.name {
            Some(name) => name.as_str().to_owned(),
            None => format!("{}Default", in_camel_case(entry.kind.as_str())),
        };
        let settings = circuit_breaker(&breaker.settings);
        let known =
            self.resiliency.breakers.iter().find(|(name, known)| *name == wanted && *known == settings);
        if let Some((name, _)) = known {
            return name.clone();
        }
        let name = unique(&mut self.names.breakers, &wanted);
        let NamedBreaker { settings, ignores, counts, .. } = breaker.clone();
        self.add_breaker(name.clone(), &BreakerEntry { settings, ignores, counts, from: None });
        name
    }
}

/// Whether it is the timeout that an import writes for Dapr's "no limit".
fn means_unlimited(parts: &TimeoutParts) -> bool {
    parts.name.as_deref() == Some(UNLIMITED) && parts.whole == Some(GrowingTimeout::fixed(NO_LIMIT))
}

fn is_transient(kind: redrive_core::policy::rule::FailureMatch) -> bool {
    kind == redrive_core::policy::rule::FailureMatch::Category(Category::Transient)
}

fn states_no_retry(entry: &DependencyEntry) -> bool {
    entry.layer.reactions.iter().all(|(kind, _)| !is_transient(*kind))
}

fn pace(backoff: &Backoff) -> RetryPace {
    if is_dapr_exponential(backoff) {
        let listed = backoff.listed().and_then(|delays| delays.last().copied());
        return RetryPace::Exponential { max: listed.unwrap_or_else(|| backoff.max()) };
    }
    let last = backoff.retries().saturating_sub(1);
    let first = backoff.initial();
    let is_steady = match backoff.listed() {
        Some(delays) => {
            let made = usize::try_from(backoff.retries()).unwrap_or(usize::MAX);
            delays.iter().take(made).all(|delay| *delay == first)
        }
        None => backoff.nominal(last) == first,
    };
    if is_steady && backoff.jitter() != Jitter::Decorrelated {
        return RetryPace::Constant(first);
    }
    // Without its own `max`, the last delay.
    let max = if backoff.max() == limits::DURATION_MAX { backoff.nominal(last) } else { backoff.max() };
    RetryPace::Exponential { max }
}

fn is_dapr_jitter(jitter: Jitter) -> bool {
    matches!(jitter, Jitter::SpreadShare(share) if (share.get() - SPREAD).abs() < 1e-9)
}

fn is_dapr_exponential(backoff: &Backoff) -> bool {
    let grows = backoff.factor() == Some(FACTOR) && backoff.initial() == INITIAL;
    let capped_below = matches!(backoff.listed(), Some([INITIAL, after]) if *after < INITIAL);
    is_dapr_jitter(backoff.jitter()) && (grows || capped_below)
}

fn circuit_breaker(settings: &BreakerSettings) -> CircuitBreaker {
    let within = |within: Duration| Some(within).filter(|within| *within < FOR_EVER);
    let (trip, interval) = match settings.trip() {
        Trip::Consecutive(count) => (TripOn::Consecutive(count.get()), settings.reset()),
        Trip::Failures { count, within: time } => (TripOn::Failures(count.get()), within(time)),
        Trip::FailureRate { share, of_at_least, within: time } => {
            let thousandths = thousandths(share.get());
            (TripOn::FailureRate { thousandths, of_at_least: of_at_least.get() }, within(time))
        }
    };
    CircuitBreaker { max_requests: settings.close_after().get(), interval, timeout: settings.open(), trip }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is at most 1")]
fn thousandths(share: f64) -> u32 {
    ((share * 100_000.0).round() as u32).max(1)
}

fn in_camel_case(word: &str) -> String {
    let mut parts = word.split('-');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |camel, part| {
        let (head, tail) = part.split_at(part.len().min(1));
        camel + &head.to_ascii_uppercase() + tail
    })
}
