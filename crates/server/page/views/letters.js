/** One dead letter: why it died, what it carries, and what can be done with it. */

import { get, part, post } from "../api.js";
import { ask, toast } from "../dialog.js";
import { fill, h } from "../dom.js";
import { count, counted, exact, queueOf, shortId, when } from "../format.js";
import { purge } from "../purge.js";
import { action } from "../session.js";
import { stories } from "../story.js";
import { timeline } from "../timeline.js";
import { snippet } from "../tint.js";
import { badge, card, empty, facts, heading } from "../ui.js";
import { watch } from "../watch.js";

export async function view(place, page) {
  const [id] = page.path;
  page.title(`Dead letter ${shortId(id ?? "")}`);
  if (!id) return fill(place, empty("Which letter?", h("p", h("a", { href: "#/groups" }, "Failure groups lead to their letters"))));
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

/** It may have left the dead between two questions. */
function unlessGone(error) {
  if (error.status === 404) return null;
  throw error;
}

function drawLetter({ delivery, envelope }, line, then) {
  const { death } = delivery;
  return [
    heading([h("code", delivery.event_type), " → ", queueOf(delivery)], {
      up: death ? [`#/groups/${death.fingerprint}`, "Its failure group"] : ["#/groups", "Failure groups"],
      badge: [badge(delivery.state), death?.tier === "poison" && badge("poison")],
      acts: envelope && acts(delivery, envelope, then),
    }),
    envelope ? whyDead(delivery) : nowOf(delivery),
    card("Time line", null, line),
    card("Attempts", h("a", { href: `#/deliveries/${delivery.id}` }, "The delivery"), stories(delivery)),
    h("div.columns", envelope && card("Event data", h("span.dim", contentOf(envelope)), dataOf(envelope)), card("Envelope", null, envelopeFacts(delivery, envelope))),
  ];
}

/** Why it is dead, in words that somebody can act on. */
function whyDead({ death, replay }) {
  return h(
    "div.standing.bad",
    h("p", h("b", death.message || death.code)),
    h("p.dim", REASONS[death.code] ?? "The rule takes this for a failure that no retry would mend."),
    death.tier === "poison" && h("p", "It is poison: it failed a replay or does not parse, and replays leave it alone unless it is meant."),
    replay && h("p", h("a", { href: `#/replays/${replay}` }, `Replay ${replay}`), " has claimed it."),
  );
}

const REASONS = {
  MAX_RETRIES_EXCEEDED: "Every retry that the rule allows was used up.",
  RETRY_WINDOW_EXCEEDED: "The time that the rule gives for retries had passed.",
  DEADLINE_EXCEEDED: "It would have come too late: its deadline had passed.",
  HOLD_EXPIRED: "It was held for longer than the rule allows.",
  BACKLOG_FULL: "The service had no room for more that waits.",
  SESSION_FULL: "Too many wait behind a letter that holds their session.",
  RULE_REMOVED: "The rule book has no taker for it any more.",
  SERVICE_REMOVED: "Its service left the rule book, and an operator ended what waited for it.",
};

/** What has become of a letter that is dead no more. */
function nowOf({ state, replay, superseded_by: heir, ended_at: ended }) {
  const tone = state === "delivered" ? "good" : "info";
  return h(
    `div.standing.${tone}`,
    h("p", h("b", `This letter is ${state === "replaying" ? "on its way again" : state}`), ended && [" ", when(ended)]),
    replay && h("p", h("a", { href: `#/replays/${replay}` }, `Replay ${replay}`)),
    heir && h("p", h("a", { href: `#/deliveries/${heir}` }, "The delivery that took its place")),
  );
}

const contentOf = ({ originalMessage: event }) => event?.datacontenttype ?? "";

function dataOf({ originalMessage: event }) {
  if (event?.data !== undefined) return snippet(textOf(event.data), "Copy the data");
  if (event?.data_base64) return snippet(event.data_base64, "Copy the data, as Base64");
  return empty("The event carries no data");
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
    envelope && ["Died", when(envelope.routedToDlqAt)],
    ["Attempts", count(delivery.attempts)],
    envelope && ["Category", badge(envelope.category)],
    delivery.death && ["Code", h("code", delivery.death.failure_code || delivery.death.code)],
    delivery.session && ["Session", h("code", delivery.session)],
    delivery.correlation_id && ["Correlation id", h("a", { href: `#/deliveries?find=${part(delivery.correlation_id)}` }, h("code", delivery.correlation_id))],
    ["Replayed", counted(delivery.replays ?? 0, "time")],
    ["Row", h("code", delivery.subscription)],
    ["Letter", h("code", delivery.id)],
  );
}

// --- What can be done ------------------------------------------------------------------------------

/** `then` is what follows an act: to look `again`, or to be led `leadTo` what came of it. */
function acts(delivery, envelope, { again, leadTo }) {
  const poison = delivery.death.tier === "poison" ? "&include_poison=true" : "";
  return [
    action("operate", "Replay…", () => location.assign(`#/replays/new?letters=${delivery.id}${poison}`), { class: "main" }),
    // What is no text cannot be edited in a text field.
    !envelope.originalMessage?.data_base64 && action("operate", "Edit…", () => edit(delivery, envelope, leadTo)),
    action("operate", "Skip…", () => skip(delivery, again)),
    action("operate", "Purge…", async () => (await purge({ letters: [delivery.id] }, "this letter")) && leadTo(`#/groups/${delivery.death.fingerprint}`)),
  ];
}

const NOTE = { name: "note", label: "Why", hint: "Kept on record.", autocomplete: "off" };
const noted = ({ note }) => (note ? { note } : {});

async function skip(delivery, again) {
  let released = 0;
  const done = await ask({
    title: "Skip this letter?",
    says: [
      h("p", "It is given up: nobody will send it again, and it is no dead letter any more. Its story stays."),
      delivery.session && h("p", `If it holds the session ${delivery.session}, those that wait behind it go on.`),
    ],
    fields: [NOTE],
    act: "Skip the letter",
    danger: true,
    doing: async (values) => ({ released } = await post(`v1/dead-letters/${part(delivery.id)}/skip`, noted(values))),
  });
  if (!done) return;
  toast(released > 0 ? `skipped: ${counted(released, "delivery", "deliveries")} behind it go on` : "the letter is skipped");
  again();
}

async function edit(delivery, envelope, leadTo) {
  const event = envelope.originalMessage ?? {};
  const isJson = event.data !== undefined && typeof event.data !== "string";
  const before = event.data === undefined ? "" : textOf(event.data);
  let edited = null;
  const done = await ask({
    title: "Edit the event's data",
    says: [h("p", `A new event with these data goes to ${queueOf(delivery)} in place of this letter. The letter stays on record as superseded.`)],
    fields: [{ name: "data", label: isJson ? "Data (JSON)" : "Data", rows: 12, spellcheck: "false", class: "mono", value: before }, NOTE],
    act: "Send with these data",
    doing: async (values) => {
      edited = await post(`v1/dead-letters/${part(delivery.id)}/edit`, { data: isJson ? parsed(values.data) : values.data, ...noted(values) });
    },
  });
  if (!done) return;
  toast(`the event ${edited.event_id} takes its place`);
  leadTo(`#/deliveries/${edited.delivery}`);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`The data are no JSON: ${error.message}`);
  }
}
