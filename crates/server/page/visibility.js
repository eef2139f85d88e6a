/**
 * Visibility of this tab: streams are open only while it is visible.
 *
 * A browser has six HTTP/1.1 connections per server for all tabs together. Hidden tabs must release theirs, or no tab
 * would get a response.
 */

/** Resolves when the tab is visible. */
export async function visible() {
  while (document.hidden) {
    await new Promise((changed) => document.addEventListener("visibilitychange", changed, { once: true }));
  }
}

/** Aborts when the tab, which is visible now, is hidden. */
export function hidden() {
  const controller = new AbortController();
  document.addEventListener("visibilitychange", () => controller.abort(), { once: true });
  return controller.signal;
}
