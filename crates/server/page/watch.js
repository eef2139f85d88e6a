/** Loads and draws, again and again: grey lines first, then what there is, and a word when it gets old. */

import { fill, h } from "./dom.js";
import { atClock } from "./format.js";
import { connection } from "./live.js";
import { failure, skeleton } from "./ui.js";

/**
 * Keeps `place` as `draw(await load(signal))` says, every `every` milliseconds while the tab is seen, until
 * the page is left. Returns `{ again }` to look at once.
 */
export function watch(page, place, { load, draw, every = 5000, lines = 5 }) {
  const old = h("p.old", { role: "status", hidden: true });
  const body = h("div");
  let at = null;
  let busy = false;
  fill(body, skeleton(lines));
  fill(place, old, body);

  async function again() {
    if (busy || page.signal.aborted) return;
    busy = true;
    try {
      const data = await load(page.signal);
      if (page.signal.aborted) return;
      at = Date.now();
      old.hidden = true;
      fill(body, draw(data));
    } catch (error) {
      if (page.signal.aborted || error.name === "AbortError") return;
      if (at === null || error.status === 404) fill(body, failure(error, again));
      else {
        old.hidden = false;
        fill(old, "As of ", atClock(at), `: ${error.message}`);
      }
      if (!(error.status >= 0)) throw error;
    } finally {
      busy = false;
    }
  }

  page.every(every, () => document.hidden || again());
  // Whoever comes back to the server wants to see how it is, not how it was.
  connection.watch(({ is }) => is === "live" && at !== null && again(), page.signal);
  again();
  return { again };
}
