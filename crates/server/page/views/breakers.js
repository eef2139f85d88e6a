/** Circuit breakers: state, recent states and calls of each dependency, with trip and reset. */

import { get, part, post } from "../api.js";
import { outcomes, STATE_TEXT, strip, switchPicture } from "../breaker.js";
import { ask, toast } from "../dialog.js";
import { fill, h, slot } from "../dom.js";
import { compact, count, counted, percent, shortId, span, when } from "../format.js";
import { onActivity } from "../live.js";
import { axisOf, plot } from "../plot.js";
import { now } from "../server_clock.js";
import { action, boundTo } from "../session.js";
import { badge, card, empty, facts, failure, heading, table, tile } from "../ui.js";
import { watch } from "../watch.js";

const REFRESH_MS = 3000;
const TREND_MS = 10_000;

export async function view(place, page) {
  const [name] = page.path;
  const body = slot("div");
  const trend = slot("div");
  const description = "Each dependency has a circuit breaker. While it is open, deliveries wait without using retries until a probe succeeds.";
  const head = name ? null : heading("Breakers", { description });
  fill(place, head, body);
  const watching = watch(page, body, {
    load: (signal) => get("v1/dependencies", {}, signal),
    draw: ({ dependencies, started_at }) => (name ? one(dependencies.find((dependency) => dependency.name === name), started_at, trend, again) : all(dependencies, started_at, again)),
    every: REFRESH_MS,
  });
  function again() {
    watching.again();
  }
  onActivity(({ what }) => what.startsWith("breaker") && again(), page.signal);
  if (name) watch(page, trend, { load: (signal) => get("v1/trend", { span: "3h", dependency: name }, signal), draw: calls, every: TREND_MS });
}

function all(dependencies, startedAt, again) {
  if (dependencies.length === 0) return empty("No dependencies yet", h("p", "Every target in the rule book is a dependency. Services share one with ", h("code", "depends_on"), "."));
  const order = ["open", "half-open", "closed", "none"];
  const sorted = [...dependencies].sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state));
  return h("ul.breakers", sorted.map((dependency) => h("li", { key: dependency.name }, tileOf(dependency, startedAt, again))));
}

function tileOf(dependency, startedAt, again) {
  const { name, state, settings, attempts, failed } = dependency;
  return h(
    "section.card.breaker",
    h("header", h("h2", h("a", { href: `#/breakers/${part(name)}` }, name)), badge(state)),
    h(
      "div.pad.stack",
      h("div.picture", switchPicture(state), h("p", h("b", STATE_TEXT[state]), details(dependency))),
      strip(dependency, startedAt),
      h("p.small.dim", settings),
      h(
        "div",
        outcomes(attempts, failed),
        h(
          "p.small.between",
          h("span", `${compact(attempts)} calls`),
          h("span", `${percent(attempts === 0 ? 0 : failed / attempts)} failed`),
          h("span", `${count(dependency.in_flight)} of ${count(dependency.in_flight_max)} in flight`),
        ),
      ),
      h("p.small", h("span.dim", "used by "), dependency.services.map((service, at) => [at > 0 && ", ", serviceLink(service)])),
    ),
    h("div.pages", actions(dependency, again)),
  );
}

const serviceLink = (service) => h("a", { href: `#/services/${part(service.split("/")[0])}` }, service);

function details({ state, since, opens_until, held_until, tripped_by_hand, failures }) {
  const parts = [
    since && ["since ", when(since)],
    tripped_by_hand && "tripped manually",
    opens_until && (Date.parse(opens_until) > now() ? ["first probe ", when(opens_until)] : "next call is a probe"),
    held_until && ["Retry-After ends ", when(held_until)],
    state === "closed" && failures > 0 && counted(failures, "consecutive failure"),
  ];
  return h("span.dim", parts.filter(Boolean).map((part, at) => [at > 0 && ", ", part]));
}

function actions(dependency, again) {
  // A breaker may affect services outside the key's scope.
  if (boundTo()) return [];
  const isOpen = dependency.state === "open" || dependency.state === "half-open";
  return [
    dependency.state !== "none" && !isOpen && action("operate", "Trip", () => trip(dependency, again)),
    isOpen && action("operate", "Reset", () => reset(dependency, again)),
  ].filter(Boolean);
}

