/** Alerts: firing and pending ones, all others, receivers, and recent notifications. */

import { get, part, post } from "../api.js";
import { ask, toast } from "../dialog.js";
import { h } from "../dom.js";
import { count, counted, span, when } from "../format.js";
import { snippet } from "../highlight.js";
import { action } from "../session.js";
import { badge, card, empty, facts, heading, lineLink, table, worstFirst } from "../ui.js";
import { watch } from "../watch.js";

const ALERTS_MS = 3000;

export async function view(place, page) {
  watch(page, place, { load: (signal) => get("v1/alerts", {}, signal), draw: drawAlerts, every: ALERTS_MS });
}

function drawAlerts({ evaluated_at: evaluated, alerts, receivers, recent }) {
  const sorted = worstFirst(alerts, ({ severity }) => severity);
  const [firing, pending, quiet] = ["firing", "pending", "quiet"].map((wanted) => sorted.filter(({ state }) => state === wanted));
  return [
    heading("Alerts", {
      badge: firing.length > 0 ? badge("firing", `${count(firing.length)} firing`) : badge("quiet", "none firing"),
      description: evaluated ? ["Evaluated ", when(evaluated), "."] : null,
    }),
    [...firing, ...pending].map(activeAlert),
    alerts.length === 0 && h("section.card", noAlerts()),
    quiet.length > 0 && card("Not firing", h("span.dim", counted(quiet.length, "alert")), table({ label: "Alerts that are not firing", columns: QUIET_COLUMNS, rows: quiet, key: nameOf })),
    h("div.columns.even",
      card("Receivers", null, drawReceivers(receivers)),
      card("Recent notifications", null, drawRecent(recent))),
  ];
}

/** An alert without a name of its own uses its condition as its name. */
const hasOwnName = (alert) => alert.name !== alert.when;
const nameOf = (alert) => alert.name + (alert.covers ?? "");
const receiverNames = ({ to }) => (to?.length > 0 ? to.map((name) => h("span.one-of", name)) : h("span.dim", "no receiver"));

function activeAlert(alert) {
  const isFiring = alert.state === "firing";
  return h(
    "section.card.prominent",
    { key: nameOf(alert), class: isFiring ? "bad" : "warn" },
    h(
      "header",
      h("h2", alert.name, " ", badge(isFiring ? "firing" : "retrying", alert.state), " ", badge(alert.severity)),
      h("div.more", alert.since && h("span", "since ", when(alert.since)), alert.line && lineLink(alert.line)),
    ),
    alert.subjects?.length > 0 && table({ label: `Subjects of ${alert.name}`, columns: SUBJECT_COLUMNS, rows: alert.subjects, key: (subject) => subject.of }),
    alert.more > 0 && h("p.sum.dim", `and ${count(alert.more)} more`),
    facts(
      hasOwnName(alert) && ["Condition", h("code", alert.when)],
      alert.value !== undefined && alert.value !== null && ["Value", valueOf(alert)],
      alert.covers && ["Scope", alert.covers],
      alert.action && ["Action", alert.action],
      ["Notifies", receiverNames(alert)],
      alert.escalate?.length > 0 && ["Escalates to", receiverNames({ to: alert.escalate })],
      ["Notified", alert.told > 0 ? [counted(alert.told, "time"), alert.last_told_at && [", last ", when(alert.last_told_at)]] : "not yet"],
    ),
  );
}

const valueOf = ({ value }) => (typeof value === "number" ? value.toLocaleString() : String(value));

const SUBJECT_COLUMNS = [
  { name: "Subject", cell: (subject) => subject.of || "all" },
  { name: "Value", cell: (subject) => valueOf(subject) },
  { name: "Since", cell: (subject) => when(subject.since) },
];

const QUIET_COLUMNS = [
  { name: "Alert", cell: (alert) => (hasOwnName(alert) ? h("b", alert.name) : h("code", alert.when)) },
  { name: "Severity", cell: (alert) => badge(alert.severity) },
  { name: "Condition", cell: (alert) => hasOwnName(alert) && h("code", alert.when), wide: true },
  { name: "Scope", cell: (alert) => alert.covers ?? "" },
  { name: "Notifies", cell: receiverNames },
  { name: "Defined at", cell: (alert) => (alert.line ? lineLink(alert.line) : "built in") },
];

/** A catalog alert and a receiver, as rule book lines. */
const FIRST_ALERT = `alerts: [{ use: dead-letters, to: [desk] }]
receivers: { desk: { email: desk@example.test, smtp: "smtp://mail.example.test:587" } }`;

function noAlerts() {
  return empty(
    "No alerts defined",
    h("p", "An alert defines a condition, and a receiver where notifications go. These two lines notify you of every dead letter:"),
    snippet(FIRST_ALERT, "Copy lines"),
  );
}

function drawReceivers(receivers) {
  if (receivers.length === 0) return empty("No receivers defined", h("p", "Receivers in the rule book get alerts by e-mail, chat, webhook or push notification."));
  return h("ul.receivers", receivers.map((receiver) =>
    h("li", { key: receiver.name },
      action("operate", "Send test…", () => sendTest(receiver)),
      h("p", h("b", receiver.name), " ", h("span.dim", receiver.kind), " ", reachability(receiver)),
      h("p.mono.small", receiver.address),
      receiver.hours && h("p.dim.small", `Hours: ${receiver.hours}`),
      receiver.severity && h("p.dim.small", `Minimum severity: ${receiver.severity}`),
      undelivered(receiver) && h("p.small", undelivered(receiver)),
      receiver.last_trouble && h("p.small.tinted.bad", receiver.last_trouble))));
}

const reachability = ({ last_trouble: trouble, open_now: isOpen }) =>
  trouble ? badge("failing", "failing") : isOpen ? badge("healthy", "reachable") : badge("paused", "out of hours");

const undelivered = ({ waiting, dead }) =>
  [waiting > 0 && `${count(waiting)} waiting`, dead > 0 && `${count(dead)} not delivered`].filter(Boolean).join(", ");

/** Sends a test notification and shows its outcome. */
async function sendTest({ name, address }) {
  let tested = null;
  const done = await ask({
    title: `Send a test notification to ${name}?`,
    description: [h("p", "A message marked as a test is sent to ", h("code", address), ".")],
    act: "Send test",
    submit: async () => (tested = await post(`v1/receivers/${part(name)}/test`)),
  });
  if (!done) return;
  const { outcome, message, took_ms: took } = tested;
  const texts = {
    delivered: `Test delivered to ${name}${typeof took === "number" ? ` in ${span(took)}` : ""}`,
    retrying: `Test failed, retrying: ${message ?? "no response"}`,
    dead: `Test failed: ${message ?? "no response"}`,
    waiting: "Test sent, no response yet",
  };
  toast(texts[outcome], outcome === "delivered" || outcome === "waiting" ? "good" : "bad");
}

const RECENT_COLUMNS = [
  { name: "Alert", cell: (notice) => h("b", notice.alert) },
  { name: "At", cell: (notice) => when(notice.at) },
  { name: "Stage", cell: (notice) => badge(STAGES[notice.stage] ?? "info", notice.stage) },
  { name: "Message", cell: (notice) => notice.summary, wide: true },
  { name: "To", cell: receiverNames },
];
const STAGES = { firing: "firing", resolved: "healthy", repeated: "degraded" };

function drawRecent(recent) {
  if (recent.length === 0) return empty("No notifications yet", h("p", "Notifications of firing alerts are listed here."));
  return table({ label: "Notifications", columns: RECENT_COLUMNS, rows: recent, key: (notice) => `${notice.at}-${notice.alert}-${notice.stage}` });
}
