/** Who looks at the page: asks the server, asks for a key where one is needed, and says what is allowed. */

import { ApiError, get, key, whenUnauthorized } from "./api.js";
import { ask } from "./dialog.js";
import { fill, h, observable } from "./dom.js";
import { icon } from "./icons.js";
import { reconnect } from "./live.js";

/** What `/v1/whoami` says; null before it has. */
export const me = observable(null);

/** Whether the one who looks may do that: `may("operate")`. */
export const may = (permission) => me.value?.may.includes(permission) ?? false;

/** The services that the key is bound to; undefined if it is bound to none. Lists for them are in `bound.js`. */
export const boundTo = () => me.value?.services;

/** A button for those who may press it, and nothing for others. */
export function action(permission, label, onclick, props = {}) {
  return may(permission) ? h("button", { type: "button", onclick, ...props }, label) : null;
}

let asking = null;
/** Kept over a reload: the key that this tab had was good, and is no more. */
const ENDED = "redrive.ended";

/** Finds out who we are; waits for a key where the server asks for one. */
export async function signIn() {
  whenUnauthorized(() => {
    if (!me.value) return;
    if (key.get()) sessionStorage.setItem(ENDED, "yes");
    signOut();
  });
  for (;;) {
    try {
      me.set(await get("v1/whoami"));
      return;
    } catch (error) {
      if (error.status === 401) await (asking ??= askForKey(key.get() ? error.message : null));
      else if (error instanceof ApiError) await new Promise((resolve) => setTimeout(resolve, 1000));
      else throw error;
      asking = null;
    }
  }
}

async function askForKey(trouble) {
  const hasEnded = sessionStorage.getItem(ENDED) === "yes";
  sessionStorage.removeItem(ENDED);
  const given = await ask({
    title: "Sign in",
    says: [
      h("p", "This server asks whoever comes for a key. It stays in this tab and is forgotten with it."),
      hasEnded && h("p.refused", { role: "alert" }, icon("bad"), "The key that this tab had is no longer good: it has ended, or was revoked."),
      trouble && h("p.refused", { role: "alert" }, icon("bad"), `The server refused that key: ${trouble}`),
      h("p.dim", "An admin makes one with ", h("code", "redrive keys create NAME --role viewer"), "."),
    ],
    fields: [{ name: "key", label: "Key", type: "password", required: true, autocomplete: "off" }],
    act: "Sign in",
    insists: true,
  });
  key.keep(given.key.trim());
}

/** Forgets the key and starts over. */
function signOut() {
  key.forget();
  location.reload();
}

/** Shows who is signed in. */
export function drawWho(place) {
  me.watch((who) => {
    if (!who || who.authentication === "off") return fill(place);
    const bound = who.services ? ` for ${who.services.join(", ")}` : "";
    fill(
      place,
      h("span.who", { title: `${who.role}${bound}` }, h("b", who.name), h("span.dim", who.role)),
      h("button.quiet", { type: "button", onclick: signOut, title: "Forget the key of this tab" }, "Sign out"),
    );
  });
}

/** Once we are somebody else, everything that streams starts over. */
me.watch((who) => who && reconnect());
