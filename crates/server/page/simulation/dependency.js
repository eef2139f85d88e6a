/** A dependency over time: calls and capacity, waiting deliveries, and breaker states. */

import { h } from "../dom.js";
import { count, counted, percent, rate, span } from "../format.js";
import { card } from "../ui.js";
import { chart } from "./chart.js";
import { DRAWN_MAX, plainTable, pointsOf } from "./parts.js";

/** All called dependencies: a table if there are several, and charts of those with most problems. */
export function dependencies(report) {
  const called = report.dependencies.filter(({ calls }) => calls > 0);
  const worst = [...called].sort((a, b) => b.dead - a.dead || b.waiting_max - a.waiting_max || b.calls - a.calls);
  const drawn = new Set(worst.slice(0, DRAWN_MAX));
  return [called.length > 1 && list(called), called.filter((one) => drawn.has(one)).map((one) => dependencyShown(one, report))];
}

function list(called) {
  const columns = [
    { name: "Dependency", cell: (one) => [one.name, behind(one) && [" ", h("span.dim", behind(one))]], wide: true },
    { name: "Calls", cell: ({ calls }) => count(calls), end: true },
    { name: "Failed", cell: ({ calls, calls_failed }) => percent(calls_failed / calls), end: true },
    { name: "Attempts per delivery", cell: ({ amplification }) => amplification.toFixed(2), end: true },
    { name: "Peak calls/s", cell: ({ call_rate_max }) => rate(call_rate_max), end: true },
    { name: "Peak waiting", cell: ({ waiting_max }) => count(waiting_max), end: true },
    { name: "Drained after", cell: drained, end: true },
    { name: "Breaker trips", cell: ({ breaker_opened }) => count(breaker_opened), end: true },
    { name: "Dead", cell: ({ dead }) => (dead > 0 ? h("b.tinted.bad", count(dead)) : "0"), end: true },
  ];
  const more = called.length > DRAWN_MAX ? `charts of the worst ${DRAWN_MAX} below` : `${called.length} called`;
  return card("Dependencies", h("span.dim", more), plainTable("Dependencies", columns, called));
}

/** The callers of a dependency that no rule calls directly. */
const behind = ({ behind: callers }) => callers && `behind ${callers.join(", ")}`;

/** The longest drain time. */
function drained({ troubles }) {
  const over = troubles.filter(({ ended_at_ms }) => ended_at_ms !== null).map(({ drain_ms }) => drain_ms);
  if (over.length === 0) return "–";
  return over.includes(null) ? "never" : span(Math.max(...over));
}

function dependencyShown(dependency, report) {
  const capacity = dependency.capacity_per_second;
  const more = [behind(dependency), capacity !== null && `capacity ${rate(capacity)}/s`].filter(Boolean).join(" · ");
  const lines = h("ul.figures", summaryOf(dependency, report).map((line) => h("li", line)));
  return card(dependency.name, more && h("span.dim", more), lines, h("div.plots", charts(dependency, report).map(chart)));
}

function summaryOf(dependency, { nodes }) {
  const { calls, calls_failed, calls_failed_partly, amplification, breaker_opened, troubles } = dependency;
  const each = dependency.behind ? "calls" : "attempts";
  const partly = calls_failed_partly > 0 ? `, ${count(calls_failed_partly)} partly` : "";
  const opened = `${counted(breaker_opened, "breaker trip")}, not closed for ${span(dependency.breaker_not_closed_ms)}${nodes > 1 ? ", all nodes together" : ""}`;
  return [
    [h("b", counted(calls, "call")), ", ", h("b", amplification.toFixed(2)), ` ${each} per delivery, peak `, h("b", rate(dependency.call_rate_max)), " calls/s"],
    `${count(calls_failed)} failed (${percent(calls_failed / calls)})${partly}`,
    ...(breaker_opened > 0 ? [opened] : []),
    ...troubles.map(ofOutage),
  ];
}

function ofOutage({ began_at_ms, ended_at_ms, drain_ms, waiting_max }) {
  const most = `peak ${count(waiting_max)} waiting`;
  if (ended_at_ms === null) return `outage from ${span(began_at_ms)} until after the run: ${most}`;
  const drain = drain_ms === null ? h("b.tinted.bad", "never drained") : `drained in ${span(drain_ms)}`;
  return [`outage from ${span(began_at_ms)} to ${span(ended_at_ms)}: ${most}, `, drain];
}

