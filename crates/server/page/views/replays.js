/** Replays: the list, and one replay with its progress. */

import { get, messages, open, part, post } from "../api.js";
import { ask, toast } from "../dialog.js";
import { fill, h, slot } from "../dom.js";
import { count, counted, rate, span, when } from "../format.js";
import { action } from "../session.js";
import { announce, badge, card, empty, facts, failure, heading, skeleton, table, tile } from "../ui.js";
import { hidden, visible } from "../visibility.js";
import { watch } from "../watch.js";
import { newReplay } from "./new_replay.js";

const REPLAYS_MS = 3000;
const AGAIN_MS = 2000;
const PAGE_ROWS = 50;

export async function view(place, page) {
  const [id] = page.path;
  if (id === "new") return newReplay(place, page);
  if (id) return oneReplay(place, page, id);
  const before = page.query.get("before");
  const body = slot("section.card");
  fill(
    place,
    heading("Replays", { description: "A replay sends dead letters again. It runs on the server, independent of this page." }),
    body,
  );
  watch(page, body, { load: (signal) => get("v1/replays", { before, limit: PAGE_ROWS }, signal), draw: (found) => drawReplays(found, page), every: REPLAYS_MS });
}

const COLUMNS = [
  { name: "Replay", cell: (replay) => `#${replay.id}` },
  { name: "State", cell: (replay) => badge(replay.state) },
  { name: "Selection", cell: (replay) => replay.what, wide: true },
  { name: "Progress", cell: (replay) => bar(replay) },
  { name: "Dead letters", cell: (replay) => count(replay.total), end: true },
  { name: "Delivered", cell: (replay) => count(replay.delivered), end: true },
  { name: "Failed again", cell: (replay) => (replay.failed > 0 ? h("span.tinted.bad", count(replay.failed)) : "0"), end: true },
  { name: "Started", cell: (replay) => when(replay.created_at) },
];

function drawReplays({ replays, next }, page) {
  if (replays.length === 0) {
    return empty("No replays yet", h("p", "After you fix the cause of a failure group, replay it: ", h("a", { href: "#/groups" }, "failure groups"), "."));
  }
  return h(
    "div",
    table({ label: "Replays", columns: COLUMNS, rows: replays, key: (replay) => replay.id, href: (replay) => `#/replays/${replay.id}` }),
    next && h("div.pages", h("button", { type: "button", onclick: () => page.go({ before: next }) }, "Older replays")),
  );
}

// --- One replay ------------------------------------------------------------------------------------

function oneReplay(place, page, id) {
  page.title(`Replay ${id}`);
  const body = slot("div.stack");
  fill(place, body);
  fill(body, skeleton(6));
  follow(page, body, id);
}

/** Draws every change while the tab is visible; reconnects until the replay is over. */
async function follow(page, body, id) {
  const pace = speedometer();
  let last = null;
  const draw = (replay) => {
    if (last && last.state !== replay.state) announce(outcome(replay));
    last = replay;
    fill(body, drawReplay(replay, pace(replay), (changed) => draw(changed)));
  };
  while (!page.signal.aborted) {
    await visible();
    const left = hidden();
    try {
      const signal = AbortSignal.any([page.signal, left]);
      const answer = await open(`v1/replays/${part(id)}/progress`, { signal });
      for await (const { data } of messages(answer.body)) draw(data);
      if (last && isOver(last)) return;
    } catch (error) {
      if (page.signal.aborted) return;
      if (left.aborted) continue;
      const isRefused = error.status >= 400 && error.status < 500 && error.status !== 429;
      if (!last || isRefused) fill(body, heading(`Replay ${id}`, { up: ["#/replays", "Replays"] }), h("section.card", failure(error)));
      if (isRefused) return;
    }
    await new Promise((go) => setTimeout(go, AGAIN_MS));
  }
}

const isOver = ({ state }) => state === "done" || state === "cancelled";
const answered = ({ delivered, failed, left }) => delivered + failed + left;

/** Outcomes per second over the last few seconds. */
function speedometer() {
  const SPAN_MS = 5000;
  let looks = [];
  return (replay) => {
    const now = Date.now();
    looks = [...looks.filter(({ at }) => now - at < SPAN_MS), { at: now, answered: answered(replay) }];
    const [first] = looks;
    return now > first.at ? ((answered(replay) - first.answered) * 1000) / (now - first.at) : 0;
  };
}

