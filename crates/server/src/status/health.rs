//! Liveness and readiness.
//!
//! Liveness checks only that the engine answers: a restart does not fix outside failures. Readiness is about
//! accepting events: a server whose targets are all down is ready but degraded.
//!
//! Invariants: neither needs a key, so neither names a service, dependency or secret to callers who may not
//! read; the store is read at most once a second.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Extension;
use axum::http::HeaderMap;
use clap::Args;
use redrive_core::alerts::OWN_SERVICE;
use redrive_core::text::show_rounded;
use redrive_core::time::Timestamp;
use redrive_node::runtime::{Node, NodeHealth};
use redrive_node::source::SourceState;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::access::{self, Peer};
use crate::api::error::{ApiError, ApiResult};
use crate::api::{App, reply};
use crate::cli::ServerArgs;
use crate::client::ClientRequest;
use crate::status::handlers;
use crate::status::json::{DegradedJson, HealthJson, ReadinessJson, Status};
use crate::terminal::{plain, print};

/// Checks a running server, by exit code: for containers and scripts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive health
  redrive health --ready

No key is needed; with one that may read everything, names are shown.

Exit code: 0 healthy, 1 not, 2 wrong use, 3 no server.")]
pub(crate) struct HealthArgs {
    /// Checks whether it accepts events, and lists problems
    #[arg(long)]
    pub(crate) ready: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Probes time out after a second by default.
const CHECK_WITHIN: Duration = Duration::from_millis(800);

const LIVE_WITHIN: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct HealthMemo(Mutex<Option<(Instant, Arc<Vec<HealthProblem>>)>>);

/// Liveness.
#[utoipa::path(
    get, path = "/healthz", operation_id = "getHealth", tag = "operating",
    responses((status = 200, description = "the server is alive", body = HealthJson))
)]
pub(crate) async fn live(app: App) -> ApiResult {
    match tokio::time::timeout(LIVE_WITHIN, app.node.snapshot()).await {
        Ok(Some(_)) => reply::ok(&json!({ "status": "ok" })),
        Ok(None) => Err(ApiError::unavailable("the server is shutting down")),
        Err(_) => Err(ApiError::unavailable("the engine does not answer")),
    }
}

/// Readiness, with current problems.
///
/// Names are shown to callers who may read everything; others see counts.
#[utoipa::path(
    get, path = "/readyz", operation_id = "getReadiness", tag = "operating",
    responses((status = 200, description = "the server accepts events", body = ReadinessJson))
)]
pub(crate) async fn ready(app: App, peer: Option<Extension<Peer>>, headers: HeaderMap) -> ApiResult {
    let peer = peer.map(|Extension(peer)| peer);
    let reads_all = access::reads_all(&app, &headers, peer.as_ref()).await?;
    let names = if reads_all { NameDetail::Named } else { NameDetail::Counted };
    let mut health = app.node.health();
    // Ingress closes before the node does.
    health.stopping |= *app.closing.borrow();
    let blockers = blockers(&health);
    if let Some(first) = blockers.first() {
        let message = format!("not ready: {}", first.kind.one());
        let because = json!(shown(&blockers, names));
        return Err(ApiError::unavailable(message).with("status", "not-ready").with("because", because));
    }
    let mut troubles = [remarks(&health), down_sources(&app.node)].concat();
    troubles.extend(read_health(&app).await.iter().cloned());
    let status = if troubles.is_empty() { "ready" } else { "degraded" };
    let readiness = ReadinessJson { status: status.to_owned(), degraded: shown(&troubles, names) };
    reply::ok(&readiness)
}

pub(crate) fn degraded(app: &App, status: &Status) -> Vec<DegradedJson> {
    let health = app.node.health();
    let all = [blockers(&health), remarks(&health), down_sources(&app.node), troubles(status)].concat();
    shown(&all, NameDetail::Named)
}

/// Cached for a second.
async fn read_health(app: &App) -> Arc<Vec<HealthProblem>> {
    let mut memo = app.health.0.lock().await;
    if let Some((at, troubles)) = memo.as_ref()
        && at.elapsed() < CHECK_EVERY
    {
        return Arc::clone(troubles);
    }
    let troubles = Arc::new(judged(handlers::read_status(app)).await);
    *memo = Some((Instant::now(), Arc::clone(&troubles)));
    troubles
}

