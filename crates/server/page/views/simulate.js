/** What would happen: plays a scenario against the rule book that holds, in virtual time. Nothing is sent. */

import { get, post } from "../api.js";
import { fill, h, slot } from "../dom.js";
import { counted } from "../format.js";
import { runShown } from "../simulation/run.js";
import { spoken } from "../tint.js";
import { badge, card, command, empty, heading, say, skeleton } from "../ui.js";

/** What was written here last: whoever looks something up meanwhile finds it again. */
let kept = null;

export async function view(place, page) {
  const { scenarios } = await get("v1/scenarios", {}, page.signal);
  const wanted = scenarios.find(({ name }) => name === page.query.get("scenario"));
  if (wanted || !kept) kept = { ready: (wanted ?? scenarios[0]).name, text: (wanted ?? scenarios[0]).text, seed: "1" };
  const came = slot("div.stack", { role: "region", "aria-label": "What came of it" });
  const form = formOf(scenarios, came, page);
  const promise = "What comes of it stands here: the load on each dependency, what waits and dies, and what would help.";
  fill(came, h("section.card", empty("Nothing has been played yet", h("p", promise))));
  fill(
    place,
    heading("Simulate", {
      up: ["#/book", "Rule book"],
      says: "Plays a scenario against the rule book that holds, in virtual time and with the engine of this server. Nothing is sent, and nothing here changes.",
    }),
    card("Scenario", h("span.dim", "the same scenario, book and seed give the same answer"), form),
    came,
  );
}

// --- What is to be played ----------------------------------------------------------------------------

function formOf(scenarios, came, page) {
  const troubles = slot("div.troubles", { id: "simulate-troubles" });
  const text = slot("textarea", { id: "simulate-text", rows: 16, spellcheck: "false", autocomplete: "off", "aria-describedby": "simulate-troubles" });
  const seed = slot("input", { id: "simulate-seed", inputmode: "numeric", pattern: "[0-9]{1,15}", title: "A whole number of up to 15 digits", required: true, autocomplete: "off" });
  const ready = slot(
    "select",
    { id: "simulate-ready" },
    scenarios.map(({ name, about }) => h("option", { value: name, selected: name === kept.ready }, about || name)),
  );
  const run = slot("button.main", { type: "submit" }, "Run");
  const stop = slot("button", { type: "button", hidden: true }, "Stop");
  [text.value, seed.value] = [kept.text, kept.seed];
  text.oninput = () => (kept.text = text.value);
  seed.oninput = () => (kept.seed = seed.value);
  ready.onchange = () => {
    const { name, text: chosen } = scenarios.find((one) => one.name === ready.value);
    kept = { ...kept, ready: name, text: chosen };
    text.value = chosen;
    clear();
  };
  const clear = () => {
    text.removeAttribute("aria-invalid");
    fill(troubles);
  };
  text.onkeydown = (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && run.form.requestSubmit();
  const onsubmit = async (event) => {
    event.preventDefault();
    if (run.disabled) return;
    const stopped = new AbortController();
    stop.onclick = () => stopped.abort();
    [run.disabled, stop.hidden] = [true, false];
    clear();
    playing(came);
    try {
      // As text: a number here has no place for all of its digits.
      const asked = { scenario: text.value, seed: seed.value };
      const played = await post("v1/simulate", asked, AbortSignal.any([page.signal, stopped.signal]));
      came.replaceChildren(runShown(played.report, played.findings), byCommand());
      if (played.warnings.length > 0) fill(troubles, h("ul", played.warnings.map((problem) => drawn(problem, text))));
      say(`Played: ${counted(played.findings.length, "finding")}`);
      came.scrollIntoView({ block: "start" });
    } catch (error) {
      if (page.signal.aborted) return;
      refuse(error, { text, troubles, came });
    } finally {
      [run.disabled, stop.hidden] = [false, true];
    }
  };
  return slot(
    "form.simulate-form",
    { onsubmit, "aria-label": "The scenario that is played" },
    h("div.field", h("label", { for: ready.id }, "Ready scenario"), ready),
    h("div.field", h("label", { for: seed.id }, "Seed"), seed),
    h("div.field.whole", h("label", { for: text.id }, "Its text"), text, h("p.hint", "Ctrl and Enter run it.")),
    troubles,
    h("div.acts", stop, run),
  );
}

function playing(came) {
  const says = h("div.empty", { role: "status" }, h("p.title", "Playing…"), h("p", "A scenario of hours takes a second or two."));
  fill(came, h("section.card", { "aria-busy": "true" }, says, skeleton(4)));
}

/** The same where it can be kept, and with more than one seed. */
const byCommand = () =>
  card(
    "In a terminal",
    h("span.dim", "as a page to keep or to send, or with ranges over a hundred seeds"),
    h(
      "div.pad.stack",
      command("redrive simulate scenario.yaml --rules redrive.yaml --html page.html"),
      command("redrive simulate scenario.yaml --rules redrive.yaml --runs 100"),
    ),
  );

// --- What is wrong with it ---------------------------------------------------------------------------

function refuse(error, { text, troubles, came }) {
  const isStopped = error.name === "AbortError";
  const title = isStopped ? "It was stopped" : "It was not played";
  fill(came, h("section.card", empty(title, h("p", isStopped ? "Nothing came of it." : "What is wrong stands under the scenario."))));
  if (isStopped) return;
  const problems = error.details?.problems ?? [];
  text.setAttribute("aria-invalid", "true");
  if (problems.length > 0) fill(troubles, h("div", { role: "alert" }, h("ul", problems.map((problem) => drawn(problem, text)))));
  else fill(troubles, h("p.refused", { role: "alert" }, spoken(error.message)));
  const [first] = problems;
  if (first?.line > 0) goTo(text, first);
}

function drawn({ severity, line, column, message, help }, text) {
  const written = text.value.split("\n")[line - 1];
  return h(
    "li.mark",
    { class: severity === "error" ? "bad" : "warn" },
    badge(severity),
    h(
      "span",
      line > 0 && [h("button.at", { type: "button", onclick: () => goTo(text, { line, column }) }, `line ${line}`), " "],
      h("b", spoken(message)),
      help && h("span.help", spoken(help)),
      written !== undefined && written.trim() !== "" && h("code.written", written.trim()),
    ),
  );
}

/** Shows a line of the text, from that column on. */
function goTo(text, { line, column = 1 }) {
  const lines = text.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  const width = lines[line - 1]?.length ?? 0;
  text.focus({ preventScroll: true });
  text.setSelectionRange(start + Math.min(Math.max(0, column - 1), width), start + width);
  text.scrollTop = Math.max(0, (line - 5) * (text.scrollHeight / lines.length));
  text.scrollIntoView({ block: "nearest" });
}
