/** Failure groups: dead letters by cause, and one group with its dead letters. */

import { get, part } from "../api.js";
import { fill, h, slot } from "../dom.js";
import { compact, count, counted, queueOf, when } from "../format.js";
import { attemptHistory } from "../history.js";
import { letterTable } from "../letter_table.js";
import { pulse } from "../live.js";
import { plot, sparkline } from "../plot.js";
import { purge } from "../purge.js";
import { failureGroups, isBoundToSeveral, onlyService } from "../scope.js";
import { now } from "../server_clock.js";
import { action, boundTo } from "../session.js";
import { timeline } from "../timeline.js";
import { badge, card, choice, empty, facts, heading, table } from "../ui.js";
import { watch } from "../watch.js";

const CATEGORIES = ["transient", "rate-limited", "permanent", "invalid", "fatal", "unknown", "internal"];
const AGES = [["1h", "Last hour"], ["24h", "Last day"], ["7d", "Last week"], ["", "All"]];
const GROUPS_MS = 5000;

export async function view(place, page) {
  if (page.path.length > 0) return oneGroup(place, page, page.path[0]);
  page.title("Failure groups");
  const filter = {
    service: page.query.get("service") ?? onlyService(),
    category: page.query.get("category"),
    from: page.query.get("from"),
  };
  const body = slot("section.card");
  const held = slot("div");
  fill(
    place,
    heading("Failure groups", {
      description: "Dead letters grouped by cause. Fix the cause, then replay the group.",
      // A limited key can replay only one service at a time.
      acts: (filter.service || !isBoundToSeveral()) && action("operate", "Replay all shown", () => location.assign(replayHref(filter))),
    }),
    filters(page, filter, await knownServices(page.signal)),
    body,
    held,
  );
  watch(page, body, { load: (signal) => failureGroups(filter, signal), draw: (found) => drawGroups(found, filter), every: GROUPS_MS });
  // The endpoint is not available to limited keys.
  if (!boundTo()) watch(page, held, { load: (signal) => get("v1/held-sessions", {}, signal), draw: drawHeld, every: GROUPS_MS, lines: 0 });
}

const given = (filter) => Object.fromEntries(Object.entries(filter).filter(([, value]) => value));

/** The address of a new replay with this filter. */
const replayHref = (filter) => {
  const query = new URLSearchParams(given(filter));
  return `#/replays/new${query.size > 0 ? `?${query}` : "?all=true"}`;
};

/** All services; loaded if there was no pulse yet. */
export async function knownServices(signal) {
  return pulse.value?.services ?? (await get("v1/services", {}, signal)).services;
}

function filters(page, { service, category, from }, known) {
  const services = [...new Set([...known.map((one) => one.service), ...(service ? [service] : [])])].sort();
  return h(
    "div.filters",
    select("Service", "All services", services, service, (value) => page.go({ service: value })),
    select("Category", "All categories", CATEGORIES, category, (value) => page.go({ category: value })),
    choice("Age", AGES, from ?? "", (value) => page.go({ from: value })),
  );
}

function select(label, all, options, now, onchoose) {
  return h(
    "select",
    { "aria-label": label, onchange: (event) => onchoose(event.target.value) },
    h("option", { value: "" }, all),
    options.map((value) => h("option", { value, selected: value === now }, value)),
  );
}

const GROUP_COLUMNS = [
  { name: "Cause", cell: (group) => h("span.cause", h("span", group.message || group.code), h("span.dim.mono", group.code)), wide: true },
  { name: "Dead letters", cell: (group) => h("span.count-of", h("b", compact(group.count)), group.poison > 0 && h("span.small.tinted.bad", `${compact(group.poison)} poison`)), end: true },
  { name: "Last 24 hours", cell: (group) => h("span.trend.bad", { title: trendWords(group.trend) }, sparkline(group.trend.counts)) },
  { name: "Service", cell: (group) => group.services.map((one) => h("span.one-of", queueOf(one))) },
  { name: "Category", cell: (group) => badge(group.category) },
  { name: "First seen", cell: (group) => when(group.first_seen) },
  { name: "Last seen", cell: (group) => when(group.last_seen) },
];

const trendWords = ({ counts }) => `${count(counts.reduce((sum, one) => sum + one, 0))} in the last 24 hours`;

function drawGroups({ groups }, filter) {
  if (groups.length === 0) return nothing(filter);
  const letters = groups.reduce((sum, group) => sum + group.count, 0);
  return h(
    "div",
    h("p.sum", h("b", counted(letters, "dead letter")), ` in ${counted(groups.length, "group")}`),
    table({ label: "Failure groups", columns: GROUP_COLUMNS, rows: groups, key: (group) => group.fingerprint, href: (group) => `#/groups/${group.fingerprint}` }),
  );
}

