/** Loads and draws data repeatedly: a placeholder first, then the data, and a note when it is stale. */

import { ApiError } from "./api.js";
import { fill, slot } from "./dom.js";
import { atClock } from "./format.js";
import { connection } from "./live.js";
import { failure, skeleton } from "./ui.js";

/**
 * Keeps `place` filled with `draw(await load(signal))`, every `every` milliseconds while the tab is visible, until the
 * view is left or the server rejects the request. Returns `{ again }` to refresh at once.
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
      // The shell reports a lost connection. A rejected request is not repeated.
      isRefused = error.status >= 400 && error.status < 500 && error.status !== 429;
      if (at === null || isRefused) fill(body, failure(error, again));
      else if (!error.isOffline) {
        old.hidden = false;
        fill(old, "As of ", atClock(at), `: ${error.message}`);
      }
      if (!(error instanceof ApiError)) throw error;
    } finally {
      busy = false;
    }
  }

  page.every(every, () => document.hidden || isRefused || again());
  // Refresh as soon as the connection is back.
  connection.watch(({ is }) => is === "live" && at !== null && again(), page.signal);
  again();
  return { again };
}
