/** Doctor: likely problems, worst first, with evidence, advice and a rule book change. */

import { get, part } from "../api.js";
import { h } from "../dom.js";
import { count, counted, when } from "../format.js";
import { snippet, withCode } from "../highlight.js";
import { badge, card, empty, heading, lineLink, SEVERITIES, table, worstFirst } from "../ui.js";
import { watch } from "../watch.js";

const DOCTOR_MS = 15_000;

export async function view(place, page) {
  watch(page, place, { load: (signal) => get("v1/doctor", {}, signal), draw: drawReport, every: DOCTOR_MS });
}

function drawReport({ looked_at: looked, findings, change, too_little: unjudged = [] }) {
  const sorted = worstFirst(findings, ({ harm }) => harm);
  const sums = SEVERITIES.map((harm) => [harm, sorted.filter((finding) => finding.harm === harm).length]).filter(([, number]) => number > 0);
  return [
    heading("Doctor", {
      badge: sums.map(([harm, number]) => badge(harm, `${count(number)} ${harm}`)),
      description: [
        `Compares recent traffic with the rule book. Checked ${counted(looked.deliveries, "delivery", "deliveries")} with `,
        counted(looked.attempts, "attempt"),
        looked.since && [" since ", when(looked.since)],
        ".",
      ],
    }),
    sorted.length === 0
      ? h("section.card", empty("No problems found", h("p", "Timeouts, retries, breakers and limits fit the recent traffic.")))
      : sorted.map(finding),
    sorted.filter((found) => found.change).length > 1 && card("All changes combined", null, h("div.pad", snippet(change, "Copy all changes"))),
    unjudged.length > 0 && card("Not enough data", h("span.dim", "needs more attempts"), unjudgedTable(unjudged)),
  ];
}

const unjudgedTable = (rows) =>
  table({ label: "Subscriptions without enough data", columns: UNJUDGED_COLUMNS, rows, key: (row) => `${row.service} ${row.events}` });

const UNJUDGED_COLUMNS = [
  { name: "Service", cell: (row) => row.service },
  { name: "Events", cell: (row) => h("code", row.events), wide: true },
  { name: "Attempts", cell: (row) => count(row.attempts), end: true },
];

const TONES = { critical: "bad", high: "bad", medium: "warn", low: "quiet" };

const finding = (found, index) =>
  h(
    "section.card.prominent",
    { key: `${found.code}-${found.service ?? ""}-${found.dependency ?? ""}-${index}`, class: TONES[found.harm] ?? "quiet" },
    h("header", h("h2", badge(found.harm), " ", h("span", withCode(found.title))), h("div.more", h("code.dim", found.code), found.line && lineLink(found.line))),
    h(
      "div.pad.finding",
      (found.service || found.dependency) && h("p.small",
        found.service && h("span.one-of", "Service ", h("a", { href: `#/services/${part(found.service.split("/")[0])}` }, found.service)),
        found.dependency && h("span.one-of", "Dependency ", h("a", { href: `#/breakers/${part(found.dependency)}` }, found.dependency))),
      found.evidence?.length > 0 && [h("h3", "Evidence"), h("ul.evidence", found.evidence.map((line) => h("li", withCode(line))))],
      h("h3", "Advice"),
      h("p", withCode(found.advice)),
      found.gain && h("p.small", `Simulated with the change: ${found.gain.words}`),
      found.change && snippet(found.change, "Copy change"),
    ),
  );
