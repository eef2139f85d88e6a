/** Replays: all of them, one as it goes on, and a new one from its dry run to its start. */

import { get, messages, open, part, post } from "../api.js";
import { ask, toast } from "../dialog.js";
import { fill, h, slot } from "../dom.js";
import { count, counted, rate, span, when } from "../format.js";
import { hidden, seen } from "../seen.js";
import { action } from "../session.js";
import { badge, card, empty, facts, failure, heading, say, skeleton, table, tile } from "../ui.js";
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
    heading("Replays", { says: "Dead letters that are sent through the pipeline again. A replay is a job of the server: it goes on whether anybody watches or not." }),
    body,
  );
  watch(page, body, { load: (signal) => get("v1/replays", { before, limit: PAGE_ROWS }, signal), draw: (found) => drawReplays(found, page), every: REPLAYS_MS });
}

const COLUMNS = [
  { name: "Replay", cell: (replay) => `No. ${replay.id}` },
  { name: "State", cell: (replay) => badge(replay.state) },
  { name: "What", cell: (replay) => replay.what, wide: true },
  { name: "Progress", cell: (replay) => bar(replay) },
  { name: "Letters", cell: (replay) => count(replay.total), end: true },
  { name: "Delivered", cell: (replay) => count(replay.delivered), end: true },
  { name: "Failed again", cell: (replay) => (replay.failed > 0 ? h("span.tinted.bad", count(replay.failed)) : "0"), end: true },
  { name: "Began", cell: (replay) => when(replay.created_at) },
];

function drawReplays({ replays, next }, page) {
  if (replays.length === 0) {
    return empty("Nothing was replayed yet", h("p", "Once the cause of a failure group is mended, its letters can be sent again: ", h("a", { href: "#/groups" }, "failure groups"), "."));
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

/** Draws the replay whenever it changes, while the tab is seen; a stream that breaks off is opened again until it is over. */
async function follow(page, body, id) {
  const pace = speedometer();
  let last = null;
  const draw = (replay) => {
    if (last && last.state !== replay.state) say(outcome(replay));
    last = replay;
    fill(body, drawReplay(replay, pace(replay), (changed) => draw(changed)));
  };
  while (!page.signal.aborted) {
    await seen();
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
      // What is refused will not come by waiting.
      if (isRefused) return;
    }
    await new Promise((go) => setTimeout(go, AGAIN_MS));
  }
}

const isOver = ({ state }) => state === "done" || state === "cancelled";
const answered = ({ delivered, failed, left }) => delivered + failed + left;

/** How fast letters are answered for, over the last few seconds. */
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
  const isAtWork = replay.state === "running" || replay.state === "gathering";
  return [
    heading(`Replay ${replay.id}`, { up: ["#/replays", "Replays"], badge: badge(replay.state), acts: acts(replay, onChange), says: replay.what }),
    h("div.standing", { class: { done: replay.failed > 0 ? "warn" : "good", stopped: "bad", paused: "hold", cancelled: "quiet" }[replay.state] ?? "info" },
      h("p", h("b", outcome(replay))),
      replay.stop && replay.state === "stopped" && h(
        "p",
        h("a", { href: `#/letters/${replay.stop.delivery}` }, "Why the letter failed again"),
        " · ",
        h("a", { href: `#/groups/${replay.stop.fingerprint}` }, "Its failure group"),
      ),
      replay.claimed_by_others > 0 && h("p", `${counted(replay.claimed_by_others, "letter")} belonged to other replays and were left to them.`)),
    replay.canary && waves(replay),
    card("Progress", h("span.dim", progressWords(replay, perSecond, rest, isAtWork)), h("div.pad", bar(replay, "large"), key(replay))),
    h("div.tiles",
      tile({ name: "Letters", value: count(replay.total) }),
      tile({ name: "Delivered", value: count(replay.delivered), tone: replay.delivered > 0 ? "good" : "plain" }),
      tile({ name: "Failed again", value: count(replay.failed), ...(replay.failed > 0 && { tone: "bad", note: "poison now", href: "#/groups" }) }),
      tile({ name: "Left alone", value: count(replay.left), note: replay.left > 0 ? "one before them in their session failed, or they are dead no more" : null }),
      tile({ name: "On their way", value: count(replay.in_flight) }),
      tile({ name: replay.state === "cancelled" ? "Not sent" : "To be sent", value: count(replay.waiting) })),
    card("How", null, facts(
      ["Pace", [replay.rate ? `at most ${rate(replay.rate)}/s` : "as fast as deliveries go", `, ${count(replay.concurrency)} at once`]],
      ["Order", "letters of one session one after the other, in the order they had"],
      replay.to && ["Goes to", `${replay.to} instead of where the letters came from`],
      ["Begun", [when(replay.created_at), replay.origin === "automatic" ? " by the rule book" : ""]],
      replay.note && ["Why", replay.note])),
  ];
}

