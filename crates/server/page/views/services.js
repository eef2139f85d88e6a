/** Services: how each is and why, what it wants by which rule, and whether it may go on. */

import { get, part, post } from "../api.js";
import { ask, toast } from "../dialog.js";
import { fill, h, slot } from "../dom.js";
import { compact, count, counted, percent, queueOf, span, when } from "../format.js";
import { onHappening } from "../live.js";
import { axisOf, plot } from "../plot.js";
import { action } from "../session.js";
import { badge, card, choice, command, empty, facts, failure, heading, lineLink, table, tile, toneOf } from "../ui.js";
import { watch } from "../watch.js";
import { because } from "../words.js";
import { COLUMNS, deliveriesTable } from "./deliveries.js";

const LOOK_MS = 4000;
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
    card("Latest deliveries", [h("a", { href: `#/deliveries?service=${part(name)}` }, "All of them"), h("a", { href: `#/deliveries?service=${part(name)}&state=dead` }, "Dead ones")], latest),
  );
  page.title(name);
  const watching = watch(page, body, {
    load: (signal) => get("v1/services", {}, signal),
    draw: ({ services }) => one(name, services, () => watching.again()),
    every: LOOK_MS,
    lines: 8,
  });
  watch(page, trend, { load: (signal) => get("v1/trend", { span: chosen, service: name }, signal), draw: overTime, every: TREND_MS });
  const columns = COLUMNS.filter((column) => column.name !== "Service");
  const watchingLatest = watch(page, latest, {
    load: (signal) => get("v1/deliveries", { service: name, limit: LATEST }, signal),
    draw: ({ deliveries }) =>
      deliveries.length > 0
        ? deliveriesTable(deliveries, { columns })
        : empty("Nothing has come for it yet", h("p", "Events of the types above become deliveries of this service.")),
    every: LOOK_MS,
  });
  onHappening(({ what, service }) => service?.split("/")[0] === name && (what === "paused" || what === "resumed") && (watching.again(), watchingLatest.again()), page.signal);
}

const why = (queue) => because(queue.why, queue.why_since, queue.why_until);

const LIST_COLUMNS = [
  { name: "Service", cell: queueOf },
  { name: "Health", cell: (row) => badge(row.health) },
  { name: "Why", cell: (row) => h("span.dim", why(row)), wide: true },
  { name: "Waiting", cell: (row) => compact(row.waiting), end: true },
  { name: "Oldest", cell: (row) => when(row.oldest_waiting_at), end: true },
  { name: "Delivered", cell: (row) => compact(row.delivered), end: true },
  { name: "Failed", cell: (row) => percent(row.attempts === 0 ? 0 : row.failed / row.attempts), end: true },
  { name: "99% within", cell: (row) => (row.p99_ms === undefined ? "–" : span(row.p99_ms)), end: true },
  { name: "Dead", cell: (row) => (row.dead > 0 ? h("span.tinted.bad", compact(row.dead)) : "0"), end: true },
];

function list(place, page) {
  const body = slot("div");
  fill(place, heading("Services", { says: "Who wants events, by the rule book. Counts are since the server started." }), card("All services", null, body));
  watch(page, body, {
    load: (signal) => get("v1/services", {}, signal),
    draw: ({ services }) =>
      services.length > 0
        ? table({ label: "Services", columns: LIST_COLUMNS, rows: services, key: queueOf, href: (row) => `#/services/${part(row.service)}` })
        : empty("The rule book names no service", h("p", "A service says which events it wants and where they go."), command("redrive init")),
    every: LOOK_MS,
    lines: 8,
  });
}

function one(name, services, again) {
  const queues = services.filter(({ service }) => service === name);
  if (queues.length === 0) return failure(new Error(`Neither the rule book nor the store knows a service ${name}.`));
  return [
    heading(name, { up: ["#/services", "Services"], badge: queues.length === 1 && badge(queues[0].health), acts: hands(name, queues, again) }),
    queues.map((queue) => oneQueue(queue, queues.length > 1, services, again)),
  ];
}

