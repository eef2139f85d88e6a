/** The shell around every view: navigation with counts, search, connection status and theme. */

import { fill, h } from "./dom.js";
import { clock, span } from "./format.js";
import { icon } from "./icons.js";
import { showKeys } from "./keyboard.js";
import { connection, pulse, tryNow } from "./live.js";
import { boundTo, drawWho, may, me } from "./session.js";
import { announce } from "./ui.js";

const at = (id) => document.getElementById(id);
let views = {};
let current = "";

export function drawShell(all) {
  views = all;
  pulse.watch(drawNav);
  me.watch(drawNav);
  me.watch(() => drawConnection(connection.value));
  at("menu").append(icon("menu"));
  at("menu").onclick = () => toggleMenu(at("menu").getAttribute("aria-expanded") !== "true");
  at("main").addEventListener("click", () => toggleMenu(false));
  document.addEventListener("keydown", (event) => event.key === "Escape" && toggleMenu(false));
  at("shortcuts").onclick = showKeys;
  at("find").onkeydown = find;
  drawTheme();
  at("theme").onclick = nextTheme;
  drawWho(at("who"));
  connection.watch(drawConnection);
  setInterval(() => isWaiting(connection.value) && drawConnection(connection.value), 1000);
}

/** Marks the current view in the navigation. */
export function markView(name) {
  current = name;
  toggleMenu(false);
  drawNav();
}

function toggleMenu(open) {
  at("menu").setAttribute("aria-expanded", String(open));
  document.body.classList.toggle("menu-open", open);
}

/** Larger counts are shown as `99+`. */
const COUNT_MAX = 99;

/** The number behind a view's name: what needs attention there. */
function counts() {
  const now = pulse.value;
  if (!now) return {};
  return { groups: [now.failure_groups, "bad"], breakers: [now.open_breakers.length, "bad"], alerts: [now.firing_alerts, "bad"] };
}

/** Before the identity is known, only restricted views are hidden. */
const maySee = ({ needs }) => (me.value ? may(needs ?? "read") : !needs);

function drawNav() {
  const needs = counts();
  const listed = Object.entries(views).filter(([, view]) => view.group && maySee(view) && !(view.whole && boundTo()));
  const groups = [...new Set(listed.map(([, view]) => view.group))];
  const link = ([name, view]) => {
    const [number, tone] = needs[name] ?? [0];
    const current_ = name === current ? "page" : null;
    const counted = number > COUNT_MAX ? `${COUNT_MAX}+` : String(number);
    return h("li", h("a", { href: `#/${name}`, "aria-current": current_ }, icon(name), view.name, number > 0 && h("span.count", { class: tone }, counted)));
  };
  fill(
    at("nav"),
    groups.map((group) => h("div.group", h("h2", group), h("ul", listed.filter(([, view]) => view.group === group).map(link)))),
    h("p.foot", me.value && h("span", `Redrive ${me.value.version}`), me.value?.demo && h("span.badge.info", "demo")),
  );
}

function find(event) {
  if (event.key !== "Enter") return;
  const wanted = event.target.value.trim();
  if (wanted) location.hash = `#/deliveries?find=${encodeURIComponent(wanted)}`;
  event.target.value = "";
  event.target.blur();
}

const THEMES = { auto: "system", light: "light", dark: "dark" };
const themeNow = () => document.documentElement.dataset.theme ?? "auto";

function nextTheme() {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(themeNow()) + 1) % names.length];
  if (next === "auto") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("redrive.theme");
  } else {
    document.documentElement.dataset.theme = next;
    localStorage.setItem("redrive.theme", next);
  }
  drawTheme();
}

function drawTheme() {
  const now = themeNow();
  const label = `Theme: ${THEMES[now]}`;
  fill(at("theme"), icon({ auto: "auto", light: "sun", dark: "moon" }[now]));
  at("theme").title = label;
  at("theme").setAttribute("aria-label", label);
}

let last = "";

const isWaiting = ({ is }) => is === "offline" || is === "refused";

function drawConnection(now) {
  const { is, since } = now;
  const words = { connecting: "connecting", live: "live", offline: "offline", refused: "not live" };
  const title = is === "live" ? `Live since ${clock(since)}` : "";
  // Keys that can only send events have no live view.
  fill(at("live"), (!me.value || may("read")) && [h("span.dot", { class: is, title }), h("span.word", words[is])]);
  at("offline").hidden = !isWaiting(now);
  if (isWaiting(now)) fill(at("offline"), problem(now), h("button", { type: "button", onclick: tryNow }, "Retry now"));
  if (is === "live" && last === "offline") announce("Connected again");
  if (is !== "connecting") last = is;
}

/** Why the page is not live, since when, and the time of the next try. */
function problem({ is, since, again, reason }) {
  const next = `Retrying in ${span(Math.max(0, Math.ceil((again - Date.now()) / 1000) * 1000))}.`;
  const [what, more] =
    is === "refused"
      ? ["Live updates are off", ` since ${clock(since)}: ${reason}. `]
      : ["Cannot reach the server", ` since ${clock(since)}. Figures are from that time. `];
  return h("span", h("b", what), more, h("span", { "aria-hidden": "true" }, next));
}
