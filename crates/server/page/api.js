/** Talks to the server's API: one way to ask, one kind of error, and the key that this tab was given. */

import { learnTime } from "./now.js";

const KEY = "redrive.key";

/** The key of this tab; it is gone when the tab is. */
export const key = {
  get: () => sessionStorage.getItem(KEY),
  keep: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** An answer that is no success, or none at all (status 0: the server could not be reached). */
export class ApiError extends Error {
  constructor(status, code, message, details = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details;
  }

  get isAway() {
    return this.status === 0;
  }
}

let onUnauthorized = () => {};
/** Says what is to be done when the server wants to know who we are. */
export const whenUnauthorized = (act) => {
  onUnauthorized = act;
};

/** Asks for something: `get("v1/deliveries", { state: "dead" })`. Keys without a value are left out. */
export async function get(path, query = {}, signal = undefined) {
  const answer = await open(path + asQuery(query), { signal });
  return answer.json();
}

/** Does something: `post("v1/services/orders/pause")`. */
export async function post(path, body = {}, signal = undefined) {
  const answer = await open(path, {
    signal,
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  return text === "" ? null : JSON.parse(text);
}

/** The answer itself, for streams; throws an `ApiError` unless it is a success. */
export async function open(path, init = {}) {
  const headers = new Headers(init.headers);
  const kept = key.get();
  if (kept) headers.set("authorization", `Bearer ${kept}`);
  let answer;
  try {
    answer = await fetch(path, { ...init, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "AWAY", "the server cannot be reached");
  }
  learnTime(answer.headers.get("date"));
  if (answer.ok) return answer;
  if (answer.status === 401) onUnauthorized();
  throw await refusal(answer);
}

async function refusal(answer) {
  const body = await answer.json().catch(() => null);
  const { code, message, details } = body?.error ?? {};
  return new ApiError(answer.status, code ?? "UNKNOWN", message ?? `the server answered ${answer.status}`, details);
}

/** A query as it stands in an address; empty without any value. */
function asQuery(query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
}

/** A part of a path. */
export const part = encodeURIComponent;

/** The messages of a `text/event-stream`, each as `{ event, data }` with its data read as JSON. */
export async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const message = parsed(block);
        if (message) yield message;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
  let event = "message";
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trim());
  }
  return data.length === 0 ? null : { event, data: JSON.parse(data.join("\n")) };
}
