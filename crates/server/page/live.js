/**
 * What happens on the server, as it happens: one stream for the whole page, which comes back by itself and lasts
 * while somebody sees the page.
 */

import { messages, open } from "./api.js";
import { observable } from "./dom.js";
import { hidden, seen } from "./seen.js";

const WAIT_MS_MIN = 1000;
const WAIT_MS_MAX = 15_000;
/** There is a pulse every second: a stream that says nothing for so long is dead. */
const SILENCE_MS_MAX = 8000;

/**
 * How the stream is: `{ is: "connecting" | "live" | "away" | "refused", since, again, says }`. A server that answers
 * and refuses the stream is not away: `says` is its reason.
 */
export const connection = observable({ is: "connecting", since: Date.now() });
/** The latest pulse; null before the first. */
export const pulse = observable(null);

const listeners = new Set();

/** Calls `listener` with every happening until `signal` aborts. */
export function onHappening(listener, signal) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener));
}

let current = null;
let wake = () => {};
/** Whether the next try is due at once, because the last one was ended here and not by the server. */
let isRestarting = false;

/** Ends the wait before the next try. A try that is under way goes on: a second click must not undo the first. */
export function tryNow() {
  wake();
}

/** Connects anew at once: the key has changed, or the page is no longer visible. */
export function reconnect() {
  isRestarting = true;
  current?.abort();
  wake();
}

/** Keeps the stream for as long as the page is open and seen. */
export async function stayConnected() {
  let wait = WAIT_MS_MIN;
  for (;;) {
    await seen();
    const left = hidden();
    left.addEventListener("abort", reconnect);
    let refusal = null;
    isRestarting = false;
    try {
      await listen(() => (wait = WAIT_MS_MIN));
    } catch (error) {
      if (error.status === 401) await asleep(WAIT_MS_MAX);
      else if (error.status > 0) refusal = error.message;
    }
    if (!isRestarting) {
      const is = refusal === null ? "away" : "refused";
      const since = connection.value.is === is ? connection.value.since : Date.now();
      connection.set({ is, since, again: Date.now() + wait, says: refusal });
      await asleep(wait);
      wait = Math.min(wait * 2, WAIT_MS_MAX);
    }
    // Whoever comes back sees figures from before, until the stream has come back too.
    if (left.aborted) connection.set({ is: "connecting", since: Date.now() });
  }
}

async function listen(onAlive) {
  const controller = new AbortController();
  current = controller;
  let silence;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => controller.abort(), SILENCE_MS_MAX);
  };
  try {
    heard();
    const answer = await open("v1/live", { signal: controller.signal });
    for await (const { event, data } of messages(answer.body)) {
      heard();
      if (connection.value.is !== "live") connection.set({ is: "live", since: Date.now() });
      onAlive();
      if (event === "pulse") pulse.set(data);
      else if (event === "activity") for (const listener of [...listeners]) listener(data);
    }
  } finally {
    clearTimeout(silence);
  }
}

function asleep(ms) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}
