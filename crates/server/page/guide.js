/** The guide of the demo: one strip above every view that says where the story stands and what comes next. */

import { get, post } from "./api.js";
import { toast } from "./dialog.js";
import { fill, h } from "./dom.js";
import { icon } from "./icons.js";
import { action, me } from "./session.js";
import { spoken } from "./tint.js";

/** How often the story is looked at. */
const EVERY_MS = 1500;
const CLOSED = "redrive.guide";

const place = document.getElementById("guide");
let story = null;
let timer = null;

/** Shows the guide while the server is a demo. */
export function followStory() {
  me.watch((who) => {
    clearInterval(timer);
    place.hidden = !who?.demo;
    if (!who?.demo) return;
    look();
    timer = setInterval(look, EVERY_MS);
  });
}

async function look() {
  try {
    story = await get("v1/demo");
  } catch {
    // The strip above says that the server is away; the story goes on when it is back.
    return;
  }
  draw();
}

async function act(name) {
  try {
    story = await post(`v1/demo/${name}`);
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

function draw() {
  const { steps } = story;
  const now = steps.findIndex((step) => step.state === "now");
  const step = steps[now === -1 ? steps.length - 1 : now];
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
      h("p", spoken(step.text)),
      h(
        "div.acts",
        h("a.lead", { href: step.page }, "Show me", icon("next")),
        step.act && action("operate", step.act.label, () => act(step.act.act), { class: "main" }),
      ),
    ),
  );
}
