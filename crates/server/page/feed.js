/** What happens, one line each, the latest on top; it stands still while somebody points at it. */

import { fill, h, slot } from "./dom.js";
import { firstEvent } from "./first.js";
import { atClock, span } from "./format.js";
import { icon } from "./icons.js";
import { onHappening, pulse } from "./live.js";
import { empty } from "./ui.js";

const SHOWN_MAX = 40;
const DRAW_MS = 250;

/** Each kind: its tone, its shape, and its words. */
const KINDS = {
  accepted: ["quiet", "next", "accepted"], unrouted: ["warn", "warn", "wanted by nobody"], delivered: ["good", "good", "delivered"],
  retrying: ["warn", "retry", "failed, will retry"], held: ["hold", "hold", "held"], dead: ["bad", "bad", "dead letter"],
  paused: ["hold", "hold", "paused"], resumed: ["good", "next", "resumed"],
  "breaker-opened": ["bad", "breakers", "breaker opened"], "breaker-probing": ["warn", "wait", "breaker probes"],
  "breaker-closed": ["good", "good", "breaker closed"], "dependency-held": ["hold", "wait", "asked to wait"],
  alert: ["bad", "alerts", "alert"], "session-held": ["hold", "hold", "session held"],
  "replay-began": ["info", "replays", "replay began"], "replay-changed": ["info", "replays", "replay"],
  "book-read": ["info", "book", "rule book read"], "book-refused": ["bad", "book", "rule book refused"],
  "store-failing": ["bad", "bad", "store fails"], "store-healed": ["good", "good", "store healed"],
  security: ["bad", "warn", "security"], "clock-stepped": ["warn", "wait", "clock was set"],
};

/** The list, which fills itself; `wanted(happening)` says which belong into it. */
export function feed(page, wanted = () => true) {
  const place = slot("div.feed-place", { tabindex: "0", role: "log", "aria-label": "What happens now", "aria-live": "off" });
  const shown = [];
  let fresh = false;
  let number = 0;
  const draw = () => {
    if (shown.length === 0) fill(place, waitingForFirst());
    else fill(place, h("ol.feed", shown.map(row)));
    fresh = false;
  };
  onHappening((happening) => {
    if (!wanted(happening)) return;
    shown.unshift({ ...happening, number: number++ });
    shown.length = Math.min(shown.length, SHOWN_MAX);
    fresh = true;
  }, page.signal);
  // Whoever points at a line wants to read or press it.
  page.every(DRAW_MS, () => fresh && !place.matches(":hover") && draw());
  pulse.watch((now) => place.toggleAttribute("data-left-out", now?.left_out > 0), page.signal);
  draw();
  return place;
}

function row(happening) {
  const [tone, shape, words] = KINDS[happening.what] ?? ["quiet", "idle", happening.what];
  const { delivery, event_type, event_id, service, message, took_ms, status, attempt } = happening;
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
    { key: happening.number, class: tone },
    atClock(happening.at),
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
  empty("Nothing happens at the moment", h("p", "Events show up here as they come and go. To send one:"), firstEvent());
