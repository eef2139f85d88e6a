/** Needs attention, worst first: firing alerts, open breakers, failing or paused services, and the worst doctor finding. */

import { get, part } from "../api.js";
import { fill, h } from "../dom.js";
import { counted, queueOf, when } from "../format.js";
import { withCode } from "../highlight.js";
import { pulse } from "../live.js";
import { boundTo } from "../session.js";
import { badge, empty, skeleton, worstFirst } from "../ui.js";

const REFRESH_MS = 10_000;
const SHOWN_MAX = 7;

/** Fills `place` until the view is left. */
export function attention(page, place) {
  // Server-wide status is not available to limited keys.
  let status = boundTo() ? {} : null;
  let finding = null;
  fill(place, skeleton(3));
  // Nothing is drawn before everything is loaded: an empty list would look healthy.
  const draw = () => pulse.value && status && fill(place, drawn(pulse.value, status, finding));
  const refresh = async () => {
    if (boundTo()) return;
    const none = () => null;
    const [loaded, findings] = await Promise.all([
      get("v1/status", {}, page.signal).catch(none),
      get("v1/doctor", {}, page.signal).catch(none),
    ]);
    status = loaded ?? status;
    [finding = null] = worstFirst(findings?.findings ?? [], ({ harm }) => harm);
    if (!page.signal.aborted) draw();
  };
  pulse.watch(draw, page.signal);
  page.every(REFRESH_MS, () => document.hidden || refresh());
  refresh();
}

function drawn(now, { firing = [], degraded = [] }, finding) {
  const all = [
    ...firing.map(ofAlert),
    ...degraded.filter(({ what }) => !IN_PULSE.includes(what)).map(ofDegraded),
    ...now.open_breakers.map(ofBreaker),
    ...now.services.filter(({ health }) => HEALTH[health]).map(ofService),
    ...(finding ? [ofFinding(finding)] : []),
  ];
  if (all.length === 0) return empty("No problems", h("p", "No alert is firing, all breakers are closed, and no service is failing."));
  const rows = worstFirst(all, ({ severity }) => severity);
  const more = rows.length - SHOWN_MAX;
  return [h("ul.attention", rows.slice(0, SHOWN_MAX).map(row)), more > 0 && h("p.pages.dim", `and ${more} more`)];
}

/** Several services may have alerts of one name: the scope is part of the key. */
const ofAlert = ({ name, covers, severity, when: condition, since }) => ({
  key: `alert-${name}-${covers ?? ""}`,
  severity,
  href: "#/alerts",
  mark: badge("firing", severity),
  title: covers ? `${name} (${covers})` : name,
  description: [name !== condition && h("code", condition), since && [" since ", when(since)]],
});

/** Degradations that the pulse lists by name. */
const IN_PULSE = ["breaker-open", "service-paused"];
/** Where to find the others. */
const PLACES = { "book-refused": "#/book", "receiver-dead": "#/alerts", "service-removed": "#/services", "rule-removed": "#/services" };

const ofDegraded = ({ what, why, since }) => ({
  key: `degraded-${what}`,
  severity: "high",
  href: PLACES[what] ?? "#/doctor",
  mark: badge("degraded"),
  title: why,
  description: since && ["since ", when(since)],
});

const ofBreaker = (name) => ({
  key: `breaker-${name}`,
  severity: "high",
  href: `#/breakers/${part(name)}`,
  mark: badge("open"),
  title: name,
  description: "circuit breaker open, deliveries wait",
});

/** The severity by health; other services need no attention. */
const HEALTH = { failing: "high", paused: "medium" };

const ofService = (service) => ({
  key: `service-${queueOf(service)}`,
  severity: HEALTH[service.health],
  href: `#/services/${part(service.service)}`,
  mark: badge(service.health),
  title: queueOf(service),
  description: `${counted(service.waiting, "delivery", "deliveries")} waiting`,
});

const ofFinding = ({ harm, title, evidence, advice }) => ({
  key: "doctor",
  severity: harm,
  href: "#/doctor",
  mark: badge(harm),
  title: withCode(title),
  description: withCode(evidence?.[0] ?? advice),
});

const row = ({ key, href, mark, title, description }) =>
  h("li", { key }, h("a", { href }, mark, h("span", h("b", title), h("span.dim", description))));
