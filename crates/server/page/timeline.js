/** A delivery's attempts on a time line: each a bar as long as it took, with the waits between and their causes. */

import { h, s } from "./dom.js";
import { clock, exact, isNever, span } from "./format.js";
import { now } from "./now.js";
import { choice } from "./ui.js";
import { answerOf, because, endOf, isAttempt, startOf, waitAfter } from "./words.js";

const WIDTH = 1000;
const HEIGHT = 20;
/** A bar that would be thinner than this share of the line cannot be read to scale. */
const THIN = 0.006;
/** How much later than promised a thing may start without a word about it. */
const LATE_MS = 400;

const SCALES = [["even", "readable"], ["true", "to scale"]];

/** The figure. `scale` is `even`, `true` or null, which takes the better one; `onscale` gets the other. */
export function timeline(delivery, scale, onscale) {
  const rows = rowsOf(delivery);
  const last = rows.at(-1);
  const isOver = Boolean(delivery.ended_at);
  const from = Date.parse(delivery.accepted_at);
  const to = Math.max(from + 1, last.until, isOver ? Date.parse(delivery.ended_at) : now());
  const chosen = scale ?? (rows.some((row) => row.isBar && (row.end - row.start) / (to - from) < THIN) ? "even" : "true");
  const x = chosen === "even" ? evenly(rows, from, to) : (at) => ((at - from) / (to - from)) * WIDTH;
  const here = isOver ? null : x(now());
  return h(
    "figure.timeline",
    { "aria-label": "Attempts on a time line" },
    h(
      "div.top",
      h("span.dim", `${span(to - from)} from `, h("time", { datetime: delivery.accepted_at, title: exact(from) }, clock(from)), ` to ${isOver ? clock(to) : "now"}`),
      choice("Scale of the time line", SCALES, chosen, onscale),
    ),
    h("ol", rows.map((row) => drawn(row, x, here))),
    axis(rows, x, from, to, chosen),
  );
}

/** What stands on the line, one below the other: how it came in, then each attempt with the wait after it. */
function rowsOf(delivery) {
  const stories = delivery.stories ?? [];
  const accepted = Date.parse(delivery.accepted_at);
  const starts = stories.map(startOf);
  const pending = delivery.due_at && !isNever(delivery.due_at) ? Date.parse(delivery.due_at) : now();
  const next = delivery.ended_at ? null : Math.max(pending, now());
  const first = { name: "accepted", tone: "quiet", start: accepted, end: accepted, what: delivery.event_type };
  const queued = stories[0]?.held_nanos > 0 ? ["held", "hold"] : ["in the queue", "quiet"];
  const rows = [waiting(first, starts[0] ?? next, starts.length > 0 ? queued : (nowWaits(delivery) ?? queued), starts[0] ?? next)];
  stories.forEach((story, at) => {
    const row = {
      name: isAttempt(story) ? `attempt ${story.attempt}` : story.by === "notified" ? "skipped" : "held",
      at,
      tone: { delivered: "good", failed: story.verdict.is === "dead" ? "bad" : "warn", held: "hold" }[story.end],
      isBar: isAttempt(story),
      start: startOf(story),
      end: endOf(story),
      what: answerOf(story),
    };
    const promised = story.verdict.due_at ?? story.verdict.until;
    const why = (at === stories.length - 1 && nowWaits(delivery)) || waitAfter(story);
    rows.push(waiting(row, starts[at + 1] ?? next, why, promised && !isNever(promised) ? Date.parse(promised) : null));
  });
  return rows;
}

/** Why a delivery waits now, if it is not for its time. */
function nowWaits({ state, behind, waits }) {
  const isHeld = waits && (state === "held" || behind);
  return isHeld ? [`${because(waits.because, waits.since, waits.until)}:`, "hold"] : null;
}

/** The row with the wait after it, up to `until`; what came on top of what was promised is told apart. */
function waiting(row, until, [why, tone], promised) {
  if (until === null || until === undefined || until <= row.end) return { ...row, until: row.end };
  const late = promised === null ? 0 : until - promised;
  const told = late > LATE_MS && promised > row.end ? `${why} ${span(promised - row.end)}, then ${span(late)} more` : `${why} ${span(until - row.end)}`;
  return { ...row, until, wait: { why: told, tone } };
}

/** A scale on which short and long spans can both be seen: each takes room by the size of its size. */
function evenly(rows, from, to) {
  const marks = [...new Set([from, to, ...rows.flatMap((row) => [row.start, row.end, row.until])])].sort((a, b) => a - b);
  const places = [0];
  for (let at = 1; at < marks.length; at += 1) places.push(places[at - 1] + Math.log2(2 + (marks[at] - marks[at - 1])));
  const whole = places.at(-1) || 1;
  return (moment) => {
    const after = marks.findIndex((mark) => mark >= moment);
    if (after <= 0) return after === 0 ? 0 : WIDTH;
    const share = (moment - marks[after - 1]) / (marks[after] - marks[after - 1]);
    return ((places[after - 1] + share * (places[after] - places[after - 1])) / whole) * WIDTH;
  };
}

function drawn(row, x, here) {
  const { start, end, until, wait, tone, name, what, at, isBar } = row;
  const [left, right] = [x(start), Math.max(x(end), x(start) + 2)];
  const middle = HEIGHT / 2;
  const shapes = [
    here !== null && s("path.now", { d: `M${here} -6V${HEIGHT + 6}` }),
    wait && s("path.wait", { class: wait.tone, d: `M${right} ${middle}H${x(until)}V${HEIGHT + 16}` }),
    isBar ? s("rect.bar", { x: left, y: 3, width: right - left, height: HEIGHT - 6 }) : s("path.point", { d: `M${left} ${middle}h.01` }),
  ];
  const went = isBar ? `${name}, ${span(end - start)}` : name;
  return h(
    "li",
    { class: tone },
    h("span.name", at === undefined ? name : h("a", { href: "#", onclick: (event) => reveal(event, at) }, name)),
    h("span.track", s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${went}${wait ? `, then ${wait.why}` : ""}` }, shapes.filter(Boolean))),
    h("span.what", h("b", { title: what }, what.split(": ")[0], isBar && h("span.dim", ` ${span(end - start)}`)), wait && h("span.why", { class: wait.tone }, wait.why)),
  );
}

/** Goes to the words about an attempt. */
function reveal(event, at) {
  event.preventDefault();
  const target = document.getElementById(`story-${at}`);
  target?.scrollIntoView({ block: "center", behavior: "smooth" });
  target?.focus({ preventScroll: true });
}

/** What a label takes of the line, at most: that is so on a phone. */
const TICK_ROOM = 150;

function axis(rows, x, from, to, scale) {
  const places = scale === "even" ? rows.map((row) => row.start) : [0, 0.25, 0.5, 0.75, 1].map((share) => from + share * (to - from));
  // The end is always told, to the left of its place.
  let free = 0;
  const ticks = places.filter((at) => {
    const fits = x(at) >= free && x(at) + 2 * TICK_ROOM <= x(to);
    if (fits) free = x(at) + TICK_ROOM;
    return fits;
  });
  const tick = (at) =>
    h("span", { style: { left: `${x(at) / 10}%` }, class: at === to ? "last" : null }, at === from ? "0" : `+${span(at - from)}`);
  return h("div.axis", { "aria-hidden": "true" }, [...ticks, to].map(tick));
}
