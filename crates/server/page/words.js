/** The words of a delivery's story: the same that `redrive why` says in a terminal. */

import { clock, count, counted, nanos, span } from "./format.js";
import { now } from "./now.js";

/** A policy without an end has so many retries. */
const UNLIMITED = 4_294_967_295;
const max = (number) => (number >= UNLIMITED ? "unlimited" : count(number));

/** Whether a story is an attempt, and not a wait that could not become one. */
export const isAttempt = (story) => story.end !== "held";

export const startOf = (story) => Date.parse(story.started_at);
export const endOf = (story) => startOf(story) + story.took_nanos / 1e6;

const HELD_BY = {
  breaker: "the breaker is open: the wait burns no retry",
  "retry-after": "the dependency asked everybody to wait: it burns no retry",
  "rule-removed": "no rule of the book wants such an event any more",
  deadline: "the rule's deadline has passed",
  notified: "the target has told the id of a notification: it is not called again",
};
export const heldBecause = (by) => HELD_BY[by] ?? by;

/** What came back, in a line: a status and what came with it, each once. */
export function answerOf(story) {
  if (story.end === "held") return "no attempt is made";
  const status = story.status ? String(story.status) : "";
  if (story.end === "delivered") return status || "taken";
  const message = (story.message ?? "").trim();
  return status === "" || message.startsWith(status) ? message : [status, message].filter(Boolean).join(": ");
}

const isAskedFor = (retry) => (retry.retry_after_nanos ?? 0) > retry.backoff_nanos;

/** So much of so much. */
const used = ({ used_nanos, limit_nanos }) => (limit_nanos ? `${nanos(used_nanos)} of ${nanos(limit_nanos)}` : nanos(used_nanos));

/** Why what follows an attempt waits, and how loud that is: `[words, tone]`. */
export function waitAfter(story) {
  const { verdict, retry } = story;
  if (verdict.is === "retry") return retry && isAskedFor(retry) ? ["Retry-After", "hold"] : ["backoff", "warn"];
  if (verdict.is === "paused") return ["paused", "hold"];
  if (verdict.is === "hold") return [{ breaker: "breaker open", "retry-after": "asked to wait" }[story.by] ?? "held", "hold"];
  return ["waits", "quiet"];
}

/** Every number that decided on a retry, as `[name, value]`. */
export function numbersOf({ retry }) {
  if (!retry) return [];
  const [number, most] = retry.by_policy;
  const parts = [["retry", `${number} of ${max(most)} by ${retry.policy}`]];
  if (retry.by_category) parts.push(["of this category", `${retry.by_category[0]} of ${max(retry.by_category[1])}`]);
  parts.push(["in all", `${retry.in_total[0]} of ${max(retry.in_total[1])}`]);
  parts.push(["backoff", `${nanos(retry.backoff_nanos)} ${isAskedFor(retry) ? "alone" : "with its jitter"}`]);
  if (retry.retry_after_nanos) parts.push(["Retry-After", nanos(retry.retry_after_nanos)]);
  if (retry.window.limit_nanos) parts.push(["window", used(retry.window)]);
  if (isAskedFor(retry)) parts.push(["hold", `${used(retry.held)}: they asked for it, so it does not use up the window`]);
  else if (retry.held.used_nanos > 0) parts.push(["held", used(retry.held)]);
  if (retry.deadline.limit_nanos) parts.push(["deadline", used(retry.deadline)]);
  return parts;
}

function exhausted({ by_category, by_policy, in_total }) {
  const [most, whose] =
    by_category && by_category[0] > by_category[1] ? [by_category[1], "retries that this category gets"]
    : by_policy[0] > by_policy[1] ? [by_policy[1], "retries of the policy"]
    : [in_total[1], "retries that the rule allows in all"];
  return most === 0 ? `there are no ${whose}` : `the ${max(most)} ${whose} are used up`;
}

/** Why it was given up, by the code of its verdict. */
function deathBecause(code, retry) {
  const known = {
    CONNECTION_FAILING: () => "the connection has failed for too long",
    CIRCUIT_BREAKER_OPEN: () => "the breaker is open, and the rule holds it no longer",
    MAX_RETRIES_EXCEEDED: () => retry && exhausted(retry),
    RETRY_WINDOW_EXCEEDED: () => retry && `the next retry would start ${used(retry.window)} into the window`,
    DEADLINE_EXCEEDED: () => retry && `the next retry would start ${used(retry.deadline)} into the deadline`,
    HOLD_EXPIRED: () => retry && `they ask for ${nanos(Math.max(retry.backoff_nanos, retry.retry_after_nanos ?? 0))}, and hold_max has no room for it`,
  };
  return known[code] ? known[code]() || "its time is up" : "retrying cannot help";
}

/** What followed an attempt: `[tone, words]`. */
export function verdictOf(story) {
  const { verdict, retry } = story;
  switch (verdict.is) {
    case "delivered":
      return ["good", "delivered"];
    case "retry":
      return ["warn", `retry in ${span(Math.max(0, Date.parse(verdict.due_at) - endOf(story)))}`];
    case "hold":
      return ["hold", isNever(verdict.until) ? "held until somebody acts" : `held for ${span(Math.max(0, Date.parse(verdict.until) - endOf(story)))}`];
    case "paused":
      return ["hold", "the service pauses; the delivery keeps its place and waits"];
    case "dead":
      return ["bad", `dead letter${verdict.tier === "poison" ? ", tier poison" : ""}: ${deathBecause(verdict.code, retry)}`];
    default:
      return ["quiet", verdict.is];
  }
}

/** How a delivery stands now, in a sentence. */
export function standing(delivery) {
  const attempts = counted(delivery.attempts, "attempt");
  const after = delivery.ended_at ? span(Date.parse(delivery.ended_at) - Date.parse(delivery.accepted_at)) : "an unknown time";
  switch (delivery.state) {
    case "delivered":
      return `Delivered after ${attempts} and ${after}.`;
    case "dead":
      return `Dead after ${attempts} and ${after}: kept in the ${delivery.death?.tier === "poison" ? "poison tier" : "dead letters"} of its service.`;
    case "skipped":
      return "Skipped: given up by hand.";
    case "purged":
      return "Purged: its story and its data are gone.";
    case "superseded":
      return "Edited: another event was sent in its place.";
    default:
      return `Still waiting after ${attempts}: ${outlook(delivery)}.`;
  }
}

/** What a delivery that has not ended waits for: the server's words, and the times by the reader's clock. */
export const outlook = ({ waits }) => (waits ? because(waits.because, waits.since, waits.until) : "the server does not say why");

/** Words of the server with the times that belong to them. */
export function because(words, since, until) {
  const from = since ? ` since ${clock(since)}` : "";
  if (!until) return `${words}${from}`;
  const left = Date.parse(until) - now();
  return `${words}${from} until ${clock(until)}${left > 500 ? ` (in ${span(left)})` : ""}`;
}
