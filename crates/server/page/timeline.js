/** The timeline of a delivery: attempts as bars, with the waits between them and their reasons. */

import { answerOf, attemptRecords, endOf, isAttempt, reasonText, startOf, waitAfter } from "./delivery_text.js";
import { h, s } from "./dom.js";
import { clock, exact, isNever, span } from "./format.js";
import { now } from "./server_clock.js";
import { choice } from "./ui.js";

const WIDTH = 1000;
const HEIGHT = 20;
/** A bar that is thinner than this share of the line switches the default scale to `even`. */
const THIN = 0.006;
/** Delays beyond the due time that are not mentioned. */
const LATE_MS = 400;

const SCALES = [["even", "compressed"], ["true", "to scale"]];

/** `scale`: `even`, `true`, or null to choose automatically; `onscale` gets the scale that the user selects. */
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
    { "aria-label": "Timeline of attempts" },
    h(
      "div.top",
      h("span.dim", `${span(to - from)} from `, h("time", { datetime: delivery.accepted_at, title: exact(from) }, clock(from)), ` to ${isOver ? clock(to) : "now"}`),
      choice("Timeline scale", SCALES, chosen, onscale),
    ),
    h("ol", rows.map((row) => drawn(row, x, here))),
    axis(rows, x, from, to, chosen),
  );
}

/** The rows: acceptance, then each attempt with the wait after it. */
function rowsOf(delivery) {
  const records = attemptRecords(delivery);
  const accepted = Date.parse(delivery.accepted_at);
  const starts = records.map(startOf);
  const pending = delivery.due_at && !isNever(delivery.due_at) ? Date.parse(delivery.due_at) : now();
  const next = delivery.ended_at ? null : Math.max(pending, now());
  const first = { name: "accepted", tone: "quiet", start: accepted, end: accepted, what: delivery.event_type };
  const queued = records[0]?.held_nanos > 0 ? ["held", "hold"] : ["queued", "quiet"];
  const rows = [waiting(first, starts[0] ?? next, starts.length > 0 ? queued : (nowWaits(delivery) ?? queued), starts[0] ?? next)];
  records.forEach((record, at) => {
    const row = {
      name: isAttempt(record) ? `attempt ${record.attempt}` : record.by === "notified" ? "skipped" : "held",
      at,
      tone: { delivered: "good", failed: record.verdict.is === "dead" ? "bad" : "warn", held: "hold" }[record.end],
      isBar: isAttempt(record),
      start: startOf(record),
      end: endOf(record),
      what: answerOf(record),
    };
    const promised = record.verdict.due_at ?? record.verdict.until;
    const why = (at === records.length - 1 && nowWaits(delivery)) || waitAfter(record);
    rows.push(waiting(row, starts[at + 1] ?? next, why, promised && !isNever(promised) ? Date.parse(promised) : null));
  });
  return rows;
}

/** Why a delivery waits now, unless it only waits for its due time. */
function nowWaits({ state, behind, waits }) {
  const isHeld = waits && (state === "held" || behind);
  return isHeld ? [`${reasonText(waits.because, waits.since, waits.until)}:`, "hold"] : null;
}

/** The row with the wait after it, up to `until`; a delay beyond the due time is listed separately. */
function waiting(row, until, [why, tone], promised) {
  if (until === null || until === undefined || until <= row.end) return { ...row, until: row.end };
  const late = promised === null ? 0 : until - promised;
  const text = late > LATE_MS && promised > row.end ? `${why} ${span(promised - row.end)}, then ${span(late)} more` : `${why} ${span(until - row.end)}`;
  return { ...row, until, wait: { why: text, tone } };
}

/** A logarithmic scale per interval, so that short and long ones are both visible. */
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

/** Scrolls to the details of an attempt. */
function reveal(event, at) {
  event.preventDefault();
  const target = document.getElementById(`attempt-${at}`);
  target?.scrollIntoView({ block: "center", behavior: "smooth" });
  target?.focus({ preventScroll: true });
}

/** The widest label on a phone, in drawing units. */
const TICK_ROOM = 150;

function axis(rows, x, from, to, scale) {
  const places = scale === "even" ? rows.map((row) => row.start) : [0, 0.25, 0.5, 0.75, 1].map((share) => from + share * (to - from));
  // The end always has a label, to the left of its place.
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
