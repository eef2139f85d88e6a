/** A sweep of one setting: trade-offs as text, curves and a table. */

import { h } from "../dom.js";
import { counted } from "../format.js";
import { withCode } from "../highlight.js";
import { badge } from "../ui.js";
import { chart } from "./chart.js";
import { figures, metricName, plainTable, verdict } from "./parts.js";

/** `swept` as `redrive simulate --sweep --format json` prints it. */
export function sweepShown(swept) {
  const names = [...new Set(swept.columns.map(({ of }) => of))];
  const group = (name) => figuresOf(name ?? "All deliveries", swept.columns.filter(({ of }) => of === name), swept);
  return h(
    "div.simulated",
    verdict("Verdict", swept.words.map((words) => [badge("info", "trade-off"), withCode(words)])),
    names.map(group),
    expected(swept.rows),
  );
}

function figuresOf(title, columns, { paths, rows, places }) {
  const ofPath = (path, at) => ({ name: path, cell: ({ row }) => h("code", row.values[at]) });
  const ofFigure = ({ metric, shown, is_best }) => ({
    name: metricName(metric),
    cell: ({ at }) => (is_best[at] ? h("b.tinted.good", `✓ ${shown[at]}`) : shown[at]),
    end: true,
  });
  const content = plainTable(`Figures of ${title}`, [...paths.map(ofPath), ...columns.map(ofFigure)], rows.map((row, at) => ({ row, at })));
  const curves = paths.length === 1 ? columns.map((column) => chart(curve(paths[0], rows, places, column))) : [];
  return figures(title, null, curves, content);
}

const TIMES = new Set(["drain", "latency_p50", "latency_p99"]);

/** A figure over the swept values; "never" is a gap. */
function curve(path, rows, places, { metric, values }) {
  const named = rows.map((row, at) => ({ at: places[at], name: row.values[0], value: values[at] })).sort((a, b) => a.at - b.at);
  const name = metricName(metric);
  return {
    title: `${name} by ${path}`,
    x: { unit: "number", name: path },
    y: { unit: TIMES.has(metric) ? "time" : "number" },
    lines: [{ name, tone: "info", look: "solid", points: named.map(({ at, value }) => [at, value]) }],
    places: named,
  };
}

function expected(rows) {
  const ofRow = ({ values, runs, expectations }) =>
    expectations.map(({ expectation, met }) => [
      met === runs ? badge("healthy", "met") : badge("failing", "failed"),
      h("code", expectation), " ", h("span.dim", "with"), " ", h("code", values.join(", ")), " ", h("span.dim", `in ${met} of ${counted(runs, "run")}`),
    ]);
  return verdict("Expectations", rows.flatMap(ofRow));
}
