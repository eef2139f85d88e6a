/** The guide of the demo: a strip above every view with the current step and the next action. */

import { get, post } from "./api.js";
import { toast } from "./dialog.js";
import { fill, h } from "./dom.js";
import { withCode } from "./highlight.js";
import { icon } from "./icons.js";
import { action, me } from "./session.js";

const REFRESH_MS = 1500;
const CLOSED = "redrive.guide";

const place = document.getElementById("guide");
let demo = null;
let timer = null;
/** The links of "Show me" that need an ID: by the view that the step names. */
let links = {};

/** Shows the guide while the server runs the demo. */
export function followDemo() {
  me.watch((who) => {
    clearInterval(timer);
    place.hidden = !who?.demo;
    if (!who?.demo) return;
    refresh();
    timer = setInterval(refresh, REFRESH_MS);
  });
}

async function refresh() {
  try {
    demo = await get("v1/demo");
    links = await deepLinks(demo);
  } catch {
    // The shell reports a lost connection.
    return;
  }
  draw();
}

/** The failure group of the broken service, and one of its replayed deliveries. */
async function deepLinks({ steps }) {
  const service = steps.map(({ page }) => page.match(/^#\/services\/(.+)$/)?.[1]).find(Boolean);
  const { page } = steps[currentStep(steps)];
  if (page === "#/groups" && service) {
    const { groups } = await get("v1/failure-groups", { service });
    return groups.length > 0 ? { ...links, "#/groups": `#/groups/${groups[0].fingerprint}`, "#/deliveries": `#/deliveries/${groups[0].sample}` } : links;
  }
  if (page === "#/deliveries" && !links[page]) {
    const { replays } = await get("v1/replays", { limit: 1 });
    return replays.length > 0 ? { ...links, [page]: `#/replays/${replays[0].id}` } : links;
  }
  return links;
}

async function act(name) {
  try {
    demo = await post(`v1/demo/${name}`);
    draw();
  } catch (error) {
    toast(error.message, "bad");
  }
}

const isClosed = () => sessionStorage.getItem(CLOSED) === "yes";

function toggle() {
  sessionStorage.setItem(CLOSED, isClosed() ? "no" : "yes");
  draw();
}

/** The last step once all are done. */
function currentStep(steps) {
  const at = steps.findIndex((step) => step.state === "now");
  return at === -1 ? steps.length - 1 : at;
}

function draw() {
  const { steps } = demo;
  const step = steps[currentStep(steps)];
  const closed = isClosed();
  fill(
    place,
    h(
      "div.way",
      h("b", "Guide"),
      h("ol", steps.map((one) => h("li", { class: one.state, "aria-current": one.state === "now" ? "step" : null }, one.state === "done" && icon("good"), one.title))),
      h("button.quiet", { type: "button", "aria-expanded": String(!closed), "aria-controls": "guide-step", onclick: toggle }, closed ? "Show" : "Hide"),
    ),
    h(
      "div.step",
      { id: "guide-step", hidden: closed },
      h("p", withCode(step.text), step.command?.includes(" replay ") && POISON_HINT),
      h(
        "div.acts",
        h("a.lead", { href: links[step.page] ?? step.page }, "Show me", icon("next")),
        step.act && action("operate", step.act.label, () => act(step.act.act), { class: "main" }),
      ),
    ),
  );
}

const POISON_HINT = " A dead letter that failed a replay is poison: tick “Include letters that already failed a replay” to send it.";