/// A failed or slow reading is a problem, too.
async fn judged(reading: impl Future<Output = Result<Status, ApiError>>) -> Vec<HealthProblem> {
    match tokio::time::timeout(CHECK_WITHIN, reading).await {
        Ok(Ok(status)) => troubles(&status),
        Ok(Err(_)) => vec![HealthProblem::new(HealthProblemKind::StoreUnread)],
        Err(_) => vec![HealthProblem::new(HealthProblemKind::StoreSlow)],
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameDetail {
    Named,
    Counted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct HealthProblem {
    kind: HealthProblemKind,
    /// Name and detail, for callers who may read.
    about: Option<String>,
    since: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HealthProblemKind {
    Stopping,
    StoreFailing,
    DiskShort,
    StoreSlow,
    StoreUnread,
    BookRefused,
    Stranded,
    BreakerOpen,
    ServicePaused,
    ServiceRemoved,
    RuleRemoved,
    SecretStale,
    SecretGone,
    IssuerStale,
    IssuerGone,
    ArchiveWaiting,
    ArchiveOpen,
    ScheduleWaiting,
    SourceDown,
    SourceHeld,
    ReceiverDead,
}

impl HealthProblemKind {
    /// Code, text for one, text for several.
    #[rustfmt::skip]
    const fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Stopping        => ("stopping", "the server is shutting down", ""),
            Self::StoreFailing    => ("store-failing", "the store accepts no writes", ""),
            Self::DiskShort       => ("disk-short", "the disk is nearly full", ""),
            Self::StoreSlow       => ("store-slow", "the store is slow", ""),
            Self::StoreUnread     => ("store-unread", "the store cannot be read", ""),
            Self::BookRefused     => ("book-refused", "invalid rule book rejected, the previous one stays active", ""),
            Self::Stranded        => ("stranded", "deliveries are unknown to the engine", ""),
            Self::BreakerOpen     => ("breaker-open", "a breaker is open", "breakers are open"),
            Self::ServicePaused   => ("service-paused", "a service is paused", "services are paused"),
            Self::ServiceRemoved  => ("service-removed", "deliveries wait for a service removed from the rule book", "services removed from the rule book have waiting deliveries"),
            Self::RuleRemoved     => ("rule-removed", "deliveries wait without a matching row in their service", "services have waiting deliveries without a matching row"),
            Self::SecretStale     => ("secret-stale", "a secret cannot be fetched, its last value is used", "secrets cannot be fetched, their last values are used"),
            Self::SecretGone      => ("secret-gone", "a secret has no value", "secrets have no value"),
            Self::IssuerStale     => ("issuer-stale", "the issuer's keys cannot be fetched, the last ones are used", ""),
            Self::IssuerGone      => ("issuer-gone", "the issuer's keys are unavailable, tokens are rejected", ""),
            Self::ArchiveWaiting  => ("archive-waiting", "archive writes fail, events wait", ""),
            Self::ArchiveOpen     => ("archive-open", "the archive's circuit breaker is open, events are not archived", ""),
            Self::ScheduleWaiting => ("schedule-waiting", "a schedule cannot emit", "schedules cannot emit"),
            Self::SourceDown      => ("source-down", "a source is not connected", "sources are not connected"),
            Self::SourceHeld      => ("source-held", "a source waits until its events are accepted", "sources wait until their events are accepted"),
            Self::ReceiverDead    => ("receiver-dead", "an alert receiver is unreachable", "alert receivers are unreachable"),
        }
    }

    const fn one(self) -> &'static str {
        self.words().1
    }
}

impl HealthProblem {
    const fn new(kind: HealthProblemKind) -> Self {
        Self { kind, about: None, since: None }
    }

    fn about(kind: HealthProblemKind, about: impl Into<String>, since: Option<Timestamp>) -> Self {
        Self { kind, about: Some(about.into()), since }
    }
}

/// Problems that prevent accepting events.
fn blockers(health: &NodeHealth) -> Vec<HealthProblem> {
    let stopping = health.stopping.then(|| HealthProblem::new(HealthProblemKind::Stopping));
    let failing = health.store_failing.as_ref();
    let failing =
        failing.map(|(since, why)| HealthProblem::about(HealthProblemKind::StoreFailing, why, Some(*since)));
    let short = health.disk_short.map(|(since, short)| {
        let about = format!("{} bytes free, {} required", short.free_bytes, short.needed_bytes);
        HealthProblem::about(HealthProblemKind::DiskShort, about, Some(since))
    });
    [stopping, failing, short].into_iter().flatten().collect()
}

/// Problems of the node that do not.
fn remarks(health: &NodeHealth) -> Vec<HealthProblem> {
    let slow = health.store_slow.map(|(at, took)| {
        HealthProblem::about(
            HealthProblemKind::StoreSlow,
            format!("a write took {}", show_rounded(took)),
            Some(at),
        )
    });
    let refused = health.book_refused.as_ref();
    let refused =
        refused.map(|(since, why)| HealthProblem::about(HealthProblemKind::BookRefused, why, Some(*since)));
    [slow, refused].into_iter().flatten().collect()
}

/// Sources that are disconnected, or whose events are not accepted.
fn down_sources(node: &Node) -> Vec<HealthProblem> {
    let down = node.sources().into_iter().filter_map(|(name, view)| {
        let (kind, why) = match view.state {
            SourceState::Down(why) => (HealthProblemKind::SourceDown, why),
            SourceState::Held(why) => (HealthProblemKind::SourceHeld, why),
            SourceState::Connecting | SourceState::Reading => return None,
        };
        Some(HealthProblem::about(kind, format!("{name} ({why})"), Some(view.since)))
    });
    down.collect()
}

fn troubles(status: &Status) -> Vec<HealthProblem> {
    let mut found = Vec::new();
    if status.stranded > 0 {
        found.push(HealthProblem::about(HealthProblemKind::Stranded, status.stranded.to_string(), None));
    }
    let open = status.dependencies.iter().filter(|dependency| dependency.is_broken());
    found.extend(
        open.map(|dependency| HealthProblem::about(HealthProblemKind::BreakerOpen, &dependency.name, None)),
    );
    for service in status.services.iter().filter(|service| !service.removed) {
        // A pause covers all channels and is shown once.
        let is_known = |trouble: &HealthProblem| {
            trouble.kind == HealthProblemKind::ServicePaused
                && trouble.about.as_ref() == Some(&service.service)
        };
        if let Some(since) = service.paused_since.filter(|_| !found.iter().any(is_known)) {
            found.push(HealthProblem::about(HealthProblemKind::ServicePaused, &service.service, Some(since)));
        }
    }
    let removed = status.services.iter().filter(|service| service.removed && service.waiting > 0);
    let removed = removed.filter(|service| service.service != OWN_SERVICE);
    found.extend(removed.map(|service| {
        let about = format!("{} ({} waiting)", service.name(), service.waiting);
        HealthProblem::about(HealthProblemKind::ServiceRemoved, about, None)
    }));
    let ruleless = status.services.iter().filter(|service| !service.removed && service.without_rule > 0);
    let ruleless = ruleless.filter(|service| service.service != OWN_SERVICE);
    found.extend(ruleless.map(|service| {
        let about = format!("{} ({} waiting)", service.name(), service.without_rule);
        HealthProblem::about(HealthProblemKind::RuleRemoved, about, None)
    }));
    found.extend(status.secrets.iter().map(|secret| {
        let kind = if secret.state == "stale" {
            HealthProblemKind::SecretStale
        } else {
            HealthProblemKind::SecretGone
        };
        HealthProblem::about(kind, &secret.name, Some(secret.since))
    }));
    found.extend(status.issuer.iter().map(|issuer| {
        let kind = if issuer.state == "stale" {
            HealthProblemKind::IssuerStale
        } else {
            HealthProblemKind::IssuerGone
        };
        HealthProblem::about(kind, &issuer.name, Some(issuer.since))
    }));
    found.extend(status.archive.iter().filter(|archive| archive.state != "well").map(|archive| {
        let kind = if archive.state == "open" {
            HealthProblemKind::ArchiveOpen
        } else {
            HealthProblemKind::ArchiveWaiting
        };
        HealthProblem { kind, about: None, since: archive.last_error_at }
    }));
    let stuck = status.schedules.iter().filter(|schedule| schedule.waiting > 0 && schedule.trouble.is_some());
    found.extend(stuck.map(|schedule| {
        HealthProblem::about(
            HealthProblemKind::ScheduleWaiting,
            schedule.name.as_deref().unwrap_or(&schedule.cron),
            None,
        )
    }));
    let untold = status.services.iter().filter(|service| service.service == OWN_SERVICE && service.dead > 0);
    found.extend(untold.map(|service| HealthProblem {
        kind: HealthProblemKind::ReceiverDead,
        about: service.channel.clone(),
        since: None,
    }));
    found
}

/// One by one with names, or counts by kind.
fn shown(troubles: &[HealthProblem], names: NameDetail) -> Vec<DegradedJson> {
    if names == NameDetail::Named {
        let words = |trouble: &HealthProblem| match &trouble.about {
            Some(about) => format!("{}: {about}", trouble.kind.one()),
            None => trouble.kind.one().to_owned(),
        };
        let degraded = |trouble: &HealthProblem| DegradedJson {
            what: trouble.kind.words().0.to_owned(),
            why: words(trouble),
            since: trouble.since,
        };
        return troubles.iter().map(degraded).collect();
    }
    let mut kinds: Vec<HealthProblemKind> = troubles.iter().map(|trouble| trouble.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let degraded = |kind: HealthProblemKind| {
        let (what, one, several) = kind.words();
        let of_kind = || troubles.iter().filter(move |trouble| trouble.kind == kind);
        let why = match of_kind().count() {
            1 => one.to_owned(),
            count => format!("{count} {several}"),
        };
        DegradedJson {
            what: what.to_owned(),
            why,
            since: of_kind().filter_map(|trouble| trouble.since).min(),
        }
    };
    kinds.into_iter().map(degraded).collect()
}

pub(crate) async fn run(args: &HealthArgs) -> anyhow::Result<()> {
    let mut client = args.server.client()?;
    if !args.ready {
        client.json::<serde_json::Value>(&ClientRequest::get("/healthz")).await?;
        return print("the server is alive\n");
    }
    let readiness: ReadinessJson = client.json(&ClientRequest::get("/readyz")).await?;
    print(&format!("{}\n", plain(&readiness.status)))?;
    for degraded in &readiness.degraded {
        print(&format!("  {}: {}\n", plain(&degraded.what), plain(&degraded.why)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use redrive_node::runtime::DiskShort;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn texts(troubles: &[HealthProblem], names: NameDetail) -> Vec<String> {
        let lines = shown(troubles, names).into_iter();
        lines.map(|DegradedJson { what, why, since: _ }| format!("{what}: {why}")).collect()
    }

    #[test]
    fn only_what_keeps_events_out_makes_it_unready() {
        let failing = Some((at(1), "disk I/O error".to_owned()));
        let short = Some((at(1), DiskShort { free_bytes: 1, needed_bytes: 2 }));
        let slow = Some((at(1), Duration::from_secs(2)));
        let refused = Some((at(1), "line 2".to_owned()));
        #[rustfmt::skip]
        let cases = [
            ("all is well",  NodeHealth::default(),                                            vec![], vec![]),
            ("failing",      NodeHealth { store_failing: failing, ..NodeHealth::default() },       vec!["store-failing: the store accepts no writes: disk I/O error"], vec![]),
            ("no room",      NodeHealth { disk_short: short, ..NodeHealth::default() },            vec!["disk-short: the disk is nearly full: 1 bytes free, 2 required"], vec![]),
            ("at its end",   NodeHealth { stopping: true, ..NodeHealth::default() },               vec!["stopping: the server is shutting down"], vec![]),
            ("slow",         NodeHealth { store_slow: slow, ..NodeHealth::default() },             vec![], vec!["store-slow: the store is slow: a write took 2s"]),
            ("an old book",  NodeHealth { book_refused: refused, ..NodeHealth::default() },        vec![], vec!["book-refused: invalid rule book rejected, the previous one stays active: line 2"]),
        ];
        for (name, health, unready, degraded) in cases {
            assert_eq!(texts(&blockers(&health), NameDetail::Named), unready, "{name}");
            assert_eq!(texts(&remarks(&health), NameDetail::Named), degraded, "{name}");
        }
    }

    fn status(more: &serde_json::Value) -> Status {
        let mut status = json!({
            "version": "0", "started_at": "2025-10-21T11:20:00Z", "book": "0", "calls_in_flight": 0, "events": 0,
            "unrouted": 7, "stranded": 0,
            "services": [{ "service": "mail", "waiting": 9, "delivered": 9, "dead": 9 }],
            "dependencies": [{ "name": "shop", "breaker": "closed", "in_flight": 1 }],
            "archive": { "state": "well", "archived": 9, "skipped": 9, "behind_ms": 0 },
            "schedules": [{ "name": "daily", "cron": "0 9 * * *", "zone": "UTC", "waiting": 1, "caught_up": 0, "lost": 0 }],
        });
        status.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        serde_json::from_value(status).expect("a status")
    }

    #[test]
    fn every_degraded_state_has_a_name() {
        let unfetched = |state: &str| json!({ "name": "signing", "state": state, "since": "2025-10-21T11:20:00Z", "why": "away" });
        let dependency =
            |state: &str| json!({ "dependencies": [{ "name": "shop", "breaker": state, "in_flight": 0 }] });
        let archive = |state: &str| json!({ "archive": { "state": state, "archived": 0, "skipped": 0, "behind_ms": 0 } });
        let queue = |service: &str, channel: Option<&str>, dead: u64| {
            json!({
                "service": service, "channel": channel, "waiting": 0, "delivered": 0, "dead": dead, "paused_since": null,
            })
        };
        let paused = |service: &str, channel: Option<&str>| {
            let mut queue = queue(service, channel, 0);
            queue["paused_since"] = json!("2025-10-21T11:20:00Z");
            queue
        };
        let stuck = json!({ "name": "daily", "cron": "0 9 * * *", "zone": "UTC", "waiting": 1, "caught_up": 0, "lost": 0, "trouble": "no room" });
        let mut nameless = stuck.clone();
        nameless["name"] = json!(null);
        #[rustfmt::skip]
        let cases = [
            ("all is well",        json!({}),                                     vec![]),
            ("stranded",           json!({ "stranded": 3 }),                      vec!["stranded: deliveries are unknown to the engine: 3"]),
            ("no breaker",         dependency("none"),                            vec![]),
            ("an open breaker",    dependency("open"),                            vec!["breaker-open: a breaker is open: shop"]),
            ("a half-open one",    dependency("half-open"),                       vec!["breaker-open: a breaker is open: shop"]),
            ("a pause",            json!({ "services": [paused("mail", None)] }), vec!["service-paused: a service is paused: mail"]),
            ("with its channels",  json!({ "services": [paused("mail", None), paused("mail", Some("sms"))] }),
                                                                                  vec!["service-paused: a service is paused: mail"]),
            ("a removed service",  json!({ "services": [{ "service": "old", "waiting": 2, "delivered": 0, "dead": 0, "removed": true }] }),
                                                                                  vec!["service-removed: deliveries wait for a service removed from the rule book: old (2 waiting)"]),
            ("with nothing left",  json!({ "services": [{ "service": "old", "waiting": 0, "delivered": 0, "dead": 3, "removed": true }] }), vec![]),
            ("an old secret",      json!({ "secrets": [unfetched("stale")] }),         vec!["secret-stale: a secret cannot be fetched, its last value is used: signing"]),
            ("no secret",          json!({ "secrets": [unfetched("gone")] }),          vec!["secret-gone: a secret has no value: signing"]),
            ("old keys",           json!({ "issuer": unfetched("stale") }),            vec!["issuer-stale: the issuer's keys cannot be fetched, the last ones are used: signing"]),
            ("no keys",            json!({ "issuer": unfetched("gone") }),             vec!["issuer-gone: the issuer's keys are unavailable, tokens are rejected: signing"]),
            ("an archive waits",   archive("waiting"),                            vec!["archive-waiting: archive writes fail, events wait"]),
            ("an archive is open", archive("open"),                               vec!["archive-open: the archive's circuit breaker is open, events are not archived"]),
            ("a schedule waits",   json!({ "schedules": [stuck] }),               vec!["schedule-waiting: a schedule cannot emit: daily"]),
            ("one by its times",   json!({ "schedules": [nameless] }),            vec!["schedule-waiting: a schedule cannot emit: 0 9 * * *"]),
            ("no receiver",        json!({ "services": [queue(OWN_SERVICE, Some("ops"), 1)] }),
                                                                                  vec!["receiver-dead: an alert receiver is unreachable: ops"]),
            ("others were",        json!({ "services": [queue(OWN_SERVICE, Some("ops"), 0)] }), vec![]),
        ];
        for (name, more, expected) in cases {
            assert_eq!(texts(&troubles(&status(&more)), NameDetail::Named), expected, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_cannot_be_read_or_is_slow_is_told() {
        let refused = async { Err(ApiError::internal()) };
        let hangs = std::future::pending::<Result<Status, ApiError>>();
        assert_eq!(
            texts(&judged(refused).await, NameDetail::Named),
            ["store-unread: the store cannot be read"]
        );
        assert_eq!(texts(&judged(hangs).await, NameDetail::Named), ["store-slow: the store is slow"]);
        assert!(judged(async { Ok(status(&json!({}))) }).await.is_empty());
    }

    #[test]
    fn names_are_for_those_who_may_read() {
        let troubles = [
            HealthProblem::about(HealthProblemKind::BreakerOpen, "payments", None),
            HealthProblem::about(HealthProblemKind::SecretGone, "signing", Some(at(5))),
            HealthProblem::about(HealthProblemKind::BreakerOpen, "mail", None),
        ];
        let expected = [
            "breaker-open: a breaker is open: payments",
            "secret-gone: a secret has no value: signing",
            "breaker-open: a breaker is open: mail",
        ];
        assert_eq!(texts(&troubles, NameDetail::Named), expected);
        let expected = ["breaker-open: 2 breakers are open", "secret-gone: a secret has no value"];
        assert_eq!(texts(&troubles, NameDetail::Counted), expected);
    }
}
