/** Retry policies on one time axis: each retry is a bar from its earliest to its latest start. */

import { h, s } from "./dom.js";
import { count, counted, span } from "./format.js";

const WIDTH = 960;
const LEFT = 8;
const RIGHT = 56;
const LANE = 9;
const LANE_SLIM = 4;
/** More retries than this get slim lanes. */
const LANES_WIDE_MAX = 12;
/** Further retries are not drawn. */
const LANES_MAX = 60;
const AXIS_HEIGHT = 24;

const SECOND = 1000;
const TICKS_MS = [
  0, 100, SECOND, 10 * SECOND, 60 * SECOND, 600 * SECOND, 3_600 * SECOND, 6 * 3_600 * SECOND, 24 * 3_600 * SECOND,
  7 * 24 * 3_600 * SECOND, 30 * 24 * 3_600 * SECOND,
];

/** Logarithmic above a tenth of a second, so that short and long waits are both visible. */
const spread = (ms) => Math.log10(1 + ms / 100);

export function policyPlots(policies, describe) {
  const latest = Math.max(SECOND, ...policies.map(endsAt));
  return policies.map((policy) => onePolicy(policy, latest, describe));
}

const endsAt = ({ steps, gives_up_after_ms: end = 0 }) => Math.max(end, ...steps.map((step) => step.at_max_ms));

function onePolicy(policy, latest, describe) {
  const id = `policy-${policy.name}`;
  return h("section.policy", { key: policy.name, id, "aria-labelledby": `${id}-name` },
    h("h3", { id: `${id}-name` }, policy.name, " ", h("span.dim", policy.summary)),
    describe(policy),
    policy.steps.length > 0 ? drawn(policy, latest) : h("p.dim.small", "No retries."),
    policy.steps.length > 0 && asTable(policy));
}

function drawn(policy, latest) {
  const steps = policy.steps.slice(0, LANES_MAX);
  const lane = steps.length > LANES_WIDE_MAX ? LANE_SLIM : LANE;
  const depth = steps.length * (lane + 2) + 6;
  const x = (ms) => LEFT + (spread(ms) / spread(latest)) * (WIDTH - LEFT - RIGHT);
  const height = depth + AXIS_HEIGHT;
  const label = `${policy.name}: ${policy.summary}`;
  return h("div.policy-plot", { tabindex: "0", role: "region", "aria-label": `Plot of ${policy.name}` }, s("svg.plot", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label },
    TICKS_MS.filter((at) => at <= latest).map((at) => tick(at, x(at), depth)),
    steps.map((step, index) => bar(step, x, 3 + index * (lane + 2), lane)),
    giveUp(policy, x, depth)));
}

function tick(at, x, depth) {
  return [
    s("line.grid", { x1: x, x2: x, y1: 0, y2: depth }),
    s("text.axis", { x, y: depth + 16, "text-anchor": at === 0 ? "start" : "middle" }, at === 0 ? "0" : span(at)),
  ];
}

function bar(step, x, y, lane) {
  const [from, to] = [x(step.at_min_ms), x(step.at_max_ms)];
  const planned = x((step.at_min_ms + step.at_max_ms) / 2);
  return s("g.retry",
    s("title", sentence(step)),
    s("rect.range", { x: from, y, width: Math.max(3, to - from), height: lane, rx: Math.min(3, lane / 2) }),
    to - from > 8 && s("rect.middle", { x: planned - 1, y, width: 2, height: lane }),
    lane === LANE && s("text.axis", { x: to + 6, y: y + lane - 1 }, String(step.retry)));
}

function giveUp(policy, x, depth) {
  const at = policy.gives_up_after_ms;
  if (at === undefined || at === null) return null;
  return s("g.give-up", s("title", `gives up after at most ${span(at)}`),
    s("line", { x1: x(at), x2: x(at), y1: 0, y2: depth }));
}

const range = (min, max) => (min === max ? span(min) : `${span(min)} – ${span(max)}`);

const sentence = (step) =>
  `retry ${step.retry} waits ${range(step.min_ms, step.max_ms)} and starts ${range(step.at_min_ms, step.at_max_ms)} after the first attempt`;

function asTable(policy) {
  const rows = policy.steps.slice(0, LANES_MAX);
  const more = policy.steps.length - rows.length;
  return h("details",
    h("summary", `Table of ${counted(policy.steps.length, "retry", "retries")}`),
    h("div.scroll", { tabindex: "0", role: "region", "aria-label": `Retries of ${policy.name}` },
      h("table", h("thead", h("tr", ["retry", "delay", "with jitter", "starts after"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", rows.map((step) => h("tr", h("td", String(step.retry)), h("td", span(step.delay_ms)),
          h("td", range(step.min_ms, step.max_ms)), h("td", range(step.at_min_ms, step.at_max_ms))))))),
    more > 0 && h("p.dim.small", `and ${count(more)} more`));
}
