/** Polls until a condition is true. */

/** The time limit of every wait, far above the usual time. */
export const PATIENCE_MS = 20_000;

const LOOK_EVERY_MS = 50;

/**
 * Repeats `ask` until its result is truthy, and returns it.
 * @param {string} what the condition, for the error message
 */
export async function until(what, ask) {
  const ends = Date.now() + PATIENCE_MS;
  let last = "";
  for (;;) {
    try {
      const answer = await ask();
      if (answer) return answer;
      last = "";
    } catch (error) {
      last = `: ${error.message}`;
    }
    if (Date.now() > ends) throw new Error(`waited ${PATIENCE_MS / 1000} s until ${what}${last}`);
    await new Promise((go) => setTimeout(go, LOOK_EVERY_MS));
  }
}
