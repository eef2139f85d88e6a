/** Alerts: what fires and whom it told, what is watched, who hears of it, and what was told lately. */

import { get, part, post } from "../api.js";
import { ask, toast } from "../dialog.js";
import { h } from "../dom.js";
import { count, counted, span, when } from "../format.js";
import { action } from "../session.js";
import { snippet } from "../tint.js";
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
    heading("Alerts", { badge: firing.length > 0 ? badge("firing", `${count(firing.length)} firing`) : badge("quiet", "quiet"), says: evaluated ? ["Looked at ", when(evaluated), "."] : null }),
    [...firing, ...pending].map(loudAlert),
    alerts.length === 0 && h("section.card", noAlerts()),
    quiet.length > 0 && card("Watched", h("span.dim", `${counted(quiet.length, "alert")} quiet`), table({ label: "Quiet alerts", columns: QUIET_COLUMNS, rows: quiet, key: nameOf })),
    h("div.columns.even",
      card("Receivers", h("span.dim", "who is told"), drawReceivers(receivers)),
      card("Told lately", null, drawRecent(recent))),
  ];
}

/** An alert that was given no name goes by its condition. */
const hasOwnName = (alert) => alert.name !== alert.when;
const nameOf = (alert) => alert.name + (alert.covers ?? "");
const toWhom = ({ to }) => (to?.length > 0 ? to.map((name) => h("span.one-of", name)) : h("span.dim", "nobody"));

function loudAlert(alert) {
  const isFiring = alert.state === "firing";
  return h(
    "section.card.loud",
    { key: nameOf(alert), class: isFiring ? "bad" : "warn" },
    h(
      "header",
      h("h2", alert.name, " ", badge(isFiring ? "firing" : "retrying", alert.state), " ", badge(alert.severity)),
      h("div.more", alert.since && h("span", "since ", when(alert.since)), alert.line && lineLink(alert.line)),
    ),
    alert.subjects?.length > 0 && table({ label: `What ${alert.name} is about`, columns: SUBJECT_COLUMNS, rows: alert.subjects, key: (subject) => subject.of }),
    alert.more > 0 && h("p.sum.dim", `and ${count(alert.more)} more`),
    facts(
      hasOwnName(alert) && ["When", h("code", alert.when)],
      alert.value !== undefined && alert.value !== null && ["Value", String(alert.value)],
      alert.covers && ["Covers", alert.covers],
      alert.action && ["What to do", alert.action],
      ["Tells", toWhom(alert)],
      alert.escalate?.length > 0 && ["Then tells", toWhom({ to: alert.escalate })],
      ["Told", alert.told > 0 ? [counted(alert.told, "time"), alert.last_told_at && [", last ", when(alert.last_told_at)]] : "not yet"],
    ),
  );
}

const SUBJECT_COLUMNS = [
  { name: "About", cell: (subject) => subject.of || "everything" },
  { name: "Value", cell: (subject) => String(subject.value), end: true },
  { name: "Since", cell: (subject) => when(subject.since) },
];

const QUIET_COLUMNS = [
  { name: "Alert", cell: (alert) => (hasOwnName(alert) ? h("b", alert.name) : h("code", alert.when)) },
  { name: "Severity", cell: (alert) => badge(alert.severity) },
  { name: "Fires when", cell: (alert) => hasOwnName(alert) && h("code", alert.when), wide: true },
  { name: "Covers", cell: (alert) => alert.covers ?? "" },
  { name: "Tells", cell: toWhom },
  { name: "Stands at", cell: (alert) => (alert.line ? lineLink(alert.line) : "built in") },
];

/** An alert of the catalog and somebody who hears of it, as they stand in a book. */
const FIRST_ALERT = `alerts: [{ use: dead-letters, to: [desk] }]
receivers: { desk: { email: desk@example.test, smtp: "smtp://mail.example.test:587" } }`;

function noAlerts() {
  return empty(
    "The rule book names no alerts",
    h("p", "An alert says when somebody is to be told, and a receiver how. Two lines of the book tell of every dead letter:"),
    snippet(FIRST_ALERT, "Copy the lines"),
  );
}

function drawReceivers(receivers) {
  if (receivers.length === 0) return empty("Nobody is told yet", h("p", "A receiver in the rule book says how people hear of alerts: by e-mail, chat, webhook or a push to a phone."));
  return h("ul.receivers", receivers.map((receiver) =>
    h("li", { key: receiver.name },
      action("operate", "Send a test…", () => tryOut(receiver)),
      h("p", h("b", receiver.name), " ", h("span.dim", receiver.kind), " ", hearing(receiver)),
      h("p.mono.small", receiver.address),
      receiver.hours && h("p.dim.small", `Hours: ${receiver.hours}`),
      receiver.severity && h("p.dim.small", `Only from severity ${receiver.severity} on`),
      untold(receiver) && h("p.small", untold(receiver)),
      receiver.last_trouble && h("p.small.tinted.bad", receiver.last_trouble))));
}

const hearing = ({ last_trouble: trouble, open_now: isOpen }) =>
  trouble ? badge("failing", "in trouble") : isOpen ? badge("well", "hears") : badge("paused", "out of hours");

const untold = ({ waiting, dead }) =>
  [waiting > 0 && `${count(waiting)} wait`, dead > 0 && `${count(dead)} could not be told`].filter(Boolean).join(", ");

/** Sends a message that says that it is a test, and tells what became of it. */
async function tryOut({ name, address }) {
  let tested = null;
  const done = await ask({
    title: `Send a test to ${name}?`,
    says: [h("p", "A message that says that it is a test goes to ", h("code", address), ". Whoever is there will see it.")],
    act: "Send the test",
    doing: async () => (tested = await post(`v1/receivers/${part(name)}/test`)),
  });
  if (!done) return;
  const { outcome, message, took_ms: took } = tested;
  const words = {
    delivered: `${name} took the test${typeof took === "number" ? ` within ${span(took)}` : ""}`,
    retrying: `the test failed and is tried again: ${message ?? "no answer"}`,
    dead: `the test failed for good: ${message ?? "no answer"}`,
    waiting: "the test is on its way, and nothing has come back yet",
  };
  toast(words[outcome], outcome === "delivered" || outcome === "waiting" ? "good" : "bad");
}

const RECENT_COLUMNS = [
  { name: "Alert", cell: (notice) => h("b", notice.alert) },
  { name: "At", cell: (notice) => when(notice.at) },
  { name: "Stage", cell: (notice) => badge(STAGES[notice.stage] ?? "info", notice.stage) },
  { name: "What was told", cell: (notice) => notice.summary, wide: true },
  { name: "To", cell: toWhom },
];
const STAGES = { firing: "firing", resolved: "well", repeated: "degraded" };

function drawRecent(recent) {
  if (recent.length === 0) return empty("Nothing was told yet", h("p", "Once an alert fires, what its receivers were told stands here, and when."));
  return table({ label: "Notices", columns: RECENT_COLUMNS, rows: recent, key: (notice) => `${notice.at}-${notice.alert}-${notice.stage}` });
}
