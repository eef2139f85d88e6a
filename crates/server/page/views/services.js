/** Services: health, subscriptions, target and figures, with pause and resume. */

import { get, part, post } from "../api.js";
import { reasonText } from "../delivery_text.js";
import { ask, toast } from "../dialog.js";
import { fill, h, slot } from "../dom.js";
import { compact, count, counted, percent, queueOf, span, when } from "../format.js";
import { onActivity } from "../live.js";
import { axisOf, plot } from "../plot.js";
import { action } from "../session.js";
import { badge, card, choice, command, empty, facts, failure, heading, lineLink, table, tile, toneOf } from "../ui.js";
import { watch } from "../watch.js";
import { COLUMNS, deliveriesTable } from "./deliveries.js";

const REFRESH_MS = 4000;
const TREND_MS = 10_000;
const LATEST = 12;
const SPANS = [["15m", "15 min"], ["3h", "3 h"], ["24h", "24 h"]];

export async function view(place, page) {
  const [name] = page.path;
  if (!name) return list(place, page);
  const body = slot("div");
  const trend = slot("div");
  const latest = slot("div");
  const chosen = page.query.get("span") ?? "15m";
  fill(
    place,
    body,
    card("Over time", choice("Time shown", SPANS, chosen, (span) => page.go({ span })), trend),
    card("Latest deliveries", [h("a", { href: `#/deliveries?service=${part(name)}` }, "All"), h("a", { href: `#/deliveries?service=${part(name)}&state=dead` }, "Dead letters")], latest),
  );
  page.title(name);
  const watching = watch(page, body, {
    load: (signal) => get("v1/services", {}, signal),
    draw: ({ services }) => one(name, services, () => watching.again()),
    every: REFRESH_MS,
    lines: 8,
  });
  watch(page, trend, { load: (signal) => get("v1/trend", { span: chosen, service: name }, signal), draw: overTime, every: TREND_MS });
  const columns = COLUMNS.filter((column) => column.name !== "Service");
  const watchingLatest = watch(page, latest, {
    load: (signal) => get("v1/deliveries", { service: name, limit: LATEST }, signal),
    draw: ({ deliveries }) =>
      deliveries.length > 0
        ? deliveriesTable(deliveries, { columns })
        : empty("No deliveries yet", h("p", "Events of the subscribed types are delivered to this service.")),
    every: REFRESH_MS,
  });
  onActivity(({ what, service }) => service?.split("/")[0] === name && (what === "paused" || what === "resumed") && (watching.again(), watchingLatest.again()), page.signal);
}

const why = (queue) => reasonText(queue.why, queue.why_since, queue.why_until);

const LIST_COLUMNS = [
  { name: "Service", cell: queueOf },
  { name: "Health", cell: (row) => badge(row.health) },
  { name: "Detail", cell: (row) => h("span.dim", why(row)), wide: true },
  { name: "Waiting", cell: (row) => compact(row.waiting), end: true },
  { name: "Oldest", cell: (row) => when(row.oldest_waiting_at), end: true },
  { name: "Delivered", cell: (row) => compact(row.delivered), end: true },
  { name: "Failed", cell: (row) => percent(row.attempts === 0 ? 0 : row.failed / row.attempts), end: true },
  { name: "p99", cell: (row) => (row.p99_ms === undefined ? "–" : span(row.p99_ms)), end: true },
  { name: "Dead", cell: (row) => (row.dead > 0 ? h("span.tinted.bad", compact(row.dead)) : "0"), end: true },
];

function list(place, page) {
  const body = slot("div");
  fill(place, heading("Services", { description: "Services that subscribe to events. Counts are since server start." }), card("All services", null, body));
  watch(page, body, {
    load: (signal) => get("v1/services", {}, signal),
    draw: ({ services }) =>
      services.length > 0
        ? table({ label: "Services", columns: LIST_COLUMNS, rows: services, key: queueOf, href: (row) => `#/services/${part(row.service)}` })
        : empty("No services defined", h("p", "A service in the rule book subscribes to events and names a target. Create a rule book:"), command("redrive init")),
    every: REFRESH_MS,
    lines: 8,
  });
}

