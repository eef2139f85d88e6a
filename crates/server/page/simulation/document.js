/** The report of `redrive simulate --html`: draws the embedded JSON and makes no requests. */

import { h } from "../dom.js";
import { count, counted, span } from "../format.js";
import { comparisonShown } from "./comparison.js";
import { rangesShown } from "./ranges.js";
import { runShown } from "./run.js";
import { sweepShown } from "./sweep.js";

/** Subtitle and content by kind of report. */
const KINDS = {
  run: [({ rules, report, seeds }) => [rules, `${span(report.duration_ms)} of events`, until(report), counted(report.nodes, "node"), seeds], ({ report }) => runShown(report, report.findings)],
  ranges: [({ rules, report, seeds }) => [rules, counted(report.runs, "run"), seeds], ({ report }) => rangesShown(report)],
  comparison: [
    ({ report, duration_ms, seeds }) => [report.books.join(" against "), `${span(duration_ms)} of events`, report.runs > 1 && `${counted(report.runs, "run")} each`, seeds],
    ({ report }) => comparisonShown(report),
  ],
  sweep: [
    ({ rules, report, duration_ms }) => [
      `${rules} over ${report.paths.join(" and ")}`,
      `${span(duration_ms)} of events`,
      `${counted(report.rows.length, "rule book")}, ${counted(report.rows[0]?.runs ?? 1, "run")} each`,
    ],
    ({ report }) => sweepShown(report),
  ],
};

/** The time after the last event. */
function until({ ended_at_ms, duration_ms, waiting }) {
  const more = ended_at_ms - duration_ms;
  if (more <= 0) return null;
  return waiting === 0 ? `${span(more)} more until the last delivery ended` : `${span(more)} more, ${count(waiting)} still waiting`;
}

const played = JSON.parse(document.getElementById("report").textContent);
const [subtitle, shown] = KINDS[played.kind];
document.title = played.about ?? "Scenario";
document.querySelector("main").append(
  h(
    "div.heading",
    h("h1", document.title),
    h("p.dim", subtitle(played).filter(Boolean).map((text, at) => [at > 0 && " · ", h("span", text)])),
  ),
  shown(played),
);