// --- Over time ---------------------------------------------------------------------------------------

function charts(dependency, report) {
  const { series, calls_failed, capacity_per_second: capacity, breaker_opened } = dependency;
  const { step_ms } = report;
  const perSecond = (steps) => pointsOf(steps, step_ms, (step) => (step * 1000) / step_ms);
  const bands = outageBands(dependency, report);
  // Only the first chart has these in its legend.
  const unnamed = bands.map((band) => ({ ...band, name: "" }));
  const one = (title, y, name, tone, look, points) => ({ title, y, bands: unnamed, lines: [{ name, tone, look, points }] });
  return [
    {
      title: "Calls",
      y: { unit: "number", name: `per second, in steps of ${span(step_ms)}` },
      bands,
      // The line is above the area by the retries.
      lines: [
        { name: "first attempts", tone: "hold", look: "filled", points: perSecond(series.first_attempts) },
        ...(calls_failed > 0 ? [{ name: "failed", tone: "bad", look: "filled", points: whereAny(perSecond(series.failed)) }] : []),
        { name: "all calls", tone: "info", look: "solid", points: perSecond(series.calls) },
      ],
      limits: capacity === null ? [] : [{ name: "capacity", at: capacity }],
      ...(breaker_opened > 0 && { strip: { name: "Breaker", spans: breakerSpans(dependency, report) } }),
    },
    one("Waiting", { unit: "count", name: "deliveries" }, "waiting", "hold", "filled", pointsOf(series.waiting, step_ms)),
    one("In flight", { unit: "count", name: "concurrent calls" }, "in flight", "info", "filled", pointsOf(series.in_flight, step_ms)),
    // No calls, no latency.
    one("Call latency", { unit: "time" }, "average", "good", "solid", pointsOf(series.latency_ms, step_ms, (millis, at) => (series.calls[at] > 0 ? millis / 1000 : null))),
  ];
}

/** Drops runs of zeros, except the point next to a value. */
const whereAny = (points) => points.map(([x, y], at) => [x, [at - 1, at, at + 1].some((near) => points[near]?.[1] > 0) ? y : null]);

const bandOf = (name, tone, from_ms, to_ms) => ({ name, tone, from: from_ms / 1000, to: to_ms / 1000 });

/** Outages and drain times. */
const outageBands = ({ troubles }, report) =>
  troubles.flatMap(({ began_at_ms, ended_at_ms, drain_ms }) => {
    const end = ended_at_ms ?? report.ended_at_ms;
    return [bandOf("outage", "bad", began_at_ms, end), ...(drain_ms > 0 ? [bandOf("draining", "warn", end, end + drain_ms)] : [])];
  });

/** From best to worst: the worst state of all nodes is shown. */
const PHASES = ["closed", "half-open", "open"];
const SPANS = { open: ["breaker open", "bad"], "half-open": ["breaker half-open", "warn"] };
/** The report has at most this many transitions. */
const TRANSITIONS_MAX = 200;

/** The periods in which the breaker was not closed. */
function breakerSpans({ transitions, series }, { ended_at_ms, step_ms }) {
  const spans = [];
  const byNode = new Map();
  const add = (name, tone, from_ms, to_ms) => {
    const last = spans.at(-1);
    if (last?.name === name && last.to === from_ms / 1000) last.to = to_ms / 1000;
    else if (to_ms > from_ms) spans.push(bandOf(name, tone, from_ms, to_ms));
  };
  const close = (from_ms, to_ms) => {
    const phase = PHASES[Math.max(0, ...[...byNode.values()].map((phase) => PHASES.indexOf(phase)))];
    if (phase !== "closed") add(...SPANS[phase], from_ms, to_ms);
  };
  let since = 0;
  for (const { at_ms, node, to } of transitions) {
    close(since, at_ms);
    byNode.set(node, to);
    since = at_ms;
  }
  if (transitions.length < TRANSITIONS_MAX) {
    close(since, ended_at_ms);
    return spans;
  }
  // Later states are known per step only.
  series.breaker_not_closed.forEach((nodes, at) => {
    const from = at * step_ms;
    if (nodes > 0 && from >= since) add("breaker not closed", "hold", from, from + step_ms);
  });
  return spans;
}