function one(name, services, again) {
  const queues = services.filter(({ service }) => service === name);
  if (queues.length === 0) return failure(new Error(`no service ${name} in the rule book or the store`));
  return [
    heading(name, { up: ["#/services", "Services"], badge: queues.length === 1 && badge(queues[0].health), acts: actions(name, queues, again) }),
    queues.map((queue) => oneQueue(queue, queues.length > 1, services, again)),
  ];
}

/** One queue: the service, or one of its channels. */
function oneQueue(queue, isOneOfMany, services, again) {
  const { attempts, failed, p50_ms, p99_ms } = queue;
  const share = attempts === 0 ? 0 : failed / attempts;
  const waits = [queue.behind > 0 && `${compact(queue.behind)} behind others of their session`, queue.oldest_waiting_at && ["oldest ", when(queue.oldest_waiting_at)]];
  return h(
    "div.stack",
    { key: queueOf(queue) },
    isOneOfMany && h("div.line.channel", h("h2", queueOf(queue)), badge(queue.health)),
    h("p.callout", { class: toneOf(queue.health) }, why(queue)),
    stuckOf(queue) > 0 && h("div.stuck-actions", stuckActions(queue, services, again)),
    h("div.tiles", [
      tile({ name: "Waiting", value: compact(queue.waiting), note: waits.filter(Boolean).slice(0, 1) }),
      tile({ name: "Delivered", value: compact(queue.delivered), note: "since server start" }),
      tile({ name: "Failed attempts", value: percent(share), tone: share > 0.05 ? "bad" : "plain", note: `${compact(failed)} of ${counted(attempts, "attempt")}` }),
      tile({ name: "Retried", value: compact(queue.retried), note: "attempts after a failure" }),
      tile({ name: "Latency p50", value: p50_ms === undefined ? "–" : span(p50_ms), note: p99_ms === undefined ? "" : `p99 ${span(p99_ms)}` }),
      tile({ name: "Dead letters", value: compact(queue.dead), tone: queue.dead > 0 ? "bad" : "plain", href: `#/groups?service=${part(queue.service)}` }),
    ]),
    h(
      "div.columns",
      card("Subscriptions", h("a", { href: "#/book" }, "Rule book"), rows(queue.rows)),
      card("Target", null, facts(
        ["Address", h("span.mono", queue.target)],
        ["Dependencies", dependencies(queue.depends_on)],
        ["Order", queue.order],
        queue.in_flight_max && ["Max in flight", count(queue.in_flight_max)],
      )),
    ),
  );
}

const dependencies = (names) => [names].flat().filter(Boolean).map((name, at) => [at > 0 && ", ", h("a", { href: `#/breakers/${part(name)}` }, name)]);

const ROW_COLUMNS = [
  { name: "Event type", cell: (row) => h("code", row.type) },
  { name: "Retry", cell: (row) => row.retry, wide: true },
  { name: "Timeout", cell: (row) => span(row.timeout_ms), end: true },
  { name: "Criticality", cell: (row) => row.criticality ?? "" },
  { name: "Defined at", cell: (row) => lineLink(row.line), end: true },
];

/** Shown only if a subscription waits. */
const WAITS = { name: "Waiting", cell: ({ waits }) => waits && h("span.tinted.hold", reasonText(waits.because, waits.since, waits.until)), wide: true };

const rows = (all) =>
  all.length > 0
    ? table({ label: "Subscriptions", columns: all.some(({ waits }) => waits) ? ROW_COLUMNS.toSpliced(1, 0, WAITS) : ROW_COLUMNS, rows: all, key: (row) => `${row.line}-${row.type}` })
    : empty("Removed from the rule book", h("p", "Move its waiting deliveries to another service or dead-letter them. They are sent if the service is defined again."));

function actions(name, queues, again) {
  const isPaused = queues.some((queue) => queue.paused_since);
  const waiting = queues.reduce((sum, queue) => sum + queue.waiting, 0);
  return isPaused ? action("operate", "Resume", () => resume(name, waiting, again), { class: "main" }) : action("operate", "Pause", () => pause(name, again));
}

