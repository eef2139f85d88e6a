/** One dead letter: reason, timeline, payload, and the actions replay, edit, skip and purge. */

import { get, part, post } from "../api.js";
import { ask, toast } from "../dialog.js";
import { fill, h } from "../dom.js";
import { count, counted, exact, queueOf, shortId, when } from "../format.js";
import { snippet } from "../highlight.js";
import { attemptHistory } from "../history.js";
import { purge } from "../purge.js";
import { action } from "../session.js";
import { timeline } from "../timeline.js";
import { badge, card, empty, facts, heading } from "../ui.js";
import { watch } from "../watch.js";

export async function view(place, page) {
  const [id] = page.path;
  page.title(`Dead letter ${shortId(id ?? "")}`);
  if (!id) return fill(place, empty("No dead letter selected", h("p", h("a", { href: "#/groups" }, "Show failure groups"))));
  let scale = null;
  const rescale = (chosen) => {
    scale = chosen;
    looking.again();
  };
  const looking = watch(page, place, {
    load: async (signal) => {
      const delivery = await get(`v1/deliveries/${part(id)}`, {}, signal);
      if (delivery.state !== "dead") return { delivery, envelope: null };
      return { delivery, envelope: await get(`v1/dead-letters/${part(id)}`, { form: "envelope" }, signal).catch(unlessGone) };
    },
    draw: (found) => drawLetter(found, timeline(found.delivery, scale, rescale), { leadTo: page.leadTo, again: looking.again }),
  });
}

/** It may have been replayed between the two requests. */
function unlessGone(error) {
  if (error.status === 404) return null;
  throw error;
}

function drawLetter({ delivery, envelope }, line, then) {
  const { death } = delivery;
  return [
    heading([h("code", delivery.event_type), " → ", queueOf(delivery)], {
      up: death ? [`#/groups/${death.fingerprint}`, "Failure group"] : ["#/groups", "Failure groups"],
      badge: [badge(delivery.state), death?.tier === "poison" && badge("poison")],
      acts: envelope && acts(delivery, envelope, then),
    }),
    envelope ? deadLetterReason(delivery) : currentState(delivery),
    card("Timeline", null, line),
    card("Attempts", h("a", { href: `#/deliveries/${delivery.id}` }, "Delivery"), attemptHistory(delivery)),
    h("div.columns", envelope && card("Event data", h("span.dim", contentOf(envelope)), dataOf(envelope)), card("Envelope", null, envelopeFacts(delivery, envelope))),
  ];
}

function deadLetterReason({ death, replay }) {
  return h(
    "div.callout.bad",
    h("p", h("b", death.message || death.code)),
    h("p.dim", REASONS[death.code] ?? "Classified as permanent, so it was not retried."),
    death.tier === "poison" && h("p", "Poison: it failed a replay or cannot be parsed. Replays skip it unless poison is included."),
    replay && h("p", h("a", { href: `#/replays/${replay}` }, `Replay ${replay}`), " includes it."),
  );
}

const REASONS = {
  MAX_RETRIES_EXCEEDED: "All retries of the rule were used.",
  RETRY_WINDOW_EXCEEDED: "The retry window of the rule ended.",
  DEADLINE_EXCEEDED: "The deadline passed.",
  HOLD_EXPIRED: "It was held longer than the rule allows.",
  BACKLOG_FULL: "The queue of the service was full.",
  SESSION_FULL: "Too many deliveries waited behind a dead letter of the session.",
  RULE_REMOVED: "No subscription in the rule book matches it any more.",
  SERVICE_REMOVED: "The service was removed from the rule book, and an operator dead-lettered its waiting deliveries.",
};

/** The state of a delivery that is no longer a dead letter. */
function currentState({ state, replay, superseded_by: replacement, ended_at: ended }) {
  const tone = state === "delivered" ? "good" : "info";
  return h(
    `div.callout.${tone}`,
    h("p", h("b", `This dead letter is ${state === "replaying" ? "being replayed" : state}`), ended && [" ", when(ended)]),
    replay && h("p", h("a", { href: `#/replays/${replay}` }, `Replay ${replay}`)),
    replacement && h("p", h("a", { href: `#/deliveries/${replacement}` }, "Replacement delivery")),
  );
}

const contentOf = ({ originalMessage: event }) => event?.datacontenttype ?? "";

