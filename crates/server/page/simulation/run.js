/** The result of one run: findings, totals, and each dependency over time. */

import { h, s } from "../dom.js";
import { count, counted, percent, span } from "../format.js";
import { withCode } from "../highlight.js";
import { badge, card, empty, tile } from "../ui.js";
import { dependencies } from "./dependency.js";
import { metricName, plainTable, verdict } from "./parts.js";

/** `report` as `redrive simulate --format json` prints it, with its findings. */
export const runShown = (report, findings) =>
  h(
    "div.simulated",
    card("Verdict", null, h("ul.verdict", findings.map(finding))),
    totals(report),
    expectations(report.expectations),
    dependencies(report),
    h("div.columns.even", attempts(report), deadLetters(report)),
    services(report),
  );

// --- Findings ----------------------------------------------------------------------------------------

const WEIGHTS = { bad: ["failing", "problem"], fair: ["warning", "warning"], good: ["healthy", "ok"] };

const finding = ({ weight, text, advice }) => h("li", badge(...WEIGHTS[weight]), h("div", h("p", withCode(text)), advice.map(proven)));

const proven = ({ words, change, metric, shown: [before, after], price, seeds }) =>
  h(
    "div.proven",
    h(
      "p",
      "Run again with ", withCode(words), `: ${metricName(metric)} ${before} → `, h("b", after), price && `, ${price}`,
      " ", h("span.dim", `(lower with each of ${seeds} seeds)`),
    ),
    h("details", h("summary", "Show the change"), h("pre", { tabindex: "0" }, h("code", change))),
  );

function expectations(expected) {
  const item = ({ expectation, met, shown }) => [
    met ? badge("healthy", "met") : badge("failing", "failed"),
    h("code", expectation), " ", h("span.dim", "actual"), ` ${shown}`,
  ];
  return verdict("Expectations", expected.map(item), `${expected.filter(({ met }) => met).length} of ${expected.length} met`);
}

// --- Totals ------------------------------------------------------------------------------------------

function totals({ delivered, deliveries, dead, waiting, attempts, amplification, duplicates, order_violations, latency }) {
  const toned = (n, tone) => (n > 0 ? tone : "plain");
  const took = (key) => (latency ? span(latency[key]) : "–");
  const noted = (name, key) => (latency ? `${name} ${took(key)}` : "nothing delivered");
  const share = (n) => percent(deliveries > 0 ? n / deliveries : 0);
  return h("div.tiles", [
    tile({ name: "Delivered", value: count(delivered), note: `${share(delivered)} of ${counted(deliveries, "delivery", "deliveries")}` }),
    tile({ name: "Dead", value: count(dead), note: share(dead), tone: toned(dead, "bad") }),
    tile({ name: "Still waiting", value: count(waiting), note: "at the end", tone: toned(waiting, "warn") }),
    tile({ name: "Attempts", value: count(attempts), note: `${amplification.toFixed(2)} per delivery` }),
    tile({ name: "Duplicate side effects", value: count(duplicates), note: "repeated deliveries", tone: toned(duplicates, "warn") }),
    tile({ name: "Out of order", value: count(order_violations), note: "within a session", tone: toned(order_violations, "bad") }),
    tile({ name: "Latency p50", value: took("p50_ms"), note: noted("p90", "p90_ms") }),
    tile({ name: "Latency p99", value: took("p99_ms"), note: noted("maximum", "max_ms") }),
  ]);
}

/** Attempt counts with a bar of their own, and the upper bounds of shared bars. */
const ATTEMPTS_ALONE = 5;
const ATTEMPTS_TOGETHER = [10, 20, 50, 100];

function attempts({ attempts_max, attempts_per_delivery, waiting }) {
  const bars = new Map();
  for (const { attempts, deliveries } of attempts_per_delivery) {
    const name = attemptsName(attempts);
    bars.set(name, (bars.get(name) ?? 0) + deliveries);
  }
  const sum = [...bars.values()].reduce((sum, deliveries) => sum + deliveries, 0);
  const most = Math.max(1, ...bars.values());
  const bar = ([name, deliveries], at) =>
    h(
      "li",
      { class: at === 0 && name === "1 attempt" ? "good" : name.startsWith("more") ? "bad" : "warn" },
      h("span", name),
      s("svg", { "aria-hidden": "true" }, s("rect", { width: `${Math.max(0.5, (100 * deliveries) / most).toFixed(2)}%`, height: "100%", rx: 2 })),
      h("span.end", count(deliveries), " ", h("small.dim", percent(deliveries / sum))),
    );
  const more = `maximum ${counted(attempts_max, "attempt")}${waiting > 0 ? `, ${counted(waiting, "delivery", "deliveries")} unfinished` : ""}`;
  return card("Attempts per delivery", h("span.dim", more), h("ul.bars", [...bars].map(bar)));
}

function attemptsName(attempts) {
  if (attempts <= ATTEMPTS_ALONE) return counted(attempts, "attempt");
  const at = ATTEMPTS_TOGETHER.findIndex((upTo) => attempts <= upTo);
  if (at < 0) return `more than ${ATTEMPTS_TOGETHER.at(-1)}`;
  return `${(ATTEMPTS_TOGETHER[at - 1] ?? ATTEMPTS_ALONE) + 1} to ${ATTEMPTS_TOGETHER[at]}`;
}

function deadLetters({ dead, dead_letters }) {
  if (dead_letters.length === 0) return card("Dead letters", null, empty("No dead letters", h("p", "No delivery failed permanently.")));
  const columns = [
    { name: "Cause", cell: ({ code, failure_code, category }) => `${code} after ${failure_code}, ${category}`, wide: true },
    { name: "Service", cell: ({ queue, dependency }) => (queue === dependency ? queue : `${queue} at ${dependency}`) },
    { name: "Deliveries", cell: (cause) => count(cause.count), end: true },
  ];
  return card("Dead letters", h("span.dim", counted(dead, "delivery", "deliveries")), plainTable("Dead letters by cause", columns, dead_letters));
}

function services({ queues, paused }) {
  const took = (key) => ({ latency }) => (latency ? span(latency[key]) : "–");
  const columns = [
    { name: "Service", cell: ({ name }) => name, wide: true },
    { name: "Deliveries", cell: ({ deliveries }) => count(deliveries), end: true },
    { name: "Delivered", cell: ({ delivered }) => count(delivered), end: true },
    { name: "Dead", cell: ({ dead }) => (dead > 0 ? h("b.tinted.bad", count(dead)) : "0"), end: true },
    { name: "Peak waiting", cell: ({ waiting }) => count(Math.max(0, ...waiting)), end: true },
    { name: "p50", cell: took("p50_ms"), end: true },
    { name: "p99", cell: took("p99_ms"), end: true },
  ];
  const pause = ({ service, at_ms }) => h("p.sum", badge("paused"), " ", h("b", service), ` paused by its rule at ${span(at_ms)}`);
  return card("Services", h("span.dim", counted(queues.length, "queue")), paused.map(pause), plainTable("Services", columns, queues));
}
