/** Numbers, durations and times as text, in the browser's time zone. */

import { h } from "./dom.js";
import { now } from "./server_clock.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const few = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const timeOfDay = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const hourMinute = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
const dayAndTime = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });
const exactly = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
  fractionalSecondDigits: 3, hour12: false, timeZoneName: "short",
});

/** A count in full: 12,345. */
export const count = (n) => whole.format(n);

/** A short count: 12.3K. */
export const compact = (n) => (Math.abs(n) < 10_000 ? whole.format(n) : short.format(n));

/** A number per second, without the unit. */
export function rate(n) {
  if (n === 0) return "0";
  if (n < 0.1) return "<0.1";
  return n < 100 ? few.format(n) : compact(n);
}

/** A share as percent; only exactly 0 and 1 are shown as 0% and 100%. */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  if (share > 0 && share < 0.001) return "<0.1%";
  const rounded = share > 0.999 && share < 1 ? 99.9 : Math.round(share * 1000) / 10;
  return `${few.format(rounded)}%`;
}

/** A count with its noun: `counted(2, "attempt")`. */
export const counted = (n, what, many = `${what}s`) => `${count(n)} ${n === 1 ? what : many}`;

/** A duration: 0.8ms, 250ms, 2.1s, 4m 12s, 3h 5m, 2d 4h. */
export function span(ms) {
  if (ms < 0) return `-${span(-ms)}`;
  if (ms < 10) return `${Math.round(ms * 10) / 10}ms`;
  if (ms < SECOND) return `${Math.round(ms)}ms`;
  if (ms < 9.95 * SECOND) return `${Math.round(ms / 100) / 10}s`;
  const two = (large, small, ofLarge, names) => {
    const [a, b] = [Math.floor(large), Math.floor(small % ofLarge)];
    return b === 0 ? `${a}${names[0]}` : `${a}${names[0]} ${b}${names[1]}`;
  };
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)}s`;
  if (ms < HOUR) return two(ms / MINUTE, ms / SECOND, 60, "ms");
  if (ms < DAY) return two(ms / HOUR, ms / MINUTE, 60, "hm");
  return two(ms / DAY, ms / HOUR, 24, "dh");
}

export const nanos = (n) => span(n / 1e6);

/** A relative time with one unit: `5m ago`, `in 2h`. */
export function ago(at) {
  const ms = now() - new Date(at).getTime();
  const size = Math.abs(ms);
  if (size < 1500) return "now";
  const text =
    size < MINUTE ? `${Math.round(size / SECOND)}s`
    : size < HOUR ? `${Math.floor(size / MINUTE)}m`
    : size < DAY ? `${Math.floor(size / HOUR)}h`
    : `${Math.floor(size / DAY)}d`;
  return ms > 0 ? `${text} ago` : `in ${text}`;
}

export const clock = (at) => timeOfDay.format(new Date(at));
export const exact = (at) => exactly.format(new Date(at));

/** The label of a point on an axis that covers `spanMs`. */
export const axisTime = (at, spanMs) =>
  (spanMs > 20 * HOUR ? dayAndTime : spanMs > 5 * MINUTE ? hourMinute : timeOfDay).format(new Date(at));

/** The server sends a date beyond this year for "never". */
const NEVER_YEAR = 2200;
export const isNever = (at) => new Date(at).getFullYear() >= NEVER_YEAR;

/** A relative time that keeps counting, with the exact time as its title. */
export function when(at) {
  if (!at) return "–";
  return h("time", { datetime: at, title: exact(at), "data-ago": true }, ago(at));
}

/** A time of day, with the exact time as its title. */
export const atClock = (at) => h("time", { datetime: at, title: exact(at) }, clock(at));

/** Keeps all relative times on the page up to date. */
export function startTicking() {
  setInterval(() => {
    for (const time of document.querySelectorAll("time[data-ago]")) {
      const text = ago(time.dateTime);
      if (time.textContent !== text) time.textContent = text;
    }
  }, SECOND);
}

/** `service` or `service/channel`. */
export const queueOf = (of) => (of.channel ? `${of.service}/${of.channel}` : of.service);

/** The end of an event ID: consecutive IDs share their beginning. */
export const endOfId = (id) => (id.length > EVENT_ID_SHOWN_MAX ? `…${id.slice(1 - EVENT_ID_SHOWN_MAX)}` : id);
const EVENT_ID_SHOWN_MAX = 14;

/** The first digits of an ID: every command accepts them. */
export const shortId = (id) => id.slice(0, SHORT_ID_DIGITS);
const SHORT_ID_DIGITS = 8;
