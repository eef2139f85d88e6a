/** The live stream of the server: one for the whole page. It reconnects by itself and is closed while the tab is hidden. */

import { messages, open } from "./api.js";
import { observable } from "./dom.js";
import { hidden, visible } from "./visibility.js";

const WAIT_MS_MIN = 1000;
const WAIT_MS_MAX = 15_000;
/** The server sends a pulse every second: a stream that is silent for this long is dead. */
const SILENCE_MS_MAX = 8000;
/** The name that `v1/live` gives to activity messages. */
const ACTIVITY = "activity";

/**
 * The state of the stream: `{ is: "connecting" | "live" | "offline" | "refused", since, again, reason }`. A server that
 * responds but refuses the stream is not offline: `reason` is its message.
 */
export const connection = observable({ is: "connecting", since: Date.now() });
/** The latest pulse; null before the first. */
export const pulse = observable(null);

const listeners = new Set();

/** Calls `listener` with every activity message until `signal` aborts. */
export function onActivity(listener, signal) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener));
}

let current = null;
let wake = () => {};
/** Whether to reconnect at once, because the page and not the server ended the stream. */
let isRestarting = false;

/** Ends the wait before the next try. A try in progress continues: a second click must not undo the first. */
export function tryNow() {
  wake();
}

/** Reconnects at once: the key has changed, or the page was hidden. */
export function reconnect() {
  isRestarting = true;
  current?.abort();
  wake();
}

/** Keeps the stream open while the page is visible. */
export async function stayConnected() {
  let wait = WAIT_MS_MIN;
  for (;;) {
    await visible();
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
      const is = refusal === null ? "offline" : "refused";
      const since = connection.value.is === is ? connection.value.since : Date.now();
      connection.set({ is, since, again: Date.now() + wait, reason: refusal });
      await asleep(wait);
      wait = Math.min(wait * 2, WAIT_MS_MAX);
    }
    // After the tab was hidden, figures are old until the stream is open again.
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
      else if (event === ACTIVITY) for (const listener of [...listeners]) listener(data);
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
