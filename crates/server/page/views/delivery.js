/** One delivery: how it stands, its attempts on a time line, and the words about each. */

import { get, part, post } from "../api.js";
import { ask, toast } from "../dialog.js";
import { h } from "../dom.js";
import { counted, exact, queueOf, when } from "../format.js";
import { onHappening } from "../live.js";
import { action } from "../session.js";
import { stories } from "../story.js";
import { timeline } from "../timeline.js";
import { badge, card, command, empty, facts, heading, toneOf } from "../ui.js";
import { watch } from "../watch.js";
import { standing } from "../words.js";

const LOOK_MS = 3000;

export function view(place, page) {
  const [id] = page.path;
  let scale = null;
  let shown = null;
  const watching = watch(page, place, {
    load: (signal) => get(`v1/deliveries/${part(id)}`, {}, signal),
    draw: (delivery) => {
      shown = delivery;
      page.title(`${delivery.event_type} → ${queueOf(delivery)}`);
      return drawn();
    },
    every: LOOK_MS,
    lines: 10,
  });
  onHappening(({ delivery }) => shown && delivery === shown.id && watching.again(), page.signal);
  const rescale = (chosen) => {
    scale = chosen;
    watching.again();
  };

  const drawn = () => [
    heading(h("span", shown.event_type, h("span.arrow", " → "), queueOf(shown)), {
      up: ["#/deliveries", "Deliveries"],
      badge: badge(shown.state),
      acts: acts(shown, watching.again),
    }),
    h("p.standing", { class: toneOf(shown.state) }, standing(shown), death(shown)),
    card("Time line", null, timeline(shown, scale, rescale)),
    h(
      "div.columns",
      card("Attempts", h("span.dim", counted(shown.attempts, "attempt")), shown.stories?.length > 0 ? stories(shown) : noStory(shown)),
      h("div.stack", card("Delivery", null, about(shown)), card("In a terminal", null, h("div.pad.stack", commands(shown).map(command)))),
    ),
  ];
}

const noStory = (delivery) =>
  delivery.state === "purged"
    ? empty("Its story is gone", h("p", "A purge deletes what was kept of a dead letter."))
    : empty("No attempt has been made yet", h("p", "The first one shows up here by itself."));

function death({ death: why }) {
  if (!why) return null;
  return [
    " ",
    h("code", why.code),
    why.failure_code !== why.code && [", last failure ", h("code", why.failure_code)],
    `: ${why.message} `,
    h("a", { href: `#/groups/${why.fingerprint}` }, "Its failure group"),
  ];
}

function acts(delivery, again) {
  if (delivery.state !== "dead") return null;
  return [
    action("operate", "Skip", () => skip(delivery, again)),
    action("operate", "Replay", () => replay(delivery, again), { class: "main" }),
  ];
}

async function replay(delivery, again) {
  const isPoison = delivery.death?.tier === "poison";
  const done = await ask({
    title: "Replay this dead letter?",
    says: [
      h("p", "It is sent to ", h("b", queueOf(delivery)), " again, as it came, with a fresh count of retries. If it fails again, it becomes poison unless the rule book gives it more tries."),
      isPoison && h("p.refused", "It is poison: it has failed a replay, or does not parse. Say why it should go through now."),
    ],
    fields: [{ name: "note", label: "Why", hint: "Goes on record with the replay.", required: isPoison, maxlength: 1000 }],
    act: "Replay it",
    doing: ({ note }) => post("v1/replays", { letters: [delivery.id], ...(note && { note }), ...(isPoison && { include_poison: true }) }),
  });
  if (done) toast("the replay has begun");
  again();
}

async function skip(delivery, again) {
  const done = await ask({
    title: "Skip this dead letter?",
    says: [h("p", "It is given up: nobody sends it again. What waits behind it in its session goes on. This cannot be undone.")],
    fields: [{ name: "note", label: "Why", hint: "Goes on record.", maxlength: 1000 }],
    act: "Skip it",
    danger: true,
    doing: ({ note }) => post(`v1/dead-letters/${delivery.id}/skip`, note ? { note } : {}),
  });
  if (done) toast("skipped");
  again();
}

function about(delivery) {
  const search = (name, value) => h("a", { href: `#/deliveries?${name}=${encodeURIComponent(value)}` }, value);
  return facts(
    ["Service", h("a", { href: `#/services/${encodeURIComponent(delivery.service)}` }, queueOf(delivery))],
    ["Event type", search("type", delivery.event_type)],
    ["Event id", h("a.mono", { href: `#/deliveries?find=${encodeURIComponent(delivery.event_id)}` }, delivery.event_id)],
    ["Event source", delivery.event_source],
    delivery.session && ["Session", search("session", delivery.session)],
    delivery.correlation_id && ["Correlation id", search("correlation", delivery.correlation_id)],
    ["Rule row", delivery.subscription],
    ["Accepted", h("span", when(delivery.accepted_at), h("span.dim", ` ${exact(delivery.accepted_at)}`))],
    delivery.ended_at && ["Ended", h("span", when(delivery.ended_at), h("span.dim", ` ${exact(delivery.ended_at)}`))],
    delivery.replays > 0 && ["Replayed", counted(delivery.replays, "time")],
    delivery.replay && ["In replay", h("a", { href: `#/replays/${delivery.replay}` }, `replay ${delivery.replay}`)],
    delivery.held_by && ["Held by", h("a.mono", { href: `#/deliveries/${delivery.held_by}` }, delivery.held_by)],
    delivery.superseded_by && ["Replaced by", h("a.mono", { href: `#/deliveries?find=${delivery.superseded_by}` }, delivery.superseded_by)],
    delivery.supersedes && ["Replaces", h("a.mono", { href: `#/deliveries?find=${delivery.supersedes}` }, delivery.supersedes)],
    ["Delivery", h("span.mono", delivery.id)],
    ["Receipt", h("span.mono", delivery.receipt)],
  );
}

const commands = ({ id, receipt, state }) => [
  `redrive why ${id.slice(0, 8)}`,
  `redrive show ${receipt}`,
  ...(state === "dead" ? [`redrive dlq replay ${id.slice(0, 8)}`] : []),
];
