/** Axis marks and their labels: few, evenly spaced, at round numbers. */

import { span } from "../format.js";

/** Steps of time axes, in seconds. */
const CLOCK_STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30,
  60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
];
const DAY = 86_400;

const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** The marks from 0 to the first that is not below `top`. `unit`: `time` in seconds, `count` or `number`. */
export function marksFromZero(unit, top, steps) {
  const end = Math.max(top, unit === "count" ? steps : top > 0 ? 0 : 1);
  const step = stepOf(unit, end / steps);
  const marks = [0];
  while (marks.at(-1) < end) marks.push(step * marks.length);
  return marks;
}

/** The marks between two ends. */
export function marksBetween(unit, from, to, steps) {
  const step = stepOf(unit, (to - from) / steps);
  const first = Math.ceil(from / step);
  const marks = Array.from({ length: steps + 1 }, (_, at) => (first + at) * step);
  // Floating-point sums are not exact.
  return marks.filter((mark) => mark <= to + step / 1000);
}

function stepOf(unit, least) {
  if (unit === "time") return CLOCK_STEPS.find((step) => step >= least) ?? DAY * round(least / DAY);
  return round(unit === "count" ? Math.max(1, least) : least);
}

/** The next of 1, 2, 5, 10, 20, … */
function round(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].find((digit) => digit * power >= least * (1 - 1e-12)) * power;
  return Number(step.toPrecision(1));
}

export const labelOf = (unit, value) => (unit !== "time" ? short.format(value) : value > 0 ? span(value * 1000) : "0");
