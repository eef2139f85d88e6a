/** Live activity, one line per entry, latest first; it does not move while the pointer is over it. */

import { fill, h, slot } from "./dom.js";
import { firstEvent } from "./first_event.js";
import { atClock, span } from "./format.js";
import { icon } from "./icons.js";
import { onActivity, pulse } from "./live.js";
import { empty } from "./ui.js";

const SHOWN_MAX = 40;
const DRAW_MS = 250;

/** Tone, icon and text by kind. */
const KINDS = {
  accepted: ["quiet", "next", "accepted"], unrouted: ["warn", "warn", "no subscriber"], delivered: ["good", "good", "delivered"],
  retrying: ["warn", "retry", "failed, will retry"], held: ["hold", "hold", "held"], dead: ["bad", "bad", "dead letter"],
  paused: ["hold", "hold", "paused"], resumed: ["good", "next", "resumed"],
  "breaker-opened": ["bad", "breakers", "breaker opened"], "breaker-probing": ["warn", "wait", "breaker half-open"],
  "breaker-closed": ["good", "good", "breaker closed"], "dependency-held": ["hold", "wait", "Retry-After received"],
  alert: ["bad", "alerts", "alert"], "session-held": ["hold", "hold", "session held"],
  "replay-began": ["info", "replays", "replay started"], "replay-changed": ["info", "replays", "replay changed"],
  "book-read": ["info", "book", "rule book loaded"], "book-refused": ["bad", "book", "rule book refused"],
  "store-failing": ["bad", "bad", "store failing"], "store-healed": ["good", "good", "store recovered"],
  security: ["bad", "warn", "security"], "clock-stepped": ["warn", "wait", "clock changed"],
};

export function activityFeed(page) {
  const place = slot("div.feed-place", { tabindex: "0", role: "log", "aria-label": "Live activity", "aria-live": "off" });
  const shown = [];
  let fresh = false;
  let number = 0;
  const draw = () => {
    if (shown.length === 0) fill(place, waitingForFirst());
    else fill(place, h("ol.feed", shown.map(row)));
    fresh = false;
  };
  onActivity((activity) => {
    shown.unshift({ ...activity, number: number++ });
    shown.length = Math.min(shown.length, SHOWN_MAX);
    fresh = true;
  }, page.signal);
  page.every(DRAW_MS, () => fresh && !place.matches(":hover") && draw());
  pulse.watch((now) => place.toggleAttribute("data-left-out", now?.left_out > 0), page.signal);
  draw();
  return place;
}

function row(activity) {
  const [tone, shape, words] = KINDS[activity.what] ?? ["quiet", "idle", activity.what];
  const { delivery, event_type, event_id, service, message, took_ms, status, attempt } = activity;
  const href = delivery ? `#/deliveries/${delivery}` : event_id ? `#/deliveries?find=${encodeURIComponent(event_id)}` : null;
  const what = event_type ?? service ?? words;
  const detail = [
    attempt > 1 && `attempt ${attempt}`,
    status && String(status),
    typeof took_ms === "number" && span(took_ms),
    message,
  ].filter(Boolean);
  return h(
    "li",
    { key: activity.number, class: tone },
    atClock(activity.at),
    icon(shape),
    h(
      "span.what",
      href ? h("a", { href }, what) : h("b", what),
      event_type && service && h("span.to", ` → ${service}`),
      h("span.how", h("span.tinted", words), detail.length > 0 && ` · ${detail.join(" · ")}`),
    ),
  );
}

const waitingForFirst = () =>
  empty("No activity yet", h("p", "Events and deliveries are listed here as they happen. Send one:"), firstEvent());
