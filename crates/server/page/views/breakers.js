/** Breakers: each dependency with its switch, how it stood, and the hand that trips or resets it. */

import { get, part, post } from "../api.js";
import { MEANS, outcomes, strip, switchPicture } from "../breaker.js";
import { ask, toast } from "../dialog.js";
import { fill, h, slot } from "../dom.js";
import { compact, count, counted, percent, shortId, span, when } from "../format.js";
import { onHappening } from "../live.js";
import { now } from "../now.js";
import { axisOf, plot } from "../plot.js";
import { action, boundTo } from "../session.js";
import { badge, card, empty, facts, failure, heading, table, tile } from "../ui.js";
import { watch } from "../watch.js";

const LOOK_MS = 3000;
const TREND_MS = 10_000;

export async function view(place, page) {
  const [name] = page.path;
  const body = slot("div");
  const trend = slot("div");
  const says = "A breaker stands in front of each dependency. Closed, calls flow; open, what goes there waits and burns no retry until a probe comes through.";
  const head = name ? null : heading("Breakers", { says });
  fill(place, head, body);
  const watching = watch(page, body, {
    load: (signal) => get("v1/dependencies", {}, signal),
    draw: ({ dependencies, started_at }) => (name ? one(dependencies.find((dependency) => dependency.name === name), started_at, trend, again) : all(dependencies, started_at, again)),
    every: LOOK_MS,
  });
  function again() {
    watching.again();
  }
  onHappening(({ what }) => what.startsWith("breaker") && again(), page.signal);
  if (name) watch(page, trend, { load: (signal) => get("v1/trend", { span: "3h", dependency: name }, signal), draw: calls, every: TREND_MS });
}

function all(dependencies, startedAt, again) {
  if (dependencies.length === 0) return empty("No dependencies yet", h("p", "Every target of the rule book is one; several services may share one with ", h("code", "depends_on"), "."));
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
      h("div.picture", switchPicture(state), h("p", h("b", MEANS[state]), standing(dependency))),
      strip(dependency, startedAt),
      h("p.small.dim", settings),
      h(
        "div",
        outcomes(attempts, failed),
        h(
          "p.small.between",
          h("span", `${compact(attempts)} calls`),
          h("span", `${percent(attempts === 0 ? 0 : failed / attempts)} failed`),
          h("span", `${count(dependency.in_flight)} of ${count(dependency.in_flight_max)} under way`),
        ),
      ),
      h("p.small", h("span.dim", "for "), dependency.services.map((service, at) => [at > 0 && ", ", serviceLink(service)])),
    ),
    h("div.pages", hands(dependency, again)),
  );
}

const serviceLink = (service) => h("a", { href: `#/services/${part(service.split("/")[0])}` }, service);

function standing({ state, since, opens_until, held_until, tripped_by_hand, failures }) {
  const parts = [
    since && ["since ", when(since)],
    tripped_by_hand && "tripped by hand",
    opens_until && (Date.parse(opens_until) > now() ? ["first probe ", when(opens_until)] : "the next call is a probe"),
    held_until && ["asked to wait until ", when(held_until)],
    state === "closed" && failures > 0 && `${counted(failures, "failure")} in a row so far`,
  ];
  return h("span.dim", parts.filter(Boolean).map((part, at) => [at > 0 && ", ", part]));
}

function hands(dependency, again) {
  // A breaker may hold back services of others too.
  if (boundTo()) return [];
  const isOpen = dependency.state === "open" || dependency.state === "half-open";
  const buttons = [
    dependency.state !== "none" && !isOpen && action("operate", "Trip", () => trip(dependency, again)),
    isOpen && action("operate", "Reset", () => reset(dependency, again)),
  ].filter(Boolean);
  return buttons;
}

const NOTE = { name: "note", label: "Why", hint: "Goes on record with your name.", maxlength: 1000 };

async function turn(dependency, again, { route, said, ...asked }) {
  const done = await ask({
    ...asked,
    fields: [NOTE],
    doing: ({ note }) => post(`v1/dependencies/${part(dependency.name)}/${route}`, note ? { note } : {}),
  });
  if (done) toast(said);
  again();
}

