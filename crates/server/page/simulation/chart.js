/**
 * Charts of simulations, in SVG: lines, shaded periods, limits, and a strip of states. Null is a gap.
 *
 * Positions are percentages, so that text keeps its size at any width.
 */

import { h, s } from "../dom.js";
import { labelOf, marksBetween, marksFromZero } from "./ticks.js";

/** Larger values are not drawn. */
const VALUE_MAX = 1e18;
/** The largest number of steps between marks. */
const STEPS_X = 6;
const STEPS_Y = 4;
/** A limit further above the largest value is only in the legend. */
const LIMIT_TIMES_MAX = 2.5;
/** Space for the name above a limit, below the strip. */
const ROOM_ABOVE_LIMIT = 1.15;

/**
 * A chart: `{ title, x, y, lines, bands, limits, strip, places }`.
 * `x` and `y` are axes: `{ unit: "time" | "count" | "number", name }`, time in seconds.
 * `lines`: `[{ name, tone, look: "solid" | "filled" | "dashed", points: [[x, y], …] }]`, the one in front last.
 * `bands`: `[{ name, tone, from, to }]`, shaded periods; a band without a name is not in the legend.
 * `limits`: `[{ name, at }]`. `strip`: `{ name, spans }`, states over time above the chart.
 * `places`: `[{ name, at }]`, named marks of the axis instead of even ones; lines have a dot there.
 */
export function chart({ x = { unit: "time" }, y, bands = [], limits = [], places = [], ...rest }) {
  const plot = { x, y, bands, limits, places, ...rest };
  const scale = scaleOf(plot);
  const entries = legendOf(plot, scale);
  const isStriped = plot.strip !== undefined;
  return h(
    "figure.drawn",
    h(
      "figcaption",
      h("b", plot.title),
      y.name && [" ", h("span.dim", y.name)],
      // A single line needs no legend.
      entries.length > 1 && h("ul.legend", entries.map(({ name, tone, mark }) => h("li", { class: `${tone} ${mark}` }, h("i"), name))),
    ),
    s("svg.canvas", { role: "img", class: `${x.name ? "captioned" : ""} ${isStriped ? "striped" : ""}` }, [
      s("title", plot.title),
      s("desc", plot.lines.map((line) => summary(line, plot)).join("; ")),
      bands.map((band) => block("band", band, scale, { y: 0, height: "100%" })),
      axes(plot, scale),
      s("svg", { viewBox: "0 0 1000 1000", preserveAspectRatio: "none", width: "100%", height: "100%" }, plot.lines.map((line) => paths(line, scale))),
      places.length > 0 && dots(plot, scale),
      limits.filter(({ at }) => at <= scale.top).map((limit) => limitLine(limit, scale)),
      isStriped && stripOf(plot.strip, scale),
    ]),
  );
}

const isDrawn = ([x, y]) => isPlace(x) && isPlace(y);
const isPlace = (value) => typeof value === "number" && Math.abs(value) < VALUE_MAX;
const share = (part) => `${Number((part * 100).toFixed(2))}%`;
const within = (value) => Math.min(1, Math.max(0, value));

/** Maps values to shares of width and height. */
function scaleOf({ x, y, lines, bands, limits, strip, places }) {
  const points = lines.flatMap((line) => line.points);
  const drawn = points.filter(isDrawn);
  const most = drawn.reduce((most, [, value]) => Math.max(most, value), 0);
  const near = limits.map(({ at }) => at).filter((at) => isPlace(at) && (most <= 0 || at <= most * LIMIT_TIMES_MAX));
  const top = near.reduce((top, at) => Math.max(top, at * (strip ? ROOM_ABOVE_LIMIT : 1)), most);
  // An empty chart keeps the time axis of its neighbours.
  const xs = (drawn.length > 0 ? points.map(([at]) => at) : bands.flatMap(({ from, to }) => [from, to])).filter(isPlace);
  const from = xs.reduce((least, at) => Math.min(least, at), xs[0] ?? 0);
  const last = xs.reduce((most, at) => Math.max(most, at), xs[0] ?? 1);
  const to = last > from ? last : from + 1;
  const marksY = marksFromZero(y.unit, top, STEPS_Y);
  return {
    top: marksY.at(-1),
    marksX: places.length > 0 ? [] : marksBetween(x.unit, from, to, STEPS_X),
    marksY,
    x: (value) => (isPlace(value) ? within((value - from) / (to - from)) : value > 0 ? 1 : 0),
    y: (value) => 1 - within(value / marksY.at(-1)),
  };
}

// --- Legend ------------------------------------------------------------------------------------------

function legendOf({ y, lines, bands, limits, strip }, scale) {
  const ofLimit = ({ name, at }) => ({ name: `${name} ${labelOf(y.unit, at)}${at > scale.top ? ", off the chart" : ""}`, tone: "ink", mark: "bound" });
  const ofBand = (mark) => ({ name, tone }) => ({ name, tone, mark });
  const shaded = [...bands.map(ofBand("shade")), ...(strip?.spans ?? []).map(ofBand("state"))];
  const isFirst = ({ name, mark }, at) => shaded.findIndex((other) => other.name === name && other.mark === mark) === at;
  return [
    ...lines.map(({ name, tone, look }) => ({ name, tone, mark: look === "dashed" ? "dashes" : "solid" })),
    ...limits.filter(({ at }) => isPlace(at)).map(ofLimit),
    ...shaded.filter(({ name }) => name).filter(isFirst),
  ];
}

