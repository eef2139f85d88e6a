/** Comparison of two rule books: verdict, load on the same axes, and all figures. */

import { h } from "../dom.js";
import { withCode } from "../highlight.js";
import { badge } from "../ui.js";
import { chart } from "./chart.js";
import { DRAWN_MAX, figures, metricName, plainTable, pointsOf, verdict } from "./parts.js";

const SIDES = ["a", "b"];

/** `comparison` as `redrive simulate --against --format json` prints it. */
export function comparisonShown(comparison) {
  const { books, over_time, dead_letters } = comparison;
  const names = Object.fromEntries(SIDES.map((side, at) => [side, books[at]]));
  const ofAll = figuresOf(undefined, [], names, comparison);
  const drawn = (one, at) => (at < DRAWN_MAX ? charts(one, books) : []);
  return h(
    "div.simulated",
    judged(names, comparison),
    expected(names, comparison),
    ofAll,
    over_time.map((one, at) => figuresOf(one.name, drawn(one, at), names, comparison)),
    dead_letters.length > 0 && causes(books, comparison),
  );
}

function judged(names, { runs, overall, advantages, undecided }) {
  const often = (better_in) => runs > 1 && [" ", h("span.dim", `in ${better_in} of ${runs} runs`)];
  const ofSide = (side) =>
    advantages.filter((one) => one.side === side).map(({ text, better_in }) => [badge("healthy", names[side]), withCode(text), often(better_in)]);
  const rest = [["info", "no difference", undecided.same], ["warning", "depends on the seed", undecided.by_chance]];
  return verdict("Verdict", [
    [badge("info", "overall"), h("b", withCode(overall))],
    ...SIDES.flatMap(ofSide),
    ...rest.filter(([, , what]) => what.length > 0).map(([state, word, what]) => [badge(state, word), withCode(what.join(", "))]),
  ]);
}

function expected(names, { runs, expectations }) {
  const item = ({ expectation, shown, ...met }) => {
    const came = (side, at) => [
      at > 0 && ", ",
      h("b.tinted", { class: met[side] === runs ? "good" : "bad" }, runs === 1 ? shown[at] : `${met[side]} of ${runs} runs`),
      " ", h("span.dim", `by ${names[side]}`),
    ];
    const isMet = SIDES.every((side) => met[side] === runs);
    return [isMet ? badge("healthy", "met") : badge("failing", "failed"), h("code", expectation), " ", h("span.dim", "actual"), " ", SIDES.map(came)];
  };
  return verdict("Expectations", expectations.map(item));
}

/** The figures of all deliveries or of one dependency. */
function figuresOf(name, drawn, names, { runs, figures: all }) {
  const title = name ?? "All deliveries";
  const ofSide = (side) => ({
    name: names[side],
    cell: (figure) => {
      const text = figure[side] ? spread(figure[side], runs) : "–";
      return figure.better === side ? h("b", text) : text;
    },
    end: true,
  });
  const columns = [
    { name: "Figure", cell: ({ metric }) => metricName(metric), wide: true },
    ...SIDES.map(ofSide),
    { name: "Difference", cell: ({ difference }) => difference && spread(difference, runs), end: true },
    { name: "Better", cell: ({ better }) => better && names[better] },
  ];
  return figures(title, null, drawn, plainTable(`Figures of ${title}`, columns, all.filter(({ of }) => of === name)));
}

function spread({ shown: [least, middle, most] }, runs) {
  return runs === 1 || least === most ? middle : `${middle} (${least} to ${most})`;
}

/** Calls per second, and waiting deliveries. */
function charts({ name, step_ms, calls, waiting }, books) {
  const looks = [["info", "solid"], ["warn", "dashed"]];
  const one = (title, unit, both, value) =>
    chart({
      title: `${title} ${name}`,
      y: { unit: "number", name: unit },
      lines: both.map((steps, at) => ({ name: books[at], tone: looks[at][0], look: looks[at][1], points: pointsOf(steps, step_ms, value) })),
    });
  return [one("Calls on", "calls/s", calls, (count) => (count * 1000) / Math.max(1, step_ms)), one("Waiting for", "deliveries", waiting)];
}

function causes(books, { runs, dead_letters }) {
  const columns = [
    { name: "Cause", cell: ({ code, failure_code }) => `${code} after ${failure_code}`, wide: true },
    { name: "Service", cell: ({ queue }) => queue },
    ...SIDES.map((side, at) => ({ name: books[at], cell: (cause) => spread(cause[side], runs), end: true })),
  ];
  return figures("Dead letters", null, [], plainTable("Dead letters by cause", columns, dead_letters));
}
