/** Several runs of a scenario: the range of each figure. */

import { h, s } from "../dom.js";
import { counted } from "../format.js";
import { badge } from "../ui.js";
import { figures, metricName, plainTable, verdict } from "./parts.js";

/** `ranges` as `redrive simulate --runs --format json` prints them. */
export function rangesShown({ runs, figures: ranges, expectations }) {
  const item = ({ expectation, met }) => [
    met === runs ? badge("healthy", "met") : badge("failing", "failed"),
    h("code", expectation), " ", h("span.dim", "met in"), ` ${met} of ${counted(runs, "run")}`,
  ];
  const columns = [
    { name: "Figure", cell: ({ metric }) => metricName(metric) },
    { name: "Minimum", cell: ({ shown }) => shown[0], end: true },
    { name: "Median", cell: ({ shown }) => h("b", shown[1]), end: true },
    { name: "Maximum", cell: ({ shown }) => shown[2], end: true },
    { name: "Range", cell: bar, wide: true },
  ];
  const names = [...new Set(ranges.map(({ of }) => of))];
  const group = (name) => {
    const title = name ?? "All deliveries";
    return figures(title, null, [], plainTable(`Ranges of ${title}`, columns, ranges.filter(({ of }) => of === name)));
  };
  return h("div.simulated", verdict("Expectations", expectations.map(item)), names.map(group));
}

/** Light from minimum to maximum, dark to p95, a mark at the median. "Never" is at the far end. */
function bar({ min, median, p95, max }) {
  const most = Math.max(0, ...[min, median, p95, max].filter((value) => value !== null));
  // "Never" is drawn beyond the largest value.
  const whole = (max === null ? most * 1.25 : most) || 1;
  const place = (value) => 100 * (value === null ? 1 : Math.min(1, value / whole));
  const share = (percent) => `${percent.toFixed(2)}%`;
  const [from, middle] = [place(min), share(place(median))];
  const block = (kind, to) => s("rect", { class: kind, x: share(from), width: share(Math.max(0.4, place(to) - from)), y: "15%", height: "70%", rx: 2 });
  return s(
    "svg.range",
    { class: max === null ? "bad" : "info", "aria-hidden": "true" },
    s("rect.rest", { width: "100%", y: "45%", height: "10%" }),
    block("whole", max),
    block("most", p95),
    s("line.middle", { x1: middle, x2: middle, y1: 0, y2: "100%" }),
  );
}
