/** Shared parts of simulation reports: verdicts, and cards with charts and tables. */

import { h } from "../dom.js";
import { card, table } from "../ui.js";

/** A list of results, each `[badge, text]`. */
export const verdict = (title, items, more) =>
  items.length > 0 && card(title, more && h("span.dim", more), h("ul.verdict", items.map(([mark, ...text]) => h("li", mark, h("div", h("p", text))))));

/** A card with charts above a table. */
export const figures = (title, more, charts, content) =>
  card(title, more && h("span.dim", more), charts.length > 0 && h("div.plots", charts), content);

/** A table whose rows are keyed by position. */
export function plainTable(label, columns, rows) {
  const places = new Map(rows.map((row, at) => [row, at]));
  return table({ label, columns, rows, key: (row) => places.get(row) });
}

/** `dead_letters` becomes `dead letters`. */
export const metricName = (metric) => metric.replaceAll("_", " ");

/** Steps of a series as points of a chart, in seconds. */
export const pointsOf = (steps, stepMs, value = (step) => step) => steps.map((step, at) => [(at * stepMs) / 1000, value(step, at)]);

/** The largest number of dependencies with charts. */
export const DRAWN_MAX = 24;
