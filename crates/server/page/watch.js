/** Loads and draws, again and again: grey lines first, then what there is, and a word when it gets old. */

import { ApiError } from "./api.js";
import { fill, slot } from "./dom.js";
import { atClock } from "./format.js";
import { connection } from "./live.js";
import { failure, skeleton } from "./ui.js";

/**
 * Keeps `place` as `draw(await load(signal))` says, every `every` milliseconds while the tab is seen, until
 * the page is left, or the server has refused what was asked. Returns `{ again }` to look at once.
 */
export function watch(page, place, { load, draw, every = 5000, lines = 5 }) {
  const old = slot("p.old", { role: "status", hidden: true });
  const body = slot("div.stack");
  let at = null;
  let busy = false;
  let isRefused = false;
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
      isRefused = false;
      fill(body, draw(data));
    } catch (error) {
      if (page.signal.aborted || error.name === "AbortError") return;
      // The strip at the top tells when the server is away; what it refuses will not come by waiting.
      isRefused = error.status >= 400 && error.status < 500 && error.status !== 429;
      if (at === null || isRefused) fill(body, failure(error, again));
      else if (!error.isAway) {
        old.hidden = false;
        fill(old, "As of ", atClock(at), `: ${error.message}`);
      }
      if (!(error instanceof ApiError)) throw error;
    } finally {
      busy = false;
    }
  }

  page.every(every, () => document.hidden || isRefused || again());
  // Whoever comes back to the server wants to see how it is, not how it was.
  connection.watch(({ is }) => is === "live" && at !== null && again(), page.signal);
  again();
  return { again };
}
