/** Deliveries: search, filters, pages, and live updates of the first page. */

import { get, part } from "../api.js";
import { outlook } from "../delivery_text.js";
import { fill, h, slot } from "../dom.js";
import { firstEvent } from "../first_event.js";
import { count, endOfId, queueOf, when } from "../format.js";
import { onActivity, pulse } from "../live.js";
import { deliveries, onlyService } from "../scope.js";
import { boundTo } from "../session.js";
import { badge, card, empty, heading, table } from "../ui.js";
import { watch } from "../watch.js";
import { view as one } from "./delivery.js";

/** The states that the API filters by. */
const STATES = ["pending", "retrying", "behind", "delivered", "dead"];
/** Names that differ from the API value. */
const STATE_NAMES = { behind: "blocked by session" };
const FILTERS = ["service", "state", "type", "session", "correlation"];
const PAGE_MAX = 50;
const REFRESH_MS = 5000;
/** The shortest time between two live refreshes. */
const LIVE_MS = 700;

export async function view(place, page) {
  if (page.path.length > 0) return one(place, page);
  const wanted = page.query.get("find")?.trim();
  if (wanted) return find(place, page, wanted);
  const found = slot("div");
  fill(
    place,
    heading("Deliveries", { description: "Every event becomes one delivery per subscribed service. Each delivery ends in exactly one outcome." }),
    filters(page),
    card("Latest first", h("span.dim", live(page)), found),
  );
  const query = Object.fromEntries(FILTERS.map((name) => [name, page.query.get(name)]));
  query.service ??= onlyService();
  const before = page.query.get("before");
  let known = null;
  const watching = watch(page, found, {
    load: (signal) => deliveries({ ...query, before, limit: PAGE_MAX }, signal),
    draw: (answer) => {
      const before = known;
      known = new Set(answer.deliveries.map(({ id }) => id));
      return drawn(answer, page, ({ id }) => before !== null && !before.has(id));
    },
    every: before ? 6 * REFRESH_MS : REFRESH_MS,
    lines: 12,
  });
  if (!before) follow(page, query, watching);
}

/** Refreshes soon after activity that may belong to this list. */
function follow(page, query, { again }) {
  let due = false;
  onActivity((activity) => (due ||= Boolean(activity.event_id) && (!query.service || activity.service?.split("/")[0] === query.service)), page.signal);
  page.every(LIVE_MS, () => {
    if (!due || document.hidden) return;
    due = false;
    again();
  });
}

const live = (page) => (page.query.get("before") ? "older page" : "live");

function filters(page) {
  const value = (name) => page.query.get(name) ?? "";
  const change = (name) => (event) => page.go({ [name]: event.target.value.trim(), before: "" });
  const text = (name, label) => h("input", { type: "search", placeholder: label, "aria-label": label, value: value(name), onchange: change(name), spellcheck: "false" });
  const option = (name) => (text) => h("option", { value: text, selected: text === value(name) }, STATE_NAMES[text] ?? text);
  const known = boundTo() ?? (pulse.value?.services ?? []).map(({ service }) => service);
  const services = [...new Set([...known, value("service")])].filter(Boolean);
  const any = [...FILTERS, "before"].some((name) => page.query.has(name));
  return h(
    "search.filters",
    h("select", { "aria-label": "Service", onchange: change("service") }, !onlyService() && h("option", { value: "" }, "All services"), services.map(option("service"))),
    h("select", { "aria-label": "State", onchange: change("state") }, h("option", { value: "" }, "All states"), STATES.map(option("state"))),
    text("type", "Event type"),
    text("session", "Session"),
    text("correlation", "Correlation ID"),
    any && h("a.small", { href: "#/deliveries" }, "Clear"),
  );
}

export const COLUMNS = [
  { name: "Event", cell: (row) => row.event_type },
  { name: "Service", cell: queueOf },
  { name: "State", cell: (row) => badge(row.state) },
  { name: "Detail", cell: remark, wide: true },
  { name: "Attempts", cell: (row) => count(row.attempts), end: true },
  { name: "Event ID", cell: (row) => h("span.mono.cut", { title: row.event_id }, endOfId(row.event_id)) },
  { name: "Accepted", cell: (row) => when(row.accepted_at), end: true },
];

function remark(row) {
  if (row.death) return h("span.dim", row.death.message);
  if (["pending", "retrying", "held"].includes(row.state)) return h("span.dim", outlook(row));
  return "";
}

export const deliveriesTable = (rows, { columns = COLUMNS, isFresh } = {}) =>
  table({ label: "Deliveries", columns, rows, isFresh, key: (row) => row.id, href: (row) => `#/deliveries/${row.id}` });

function drawn({ deliveries: rows, next, isCut }, page, isFresh) {
  if (rows.length === 0) return nothing(page);
  const before = page.query.get("before");
  return [
    deliveriesTable(rows, { isFresh }),
    (before || next) &&
      h(
        "div.pages",
        before && h("button", { type: "button", onclick: () => page.go({ before: "" }) }, "Latest"),
        next && h("button", { type: "button", onclick: () => page.go({ before: next }) }, "Older"),
      ),
    isCut && h("p.pages.dim", "Select a service to see older deliveries"),
  ];
}

function nothing(page) {
  if (FILTERS.some((name) => page.query.has(name))) return empty("No matching deliveries", h("p", "Remove a filter, or ", h("a", { href: "#/deliveries" }, "show all deliveries"), "."));
  return empty("No deliveries yet", h("p", "Send a first event. Services that subscribe to its type receive it."), firstEvent());
}

const HEX = /^(msg_)?[0-9a-f]{4,32}$/i;

/** Searches by ID, then type, session and correlation ID, then event ID; a single match opens at once. */
async function find(place, page, wanted) {
  const none = (error) => {
    if (error.name === "AbortError" || error.isOffline) throw error;
    return [];
  };
  const list = (name) => deliveries({ [name]: wanted, limit: PAGE_MAX }, page.signal).then((answer) => answer.deliveries).catch(none);
  const lookups = [
    async () => (HEX.test(wanted) ? get(`v1/deliveries/${part(wanted)}`, {}, page.signal).then((delivery) => [delivery]).catch(none) : []),
    async () => (await Promise.all(["type", "session", "correlation"].map(list))).flat(),
    async () => get(`v1/events/${part(wanted)}`, {}, page.signal).then((answer) => answer.events.flatMap((event) => event.deliveries)).catch(none),
  ];
  const all = new Map();
  for (const lookup of lookups) {
    if (all.size === 0) for (const row of await lookup()) all.set(row.id, row);
  }
  const rows = [...all.values()].sort((a, b) => Date.parse(b.accepted_at) - Date.parse(a.accepted_at));
  if (rows.length === 1) return location.replace(`#/deliveries/${rows[0].id}`);
  fill(
    place,
    heading(h("span", "Results for ", h("q", wanted)), { up: ["#/deliveries", "Deliveries"] }),
    card("Deliveries", h("span.dim", `${count(rows.length)} found`), rows.length > 0
      ? deliveriesTable(rows)
      : empty("No results", h("p", "Search by delivery ID (the first digits are enough), event ID, receipt, event type, session or correlation ID."))),
  );
}
