/** Waits for what must come true, and says what did not. */

/** How long anything may take; far longer than it does, so that only what is broken runs into it. */
export const PATIENCE_MS = 20_000;

const LOOK_EVERY_MS = 50;

/**
 * Asks again and again until the answer is truthy, and returns it.
 * @param {string} what the sentence that is told if it never is
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
