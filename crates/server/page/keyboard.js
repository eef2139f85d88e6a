/** The keys that work everywhere. None of them works while somebody types. */

import { h } from "./dom.js";
import { tell } from "./dialog.js";

/** After `g`, where each key leads. */
const PLACES = {
  o: ["overview", "Overview"], s: ["services", "Services"], d: ["deliveries", "Deliveries"], b: ["breakers", "Breakers"],
  f: ["groups", "Failure groups"], p: ["replays", "Replays"], r: ["book", "Rule book"], a: ["alerts", "Alerts"],
  m: ["simulate", "Simulate"], h: ["doctor", "Doctor"], u: ["audit", "Audit"], k: ["keys", "Keys"],
};
const CHORD_MS_MAX = 1500;

/** Listens for as long as the page is open. */
export function listenForKeys() {
  let chord = 0;
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input, textarea, select, [contenteditable]");
    if (event.key === "Escape" && typing) return event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const place = Date.now() - chord < CHORD_MS_MAX ? PLACES[event.key] : undefined;
    chord = event.key === "g" ? Date.now() : 0;
    if (place) location.hash = `#/${place[0]}`;
    else if (event.key === "/") document.getElementById("find").focus();
    else if (event.key === "?") showKeys();
    else return;
    event.preventDefault();
  });
}

/** The list of them. */
export function showKeys() {
  const row = (keys, says) => h("div", h("dt", keys.map((key) => h("kbd", key))), h("dd", says));
  const close = tell(
    "Keyboard shortcuts",
    h(
      "dl.keys",
      Object.entries(PLACES).map(([key, [, name]]) => row(["g", key], name)),
      row(["/"], "Find a delivery or an event"),
      row(["↓", "↑"], "Walk along a table"),
      row(["Enter"], "Open what has the focus"),
      row(["Esc"], "Close a dialog, leave a field"),
      row(["?"], "This list"),
    ),
  );
  addEventListener("hashchange", close, { once: true });
}
