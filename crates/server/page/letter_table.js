/** A paged table of dead letters with selection for a replay. */

import { fill, h, slot } from "./dom.js";
import { count, counted, queueOf, shortId, when } from "./format.js";
import { deadLetters } from "./scope.js";
import { may } from "./session.js";
import { badge, card, empty, table } from "./ui.js";
import { watch } from "./watch.js";

const PAGE_ROWS = 25;
const LETTERS_MS = 5000;

/** Fills `place` with the dead letters that match `filter`, latest first; operators can select some. */
export function letterTable(page, place, filter) {
  const before = page.query.get("before");
  const [body, acts] = [slot("div"), slot("div.more")];
  const drawActs = () => {
    const chosen = [...body.querySelectorAll("input.choose:checked")].map((box) => box.value);
    const replay = () => location.assign(`#/replays/new?letters=${chosen.join(",")}`);
    if (chosen.length === 0) fill(acts, h("span.dim", before ? "older" : "latest first"));
    else fill(acts, h("button", { type: "button", onclick: replay }, `Replay ${counted(chosen.length, "selected dead letter")}…`));
  };
  body.addEventListener("change", drawActs);
  drawActs();
  fill(place, card("Dead letters", acts, body));
  watch(page, body, {
    load: (signal) => deadLetters({ ...filter, limit: PAGE_ROWS, before }, signal),
    draw: (found) => drawLetters(found, page),
    every: LETTERS_MS,
  });
}

const COLUMNS = [
  { name: "ID", cell: (letter) => h("code", { title: letter.id }, shortId(letter.id)) },
  { name: "Died", cell: (letter) => when(letter.died_at) },
  { name: "Service", cell: queueOf },
  { name: "Type", cell: (letter) => letter.event_type },
  { name: "Session", cell: (letter) => letter.session ?? "" },
  { name: "Attempts", cell: (letter) => count(letter.attempts), end: true },
  { name: "Status", cell: marks },
  { name: "Message", cell: (letter) => letter.message, wide: true },
];

function marks(letter) {
  return [
    letter.tier === "poison" && badge("poison"),
    letter.claimed_by && h("a", { href: `#/replays/${letter.claimed_by}` }, badge("replaying", `replay ${letter.claimed_by}`)),
    letter.holds !== undefined && letter.holds !== null && badge("held", letter.holds > 0 ? `blocks ${count(letter.holds)}` : "blocks its session"),
  ];
}

const CHOOSE = {
  name: "Select",
  cell: (letter) => h("input.choose", { type: "checkbox", value: letter.id, "aria-label": `Select dead letter ${shortId(letter.id)}` }),
  end: true,
};

function drawLetters({ dead_letters: letters, next }, page) {
  if (letters.length === 0) return empty("No dead letters left", h("p", "All were replayed, skipped or purged. See ", h("a", { href: "#/groups" }, "all failure groups"), "."));
  const columns = may("operate") ? [...COLUMNS, CHOOSE] : COLUMNS;
  const older = next && h("button", { type: "button", onclick: () => page.go({ before: next }) }, "Older");
  const latest = page.query.get("before") && h("button", { type: "button", onclick: () => page.go({ before: null }) }, "Latest");
  return h(
    "div",
    table({ label: "Dead letters", columns, rows: letters, key: (letter) => letter.id, href: (letter) => `#/letters/${letter.id}` }),
    (older || latest) && h("div.pages", latest, older),
  );
}
