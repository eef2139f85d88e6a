/** A replay that is prepared: what would be sent, how, and first of all what it would come to. */

import { part, post } from "../api.js";
import { fill, h, slot } from "../dom.js";
import { count, counted, queueOf, span } from "../format.js";
import { may } from "../session.js";
import { card, empty, facts, heading, say, table } from "../ui.js";
import { knownServices } from "./groups.js";

/** The keys of the address that say which letters are meant. */
const WHICH = ["service", "channel", "category", "code", "fingerprint", "type", "session", "correlation_id", "tier", "from", "until"];
const CAUSES_MAX = 10;

export async function newReplay(place, page) {
  page.title("New replay");
  const which = selection(page.query);
  const back = page.query.get("fingerprint") ? [`#/groups/${page.query.get("fingerprint")}`, "The failure group"] : ["#/groups", "Failure groups"];
  if (!may("operate")) return fill(place, heading("New replay", { up: back }), h("section.card", empty("You may look, but not replay", h("p", "An operator or an admin can send letters again."))));
  const came = slot("div");
  const form = settings(page.query, await knownServices(page.signal));
  let surveyed = null;
  const wanted = () => ({ ...which, ...read(form) });
  const dryRun = async () => {
    const asked = wanted();
    surveyed = null;
    await busy(form, came, async () => {
      const survey = await post("v1/replays", { ...asked, dry_run: true });
      surveyed = asked;
      fill(came, drawSurvey(survey, asked, begin));
      say(`${counted(survey.letters, "dead letter")} would be sent again`);
    });
  };
  const begin = () =>
    busy(form, came, async () => {
      const { id } = await post("v1/replays", surveyed);
      page.leadTo(`#/replays/${id}`);
    });
  form.onsubmit = (event) => {
    event.preventDefault();
    dryRun();
  };
  // What was counted holds for what was asked then, and for nothing else.
  form.onchange = () => {
    if (surveyed) fill(came, h("section.card", empty("The settings have changed", h("p", "A dry run says what the replay would come to now."))));
    surveyed = null;
  };
  fill(place, heading("New replay", { up: back, says: `Sends ${inWords(which)} through the pipeline again, each with fresh retries.` }), h("div.columns.even", card("How", null, form), came));
  dryRun();
}

/** Which letters are meant, as the API takes it. */
function selection(query) {
  const letters = query.get("letters");
  if (letters) return { letters: letters.split(",") };
  const filter = Object.fromEntries(WHICH.filter((name) => query.get(name)).map((name) => [name, query.get(name)]));
  return Object.keys(filter).length > 0 ? filter : { all: true };
}

function inWords(which) {
  if (which.letters) return which.letters.length === 1 ? "one dead letter" : counted(which.letters.length, "chosen letter");
  if (which.all) return "all dead letters";
  const names = { fingerprint: "failure group", from: "those that died within", correlation_id: "correlation id" };
  return `the dead letters of ${Object.entries(which).map(([name, value]) => `${names[name] ?? name} ${value}`).join(", ")}`;
}

// --- The settings ----------------------------------------------------------------------------------

function settings(query, known) {
  const services = [...new Set(known.map(queueOf))];
  return slot(
    "form.settings",
    { "aria-label": "How the letters are sent" },
    check("canary", "Canary", "One letter first, then ten, then the rest, each wave only when all of the one before has arrived. It stops by itself when a letter fails.", true),
    field("rate", "Rate", h("input", { id: "set-rate", name: "rate", placeholder: "as fast as deliveries go", autocomplete: "off" }), "Such as 20/s."),
    field("to", "Goes to", h("select", { id: "set-to", name: "to" }, h("option", { value: "" }, "where each letter came from"), services.map((name) => h("option", { value: name }, name)))),
    check("include_poison", "Poison too", "Letters that failed a replay before. Say why below.", query.get("include_poison") === "true"),
    field("note", "Why", h("input", { id: "set-note", name: "note", autocomplete: "off" }), "Kept on record."),
    h("p.dim.small", "Letters of one session go one after the other, in the order they had. What dies from now on is not part of it."),
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

async function busy(form, came, act) {
  const buttons = [...form.querySelectorAll("button"), ...came.querySelectorAll("button")];
  for (const button of buttons) button.disabled = true;
  try {
    await act();
  } catch (error) {
    fill(came, h("section.card", h("div.pad", h("p.refused", { role: "alert" }, error.message))));
  } finally {
    for (const button of form.querySelectorAll("button")) button.disabled = false;
  }
}

// --- What it would come to -------------------------------------------------------------------------

const CAUSE_COLUMNS = [
  { name: "Cause", cell: (cause) => cause.message || cause.fingerprint, wide: true },
  { name: "Service", cell: queueOf },
  { name: "Letters", cell: (cause) => count(cause.count), end: true },
];

function drawSurvey(survey, asked, begin) {
  const causes = survey.by_cause.slice(0, CAUSES_MAX);
  const more = survey.by_cause.length - causes.length;
  return card(
    "What it would come to",
    h("span.dim", "dry run: nothing was sent"),
    h("p.sum", h("b", counted(survey.letters, "dead letter")), " would be sent again", survey.sessions > 0 && `, of ${counted(survey.sessions, "session")}`),
    causes.length > 0 && table({ label: "By cause", columns: CAUSE_COLUMNS, rows: causes, key: (cause) => cause.fingerprint + queueOf(cause), href: (cause) => `#/groups/${cause.fingerprint}` }),
    more > 0 && h("p.sum.dim", `and ${counted(more, "more cause")}`),
    facts(
      survey.by_target.length > 0 && ["To", survey.by_target.map((one) => h("span.one-of", h("a", { href: `#/services/${part(one.service)}` }, queueOf(one)), ` ${count(one.count)}`))],
      survey.estimated_seconds !== null && ["Takes", `about ${span(survey.estimated_seconds * 1000)} at that rate`],
      survey.holding > 0 && ["Held sessions", `${count(survey.holding)} wait for these letters and go on when they have arrived`],
      survey.poison_left > 0 && ["Poison", `${counted(survey.poison_left, "letter")} left alone`],
      survey.claimed.length > 0 && ["In other replays", survey.claimed.map((one) => h("span.one-of", h("a", { href: `#/replays/${one.replay}` }, `replay ${one.replay}`), ` ${count(one.count)}`))],
    ),
    survey.refused_because && h("div.pad", h("p.refused", { role: "alert" }, survey.refused_because)),
    survey.letters > 0 && !survey.refused_because && h("div.begin",
      h("p.dim.small", asked.canary ? "The canary begins with one letter." : "Without a canary, all go at the rate that is set."),
      h("button.main", { type: "button", onclick: begin }, `Begin: send ${counted(survey.letters, "letter")}`)),
  );
}
