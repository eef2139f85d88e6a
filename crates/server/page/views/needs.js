/** What needs a hand, the worst first: alerts, open breakers, failing services and the doctor's worst finding. */

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { counted, queueOf, when } from "../format.js";
import { pulse } from "../live.js";
import { boundTo } from "../session.js";
import { badge, empty, skeleton } from "../ui.js";

const LOOK_MS = 10_000;
const SHOWN_MAX = 7;
const HARMS = ["critical", "high", "medium", "low"];

/** Fills `place` for as long as the page is there. */
export function needs(page, place) {
  let alerts = [];
  let finding = null;
  fill(place, skeleton(3));
  const draw = () => pulse.value && fill(place, drawn(pulse.value, alerts, finding));
  const look = async () => {
    // What is of the whole server is not told to a key for a part of it.
    if (boundTo()) return;
    const none = () => null;
    const [told, findings] = await Promise.all([
      get("v1/alerts", {}, page.signal).catch(none),
      get("v1/doctor", {}, page.signal).catch(none),
    ]);
    alerts = (told?.alerts ?? []).filter((alert) => alert.state === "firing");
    finding = [...(findings?.findings ?? [])].sort((a, b) => HARMS.indexOf(a.harm) - HARMS.indexOf(b.harm))[0] ?? null;
    if (!page.signal.aborted) draw();
  };
  pulse.watch(draw, page.signal);
  page.every(LOOK_MS, () => document.hidden || look());
  look();
}

function drawn(now, alerts, finding) {
  const rows = [
    ...alerts.map((alert) => row(`alert-${alert.name}`, "#/alerts", badge("firing", alert.severity), alert.name, [alert.when, alert.since && [" since ", when(alert.since)]])),
    ...now.open_breakers.map((name) => row(`breaker-${name}`, `#/breakers/${encodeURIComponent(name)}`, badge("open"), name, "its breaker is open: what goes there waits")),
    ...now.services
      .filter(({ health }) => health === "failing" || health === "paused")
      .map((service) => row(`service-${queueOf(service)}`, `#/services/${encodeURIComponent(service.service)}`, badge(service.health), queueOf(service), counted(service.waiting, "delivery waits", "deliveries wait"))),
    finding && row("doctor", "#/doctor", badge(finding.harm), finding.title, finding.advice),
  ].filter(Boolean);
  if (rows.length === 0) return empty("All is well", h("p", "No alert fires, every breaker is closed, and no service fails."));
  const more = rows.length - SHOWN_MAX;
  return [h("ul.needs", rows.slice(0, SHOWN_MAX)), more > 0 && h("p.pages.dim", `and ${more} more`)];
}

const row = (key, href, mark, title, says) => h("li", { key }, h("a", { href }, mark, h("span", h("b", title), h("span.dim", says))));