/** Waiting deliveries without a rule: all of a removed service, else those without a matching subscription. */
const stuckOf = (queue) => (queue.health === "removed" ? queue.waiting : queue.without_rule);

/** Actions for waiting deliveries without a rule. */
function stuckActions(queue, services, again) {
  const others = services.filter((other) => other.health !== "removed" && queueOf(other) !== queueOf(queue)).map(queueOf);
  return [
    others.length > 0 && action("operate", "Move…", () => moveOrDeadLetter(queue, "move", others, again), { class: "main" }),
    action("operate", "Dead-letter…", () => moveOrDeadLetter(queue, "dead-letter", others, again)),
  ];
}

const NOTE = { name: "note", label: "Reason", hint: "Saved in the audit log.", maxlength: 1000 };

const MOVES = " will be moved to the other service, in session order.";
const ENDS = (code) => ` will become dead letters (${code}), which can be replayed to another service.`;

/** Confirms, then repeats the request until nothing is left: each request handles a bounded number. */
async function moveOrDeadLetter(queue, act, others, again) {
  const name = queueOf(queue);
  const [isMove, isGone] = [act === "move", queue.health === "removed"];
  let all = 0;
  const done = await ask({
    title: isMove ? `Move deliveries of ${name}?` : `Dead-letter deliveries of ${name}?`,
    description: [
      h("p", counted(stuckOf(queue), "waiting delivery", "waiting deliveries"), isGone ? "" : " without a subscription", isMove ? MOVES : ENDS(isGone ? "SERVICE_REMOVED" : "RULE_REMOVED")),
    ],
    fields: [isMove && { name: "to", label: "To", options: others.map((other) => [other, other]) }, NOTE].filter(Boolean),
    act: isMove ? "Move deliveries" : "Dead-letter deliveries",
    danger: !isMove,
    submit: async ({ to, note }) => {
      for (;;) {
        const { done: count, left } = await post(`v1/removed/${part(queue.service)}/${act}`, { channel: queue.channel, to: isMove ? to : undefined, note: note || undefined });
        all += count;
        if (count === 0 || left === 0) return;
      }
    },
  });
  if (done) toast(`${counted(all, "delivery", "deliveries")} ${isMove ? `moved to ${done.to}` : "dead-lettered"}`);
  again();
}

async function pause(name, again) {
  const done = await ask({
    title: `Pause ${name}?`,
    description: [
      h(
        "p",
        "No new deliveries to ",
        h("b", name),
        " start. Events are still accepted and wait in order. Calls in flight are not interrupted.",
        " The service stays paused, also after a restart, until you resume it.",
      ),
    ],
    act: "Pause service",
    danger: true,
    submit: () => post(`v1/services/${part(name)}/pause`),
  });
  if (done) toast(`${name} paused`);
  again();
}

async function resume(name, waiting, again) {
  const done = await ask({
    title: `Resume ${name}?`,
    description: [h("p", waiting === 0 ? "No deliveries are waiting." : `${counted(waiting, "waiting delivery", "waiting deliveries")} will start, as fast as the rules allow.`)],
    act: "Resume service",
    submit: () => post(`v1/services/${part(name)}/resume`),
  });
  if (done) toast(`${name} resumed`);
  again();
}

const SERIES = [
  { name: "attempts", of: (point) => point.attempts, tone: "ink" },
  { name: "delivered", of: (point) => point.delivered, tone: "good", filled: true },
  { name: "failed", of: (point) => point.failed, tone: "bad", filled: true },
];

const TIMES = [
  { name: "p50", of: (point) => point.p50_ms, tone: "info" },
  { name: "p99", of: (point) => point.p99_ms, tone: "hold" },
];

function overTime(trend) {
  const axis = axisOf(trend);
  const isTimed = trend.points.some((point) => point.p99_ms !== undefined);
  return [
    plot({ ...axis, label: "Attempts, delivered and failed", series: SERIES }),
    isTimed && plot({ ...axis, label: "Attempt latency", series: TIMES, format: span, note: "attempt latency" }),
  ];
}