/** One queue of the service: all of it, or one of its channels. */
function oneQueue(queue, isOneOfMany, services, again) {
  const { attempts, failed, p50_ms, p99_ms } = queue;
  const share = attempts === 0 ? 0 : failed / attempts;
  const waits = [queue.behind > 0 && `${compact(queue.behind)} behind others of their session`, queue.oldest_waiting_at && ["oldest ", when(queue.oldest_waiting_at)]];
  return h(
    "div.stack",
    { key: queueOf(queue) },
    isOneOfMany && h("div.line.channel", h("h2", queueOf(queue)), badge(queue.health)),
    h("p.standing", { class: toneOf(queue.health) }, why(queue)),
    stuckOf(queue) > 0 && h("div.ways", waysOut(queue, services, again)),
    h("div.tiles", [
      tile({ name: "Waiting", value: compact(queue.waiting), note: waits.filter(Boolean).slice(0, 1) }),
      tile({ name: "Delivered", value: compact(queue.delivered), note: "since the start" }),
      tile({ name: "Failed attempts", value: percent(share), tone: share > 0.05 ? "bad" : "plain", note: `${compact(failed)} of ${counted(attempts, "attempt")}` }),
      tile({ name: "Retried", value: compact(queue.retried), note: "attempts after a failure" }),
      tile({ name: "Half within", value: p50_ms === undefined ? "–" : span(p50_ms), note: p99_ms === undefined ? "" : `99% within ${span(p99_ms)}` }),
      tile({ name: "Dead letters", value: compact(queue.dead), tone: queue.dead > 0 ? "bad" : "plain", href: `#/groups?service=${part(queue.service)}` }),
    ]),
    h(
      "div.columns",
      card("What it wants", h("a", { href: "#/book" }, "Rule book"), rows(queue.rows)),
      card("Where it goes", null, facts(
        ["Target", h("span.mono", queue.target)],
        ["Depends on", dependencies(queue.depends_on)],
        ["Order", queue.order],
        queue.in_flight_max && ["At once", `${count(queue.in_flight_max)} at most`],
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
  { name: "Rule", cell: (row) => lineLink(row.line), end: true },
];

/** Only where something waits: the words take room. */
const WAITS = { name: "Waits", cell: ({ waits }) => waits && h("span.tinted.hold", because(waits.because, waits.since, waits.until)), wide: true };

const rows = (all) =>
  all.length > 0
    ? table({ label: "What it wants", columns: all.some(({ waits }) => waits) ? ROW_COLUMNS.toSpliced(1, 0, WAITS) : ROW_COLUMNS, rows: all, key: (row) => `${row.line}-${row.type}` })
    : empty("The rule book does not know it any more", h("p", "What waits for it can be sent to another service or turned into dead letters; it goes out if the service comes back."));

function hands(name, queues, again) {
  const isPaused = queues.some((queue) => queue.paused_since);
  const waiting = queues.reduce((sum, queue) => sum + queue.waiting, 0);
  return isPaused ? action("operate", "Resume", () => resume(name, waiting, again), { class: "main" }) : action("operate", "Pause", () => pause(name, again));
}

/** Deliveries that wait though no rule is for them: all of a removed service, else those that no row takes. */
const stuckOf = (queue) => (queue.health === "removed" ? queue.waiting : queue.without_rule);

/** What may become of deliveries that wait for a service or a row that the rule book has no more. */
function waysOut(queue, services, again) {
  const others = services.filter((other) => other.health !== "removed" && queueOf(other) !== queueOf(queue)).map(queueOf);
  return [
    others.length > 0 && action("operate", "Send elsewhere", () => takeOut(queue, "move", others, again), { class: "main" }),
    action("operate", "Dead-letter", () => takeOut(queue, "dead-letter", others, again)),
  ];
}

const NOTE = { name: "note", label: "Why", hint: "Kept in the audit.", maxlength: 1000 };

const MOVES = " and will wait for the other service, each session in its order.";
const ENDS = (code) => ` and will end as dead letters (${code}), which can be replayed to another service.`;

/** Asks, then goes on until nothing more is done: one request does a bounded part. */
async function takeOut(queue, act, others, again) {
  const name = queueOf(queue);
  const [isMove, isGone] = [act === "move", queue.health === "removed"];
  let all = 0;
  const done = await ask({
    title: isMove ? `Send deliveries of ${name} elsewhere?` : `Turn deliveries of ${name} into dead letters?`,
    says: [h("p", counted(stuckOf(queue), "delivery waits", "deliveries wait"), isGone ? " for it" : " that no row takes", isMove ? MOVES : ENDS(isGone ? "SERVICE_REMOVED" : "RULE_REMOVED"))],
    fields: [isMove && { name: "to", label: "To", options: others.map((other) => [other, other]) }, NOTE].filter(Boolean),
    act: isMove ? "Send them" : "Dead-letter them",
    danger: !isMove,
    doing: async ({ to, note }) => {
      for (;;) {
        const { done: count, left } = await post(`v1/removed/${part(queue.service)}/${act}`, { channel: queue.channel, to: isMove ? to : undefined, note: note || undefined });
        all += count;
        if (count === 0 || left === 0) return;
      }
    },
  });
  if (done) toast(`${counted(all, "delivery", "deliveries")} ${isMove ? `sent to ${done.to}` : "turned into dead letters"}`);
  again();
}

async function pause(name, again) {
  const done = await ask({
    title: `Pause ${name}?`,
    says: [
      h(
        "p",
        "Nothing of ",
        h("b", name),
        " starts from now on. Events for it are still accepted and wait, in their order; calls under way may end.",
        " It stays so, over a restart too, until somebody resumes it.",
      ),
    ],
    act: "Pause it",
    danger: true,
    doing: () => post(`v1/services/${part(name)}/pause`),
  });
  if (done) toast(`${name} is paused`);
  again();
}

async function resume(name, waiting, again) {
  const done = await ask({
    title: `Resume ${name}?`,
    says: [h("p", waiting === 0 ? "Nothing waits for it: it goes on with what comes." : `${counted(waiting, "delivery", "deliveries")} that wait for it start to go out, as fast as its rules allow.`)],
    act: "Resume it",
    doing: () => post(`v1/services/${part(name)}/resume`),
  });
  if (done) toast(`${name} goes on`);
  again();
}

const SERIES = [
  { name: "attempts", of: (point) => point.attempts, tone: "ink" },
  { name: "delivered", of: (point) => point.delivered, tone: "good", filled: true },
  { name: "failed", of: (point) => point.failed, tone: "bad", filled: true },
];

const TIMES = [
  { name: "half within", of: (point) => point.p50_ms, tone: "info" },
  { name: "99% within", of: (point) => point.p99_ms, tone: "hold" },
];

function overTime(trend) {
  const axis = axisOf(trend);
  const isTimed = trend.points.some((point) => point.p99_ms !== undefined);
  return [
    plot({ ...axis, label: "Attempts, and those delivered and failed", series: SERIES }),
    isTimed && plot({ ...axis, label: "How long attempts take", series: TIMES, format: span, note: "how long attempts take" }),
  ];
}