function drawReplay(replay, perSecond, onChange) {
  const rest = replay.waiting + replay.in_flight;
  const isActive = replay.state === "running" || replay.state === "gathering";
  return [
    heading(`Replay ${replay.id}`, { up: ["#/replays", "Replays"], badge: badge(replay.state), acts: acts(replay, onChange), description: replay.what }),
    h("div.callout", { class: { done: replay.failed > 0 ? "warn" : "good", stopped: "bad", paused: "hold", cancelled: "quiet" }[replay.state] ?? "info" },
      h("p", h("b", outcome(replay))),
      replay.stop && replay.state === "stopped" && h(
        "p",
        h("a", { href: `#/letters/${replay.stop.delivery}` }, "Why it failed again"),
        " · ",
        h("a", { href: `#/groups/${replay.stop.fingerprint}` }, "Failure group"),
      ),
      replay.claimed_by_others > 0 && h("p", `${counted(replay.claimed_by_others, "dead letter")} skipped: part of another replay.`)),
    replay.canary && waves(replay),
    card("Progress", h("span.dim", progressText(replay, perSecond, rest, isActive)), h("div.pad", bar(replay, "large"), key(replay))),
    h("div.tiles",
      tile({ name: "Dead letters", value: count(replay.total) }),
      tile({ name: "Delivered", value: count(replay.delivered), tone: replay.delivered > 0 ? "good" : "plain" }),
      tile({ name: "Failed again", value: count(replay.failed), ...(replay.failed > 0 && { tone: "bad", note: "now poison", href: "#/groups" }) }),
      tile({ name: "Skipped", value: count(replay.left), note: replay.left > 0 ? "an earlier one of the session failed, or no longer dead" : null }),
      tile({ name: "In flight", value: count(replay.in_flight) }),
      tile({ name: replay.state === "cancelled" ? "Not sent" : "Queued", value: count(replay.waiting) })),
    card("Settings", null, facts(
      ["Rate", [replay.rate ? `at most ${rate(replay.rate)}/s` : "no limit", `, ${count(replay.concurrency)} in flight at most`]],
      ["Order", "original order within each session"],
      replay.to && ["Target service", `${replay.to}, instead of the original service`],
      ["Started", [when(replay.created_at), replay.origin === "automatic" ? " by the rule book" : ""]],
      replay.note && ["Reason", replay.note])),
  ];
}

/** The state or result in one line. */
function outcome(replay) {
  const numbers = [`${count(replay.delivered)} delivered`];
  if (replay.failed > 0) numbers.push(`${count(replay.failed)} failed again`);
  if (replay.left > 0) numbers.push(`${count(replay.left)} skipped`);
  const rest = replay.waiting + replay.in_flight;
  if (rest > 0) numbers.push(`${count(rest)} ${replay.state === "cancelled" ? "not sent or still in flight" : "remaining"}`);
  const sum = numbers.join(", ");
  return {
    done: `Done: ${sum}`,
    stopped: `Stopped because a dead letter failed again: ${sum}`,
    paused: `Paused: ${sum}`,
    cancelled: `Cancelled, unsent dead letters are kept: ${sum}`,
    gathering: `Collecting dead letters: ${count(replay.total)} so far`,
    running: `Running: ${sum}`,
  }[replay.state];
}

function progressText(replay, perSecond, rest, isActive) {
  if (!isActive || perSecond <= 0) return `${Math.floor(share(replay) * 100)}%`;
  return `${Math.floor(share(replay) * 100)}%, ${rate(perSecond)}/s, about ${span((rest / perSecond) * 1000)} left`;
}

/** An empty replay is complete. */
const share = (replay) => (replay.total > 0 ? answered(replay) / replay.total : 1);

const PARTS = [
  ["delivered", "good", "delivered"],
  ["failed", "bad", "failed again"],
  ["left", "quiet", "skipped"],
  ["in_flight", "info", "in flight"],
];

function bar(replay, size = "") {
  const percent = Math.floor(share(replay) * 100);
  const parts = PARTS.map(([name, tone]) => h("span", { class: tone, style: { width: `${replay.total > 0 ? (replay[name] / replay.total) * 100 : 0}%` } }));
  return h("div.progress", { class: size, role: "progressbar", "aria-label": `Replay ${replay.id}`, "aria-valuenow": percent, "aria-valuemin": 0, "aria-valuemax": 100 }, parts);
}

const key = (replay) => h("ul.legend", PARTS.map(([name, tone, word]) => h("li", { class: tone }, h("i"), `${count(replay[name])} ${word}`)));

const WAVES = [["first", "1 dead letter"], ["second", "10 dead letters"], ["rest", "the rest"]];

/** The waves of the canary. */
function waves(replay) {
  const at = WAVES.findIndex(([wave]) => wave === replay.wave);
  const isDone = replay.state === "done";
  const steps = WAVES.map(([, words], index) => {
    const state = isDone || index < at ? "done" : index > at ? "next" : replay.state === "stopped" ? "stopped" : "now";
    const tone = { done: "good", now: "info", stopped: "bad" }[state] ?? "quiet";
    return h("li", { class: tone, "aria-current": state === "now" ? "step" : null }, h("b", words), h("span", state));
  });
  return card("Canary", h("span.dim", "each wave starts after the previous one was delivered"), h("ol.waves", steps));
}

function acts(replay, onChange) {
  const change = (act, result) => async () => {
    try {
      onChange(await post(`v1/replays/${replay.id}/${act}`));
      toast(result);
    } catch (error) {
      toast(error.message, "bad");
    }
  };
  const cancel = async () => {
    const description = h("p", `${counted(replay.waiting, "unsent dead letter")} will be kept and can be replayed later. Deliveries in flight are not interrupted.`);
    const dialog = { title: `Cancel replay ${replay.id}?`, description, act: "Cancel replay", dismiss: "Keep replay", danger: true };
    await ask({ ...dialog, submit: change("cancel", `Replay ${replay.id} cancelled`) });
  };
  return {
    gathering: [action("operate", "Pause", change("pause", "Replay paused")), action("operate", "Cancel…", cancel)],
    running: [action("operate", "Pause", change("pause", "Replay paused")), action("operate", "Cancel…", cancel)],
    paused: [action("operate", "Resume", change("resume", "Replay resumed"), { class: "main" }), action("operate", "Cancel…", cancel)],
    stopped: [action("operate", "Resume", change("resume", "Replay resumed"), { class: "main" }), action("operate", "Cancel…", cancel)],
  }[replay.state];
}
