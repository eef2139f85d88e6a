/** Dead letters page by page, some of which can be chosen. */

import { deadLetters } from "./bound.js";
import { fill, h, slot } from "./dom.js";
import { count, counted, queueOf, shortId, when } from "./format.js";
import { may } from "./session.js";
import { badge, card, empty, table } from "./ui.js";
import { watch } from "./watch.js";

const PAGE_ROWS = 25;
const LETTERS_MS = 5000;

/** Keeps the letters that `filter` names in `place`, the latest first; those who may can choose some of them. */
export function letterTable(page, place, filter) {
  const before = page.query.get("before");
  const [body, acts] = [slot("div"), slot("div.more")];
  const drawActs = () => {
    const chosen = [...body.querySelectorAll("input.choose:checked")].map((box) => box.value);
    const replay = () => location.assign(`#/replays/new?letters=${chosen.join(",")}`);
    if (chosen.length === 0) fill(acts, h("span.dim", before ? "older ones" : "the latest first"));
    else fill(acts, h("button", { type: "button", onclick: replay }, `Replay ${counted(chosen.length, "chosen letter")}…`));
  };
  body.addEventListener("change", drawActs);
  drawActs();
  fill(place, card("Letters", acts, body));
  watch(page, body, {
    load: (signal) => deadLetters({ ...filter, limit: PAGE_ROWS, before }, signal),
    draw: (found) => drawLetters(found, page),
    every: LETTERS_MS,
  });
}

const COLUMNS = [
  { name: "Letter", cell: (letter) => h("code", { title: letter.id }, shortId(letter.id)) },
  { name: "Died", cell: (letter) => when(letter.died_at) },
  { name: "Service", cell: queueOf },
  { name: "Type", cell: (letter) => letter.event_type },
  { name: "Session", cell: (letter) => letter.session ?? "" },
  { name: "Attempts", cell: (letter) => count(letter.attempts), end: true },
  { name: "Special", cell: marks },
  { name: "Message", cell: (letter) => letter.message, wide: true },
];

/** What is special about a letter. */
function marks(letter) {
  return [
    letter.tier === "poison" && badge("poison"),
    letter.claimed_by && h("a", { href: `#/replays/${letter.claimed_by}` }, badge("replaying", `replay ${letter.claimed_by}`)),
    letter.holds !== undefined && letter.holds !== null && badge("held", letter.holds > 0 ? `holds ${count(letter.holds)}` : "holds its session"),
  ];
}

const CHOOSE = {
  name: "Choose",
  cell: (letter) => h("input.choose", { type: "checkbox", value: letter.id, "aria-label": `Choose letter ${shortId(letter.id)}` }),
  end: true,
};

function drawLetters({ dead_letters: letters, next }, page) {
  if (letters.length === 0) return empty("No letters here", h("p", "They were sent again, given up or deleted: ", h("a", { href: "#/groups" }, "failure groups"), " has those that are left."));
  const columns = may("operate") ? [...COLUMNS, CHOOSE] : COLUMNS;
  const older = next && h("button", { type: "button", onclick: () => page.go({ before: next }) }, "Older letters");
  const latest = page.query.get("before") && h("button", { type: "button", onclick: () => page.go({ before: null }) }, "The latest");
  return h(
    "div",
    table({ label: "Dead letters", columns, rows: letters, key: (letter) => letter.id, href: (letter) => `#/letters/${letter.id}` }),
    (older || latest) && h("div.pages", latest, older),
  );
}
