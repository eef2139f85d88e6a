/** Breaker drawings: the current state as a switch, and the recent states as a strip. */

import { h, s } from "./dom.js";
import { ago, axisTime, counted, exact, span } from "./format.js";
import { now } from "./server_clock.js";
import { toneOf } from "./ui.js";

const WIDTH = 1000;
/** Time spans of a strip; the shortest that covers all state changes is used. */
const STRIPS_MS = [900_000, 3_600_000, 6 * 3_600_000, 24 * 3_600_000];
/** Minimum width of a state, so that short ones stay visible. */
const PART_MIN = 6;

const NOT_RUNNING = "not running";
const NOT_RECORDED = "not recorded";

/** Reopening after a failed probe is not a trip. */
const isTrip = ({ from, to }) => from === "closed" && to === "open";

/** What each state means for calls. */
export const STATE_TEXT = {
  closed: "passing traffic",
  open: "calls wait",
  "half-open": "probing",
  none: "no breaker, always passing traffic",
};

export function switchPicture(state) {
  const lever = { closed: "M46 20H90", open: "M46 20 84 4", "half-open": "M46 20 87 12", none: "M46 20H90" }[state];
  return s(
    "svg.switch",
    { viewBox: "0 0 136 40", role: "img", "aria-label": `breaker ${state}: ${STATE_TEXT[state]}`, class: toneOf(state) },
    s("path.wire", { d: "M4 20H46M90 20H132" }),
    s("path.lever", { d: lever }),
    s("circle", { cx: 46, cy: 20, r: 4.5 }),
    s("circle", { cx: 90, cy: 20, r: 4.5 }),
  );
}

/** The states of the last hours. `history`: state changes, latest first. The time before `startedAt` is grey. */
export function strip({ history, state, trips }, startedAt) {
  const to = now();
  const start = startedAt ? Math.min(Date.parse(startedAt), to) : -Infinity;
  const all = [...history].reverse().map((change) => ({ ...change, time: Date.parse(change.at) })).filter(({ time }) => time >= start);
  const oldest = all[0]?.time ?? to;
  const room = STRIPS_MS.find((ms) => to - ms < oldest) ?? STRIPS_MS.at(-1);
  const from = to - room;
  const changes = all.filter(({ time }) => time > from);
  const before = changes[0]?.from ?? state;
  // The server keeps a limited number of changes: with fewer trips than it counted, the first states are unknown.
  const isCut = all.filter(isTrip).length < trips && oldest > from;
  const known = isCut ? [{ at: from, is: NOT_RECORDED }] : start > from ? [{ at: from, is: NOT_RUNNING }, { at: start, is: before }] : [{ at: from, is: before }];
  const marks = [...known, ...changes.map(({ time, to: is }) => ({ at: time, is }))];
  const x = (at) => ((at - from) / room) * WIDTH;
  const part = ({ at, is }, index) => {
    const until = marks[index + 1]?.at ?? to;
    const label = `${is} for ${span(until - at)} until ${index + 1 < marks.length ? exact(until) : "now"}`;
    const width = Math.max(PART_MIN, x(until) - x(at));
    return s("rect", { x: Math.min(x(at), WIDTH - width), y: 0, width, height: 10, class: toneOf(is) }, s("title", label));
  };
  const opened = changes.filter(isTrip);
  const number = start > from ? trips : opened.length;
  const steady = state === "none" ? "no breaker" : start > from ? `${state} since the server started` : "no trips";
  const caption = opened.length === 0 ? steady : `${counted(number, "trip")}, last ${ago(opened.at(-1).at)}`;
  return h(
    "figure.strip",
    s("svg", { viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", role: "img", "aria-label": `the last ${span(room)}: ${caption}` }, marks.map(part)),
    h("figcaption", h("span", axisTime(from, room)), h("span", caption), h("span", "now")),
  );
}

/** Succeeded and failed calls as one bar. */
export function outcomes(attempts, failed) {
  const share = attempts === 0 ? 0 : failed / attempts;
  return s(
    "svg.outcomes",
    { viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", role: "img", "aria-label": `${attempts} calls, ${failed} failed` },
    s("rect", { x: 0, y: 0, width: WIDTH, height: 10, class: attempts === 0 ? "none" : "good" }),
    failed > 0 && s("rect.bad", { x: WIDTH - Math.max(6, share * WIDTH), y: 0, width: Math.max(6, share * WIDTH), height: 10 }),
  );
}
