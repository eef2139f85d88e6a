/**
 * What needs a hand, the worst first: alerts that fire, open breakers, services that fail or stand still, whatever
 * else is degraded, and the doctor's worst finding.
 */

import { get, part } from "../api.js";
import { fill, h } from "../dom.js";
import { counted, queueOf, when } from "../format.js";
import { pulse } from "../live.js";
import { boundTo } from "../session.js";
import { spoken } from "../tint.js";
import { badge, empty, skeleton, worstFirst } from "../ui.js";

const LOOK_MS = 10_000;
const SHOWN_MAX = 7;

/** Fills `place` for as long as the page is there. */
export function needs(page, place) {
  // What is of the whole server is not told to a key for a part of it.
  let status = boundTo() ? {} : null;
  let finding = null;
  fill(place, skeleton(3));
  // What is not known yet is not well.
  const draw = () => pulse.value && status && fill(place, drawn(pulse.value, status, finding));
  const look = async () => {
    if (boundTo()) return;
    const none = () => null;
    const [told, findings] = await Promise.all([
      get("v1/status", {}, page.signal).catch(none),
      get("v1/doctor", {}, page.signal).catch(none),
    ]);
    status = told ?? status;
    [finding = null] = worstFirst(findings?.findings ?? [], ({ harm }) => harm);
    if (!page.signal.aborted) draw();
  };
  pulse.watch(draw, page.signal);
  page.every(LOOK_MS, () => document.hidden || look());
  look();
}

function drawn(now, { firing = [], degraded = [] }, finding) {
  const all = [
    ...firing.map(ofAlert),
    ...degraded.filter(({ what }) => !TOLD_BY_PULSES.includes(what)).map(ofTrouble),
    ...now.open_breakers.map(ofBreaker),
    ...now.services.filter(({ health }) => HEALTH[health]).map(ofService),
    ...(finding ? [ofFinding(finding)] : []),
  ];
  if (all.length === 0) return empty("All is well", h("p", "No alert fires, every breaker is closed, and no service fails."));
  const rows = worstFirst(all, ({ severity }) => severity);
  const more = rows.length - SHOWN_MAX;
  return [h("ul.needs", rows.slice(0, SHOWN_MAX).map(row)), more > 0 && h("p.pages.dim", `and ${more} more`)];
}

/** An alert goes by its name and what it covers: services may have alerts of one name. */
const ofAlert = ({ name, covers, severity, when: condition, since }) => ({
  key: `alert-${name}-${covers ?? ""}`,
  severity,
  href: "#/alerts",
  mark: badge("firing", severity),
  title: covers ? `${name} (${covers})` : name,
  says: [name !== condition && h("code", condition), since && [" since ", when(since)]],
});

/** What pulses tell of, by name and at once. */
const TOLD_BY_PULSES = ["breaker-open", "service-paused"];
/** Where the rest can be looked at. */
const PLACES = { "book-refused": "#/book", "receiver-dead": "#/alerts", "service-removed": "#/services", "rule-removed": "#/services" };

const ofTrouble = ({ what, why, since }) => ({
  key: `trouble-${what}`,
  severity: "high",
  href: PLACES[what] ?? "#/doctor",
  mark: badge("degraded"),
  title: why,
  says: since && ["since ", when(since)],
});

const ofBreaker = (name) => ({
  key: `breaker-${name}`,
  severity: "high",
  href: `#/breakers/${part(name)}`,
  mark: badge("open"),
  title: name,
  says: "its breaker is open: what goes there waits",
});

/** How bad it is that a service is like that; what is not named needs no hand. */
const HEALTH = { failing: "high", paused: "medium" };

const ofService = (service) => ({
  key: `service-${queueOf(service)}`,
  severity: HEALTH[service.health],
  href: `#/services/${part(service.service)}`,
  mark: badge(service.health),
  title: queueOf(service),
  says: counted(service.waiting, "delivery waits", "deliveries wait"),
});

/** The doctor's own page says what to do; here stands what was seen. */
const ofFinding = ({ harm, title, evidence, advice }) => ({
  key: "doctor",
  severity: harm,
  href: "#/doctor",
  mark: badge(harm),
  title: spoken(title),
  says: spoken(evidence?.[0] ?? advice),
});

const row = ({ key, href, mark, title, says }) =>
  h("li", { key }, h("a", { href }, mark, h("span", h("b", title), h("span.dim", says))));