function nothing(filter) {
  const isFiltered = Object.values(filter).some(Boolean);
  if (isFiltered) return empty("No matching dead letters", h("p", h("a", { href: "#/groups" }, "Show all failure groups")));
  return empty("No dead letters", h("p", "A delivery that fails permanently is kept here with its event, attempts and reason, until it is replayed, skipped or purged."));
}

const HELD_COLUMNS = [
  { name: "Session", cell: (one) => one.session },
  { name: "Service", cell: queueOf },
  { name: "Type", cell: (one) => one.event_type },
  { name: "Blocked deliveries", cell: (one) => count(one.behind), end: true },
  { name: "Since", cell: (one) => when(one.since) },
];

function drawHeld({ held_sessions: held }) {
  if (held.length === 0) return [];
  return card(
    "Sessions blocked by a dead letter",
    h("span.dim", "later deliveries wait"),
    table({ label: "Blocked sessions", columns: HELD_COLUMNS, rows: held, key: (one) => one.letter, href: (one) => `#/letters/${one.letter}` }),
  );
}

// --- One group -------------------------------------------------------------------------------------

function oneGroup(place, page, fingerprint) {
  page.title(`Failure group ${fingerprint}`);
  const filter = { fingerprint };
  const [top, example, letters] = [slot("div.stack"), slot("div"), slot("div")];
  fill(place, top, example, letters);
  let sample = null;
  const showSample = (id) => {
    if (id === sample) return;
    sample = id;
    const body = slot("div");
    fill(example, card("Latest example", h("a", { href: `#/letters/${id}` }, "Open"), body));
    let scale = null;
    const looking = watch(page, body, {
      load: (signal) => get(`v1/deliveries/${part(id)}`, {}, signal),
      draw: (delivery) => h("div", timeline(delivery, scale, (chosen) => ((scale = chosen), looking.again())), attemptHistory(delivery)),
    });
  };
  watch(page, top, {
    load: (signal) => failureGroups(filter, signal),
    draw: ({ groups: [group] }) => {
      if (!group) return gone(fingerprint);
      showSample(group.sample);
      return drawGroup(group);
    },
    every: GROUPS_MS,
  });
  letterTable(page, letters, filter);
}

function gone(fingerprint) {
  return [
    heading("No dead letters left", { up: ["#/groups", "Failure groups"] }),
    h("section.card", empty(
      "This failure group is empty",
      h("p", "Its dead letters were replayed, skipped or purged. The audit log has the details."),
      h("p", h("a", { href: "#/replays" }, "Replays"), " · ", h("a", { href: "#/audit" }, "Audit")),
      h("p.mono.dim", fingerprint),
    )),
  ];
}

function drawGroup(group) {
  // A limited key has to name the service.
  const filter = { fingerprint: group.fingerprint, service: boundTo() && group.services[0].service };
  return [
    heading(group.message || group.code, {
      up: ["#/groups", "Failure groups"],
      badge: badge(group.category),
      acts: [
        action("operate", "Replay group…", () => location.assign(replayHref(filter)), { class: "main" }),
        action("operate", "Purge…", () => purge(given(filter), "this failure group")),
      ],
    }),
    h("div.columns", card("Dead letters, last 24 h", null, drawTrend(group.trend)), card("Details", null, groupFacts(group))),
  ];
}

function drawTrend({ counts, span_seconds: seconds }) {
  const step = seconds * 1000;
  const to = now();
  const points = counts.map((value, at) => ({ at: new Date(to - (counts.length - 1 - at) * step).toISOString(), value }));
  const series = [{ name: "dead letters", of: (point) => point.value, tone: "bad", filled: true }];
  return plot({ label: "Dead letters", points, series, from: to - (counts.length - 1) * step, to, step });
}

const groupFacts = (group) =>
  facts(
    ["Dead letters", [h("b", count(group.count)), group.poison > 0 && h("span.tinted.bad", `, ${count(group.poison)} poison`)]],
    ["Code", h("code", group.code)],
    ["Service", group.services.map((one) => h("span.one-of", h("a", { href: `#/services/${part(one.service)}` }, queueOf(one)), ` ${count(one.count)}`))],
    ["Event types", group.event_types.map((one) => h("span.one-of", h("code", one.type), ` ${count(one.count)}`))],
    ["First seen", when(group.first_seen)],
    ["Last seen", when(group.last_seen)],
    ["Fingerprint", h("code", group.fingerprint)],
  );