/** The text alternative of a line. */
function summary({ name, points }, plot) {
  const drawn = points.filter(isDrawn);
  if (drawn.length === 0) return `${name}: no data`;
  const [at, most] = drawn.reduce((best, point) => (point[1] >= best[1] ? point : best));
  return `${name}: maximum ${labelOf(plot.y.unit, most)} at ${nameAt(plot, at)}; ${labelOf(plot.y.unit, drawn.at(-1)[1])} at the end`;
}

const nameAt = ({ x, places }, at) => places.find((place) => place.at === at)?.name ?? labelOf(x.unit, at);

// --- Drawing -----------------------------------------------------------------------------------------

function block(kind, { from, to, tone }, scale, upright) {
  const [start, end] = [scale.x(from), scale.x(to)];
  return s("rect", { class: `${kind} ${tone}`, x: share(start), width: share(Math.max(0.002, end - start)), ...upright });
}

function axes({ x, y, places }, scale) {
  const level = (mark) => [
    s(mark > 0 ? "line.grid" : "line.axis", { x1: 0, x2: "100%", y1: share(scale.y(mark)), y2: share(scale.y(mark)) }),
    s("text.end", { x: -8, y: share(scale.y(mark)), dy: ".35em" }, labelOf(y.unit, mark)),
  ];
  return [
    scale.marksY.map(level),
    scale.marksX.map((mark) => s("text.middle", { x: share(scale.x(mark)), y: "100%", dy: "1.5em" }, labelOf(x.unit, mark))),
    namedPlaces(places, scale),
    x.name && s("text.middle", { x: "50%", y: "100%", dy: "3em" }, x.name),
  ];
}

/** Characters that fit below an axis, and the gap between two names. */
const LETTERS_MAX = 40;
const LETTERS_BETWEEN = 2;
/** A longer name at an end of the axis is aligned to that end. */
const LETTERS_AT_END_MAX = 6;

/** A vertical line at each place, and as many names as fit. */
function namedPlaces(places, scale) {
  const letters = (every) => places.reduce((sum, { name }, at) => (at % every === 0 ? sum + name.length + LETTERS_BETWEEN : sum), 0);
  let every = 1;
  while (every < places.length && letters(every) > LETTERS_MAX) every += 1;
  return places.map(({ name, at }, number) => {
    const place = scale.x(at);
    const isLong = name.length > LETTERS_AT_END_MAX;
    const side = isLong && place < 0.1 ? "start" : isLong && place >= 0.9 ? "end" : "middle";
    return [
      s("line.grid", { x1: share(place), x2: share(place), y1: 0, y2: "100%" }),
      number % every === 0 && s("text", { class: side, x: share(place), y: "100%", dy: "1.5em" }, name),
    ];
  });
}

/** A dot with a tooltip where a line passes a place. */
const dots = (plot, scale) =>
  plot.lines.map(({ tone, points }) =>
    points.filter(isDrawn).map(([x, y]) =>
      s("circle.dot", { class: tone, cx: share(scale.x(x)), cy: share(scale.y(y)), r: 3.5 }, s("title", `${nameAt(plot, x)}: ${labelOf(plot.y.unit, y)}`)),
    ),
  );

const limitLine = ({ name, at }, scale) => [
  s("line.limit", { x1: 0, x2: "100%", y1: share(scale.y(at)), y2: share(scale.y(at)) }),
  s("text.end.named", { x: "100%", y: share(scale.y(at)), dy: -5 }, name),
];

const stripOf = ({ name, spans }, scale) =>
  s("g", s("title", name), s("rect.rest", { y: -15, width: "100%", height: 7, rx: 2 }), spans.map((span) => block("state", span, scale, { y: -15, height: 7 })));

function paths({ tone, look, points }, scale) {
  const strokes = [];
  for (const run of runsOf(points)) {
    const path = pathThrough(run.map(([x, y]) => [tenth(scale.x(x)), tenth(scale.y(y))]));
    const props = { "vector-effect": "non-scaling-stroke", class: `${tone} ${look === "dashed" ? "dashed" : ""}` };
    if (run.length === 1) strokes.push(s("path.stroke.single", { ...props, d: `${path}h.01` }));
    else {
      if (look === "filled") strokes.push(s("path.area", { class: tone, d: `${path}L${tenth(scale.x(run.at(-1)[0]))} 1000H${tenth(scale.x(run[0][0]))}Z` }));
      strokes.push(s("path.stroke", { ...props, d: path }));
    }
  }
  return strokes;
}

const tenth = (part) => Number((part * 1000).toFixed(1));

/** Consecutive points without a gap. */
function runsOf(points) {
  const runs = [[]];
  for (const point of points) {
    if (isDrawn(point)) runs.at(-1).push(point);
    else runs.push([]);
  }
  return runs.filter((run) => run.length > 0);
}

/** The path through the points; inner points of a level line are left out. */
function pathThrough(places) {
  const isLevel = (at) => places[at - 1]?.[1] === places[at][1] && places[at + 1]?.[1] === places[at][1];
  return `M${places.filter((_, at) => !isLevel(at)).map(([x, y]) => `${x} ${y}`).join("L")}`;
}
