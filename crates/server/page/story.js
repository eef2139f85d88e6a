/** The words about each attempt of a delivery: what came back, which rule judged it, and what followed. */

import { h } from "./dom.js";
import { exact, nanos, span } from "./format.js";
import { icon } from "./icons.js";
import { badge, lineLink } from "./ui.js";
import { answerOf, heldBecause, isAttempt, numbersOf, verdictOf } from "./words.js";

const PIPS_MAX = 12;

/** All of them, the first one first. */
export function stories(delivery) {
  const all = delivery.stories ?? [];
  return h("ol.stories", all.map((story, at) => drawn(story, at, delivery, all[at - 1])));
}

function drawn(story, at, delivery, before) {
  const [tone, verdict] = verdictOf(story);
  const name = isAttempt(story) ? `Attempt ${story.attempt}` : story.by === "notified" ? "Skipped" : "Held";
  const since = span(Date.parse(story.started_at) - Date.parse(delivery.accepted_at));
  return h(
    "li",
    { id: `story-${at}`, tabindex: "-1", class: tone },
    h(
      "div.head",
      h("h3", name),
      h("span.answer", answerOf(story)),
      h("span.dim", h("time", { datetime: story.started_at, title: exact(story.started_at) }, `+${since}`), isAttempt(story) && `, took ${nanos(story.took_nanos)}`),
    ),
    story.end === "failed" && cause(story),
    story.end === "held" && h("p.because", `Because ${heldBecause(story.by)}.`),
    story.response?.trim() && h("div.row", h("span.dim", "answer"), h("pre.response", story.response.trim())),
    story.end === "failed" && rule(story),
    story.held_nanos > 0 && h("div.row", h("span.dim", "held"), h("span", `${nanos(story.held_nanos)} in all before this`)),
    h("p.verdict", icon({ good: "good", warn: "retry", hold: "hold", bad: "bad" }[tone] ?? "idle"), verdict),
    story.verdict.is === "retry" && numbers(story),
    // A book that changed in between explains what looks inconsistent.
    before && before.book !== story.book && h("p.dim.small", "Judged by another rule book than the one before."),
  );
}

function cause(story) {
  const { classified_at: place, classified_line: line } = story;
  return h(
    "div.row",
    h("span.dim", "category"),
    h("span", badge(story.category), " ", h("code", story.code), " ", place ? h("span.dim", "by ", lineLink(place.line)) : h("span.dim", "by what is built in")),
    line && quote(place, line),
  );
}

function rule({ reaction_at: place, reaction_line: line }) {
  const said =
    !place ? h("span.dim", "what is built in: the book says nothing on it")
    : line ? quote(place, line)
    : h("span", lineLink(place.line), " of the book of that time");
  return h("div.row", h("span.dim", "rule"), said);
}

const quote = (place, line) => h("span.quote", place && lineLink(place.line), h("code", line.trim()));

function numbers(story) {
  const [number, most] = story.retry?.by_policy ?? [0, 0];
  const { window } = story.retry ?? {};
  const pips = Array.from({ length: most <= PIPS_MAX ? most : 0 }, (_, at) => h("i", { class: at < number ? "used" : null }));
  return h(
    "div.numbers",
    pips.length > 0 && h("span.pips.warn", { role: "img", "aria-label": `retry ${number} of ${most}` }, pips),
    h("dl", numbersOf(story).map(([name, value]) => h("div", h("dt", name), h("dd", value, name === "window" && used(window))))),
  );
}

const used = ({ used_nanos, limit_nanos }) => h("meter", { min: 0, max: limit_nanos, value: used_nanos, "aria-label": "share of the window that is used" });