function dataOf({ originalMessage: event }) {
  if (event?.data !== undefined) return snippet(textOf(event.data), "Copy data");
  if (event?.data_base64) return snippet(event.data_base64, "Copy data as Base64");
  return empty("The event has no data");
}

const textOf = (data) => (typeof data === "string" ? data : JSON.stringify(data, null, 2));

function envelopeFacts(delivery, envelope) {
  const event = envelope?.originalMessage ?? {};
  return facts(
    ["Event", h("a", { href: `#/deliveries?find=${part(delivery.event_id)}` }, h("code", delivery.event_id))],
    ["Source", h("code", delivery.event_source)],
    event.subject && ["Subject", event.subject],
    event.time && ["Event time", exact(event.time)],
    ["Service", h("a", { href: `#/services/${part(delivery.service)}` }, queueOf(delivery))],
    ["Accepted", when(delivery.accepted_at)],
    envelope && ["Dead since", when(envelope.routedToDlqAt)],
    ["Attempts", count(delivery.attempts)],
    envelope && ["Category", badge(envelope.category)],
    delivery.death && ["Code", h("code", delivery.death.failure_code || delivery.death.code)],
    delivery.session && ["Session", h("code", delivery.session)],
    delivery.correlation_id && ["Correlation ID", h("a", { href: `#/deliveries?find=${part(delivery.correlation_id)}` }, h("code", delivery.correlation_id))],
    ["Replayed", counted(delivery.replays ?? 0, "time")],
    ["Subscription", h("code", delivery.subscription)],
    ["ID", h("code", delivery.id)],
  );
}

// --- Actions ---------------------------------------------------------------------------------------

/** After an action, `again` refreshes and `leadTo` opens the result. */
function acts(delivery, envelope, { again, leadTo }) {
  const poison = delivery.death.tier === "poison" ? "&include_poison=true" : "";
  return [
    action("operate", "Replay…", () => location.assign(`#/replays/new?letters=${delivery.id}${poison}`), { class: "main" }),
    // Binary data cannot be edited in a text field.
    !envelope.originalMessage?.data_base64 && action("operate", "Edit…", () => edit(delivery, envelope, leadTo)),
    action("operate", "Skip…", () => skip(delivery, again)),
    action("operate", "Purge…", async () => (await purge({ letters: [delivery.id] }, "this dead letter")) && leadTo(`#/groups/${delivery.death.fingerprint}`)),
  ];
}

const NOTE = { name: "note", label: "Reason", hint: "Saved in the audit log.", autocomplete: "off" };
const noted = ({ note }) => (note ? { note } : {});

async function skip(delivery, again) {
  let released = 0;
  const done = await ask({
    title: "Skip this dead letter?",
    description: [
      h("p", "It will not be sent again and is no longer a dead letter. Its history is kept."),
      delivery.session && h("p", `If it blocks the session ${delivery.session}, the deliveries behind it resume.`),
    ],
    fields: [NOTE],
    act: "Skip dead letter",
    danger: true,
    submit: async (values) => ({ released } = await post(`v1/dead-letters/${part(delivery.id)}/skip`, noted(values))),
  });
  if (!done) return;
  toast(released > 0 ? `Dead letter skipped, ${counted(released, "delivery", "deliveries")} resumed` : "Dead letter skipped");
  again();
}

async function edit(delivery, envelope, leadTo) {
  const event = envelope.originalMessage ?? {};
  const isJson = event.data !== undefined && typeof event.data !== "string";
  const before = event.data === undefined ? "" : textOf(event.data);
  let edited = null;
  const done = await ask({
    title: "Edit event data",
    description: [h("p", `A new event with this data is sent to ${queueOf(delivery)}. The dead letter is kept as superseded.`)],
    fields: [{ name: "data", label: isJson ? "Data (JSON)" : "Data", rows: 12, spellcheck: "false", class: "mono", value: before }, NOTE],
    act: "Send edited event",
    submit: async (values) => {
      edited = await post(`v1/dead-letters/${part(delivery.id)}/edit`, { data: isJson ? parsed(values.data) : values.data, ...noted(values) });
    },
  });
  if (!done) return;
  toast(`Replaced by event ${edited.event_id}`);
  leadTo(`#/deliveries/${edited.delivery}`);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`Data is not valid JSON: ${error.message}`);
  }
}
