/** Shared components: badges, tiles, cards, tables, empty states, errors and placeholders. */

import { toast } from "./dialog.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { sparkline } from "./plot.js";

/** Tone and icon of each state. */
const STATES = {
  pending: ["quiet", "wait"], retrying: ["warn", "retry"], held: ["hold", "hold"], replaying: ["info", "replays"],
  delivered: ["good", "good"], dead: ["bad", "bad"], skipped: ["quiet", "gone"], purged: ["quiet", "gone"],
  superseded: ["quiet", "next"],
  healthy: ["good", "good"], degraded: ["warn", "warn"], failing: ["bad", "bad"], paused: ["hold", "hold"],
  idle: ["quiet", "idle"], removed: ["warn", "gone"],
  closed: ["good", "good"], open: ["bad", "breakers"], "half-open": ["warn", "wait"], none: ["quiet", "gone"],
  connecting: ["quiet", "wait"], reading: ["good", "good"], down: ["bad", "bad"],
  firing: ["bad", "alerts"], quiet: ["good", "good"],
  error: ["bad", "bad"], warning: ["warn", "warn"], info: ["info", "idle"],
  critical: ["bad", "bad"], high: ["bad", "warn"], medium: ["warn", "warn"], low: ["quiet", "idle"],
  running: ["info", "replays"], gathering: ["info", "wait"], stopped: ["bad", "hold"], cancelled: ["quiet", "gone"],
  done: ["good", "good"], poison: ["bad", "warn"],
  transient: ["warn", "retry"], "rate-limited": ["warn", "wait"], permanent: ["bad", "bad"], invalid: ["bad", "bad"],
  fatal: ["bad", "bad"], unknown: ["warn", "warn"], internal: ["bad", "bad"],
};

/** The severities of alerts and doctor findings, worst first. */
export const SEVERITIES = ["critical", "high", "medium", "warning", "low"];

/** Sorts by the severity that `of` returns; stable. */
export const worstFirst = (list, of) => [...list].sort((a, b) => SEVERITIES.indexOf(of(a)) - SEVERITIES.indexOf(of(b)));

/** The tone of a state: `good`, `warn`, `bad`, `hold`, `info` or `quiet`. */
export const toneOf = (state) => STATES[state]?.[0] ?? "quiet";

export function badge(state, word = state) {
  const [tone, shape] = STATES[state] ?? ["quiet", "idle"];
  return h("span.badge", { class: tone }, icon(shape), word);
}

/** A figure with its name; `points` draw a sparkline. */
export function tile({ name, value, unit, note, tone = "plain", points, href }) {
  return h(
    href ? "a.tile" : "div.tile",
    { href, class: tone },
    h("span.name", name),
    h("span.value", value, unit && h("small", unit)),
    note && h("span.note", note),
    points && sparkline(points),
  );
}

/** A section with a heading; `more` is at its right. */
export const card = (title, more, ...content) =>
  h("section.card", h("header", h("h2", title), more && h("div.more", more)), content);

/** A list of names and values. */
export const facts = (...rows) =>
  h("dl.facts", rows.filter(Boolean).map(([name, value]) => h("div", h("dt", name), h("dd", value))));

/**
 * A table. Columns: `{ name, cell(row), end?, wide? }` (`end` aligns numbers right, `wide` takes the free width).
 * `href(row)` links the first cell; a click on the row follows it, and arrow keys move between rows. `isFresh(row)`
 * highlights new rows.
 */
export function table({ label, columns, rows, key, href, isFresh = () => false }) {
  const cells = (row) =>
    columns.map(({ name, cell, end, wide }, at) => {
      const content = cell(row);
      const linked = at === 0 && href ? h("a", { href: href(row) }, content) : content;
      return h("td", { "data-name": name, class: [end && "end", wide && "wide"].filter(Boolean).join(" ") || null }, linked);
    });
  const rowOf = (row) => h("tr", { key: key(row), onclick: href && follow, class: [href && "leads", isFresh(row) && "fresh"].filter(Boolean).join(" ") || null }, cells(row));
  return h(
    "div.scroll",
    { tabindex: "0", role: "region", "aria-label": label },
    h(
      "table",
      { onkeydown: moveFocus },
      h("thead", h("tr", columns.map(({ name, end }) => h("th", { scope: "col", class: end ? "end" : null }, name)))),
      h("tbody", rows.map(rowOf)),
    ),
  );
}

/** Follows the link of a clicked row, unless a control was clicked or text is selected. */
function follow(event) {
  if (event.target.closest("a, button, input, label") || !getSelection().isCollapsed) return;
  event.currentTarget.querySelector("a")?.click();
}

function moveFocus(event) {
  const steps = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 };
  const step = steps[event.key];
  if (!step || event.target.matches("input, textarea, select")) return;
  const links = [...event.currentTarget.querySelectorAll("tbody tr td:first-child a")];
  const at = links.indexOf(event.target.closest("tr")?.querySelector("a"));
  const next = links[at + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

/** An empty state: why, and what to do next. */
export const empty = (title, ...content) => h("div.empty", h("p.title", title), content);

/** A shell command with a copy button. */
export function command(text) {
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  };
  return h("div.command", h("code", { tabindex: "0" }, text), h("button.quiet", { type: "button", onclick: copy, "aria-label": "Copy command" }, icon("copy")));
}

/** A failed request, with a retry button. */
export function failure(error, again) {
  const title = error.isOffline ? "Cannot reach the server" : "Request failed";
  const message = error.isOffline ? "The page retries automatically." : error.message;
  return h("div.empty.trouble", { role: "alert" }, h("p.title", title), h("p", message), again && h("button", { type: "button", onclick: again }, "Try again"));
}

/** A placeholder while data loads. */
export const skeleton = (lines = 5) =>
  h("div.skeleton", { "aria-hidden": "true" }, Array.from({ length: lines }, () => h("span")));

/** A group of toggle buttons: `choice("Span", [["15m", "15 min"], …], "15m", (value) => …)`. */
export const choice = (label, options, chosen, onchoose) =>
  h(
    "div.choice",
    { role: "group", "aria-label": label },
    options.map(([value, text]) =>
      h("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => onchoose(value) }, text),
    ),
  );

/** The heading of a view: parent link, title, badge, actions and description. */
export const heading = (title, { up, badge: mark, acts, description } = {}) =>
  h(
    "div.heading",
    up && h("a.up", { href: up[0] }, icon("back"), up[1]),
    h("div.line", h("h1", title), mark, acts && h("div.acts", acts)),
    description && h("p.dim", description),
  );

/** Announces a change to screen readers. */
export const announce = (text) => {
  document.getElementById("announcements").textContent = text;
};

/** A link to a line of the rule book. */
export const lineLink = (line) => h("a.line", { href: `#/book/${line}`, title: "Open in the rule book" }, `line ${line}`);
