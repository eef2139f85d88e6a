/** A new replay: settings and a preview by dry run. */

import { part, post } from "../api.js";
import { fill, h, slot } from "../dom.js";
import { count, counted, queueOf, span } from "../format.js";
import { may } from "../session.js";
import { announce, card, empty, facts, heading, table } from "../ui.js";
import { knownServices } from "./groups.js";

/** The query parameters that select dead letters. */
const WHICH = ["service", "channel", "category", "code", "fingerprint", "type", "session", "correlation_id", "tier", "from", "until"];
const CAUSES_MAX = 10;

export async function newReplay(place, page) {
  page.title("New replay");
  const which = selection(page.query);
  const back = page.query.get("fingerprint") ? [`#/groups/${page.query.get("fingerprint")}`, "Failure group"] : ["#/groups", "Failure groups"];
  if (!may("operate")) return fill(place, heading("New replay", { up: back }), h("section.card", empty("Replay not allowed", h("p", "A replay requires the role operator or admin."))));
  const preview = slot("div");
  const form = settings(page.query, await knownServices(page.signal));
  let surveyed = null;
  const wanted = () => ({ ...which, ...read(form) });
  const dryRun = async () => {
    const asked = wanted();
    surveyed = null;
    await busy(form, preview, async () => {
      const survey = await post("v1/replays", { ...asked, dry_run: true });
      surveyed = asked;
      fill(preview, drawSurvey(survey, asked, start));
      announce(`${counted(survey.letters, "dead letter")} would be replayed`);
    });
  };
  const start = () =>
    busy(form, preview, async () => {
      const { id } = await post("v1/replays", surveyed);
      page.leadTo(`#/replays/${id}`);
    });
  form.onsubmit = (event) => {
    event.preventDefault();
    dryRun();
  };
  // A preview is valid only for the settings it was made with.
  form.onchange = () => {
    if (surveyed) fill(preview, h("section.card", empty("Settings changed", h("p", "Run a dry run again to update the preview."))));
    surveyed = null;
  };
  fill(place, heading("New replay", { up: back, description: `Sends ${describe(which)} again, each with fresh retries.` }), h("div.columns.even", card("Settings", null, form), preview));
  dryRun();
}

/** The selection of dead letters for the API. */
function selection(query) {
  const letters = query.get("letters");
  if (letters) return { letters: letters.split(",") };
  const filter = Object.fromEntries(WHICH.filter((name) => query.get(name)).map((name) => [name, query.get(name)]));
  return Object.keys(filter).length > 0 ? filter : { all: true };
}

function describe(which) {
  if (which.letters) return which.letters.length === 1 ? "one dead letter" : counted(which.letters.length, "selected dead letter");
  if (which.all) return "all dead letters";
  const names = { fingerprint: "failure group", from: "age up to", correlation_id: "correlation ID" };
  return `the dead letters of ${Object.entries(which).map(([name, value]) => `${names[name] ?? name} ${value}`).join(", ")}`;
}

// --- Settings --------------------------------------------------------------------------------------

function settings(query, known) {
  const services = [...new Set(known.map(queueOf))];
  return slot(
    "form.settings",
    { "aria-label": "Replay settings" },
    check("canary", "Canary", "Sends one dead letter, then ten, then the rest. Each wave starts after the previous one was delivered. Stops at the first failure.", true),
    field("rate", "Rate", h("input", { id: "set-rate", name: "rate", placeholder: "no limit", autocomplete: "off" }), "For example 20/s."),
    field("to", "Target service", h("select", { id: "set-to", name: "to" }, h("option", { value: "" }, "original service"), services.map((name) => h("option", { value: name }, name)))),
    check("include_poison", "Include letters that already failed a replay", "Poison dead letters. A reason is required.", query.get("include_poison") === "true"),
    field("note", "Reason", h("input", { id: "set-note", name: "note", autocomplete: "off" }), "Saved in the audit log."),
    h("p.dim.small", "Dead letters of one session are sent in their original order. New dead letters are not included."),
    h("div.acts", h("button", { type: "submit" }, "Dry run")),
  );
}

const field = (name, label, input, hint) =>
  h("div.field", h("label", { for: `set-${name}` }, label), input, hint && h("p.hint", hint));

const check = (name, label, hint, checked) =>
  h(
    "div.field.check",
    h("input", { type: "checkbox", id: `set-${name}`, name, checked, "aria-describedby": `set-${name}-hint` }),
    h("label", { for: `set-${name}` }, label),
    h("p.hint", { id: `set-${name}-hint` }, hint),
  );

function read(form) {
  const given = new FormData(form);
  const texts = ["rate", "to", "note"].filter((name) => given.get(name)).map((name) => [name, given.get(name)]);
  const set = ["canary", "include_poison"].filter((name) => given.get(name)).map((name) => [name, true]);
  return Object.fromEntries([...texts, ...set]);
}

async function busy(form, preview, act) {
  const buttons = [...form.querySelectorAll("button"), ...preview.querySelectorAll("button")];
  for (const button of buttons) button.disabled = true;
  try {
    await act();
  } catch (error) {
    fill(preview, h("section.card", h("div.pad", h("p.refused", { role: "alert" }, error.message))));
  } finally {
    for (const button of form.querySelectorAll("button")) button.disabled = false;
  }
}

// --- Preview ---------------------------------------------------------------------------------------

const CAUSE_COLUMNS = [
  { name: "Cause", cell: (cause) => cause.message || cause.fingerprint, wide: true },
  { name: "Service", cell: queueOf },
  { name: "Dead letters", cell: (cause) => count(cause.count), end: true },
];

function drawSurvey(survey, asked, start) {
  const causes = survey.by_cause.slice(0, CAUSES_MAX);
  const more = survey.by_cause.length - causes.length;
  return card(
    "Preview",
    h("span.dim", "dry run, nothing was sent"),
    h("p.sum", h("b", counted(survey.letters, "dead letter")), " would be replayed", survey.sessions > 0 && `, in ${counted(survey.sessions, "session")}`),
    causes.length > 0 && table({ label: "By cause", columns: CAUSE_COLUMNS, rows: causes, key: (cause) => cause.fingerprint + queueOf(cause), href: (cause) => `#/groups/${cause.fingerprint}` }),
    more > 0 && h("p.sum.dim", `and ${counted(more, "more cause")}`),
    facts(
      survey.by_target.length > 0 && ["Target", survey.by_target.map((one) => h("span.one-of", h("a", { href: `#/services/${part(one.service)}` }, queueOf(one)), ` ${count(one.count)}`))],
      survey.estimated_seconds !== null && ["Duration", `about ${span(survey.estimated_seconds * 1000)} at this rate`],
      survey.holding > 0 && ["Blocked sessions", `${count(survey.holding)} resume after these are delivered`],
      survey.poison_left > 0 && ["Poison", `${counted(survey.poison_left, "dead letter")} skipped; tick “Include letters that already failed a replay” to send them`],
      survey.claimed.length > 0 && ["In other replays", survey.claimed.map((one) => h("span.one-of", h("a", { href: `#/replays/${one.replay}` }, `replay ${one.replay}`), ` ${count(one.count)}`))],
    ),
    survey.refused_because && h("div.pad", h("p.refused", { role: "alert" }, survey.refused_because)),
    survey.letters > 0 && !survey.refused_because && h("div.begin",
      h("p.dim.small", asked.canary ? "The canary starts with one dead letter." : "Without a canary, all are sent at the given rate."),
      h("button.main", { type: "button", onclick: start }, `Replay ${counted(survey.letters, "dead letter")}`)),
  );
}