/** How it stands, or what came of it. */
function outcome(replay) {
  const numbers = [`${count(replay.delivered)} delivered`];
  if (replay.failed > 0) numbers.push(`${count(replay.failed)} failed again`);
  if (replay.left > 0) numbers.push(`${count(replay.left)} left alone`);
  const rest = replay.waiting + replay.in_flight;
  if (rest > 0) numbers.push(`${count(rest)} ${replay.state === "cancelled" ? "not sent or still on their way" : "to go"}`);
  const told = numbers.join(", ");
  return {
    done: `Done: ${told}`,
    stopped: `Stopped by itself, because a letter failed again: ${told}`,
    paused: `Paused, nothing more is sent: ${told}`,
    cancelled: `Ended by hand, what was not sent stays dead: ${told}`,
    gathering: `Listing its letters: ${count(replay.total)} so far`,
    running: `Running: ${told}`,
  }[replay.state];
}

function progressWords(replay, perSecond, rest, isAtWork) {
  if (!isAtWork || perSecond <= 0) return `${Math.floor(share(replay) * 100)}%`;
  return `${Math.floor(share(replay) * 100)}%, ${rate(perSecond)}/s, about ${span((rest / perSecond) * 1000)} to go`;
}

/** Nothing to send is all sent. */
const share = (replay) => (replay.total > 0 ? answered(replay) / replay.total : 1);

const PARTS = [
  ["delivered", "good", "delivered"],
  ["failed", "bad", "failed again"],
  ["left", "quiet", "left alone"],
  ["in_flight", "info", "on their way"],
];

/** Delivered, failed, left alone and on their way, each by its share of all. */
function bar(replay, size = "") {
  const percent = Math.floor(share(replay) * 100);
  const parts = PARTS.map(([name, tone]) => h("span", { class: tone, style: { width: `${replay.total > 0 ? (replay[name] / replay.total) * 100 : 0}%` } }));
  return h("div.progress", { class: size, role: "progressbar", "aria-label": `Replay ${replay.id}`, "aria-valuenow": percent, "aria-valuemin": 0, "aria-valuemax": 100 }, parts);
}

const key = (replay) => h("ul.legend", PARTS.map(([name, tone, word]) => h("li", { class: tone }, h("i"), `${count(replay[name])} ${word}`)));

const WAVES = [["first", "one letter"], ["second", "ten letters"], ["rest", "all the rest"]];

/** How far the canary is. */
function waves(replay) {
  const at = WAVES.findIndex(([wave]) => wave === replay.wave);
  const isDone = replay.state === "done";
  const steps = WAVES.map(([, words], index) => {
    const state = isDone || index < at ? "done" : index > at ? "to come" : replay.state === "stopped" ? "stopped" : "now";
    const tone = { done: "good", now: "info", stopped: "bad" }[state] ?? "quiet";
    return h("li", { class: tone, "aria-current": state === "now" ? "step" : null }, h("b", words), h("span", state));
  });
  return card("Canary", h("span.dim", "each wave only when all of the one before has arrived"), h("ol.waves", steps));
}

function acts(replay, onChange) {
  const change = (act, words) => async () => {
    try {
      onChange(await post(`v1/replays/${replay.id}/${act}`));
      toast(words);
    } catch (error) {
      toast(error.message, "bad");
    }
  };
  const end = async () => {
    const asked = { title: `End replay ${replay.id}?`, act: "End the replay", danger: true };
    const says = h("p", `${counted(replay.waiting, "letter")} not yet sent will stay dead and can be replayed anew. What is on its way still arrives.`);
    await ask({ ...asked, says, doing: change("cancel", `replay ${replay.id} has ended`) });
  };
  return {
    gathering: [action("operate", "Pause", change("pause", "paused")), action("operate", "End…", end)],
    running: [action("operate", "Pause", change("pause", "paused")), action("operate", "End…", end)],
    paused: [action("operate", "Go on", change("resume", "it goes on"), { class: "main" }), action("operate", "End…", end)],
    stopped: [action("operate", "Go on", change("resume", "it goes on"), { class: "main" }), action("operate", "End…", end)],
  }[replay.state];
}
