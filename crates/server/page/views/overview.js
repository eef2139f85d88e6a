/** The overview: key figures, what needs attention, services, failure groups and live activity. */

import { activityFeed } from "../activity.js";
import { get } from "../api.js";
import { fill, h, slot } from "../dom.js";
import { ago, compact, count, counted, percent, queueOf, rate, when } from "../format.js";
import { pulse } from "../live.js";
import { axisOf, plot, sparkline } from "../plot.js";
import { failureGroups } from "../scope.js";
import { boundTo } from "../session.js";
import { badge, card, choice, command, empty, heading, table, tile } from "../ui.js";
import { watch } from "../watch.js";
import { attention } from "./attention.js";

const SPANS = [["15m", "15 min"], ["3h", "3 h"], ["24h", "24 h"]];
const SERIES = [
  { name: "accepted", of: (point) => point.accepted, tone: "ink" },
  { name: "delivered", of: (point) => point.delivered, tone: "good", filled: true },
  { name: "failed", of: (point) => point.failed, tone: "bad", filled: true },
];
const TREND_MS = 5000;
const GROUPS_MS = 10_000;
const SOURCES_MS = 5000;

export async function view(place, page) {
  const chosen = page.query.get("span") ?? "15m";
  const tiles = slot("div.tiles");
  const throughput = slot("div");
  const problems = slot("div");
  const services = slot("div");
  const groups = slot("div");
  const sources = slot("div");
  // Keys that are limited to services see only those.
  const only = boundTo()?.join(", ");
  const named = (title) => (only ? `${title} of ${only}` : title);
  fill(
    place,
    heading("Overview", { acts: choice("Time shown", SPANS, chosen, (span) => page.go({ span })) }),
    tiles,
    h("div.columns.stretch", card(named("Throughput"), null, throughput), card("Needs attention", null, problems)),
    h(
      "div.columns",
      h(
        "div.stack",
        card("Services", h("a", { href: "#/services" }, "All services"), services),
        sources,
        card(named("Failure groups"), h("a", { href: "#/groups" }, "All failure groups"), groups),
      ),
      card("Live activity", h("a", { href: "#/deliveries" }, "All deliveries"), activityFeed(page)),
    ),
  );

  let trend = null;
  pulse.watch((now) => {
    drawTiles(tiles, now, trend);
    drawServices(services, now);
  }, page.signal);
  watch(page, throughput, {
    load: (signal) => get("v1/trend", { span: chosen }, signal),
    draw: (found) => {
      trend = found;
      drawTiles(tiles, pulse.value, trend);
      return drawThroughput(found);
    },
    every: TREND_MS,
  });
  if (!only) watch(page, sources, { load: (signal) => get("v1/status", {}, signal), draw: drawSources, every: SOURCES_MS, lines: 0 });
  watch(page, groups, { load: (signal) => failureGroups({}, signal), draw: drawGroups, every: GROUPS_MS });
  attention(page, problems);
}

const drawThroughput = (trend) => plot({ ...axisOf(trend), label: "Events accepted, delivered and failed", series: SERIES });

const column = (trend, name) => trend?.points.map((point) => point[name] ?? null);

function drawTiles(place, now, trend) {
  if (!now) return;
  const { oldest_waiting_at: oldest, open_breakers: open } = now;
  const share = now.success_rate;
  const success = share === null || share === undefined ? "plain" : share < 0.95 ? "bad" : share < 0.99 ? "warn" : "good";
  fill(
    place,
    // Limited keys get delivery figures only.
    now.accepted_per_s !== undefined && tile({ name: "Accepted", value: rate(now.accepted_per_s), unit: "/s", points: column(trend, "accepted"), href: "#/deliveries" }),
    tile({ name: "Delivered", value: rate(now.delivered_per_s), unit: "/s", points: column(trend, "delivered"), href: "#/deliveries?state=delivered", tone: "good-line" }),
    tile({ name: "Success", value: percent(share), note: "last minute", tone: success, href: "#/services" }),
    tile({ name: "Retries", value: rate(now.retried_per_s), unit: "/s", points: column(trend, "retried"), href: "#/deliveries?state=retrying" }),
    tile({ name: "Waiting", value: compact(now.waiting), note: oldest ? `oldest ${ago(oldest)}` : "queue empty", points: column(trend, "waiting"), href: "#/deliveries?state=pending" }),
    tile({ name: "Dead letters", value: compact(now.dead), tone: now.dead > 0 ? "bad" : "plain", points: column(trend, "dead_letters"), href: "#/groups" }),
    tile({ name: "Open breakers", value: count(open.length), tone: open.length > 0 ? "bad" : "plain", note: open.length > 0 ? open.slice(0, 2).join(", ") : "none open", href: "#/breakers" }),
  );
}

