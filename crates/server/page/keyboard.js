/** Keyboard shortcuts of all views; none is active while a field has the focus. */

import { showDialog } from "./dialog.js";
import { h } from "./dom.js";

/** The views behind `g` and a second key. */
const PLACES = {
  o: ["overview", "Overview"], s: ["services", "Services"], d: ["deliveries", "Deliveries"], b: ["breakers", "Breakers"],
  f: ["groups", "Failure groups"], p: ["replays", "Replays"], r: ["book", "Rule book"], a: ["alerts", "Alerts"],
  m: ["simulate", "Simulate"], h: ["doctor", "Doctor"], u: ["audit", "Audit"], k: ["keys", "Keys"],
};
const CHORD_MS_MAX = 1500;

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

/** The list of shortcuts. */
export function showKeys() {
  const row = (keys, text) => h("div", h("dt", keys.map((key) => h("kbd", key))), h("dd", text));
  const close = showDialog(
    "Keyboard shortcuts",
    h(
      "dl.keys",
      Object.entries(PLACES).map(([key, [, name]]) => row(["g", key], name)),
      row(["/"], "Find a delivery or event"),
      row(["↓", "↑"], "Move through a table"),
      row(["Enter"], "Open the focused item"),
      row(["Esc"], "Close a dialog or leave a field"),
      row(["?"], "Show this list"),
    ),
  );
  addEventListener("hashchange", close, { once: true });
}
