/** Simulation: runs a scenario against the active rule book in virtual time. Nothing is sent. */

import { get, post } from "../api.js";
import { fill, h, slot } from "../dom.js";
import { counted } from "../format.js";
import { withCode } from "../highlight.js";
import { runShown } from "../simulation/run.js";
import { announce, badge, card, command, empty, heading, skeleton } from "../ui.js";

/** The last input, kept while another view is open. */
let kept = null;

export async function view(place, page) {
  const { scenarios } = await get("v1/scenarios", {}, page.signal);
  const wanted = scenarios.find(({ name }) => name === page.query.get("scenario"));
  if (wanted || !kept) kept = { ready: (wanted ?? scenarios[0]).name, text: (wanted ?? scenarios[0]).text, seed: "1" };
  const result = slot("div.stack", { role: "region", "aria-label": "Result" });
  const form = formOf(scenarios, result, page);
  const hint = "The result shows the load on each dependency, waiting deliveries, dead letters and advice.";
  fill(result, h("section.card", empty("No result yet", h("p", hint))));
  fill(
    place,
    heading("Simulate", {
      up: ["#/book", "Rule book"],
      description: "Runs a scenario against the active rule book in virtual time, with the engine of this server. Nothing is sent or changed.",
    }),
    card("Scenario", h("span.dim", "same scenario, rule book and seed, same result"), form),
    result,
  );
}

// --- Input -------------------------------------------------------------------------------------------

function formOf(scenarios, result, page) {
  const problems = slot("div.problems", { id: "simulate-problems" });
  const text = slot("textarea", { id: "simulate-text", rows: 16, spellcheck: "false", autocomplete: "off", "aria-describedby": "simulate-problems" });
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
    fill(problems);
  };
  text.onkeydown = (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && run.form.requestSubmit();
  const onsubmit = async (event) => {
    event.preventDefault();
    if (run.disabled) return;
    const stopped = new AbortController();
    stop.onclick = () => stopped.abort();
    [run.disabled, stop.hidden] = [true, false];
    clear();
    showRunning(result);
    try {
      // As text: a JavaScript number cannot hold every seed.
      const request = { scenario: text.value, seed: seed.value };
      const played = await post("v1/simulate", request, AbortSignal.any([page.signal, stopped.signal]));
      result.replaceChildren(runShown(played.report, played.findings), byCommand());
      if (played.warnings.length > 0) fill(problems, h("ul", played.warnings.map((problem) => drawn(problem, text))));
      announce(`Done: ${counted(played.findings.length, "finding")}`);
      result.scrollIntoView({ block: "start" });
    } catch (error) {
      if (page.signal.aborted) return;
      reject(error, { text, problems, result });
    } finally {
      [run.disabled, stop.hidden] = [false, true];
    }
  };
  return slot(
    "form.simulate-form",
    { onsubmit, "aria-label": "Scenario" },
    h("div.field", h("label", { for: ready.id }, "Built-in scenario"), ready),
    h("div.field", h("label", { for: seed.id }, "Random seed"), seed),
    h("div.field.whole", h("label", { for: text.id }, "Scenario text"), text, h("p.hint", "Ctrl+Enter runs it.")),
    problems,
    h("div.acts", stop, run),
  );
}

function showRunning(result) {
  const status = h("div.empty", { role: "status" }, h("p.title", "Running…"), h("p", "A scenario of several hours takes a second or two."));
  fill(result, h("section.card", { "aria-busy": "true" }, status, skeleton(4)));
}

const byCommand = () =>
  card(
    "In a terminal",
    h("span.dim", "as an HTML report, or with ranges over 100 seeds"),
    h(
      "div.pad.stack",
      command("redrive simulate scenario.yaml --rules redrive.yaml --html page.html"),
      command("redrive simulate scenario.yaml --rules redrive.yaml --runs 100"),
    ),
  );

// --- Problems -----------------------------------------------------------------------------------------

function reject(error, { text, problems, result }) {
  const isStopped = error.name === "AbortError";
  const title = isStopped ? "Stopped" : "The scenario was not run";
  fill(result, h("section.card", empty(title, h("p", isStopped ? "There is no result." : "Fix the problems below the scenario text."))));
  if (isStopped) return;
  const found = error.details?.problems ?? [];
  text.setAttribute("aria-invalid", "true");
  if (found.length > 0) fill(problems, h("div", { role: "alert" }, h("ul", found.map((problem) => drawn(problem, text)))));
  else fill(problems, h("p.refused", { role: "alert" }, withCode(error.message)));
  const [first] = found;
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
      h("b", withCode(message)),
      help && h("span.help", withCode(help)),
      written !== undefined && written.trim() !== "" && h("code.written", written.trim()),
    ),
  );
}

/** Selects a line of the text from a column on. */
function goTo(text, { line, column = 1 }) {
  const lines = text.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  const width = lines[line - 1]?.length ?? 0;
  text.focus({ preventScroll: true });
  text.setSelectionRange(start + Math.min(Math.max(0, column - 1), width), start + width);
  text.scrollTop = Math.max(0, (line - 5) * (text.scrollHeight / lines.length));
  text.scrollIntoView({ block: "nearest" });
}
