/** Texts about deliveries and attempts, as `redrive why` prints them. */

import { clock, count, counted, isNever, nanos, span } from "./format.js";
import { now } from "./server_clock.js";

/** The retry count of a policy without a limit. */
const UNLIMITED = 4_294_967_295;
const max = (number) => (number >= UNLIMITED ? "unlimited" : count(number));

/** The attempts and holds of a delivery, oldest first. */
export const attemptRecords = (delivery) => delivery.stories ?? [];

/** False for a hold, where no call was made. */
export const isAttempt = (record) => record.end !== "held";

export const startOf = (record) => Date.parse(record.started_at);
export const endOf = (record) => startOf(record) + record.took_nanos / 1e6;

const HELD_BY = {
  breaker: "circuit breaker open; waiting uses no retry",
  "retry-after": "the dependency sent Retry-After; waiting uses no retry",
  "rule-removed": "no rule matches this event any more",
  deadline: "the deadline of the rule has passed",
  notified: "the target returned a notification ID, so it is not called again",
};
export const holdReason = (by) => HELD_BY[by] ?? by;

/** The response in one line: status and message. */
export function answerOf(record) {
  if (record.end === "held") return "no attempt";
  const status = record.status ? String(record.status) : "";
  if (record.end === "delivered") return status || "accepted";
  const message = (record.message ?? "").trim();
  return status === "" || message.startsWith(status) ? message : [status, message].filter(Boolean).join(": ");
}

const isAskedFor = (retry) => (retry.retry_after_nanos ?? 0) > retry.backoff_nanos;

const used = ({ used_nanos, limit_nanos }) => (limit_nanos ? `${nanos(used_nanos)} of ${nanos(limit_nanos)}` : nanos(used_nanos));

/** The wait after an attempt: `[text, tone]`. */
export function waitAfter(record) {
  const { verdict, retry } = record;
  if (verdict.is === "retry") return retry && isAskedFor(retry) ? ["Retry-After", "hold"] : ["backoff", "warn"];
  if (verdict.is === "paused") return ["paused", "hold"];
  if (verdict.is === "hold") return [{ breaker: "breaker open", "retry-after": "Retry-After" }[record.by] ?? "held", "hold"];
  return ["waiting", "quiet"];
}

/** The figures behind a retry decision, as `[name, value]`. */
export function numbersOf({ retry }) {
  if (!retry) return [];
  const [number, most] = retry.by_policy;
  const parts = [["retry", `${number} of ${max(most)} of policy ${retry.policy}`]];
  if (retry.by_category) parts.push(["in this category", `${retry.by_category[0]} of ${max(retry.by_category[1])}`]);
  parts.push(["in total", `${retry.in_total[0]} of ${max(retry.in_total[1])}`]);
  parts.push(["backoff", `${nanos(retry.backoff_nanos)} ${isAskedFor(retry) ? "without jitter" : "with jitter"}`]);
  if (retry.retry_after_nanos) parts.push(["Retry-After", nanos(retry.retry_after_nanos)]);
  if (retry.window.limit_nanos) parts.push(["window", used(retry.window)]);
  if (isAskedFor(retry)) parts.push(["hold", `${used(retry.held)}, requested by the target, so it does not use the window`]);
  else if (retry.held.used_nanos > 0) parts.push(["held", used(retry.held)]);
  if (retry.deadline.limit_nanos) parts.push(["deadline", used(retry.deadline)]);
  return parts;
}

function exhausted({ by_category, by_policy, in_total }) {
  const [most, whose] =
    by_category && by_category[0] > by_category[1] ? [by_category[1], "retries of this category"]
    : by_policy[0] > by_policy[1] ? [by_policy[1], "retries of the policy"]
    : [in_total[1], "retries of the rule"];
  return most === 0 ? `no ${whose} allowed` : `all ${max(most)} ${whose} used`;
}

/** The reason of a dead letter, by code. */
function deadLetterReason(code, retry) {
  const known = {
    CONNECTION_FAILING: () => "the connection failed for too long",
    CIRCUIT_BREAKER_OPEN: () => "circuit breaker open, and the hold time of the rule is used",
    MAX_RETRIES_EXCEEDED: () => retry && exhausted(retry),
    RETRY_WINDOW_EXCEEDED: () => retry && `the next retry would start after the retry window: ${used(retry.window)}`,
    DEADLINE_EXCEEDED: () => retry && `the next retry would start after the deadline: ${used(retry.deadline)}`,
    HOLD_EXPIRED: () => retry && `the requested wait of ${nanos(Math.max(retry.backoff_nanos, retry.retry_after_nanos ?? 0))} exceeds hold_max`,
  };
  return known[code] ? known[code]() || "time limit reached" : "a retry cannot succeed";
}

/** The decision after an attempt: `[tone, text]`. */
export function verdictOf(record) {
  const { verdict, retry } = record;
  switch (verdict.is) {
    case "delivered":
      return ["good", "delivered"];
    case "retry":
      return ["warn", `retry in ${span(Math.max(0, Date.parse(verdict.due_at) - endOf(record)))}`];
    case "hold":
      return ["hold", isNever(verdict.until) ? "held until released" : `held for ${span(Math.max(0, Date.parse(verdict.until) - endOf(record)))}`];
    case "paused":
      return ["hold", "service paused; the delivery waits in its place"];
    case "dead":
      return ["bad", `dead letter${verdict.tier === "poison" ? ", tier poison" : ""}: ${deadLetterReason(verdict.code, retry)}`];
    default:
      return ["quiet", verdict.is];
  }
}

/** The state of a delivery as a sentence. */
export function summary(delivery) {
  const attempts = counted(delivery.attempts, "attempt");
  const after = delivery.ended_at ? span(Date.parse(delivery.ended_at) - Date.parse(delivery.accepted_at)) : "an unknown time";
  switch (delivery.state) {
    case "delivered":
      return `Delivered after ${attempts} and ${after}.`;
    case "dead":
      return `Failed after ${attempts} and ${after}. Kept as a ${delivery.death?.tier === "poison" ? "poison " : ""}dead letter.`;
    case "skipped":
      return "Skipped manually.";
    case "purged":
      return "Purged: history and data are deleted.";
    case "superseded":
      return "Edited: replaced by another event.";
    default:
      return `Waiting after ${attempts}: ${outlook(delivery)}.`;
  }
}

/** What an open delivery waits for: the server's reason with local times. */
export const outlook = ({ waits }) => (waits ? reasonText(waits.because, waits.since, waits.until) : "no reason given");

/** A reason of the server with its times. */
export function reasonText(reason, since, until) {
  const from = since ? ` since ${clock(since)}` : "";
  if (!until) return `${reason}${from}`;
  const left = Date.parse(until) - now();
  return `${reason}${from} until ${clock(until)}${left > 500 ? ` (in ${span(left)})` : ""}`;
}
