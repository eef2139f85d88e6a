/** The page that `redrive simulate --html` writes: it shows the report beside it, and asks for nothing else. */

import { h } from "../dom.js";
import { count, counted, span } from "../format.js";
import { comparisonShown } from "./comparison.js";
import { rangesShown } from "./ranges.js";
import { runShown } from "./run.js";
import { sweepShown } from "./sweep.js";

/** Each kind of report: how it was played, in a few words, and what it shows. */
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

/** What came after the last event had arrived. */
function until({ ended_at_ms, duration_ms, waiting }) {
  const more = ended_at_ms - duration_ms;
  if (more <= 0) return null;
  return waiting === 0 ? `${span(more)} more until the last has ended` : `${span(more)} more, after which ${count(waiting)} still wait`;
}

const played = JSON.parse(document.getElementById("report").textContent);
const [says, shown] = KINDS[played.kind];
document.title = played.about ?? "A scenario";
document.querySelector("main").append(
  h(
    "div.heading",
    h("h1", document.title),
    h("p.dim", says(played).filter(Boolean).map((words, at) => [at > 0 && " · ", h("span", words)])),
  ),
  shown(played),
);