const trip = (dependency, again) =>
  turn(dependency, again, {
    route: "trip",
    act: "Trip it",
    danger: true,
    said: `the breaker of ${dependency.name} is open`,
    title: `Trip the breaker of ${dependency.name}?`,
    says: [
      h(
        "p",
        "It opens at once: no further call goes to ",
        h("b", dependency.name),
        ", and what wants to go there waits. This holds back ",
        h("b", dependency.services.join(", ")),
        ". Calls under way may end. After its usual time it probes by itself.",
      ),
    ],
  });

const reset = (dependency, again) =>
  turn(dependency, again, {
    route: "reset",
    act: "Reset it",
    said: `the breaker of ${dependency.name} is closed`,
    title: `Reset the breaker of ${dependency.name}?`,
    says: [h("p", "It closes at once: everything that waits for ", h("b", dependency.name), " starts to go there again. If it still fails, the breaker opens once more after its usual count.")],
  });

function one(dependency, startedAt, trend, again) {
  if (!dependency) return failure(new Error("The rule book has no such dependency."));
  const { name, state, attempts, failed, p50_ms, p99_ms, trips, history } = dependency;
  const share = attempts === 0 ? 0 : failed / attempts;
  return [
    heading(name, { up: ["#/breakers", "Breakers"], badge: badge(state), acts: hands(dependency, again) }),
    h("div.tiles", [
      tile({ name: "Calls", value: compact(attempts), note: "since the start" }),
      tile({ name: "Failed", value: percent(share), tone: share > 0.05 ? "bad" : "plain", note: `${count(failed)} calls` }),
      tile({ name: "Half within", value: p50_ms === undefined ? "–" : span(p50_ms), note: p99_ms === undefined ? "" : `99% within ${span(p99_ms)}` }),
      tile({ name: "Under way", value: count(dependency.in_flight), unit: ` of ${count(dependency.in_flight_max)}`, note: dependency.rate ? `held to ${dependency.rate}` : "" }),
      tile({ name: "Opened", value: count(trips), note: "times since the start" }),
    ]),
    h(
      "div.columns",
      h("div.stack", about(dependency, startedAt), card("Calls", h("span.dim", "the last 3 hours"), trend)),
      card("Turns", h("span.dim", "latest first"), history.length === 0 ? neverTurned() : turns(history)),
    ),
  ];
}

const about = (dependency, startedAt) =>
  card(
    "Breaker",
    null,
    h("div.pad.stack", h("div.picture", switchPicture(dependency.state), h("p", h("b", MEANS[dependency.state]), standing(dependency))), strip(dependency, startedAt)),
    facts(["Opens", dependency.settings], ["Kind", dependency.kind], ["Services", dependency.services.map((service, at) => [at > 0 && ", ", serviceLink(service)])]),
  );

const TURN_COLUMNS = [
  { name: "When", cell: (turn) => when(turn.at) },
  { name: "To", cell: (turn) => badge(turn.to) },
  { name: "Because", cell: because, wide: true },
];

function because({ by, note, delivery, failures, to }) {
  if (by || note) return [by && h("b", by), by && note && ": ", note];
  const words = to === "open" ? `after ${counted(failures, "failure")}` : to === "closed" ? "a probe came through" : "its time was up";
  return [words, delivery && [", ", h("a.mono", { href: `#/deliveries/${delivery}` }, shortId(delivery))]];
}

const neverTurned = () => empty("It has never turned", h("p", "When it opens or closes, it is written down here with what caused it."));

const turns = (history) => h("div.tall", table({ label: "Turns of the breaker", columns: TURN_COLUMNS, rows: history, key: (turn) => turn.at + turn.to }));

const SERIES = [
  { name: "calls", of: (point) => point.attempts, tone: "ink" },
  { name: "failed", of: (point) => point.failed, tone: "bad", filled: true },
];

const calls = (trend) => plot({ ...axisOf(trend), label: "Calls and failed calls", series: SERIES });
