/** Plots of numbers over time, in SVG; any number of points, gaps included. */

import { fill, h, s, slot } from "./dom.js";
import { axisTime, compact, exact, span } from "./format.js";
import { now } from "./server_clock.js";

/** Drawing units; the plot is stretched to its place, strokes and text are not. */
const WIDTH = 1000;
const HEIGHT = 100;

/** A small line without axes. `points` are numbers; null is a gap. */
export function sparkline(points) {
  const top = Math.max(1e-9, ...points.filter((value) => value !== null));
  const xs = points.map((value, at) => [points.length < 2 ? WIDTH : (at * WIDTH) / (points.length - 1), value]);
  const y = (value) => HEIGHT - 4 - (value / top) * (HEIGHT - 12);
  return canvas("spark", runs(xs).flatMap((run) => [
    s("path.area", { d: area(run, y) }),
    s("path.stroke", { d: line(run, y) }),
  ]));
}

/** The shortest time axis, for a server that has just started. */
const ROOM_MS_MIN = 60_000;

/** The time axis of a trend. */
export function axisOf({ points, span_ms, step_ms, since }) {
  const to = now();
  const from = Math.max(to - span_ms, Math.min(Date.parse(since ?? 0), to - ROOM_MS_MIN));
  return { points, from, to, step: step_ms, since, note: `per ${span(step_ms)}` };
}

/**
 * A plot. `points`: `[{ at, … }]`; `series`: `[{ name, of(point), tone, filled? }]`; `from`, `to`: the time axis;
 * `step`: the distance of two points; `since`: the start of the data; `least`: the lowest top of the value axis;
 * `note`: the meaning of a point.
 */
export function plot({ label, points, series: wanted, from, to, step, since, unit = "", format = compact, least = 4, note }) {
  // A series without any value is left out of the legend too.
  const withData = wanted.filter(({ of }) => points.some((point) => isNumber(of(point))));
  const series = withData.length > 0 ? withData : wanted;
  const values = points.flatMap((point) => series.map(({ of }) => of(point))).filter(isNumber);
  const top = ceiling(Math.max(least, ...values));
  const x = (at) => ((Date.parse(at) - from) / (to - from || 1)) * WIDTH;
  const y = (value) => HEIGHT - (value / top) * HEIGHT;
  const drawn = series.flatMap(({ of, tone, filled }) => {
    const at = points.filter((point) => Date.parse(point.at) >= from).map((point) => [x(point.at), of(point), Date.parse(point.at)]);
    return runs(at, step * 1.6).flatMap((run) => [
      filled && s("path.area", { class: tone, d: area(run, y) }),
      run.length === 1 ? dot(run[0], y, tone) : s("path.stroke", { class: tone, d: line(run, y) }),
    ]);
  });
  const unknown = since && Date.parse(since) > from ? Math.min(WIDTH, x(since)) : 0;
  const inside = [
    unknown > 4 && s("rect.unknown", { x: 0, y: 0, width: unknown, height: HEIGHT }),
    [0.25, 0.5, 0.75, 1].map((share) => s("path.grid", { d: `M0 ${y(top * share)}H${WIDTH}` })),
    s("path.axis", { d: `M0 ${HEIGHT}H${WIDTH}` }),
    drawn.filter(Boolean),
  ];
  const field = h(
    "div.area",
    { onpointermove: (event) => point(event, { points, series, x, format, unit }), onpointerleave: unpoint },
    canvas("lines", inside.flat(Infinity).filter(Boolean), summary(label, points, series, format)),
    slot("div.pointed"),
  );
  return h(
    "figure.plot",
    h("div.top", legend(series), note && h("span.dim.small", note)),
    h("div.frame", h("div.ys", { "aria-hidden": "true" }, [1, 0.5, 0].map((share) => h("span", format(top * share)))), field),
    h("div.xs", { "aria-hidden": "true" }, [0, 0.25, 0.5, 0.75, 1].map((share) => h("span", axisTime(from + share * (to - from), to - from)))),
    values.length === 0 && h("p.nothing", "No data in this period yet."),
  );
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

const legend = (series) =>
  h("ul.legend", series.map(({ name, tone }) => h("li", { class: tone }, h("i"), name)));

function canvas(kind, content, label) {
  const props = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: kind };
  return s("svg", { ...props, ...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" }) }, content);
}

/** Consecutive values without a gap. */
function runs(points, far = Infinity) {
  const found = [];
  let run = [];
  for (const point of points) {
    const last = run.at(-1);
    if (!isNumber(point[1]) || (last && point[2] - last[2] > far)) {
      if (run.length > 0) found.push(run);
      run = [];
    }
    if (isNumber(point[1])) run.push(point);
  }
  return run.length > 0 ? [...found, run] : found;
}

const fixed = (number) => number.toFixed(2);
const line = (run, y) => `M${run.map(([x, value]) => `${fixed(x)} ${fixed(y(value))}`).join("L")}`;
const area = (run, y) => `${line(run, y)}L${fixed(run.at(-1)[0])} ${HEIGHT}L${fixed(run[0][0])} ${HEIGHT}Z`;
const dot = ([x, value], y, tone) => s("path.stroke.single", { class: tone, d: `M${fixed(x)} ${fixed(y(value))}h.01` });

/** The next round number above. */
function ceiling(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((step) => step * size >= value) * size;
}

function summary(label, points, series, format) {
  const last = points.at(-1);
  if (!last) return `${label}: no data yet`;
  return `${label}; latest: ${series.map(({ name, of }) => `${name} ${isNumber(of(last)) ? format(of(last)) : "unknown"}`).join(", ")}`;
}

/** Shows the values at the pointer. */
function point(event, { points, series, x, format, unit }) {
  const box = event.currentTarget.getBoundingClientRect();
  const wanted = ((event.clientX - box.left) / box.width) * WIDTH;
  const far = (one) => Math.abs(x(one.at) - wanted);
  const nearest = points.reduce((best, one) => (best === null || far(one) < far(best) ? one : best), null);
  if (!nearest) return;
  const share = x(nearest.at) / WIDTH;
  const row = ({ name, of, tone }) => h("span", { class: tone }, h("i"), name, h("em", isNumber(of(nearest)) ? `${format(of(nearest))}${unit}` : "–"));
  fill(
    event.currentTarget.querySelector(".pointed"),
    h("div.cross", { style: { left: `${share * 100}%` } }),
    h("div.hint", { class: share > 0.6 ? "left" : null, style: { left: `${share * 100}%` } }, h("b", exact(nearest.at)), series.map(row)),
  );
}

const unpoint = (event) => fill(event.currentTarget.querySelector(".pointed"));
