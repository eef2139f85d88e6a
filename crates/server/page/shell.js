/** What is around every view: navigation with its counts, search, the live dot, the theme and the way back. */

import { fill, h } from "./dom.js";
import { clock, span } from "./format.js";
import { icon } from "./icons.js";
import { showKeys } from "./keyboard.js";
import { connection, pulse, tryNow } from "./live.js";
import { boundTo, drawWho, may, me } from "./session.js";
import { say } from "./ui.js";

const at = (id) => document.getElementById(id);
let views = {};
let current = "";

/** Puts everything in its place and keeps it up to date. */
export function dressShell(all) {
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

/** Which view is shown. */
export function markPlace(name) {
  current = name;
  toggleMenu(false);
  drawNav();
}

function toggleMenu(open) {
  at("menu").setAttribute("aria-expanded", String(open));
  document.body.classList.toggle("menu-open", open);
}

/** More than so many are not counted out: the number keeps its size. */
const COUNT_MAX = 99;

/** What of a page needs a look, as a number behind its name. */
function counts() {
  const now = pulse.value;
  if (!now) return {};
  return { groups: [now.failure_groups, "bad"], breakers: [now.open_breakers.length, "bad"], alerts: [now.firing_alerts, "bad"] };
}

/** Before we know who looks, nothing is hidden that most may see. */
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

const THEMES = { auto: "the theme of this machine", light: "light", dark: "dark" };
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

const isWaiting = ({ is }) => is === "away" || is === "refused";

function drawConnection(now) {
  const { is, since } = now;
  const words = { connecting: "connecting", live: "live", away: "away", refused: "not live" };
  const title = is === "live" ? `Live since ${clock(since)}` : "";
  // Whoever may only send events has nothing to wait for.
  fill(at("live"), (!me.value || may("read")) && [h("span.dot", { class: is, title }), h("span.word", words[is])]);
  at("away").hidden = !isWaiting(now);
  if (isWaiting(now)) fill(at("away"), trouble(now), h("button", { type: "button", onclick: tryNow }, "Try now"));
  if (is === "live" && last === "away") say("The server is back");
  if (is !== "connecting") last = is;
}

/** Why nothing is live, since when, and when it is tried again. */
function trouble({ is, since, again, says }) {
  const next = `Next try in ${span(Math.max(0, Math.ceil((again - Date.now()) / 1000) * 1000))}.`;
  const [what, more] =
    is === "refused"
      ? ["This page is not live", ` since ${clock(since)}. The server says: ${says}. `]
      : ["The server cannot be reached", ` since ${clock(since)}. Figures are from then. `];
  return h("span", h("b", what), more, h("span", { "aria-hidden": "true" }, next));
}
