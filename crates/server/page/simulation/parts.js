/** The parts that reports of simulations share: verdicts, what was expected, cards of charts and tables. */

import { h } from "../dom.js";
import { card, table } from "../ui.js";

/** A list of judgements, each `[badge, words]`. */
export const verdict = (title, items, more) =>
  items.length > 0 && card(title, more && h("span.dim", more), h("ul.verdict", items.map(([mark, ...words]) => h("li", mark, h("div", h("p", words))))));

/** A card with charts above a table. */
export const figures = (title, more, charts, content) =>
  card(title, more && h("span.dim", more), charts.length > 0 && h("div.plots", charts), content);

/** A table of rows that are told apart by their places. */
export function plainTable(label, columns, rows) {
  const places = new Map(rows.map((row, at) => [row, at]));
  return table({ label, columns, rows, key: (row) => places.get(row) });
}

/** `dead_letters` in words. */
export const metricName = (metric) => metric.replaceAll("_", " ");

/** Steps of a series as points of a chart: seconds, and what `value` makes of a step. */
export const pointsOf = (steps, stepMs, value = (step) => step) => steps.map((step, at) => [(at * stepMs) / 1000, value(step, at)]);

/** At most so many dependencies are drawn, so that a browser can hold the page. */
export const DRAWN_MAX = 24;