const NOTE = { name: "note", label: "Reason", hint: "Saved in the audit log.", maxlength: 1000 };

async function change(dependency, again, { route, result, ...dialog }) {
  const done = await ask({
    ...dialog,
    fields: [NOTE],
    submit: ({ note }) => post(`v1/dependencies/${part(dependency.name)}/${route}`, note ? { note } : {}),
  });
  if (done) toast(result);
  again();
}

const trip = (dependency, again) =>
  change(dependency, again, {
    route: "trip",
    act: "Trip breaker",
    danger: true,
    result: `Breaker of ${dependency.name} opened`,
    title: `Trip the breaker of ${dependency.name}?`,
    description: [
      h(
        "p",
        "The breaker opens at once. Deliveries to ",
        h("b", dependency.name),
        " wait, which affects ",
        h("b", dependency.services.join(", ")),
        ". Calls in flight are not interrupted. The breaker probes again after its usual open time.",
      ),
    ],
  });

const reset = (dependency, again) =>
  change(dependency, again, {
    route: "reset",
    act: "Reset breaker",
    result: `Breaker of ${dependency.name} closed`,
    title: `Reset the breaker of ${dependency.name}?`,
    description: [h("p", "The breaker closes at once, and waiting deliveries to ", h("b", dependency.name), " start. It opens again if calls keep failing.")],
  });

function one(dependency, startedAt, trend, again) {
  if (!dependency) return failure(new Error("no dependency of this name in the rule book"));
  const { name, state, attempts, failed, p50_ms, p99_ms, trips, history } = dependency;
  const share = attempts === 0 ? 0 : failed / attempts;
  return [
    heading(name, { up: ["#/breakers", "Breakers"], badge: badge(state), acts: actions(dependency, again) }),
    h("div.tiles", [
      tile({ name: "Calls", value: compact(attempts), note: "since server start" }),
      tile({ name: "Failed", value: percent(share), tone: share > 0.05 ? "bad" : "plain", note: `${count(failed)} calls` }),
      tile({ name: "Latency p50", value: p50_ms === undefined ? "–" : span(p50_ms), note: p99_ms === undefined ? "" : `p99 ${span(p99_ms)}` }),
      tile({ name: "In flight", value: count(dependency.in_flight), unit: ` of ${count(dependency.in_flight_max)}`, note: dependency.rate ? `limited to ${dependency.rate}` : "" }),
      tile({ name: "Trips", value: count(trips), note: "since server start" }),
    ]),
    h(
      "div.columns",
      h("div.stack", about(dependency, startedAt), card("Calls", h("span.dim", "last 3 hours"), trend)),
      card("State changes", h("span.dim", "latest first"), history.length === 0 ? noChanges() : stateChanges(history)),
    ),
  ];
}

const about = (dependency, startedAt) =>
  card(
    "Breaker",
    null,
    h("div.pad.stack", h("div.picture", switchPicture(dependency.state), h("p", h("b", STATE_TEXT[dependency.state]), details(dependency))), strip(dependency, startedAt)),
    facts(["Settings", dependency.settings], ["Kind", dependency.kind], ["Services", dependency.services.map((service, at) => [at > 0 && ", ", serviceLink(service)])]),
  );

const CHANGE_COLUMNS = [
  { name: "Time", cell: (change) => when(change.at) },
  { name: "State", cell: (change) => badge(change.to) },
  { name: "Reason", cell: reasonOf, wide: true },
];

function reasonOf({ by, note, delivery, failures, to }) {
  if (by || note) return [by && h("b", by), by && note && ": ", note];
  const reason = to === "open" ? `after ${counted(failures, "failure")}` : to === "closed" ? "probe succeeded" : "open time elapsed";
  return [reason, delivery && [", ", h("a.mono", { href: `#/deliveries/${delivery}` }, shortId(delivery))]];
}

const noChanges = () => empty("No state changes yet", h("p", "Every change is listed here with its reason."));

const stateChanges = (history) => h("div.tall", table({ label: "State changes", columns: CHANGE_COLUMNS, rows: history, key: (change) => change.at + change.to }));

const SERIES = [
  { name: "calls", of: (point) => point.attempts, tone: "ink" },
  { name: "failed", of: (point) => point.failed, tone: "bad", filled: true },
];

const calls = (trend) => plot({ ...axisOf(trend), label: "Calls and failed calls", series: SERIES });
