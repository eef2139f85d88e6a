/** HTTP client for the server's API: requests, errors, event streams and the API key of this tab. */

import { learnTime } from "./server_clock.js";

const KEY = "redrive.key";

/** The API key of this tab, in session storage. */
export const key = {
  get: () => sessionStorage.getItem(KEY),
  keep: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** A failed request; status 0 means that the server could not be reached. */
export class ApiError extends Error {
  constructor(status, code, message, details = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details;
  }

  get isOffline() {
    return this.status === 0;
  }
}

let onUnauthorized = () => {};
/** Sets the handler of 401 responses. */
export const whenUnauthorized = (act) => {
  onUnauthorized = act;
};

/** GET as JSON: `get("v1/deliveries", { state: "dead" })`. Empty query values are left out. */
export async function get(path, query = {}, signal = undefined) {
  const answer = await open(path + asQuery(query), { signal });
  return answer.json();
}

/** POST as JSON: `post("v1/services/orders/pause")`. */
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

/** The raw response, for streams; throws an `ApiError` unless it is a success. */
export async function open(path, init = {}) {
  const headers = new Headers(init.headers);
  const kept = key.get();
  if (kept) headers.set("authorization", `Bearer ${kept}`);
  let answer;
  try {
    answer = await fetch(path, { ...init, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "UNREACHABLE", "cannot reach the server");
  }
  learnTime(answer.headers.get("date"));
  if (answer.ok) return answer;
  if (answer.status === 401) onUnauthorized();
  throw await refusal(answer);
}

async function refusal(answer) {
  const body = await answer.json().catch(() => null);
  const { code, message, details } = body?.error ?? {};
  return new ApiError(answer.status, code ?? "UNKNOWN", message ?? `the server returned status ${answer.status}`, details);
}

function asQuery(query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
}

export const part = encodeURIComponent;

/** The messages of a `text/event-stream`, each `{ event, data }` with the data parsed as JSON. */
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
