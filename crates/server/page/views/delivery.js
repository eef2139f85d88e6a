/** One delivery: its state, a timeline, and the details of each attempt. */

import { get, part, post } from "../api.js";
import { attemptRecords, summary } from "../delivery_text.js";
import { ask, toast } from "../dialog.js";
import { h } from "../dom.js";
import { counted, exact, queueOf, when } from "../format.js";
import { attemptHistory } from "../history.js";
import { onActivity } from "../live.js";
import { action } from "../session.js";
import { timeline } from "../timeline.js";
import { badge, card, command, empty, facts, heading, toneOf } from "../ui.js";
import { watch } from "../watch.js";

const REFRESH_MS = 3000;

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
    every: REFRESH_MS,
    lines: 10,
  });
  onActivity(({ delivery }) => shown && delivery === shown.id && watching.again(), page.signal);
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
    h("p.callout", { class: toneOf(shown.state) }, summary(shown), death(shown)),
    card("Timeline", null, timeline(shown, scale, rescale)),
    h(
      "div.columns",
      card("Attempts", h("span.dim", counted(shown.attempts, "attempt")), attemptRecords(shown).length > 0 ? attemptHistory(shown) : noHistory(shown)),
      h("div.stack", card("Delivery", null, about(shown)), card("In a terminal", null, h("div.pad.stack", commands(shown).map(command)))),
    ),
  ];
}

const noHistory = (delivery) =>
  delivery.state === "purged"
    ? empty("History deleted", h("p", "A purge deletes the dead letter with its history."))
    : empty("No attempts yet", h("p", "The first attempt appears here."));

function death({ death: why }) {
  if (!why) return null;
  return [
    " ",
    h("code", why.code),
    why.failure_code !== why.code && [", last failure ", h("code", why.failure_code)],
    `: ${why.message} `,
    h("a", { href: `#/groups/${why.fingerprint}` }, "Failure group"),
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
    description: [
      h("p", "It is sent to ", h("b", queueOf(delivery)), " unchanged, with fresh retries. If it fails again, it becomes poison unless the rule book allows more replays."),
      isPoison && h("p.refused", "It is poison: it failed a replay or cannot be parsed. Give a reason to replay it."),
    ],
    fields: [{ name: "note", label: "Reason", hint: "Saved in the audit log.", required: isPoison, maxlength: 1000 }],
    act: "Replay",
    submit: ({ note }) => post("v1/replays", { letters: [delivery.id], ...(note && { note }), ...(isPoison && { include_poison: true }) }),
  });
  if (done) toast("Replay started");
  again();
}

async function skip(delivery, again) {
  const done = await ask({
    title: "Skip this dead letter?",
    description: [h("p", "It will not be sent again. Deliveries that wait behind it in its session resume. This cannot be undone.")],
    fields: [{ name: "note", label: "Reason", hint: "Saved in the audit log.", maxlength: 1000 }],
    act: "Skip",
    danger: true,
    submit: ({ note }) => post(`v1/dead-letters/${delivery.id}/skip`, note ? { note } : {}),
  });
  if (done) toast("Dead letter skipped");
  again();
}

function about(delivery) {
  const search = (name, value) => h("a", { href: `#/deliveries?${name}=${encodeURIComponent(value)}` }, value);
  return facts(
    ["Service", h("a", { href: `#/services/${encodeURIComponent(delivery.service)}` }, queueOf(delivery))],
    ["Event type", search("type", delivery.event_type)],
    ["Event ID", h("a.mono", { href: `#/deliveries?find=${encodeURIComponent(delivery.event_id)}` }, delivery.event_id)],
    ["Event source", delivery.event_source],
    delivery.session && ["Session", search("session", delivery.session)],
    delivery.correlation_id && ["Correlation ID", search("correlation", delivery.correlation_id)],
    ["Subscription", delivery.subscription],
    ["Accepted", h("span", when(delivery.accepted_at), h("span.dim", ` ${exact(delivery.accepted_at)}`))],
    delivery.ended_at && ["Ended", h("span", when(delivery.ended_at), h("span.dim", ` ${exact(delivery.ended_at)}`))],
    delivery.replays > 0 && ["Replayed", counted(delivery.replays, "time")],
    delivery.replay && ["In replay", h("a", { href: `#/replays/${delivery.replay}` }, `replay ${delivery.replay}`)],
    delivery.held_by && ["Held by", h("a.mono", { href: `#/deliveries/${delivery.held_by}` }, delivery.held_by)],
    delivery.superseded_by && ["Replaced by", h("a.mono", { href: `#/deliveries?find=${delivery.superseded_by}` }, delivery.superseded_by)],
    delivery.supersedes && ["Replaces", h("a.mono", { href: `#/deliveries?find=${delivery.supersedes}` }, delivery.supersedes)],
    ["Delivery ID", h("span.mono", delivery.id)],
    ["Receipt", h("span.mono", delivery.receipt)],
  );
}

const commands = ({ id, receipt, state }) => [
  `redrive why ${id.slice(0, 8)}`,
  `redrive show ${receipt}`,
  ...(state === "dead" ? [`redrive dlq replay ${id.slice(0, 8)}`] : []),
];
