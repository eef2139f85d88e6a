/** The attempt history of a delivery: response, classification, rule and decision of each attempt. */

import { answerOf, attemptRecords, holdReason, isAttempt, numbersOf, verdictOf } from "./delivery_text.js";
import { h } from "./dom.js";
import { exact, nanos, span } from "./format.js";
import { icon } from "./icons.js";
import { badge, lineLink } from "./ui.js";

const PIPS_MAX = 12;

/** All attempts, oldest first. */
export function attemptHistory(delivery) {
  const all = attemptRecords(delivery);
  return h("ol.history", all.map((record, at) => drawn(record, at, delivery, all[at - 1])));
}

function drawn(record, at, delivery, before) {
  const [tone, verdict] = verdictOf(record);
  const name = isAttempt(record) ? `Attempt ${record.attempt}` : record.by === "notified" ? "Skipped" : "Held";
  const since = span(Date.parse(record.started_at) - Date.parse(delivery.accepted_at));
  return h(
    "li",
    { id: `attempt-${at}`, tabindex: "-1", class: tone },
    h(
      "div.head",
      h("h3", name),
      h("span.answer", answerOf(record)),
      h("span.dim", h("time", { datetime: record.started_at, title: exact(record.started_at) }, `+${since}`), isAttempt(record) && `, took ${nanos(record.took_nanos)}`),
    ),
    record.end === "failed" && cause(record),
    record.end === "held" && h("p.because", `Reason: ${holdReason(record.by)}.`),
    record.response?.trim() && h("div.row", h("span.dim", "response"), h("pre.response", record.response.trim())),
    record.end === "failed" && rule(record),
    record.held_nanos > 0 && h("div.row", h("span.dim", "held"), h("span", `${nanos(record.held_nanos)} in total before this`)),
    h("p.verdict", icon({ good: "good", warn: "retry", hold: "hold", bad: "bad" }[tone] ?? "idle"), verdict),
    record.verdict.is === "retry" && numbers(record),
    // A rule book reloaded in between explains different decisions.
    before && before.book !== record.book && h("p.dim.small", "The rule book was reloaded before this attempt."),
  );
}

function cause(record) {
  const { classified_at: place, classified_line: line } = record;
  return h(
    "div.row",
    h("span.dim", "category"),
    h("span", badge(record.category), " ", h("code", record.code), " ", place ? h("span.dim", "by ", lineLink(place.line)) : h("span.dim", "default classification")),
    line && quote(place, line),
  );
}

function rule({ reaction_at: place, reaction_line: line }) {
  const source =
    !place ? h("span.dim", "default rule")
    : line ? quote(place, line)
    : h("span", lineLink(place.line), " of the rule book at that time");
  return h("div.row", h("span.dim", "rule"), source);
}

const quote = (place, line) => h("span.quote", place && lineLink(place.line), h("code", line.trim()));

function numbers(record) {
  const [number, most] = record.retry?.by_policy ?? [0, 0];
  const { window } = record.retry ?? {};
  const pips = Array.from({ length: most <= PIPS_MAX ? most : 0 }, (_, at) => h("i", { class: at < number ? "used" : null }));
  return h(
    "div.numbers",
    pips.length > 0 && h("span.pips.warn", { role: "img", "aria-label": `retry ${number} of ${most}` }, pips),
    h("dl", numbersOf(record).map(([name, value]) => h("div", h("dt", name), h("dd", value, name === "window" && used(window))))),
  );
}

const used = ({ used_nanos, limit_nanos }) => h("meter", { min: 0, max: limit_nanos, value: used_nanos, "aria-label": "used share of the retry window" });
