/**
 * Whether somebody sees this tab: streams last only as long.
 *
 * A browser keeps six connections to a server that speaks HTTP/1.1, for all of its tabs together: a tab that nobody
 * sees leaves them to the others, or neither would get an answer.
 */

/** Comes when the tab is seen; at once if it is. */
export async function seen() {
  while (document.hidden) {
    await new Promise((changed) => document.addEventListener("visibilitychange", changed, { once: true }));
  }
}

/** Aborts once the tab, which is seen now, is seen no more. */
export function hidden() {
  const controller = new AbortController();
  document.addEventListener("visibilitychange", () => controller.abort(), { once: true });
  return controller.signal;
}