const SERVICE_COLUMNS = [
  { name: "Service", cell: queueOf },
  { name: "Health", cell: (row) => badge(row.health) },
  { name: "Delivered/s", cell: (row) => rate(row.delivered_per_s), end: true },
  { name: "Failed/s", cell: (row) => (row.failed_per_s > 0 ? h("span.tinted.bad", rate(row.failed_per_s)) : "0"), end: true },
  { name: "Waiting", cell: (row) => compact(row.waiting), end: true },
  { name: "Dead", cell: (row) => (row.dead > 0 ? h("span.tinted.bad", compact(row.dead)) : "0"), end: true },
];
/** Unhealthy services first, then in the order of the rule book. */
const ORDER = ["failing", "held", "degraded", "paused", "healthy", "idle", "removed"];
const SERVICES_SHOWN_MAX = 10;

function drawServices(place, now) {
  if (!now) return;
  const rows = [...now.services].sort((a, b) => ORDER.indexOf(a.health) - ORDER.indexOf(b.health)).slice(0, SERVICES_SHOWN_MAX);
  const more = now.services.length - rows.length;
  fill(
    place,
    rows.length === 0
      ? empty("No services defined", h("p", "A service in the rule book subscribes to events and names a target. Create a rule book:"), command("redrive init"))
      : table({ label: "Services", columns: SERVICE_COLUMNS, rows, key: queueOf, href: (row) => `#/services/${encodeURIComponent(row.service)}` }),
    more > 0 && h("p.pages", h("a", { href: "#/services" }, `${counted(more, "more service")}`)),
  );
}

const SOURCE_COLUMNS = [
  { name: "Source", cell: (source) => source.name },
  { name: "Kind", cell: (source) => source.kind },
  { name: "State", cell: ({ reading }) => (reading ? badge(reading.state) : "") },
  { name: "Accepted", cell: (source) => compact(source.accepted), end: true },
  { name: "Refused", cell: (source) => compact(source.malformed + source.conflicts), end: true },
  { name: "Lag", cell: ({ reading }) => (reading?.lag === undefined ? "" : compact(reading.lag)), end: true },
];

function drawSources({ sources = [] }) {
  return sources.length > 0 && card("Sources", null, table({ label: "Sources", columns: SOURCE_COLUMNS, rows: sources, key: (source) => source.name }));
}

const GROUP_COLUMNS = [
  { name: "Cause", cell: (group) => group.message || group.code, wide: true },
  { name: "Services", cell: (group) => group.services.map(queueOf).slice(0, 2).join(", ") },
  { name: "Last 24 h", cell: (group) => sparkline(group.trend.counts) },
  { name: "Dead letters", cell: (group) => compact(group.count), end: true },
  { name: "Latest", cell: (group) => when(group.last_seen), end: true },
];
const GROUPS_SHOWN_MAX = 5;

function drawGroups({ groups }) {
  if (groups.length === 0) return empty("No dead letters", h("p", "Deliveries that fail permanently are kept with their history, grouped by cause, and can be replayed."));
  const rows = groups.slice(0, GROUPS_SHOWN_MAX);
  return table({ label: "Failure groups", columns: GROUP_COLUMNS, rows, key: (group) => group.fingerprint, href: (group) => `#/groups/${group.fingerprint}` });
}
