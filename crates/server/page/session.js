/** The user of the page: identity, permissions, sign-in and sign-out. */

import { ApiError, get, key, whenUnauthorized } from "./api.js";
import { ask } from "./dialog.js";
import { fill, h, observable } from "./dom.js";
import { icon } from "./icons.js";
import { reconnect } from "./live.js";

/** The response of `v1/whoami`; null before it arrived. */
export const me = observable(null);

/** Whether the user has a permission: `may("operate")`. */
export const may = (permission) => me.value?.may.includes(permission) ?? false;

/** The services that the key is limited to; undefined if it is not limited. Lists for them are in `scope.js`. */
export const boundTo = () => me.value?.services;

/** A button, or null for users without the permission. */
export function action(permission, label, onclick, props = {}) {
  return may(permission) ? h("button", { type: "button", onclick, ...props }, label) : null;
}

let asking = null;
/** Kept over the reload that follows an expired or revoked key. */
const ENDED = "redrive.ended";

/** Loads the identity; asks for a key if the server requires one. */
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
    description: [
      h("p", "This server requires an API key. The key stays in this tab and is forgotten when the tab closes."),
      hasEnded && h("p.refused", { role: "alert" }, icon("bad"), "The key of this tab has expired or was revoked."),
      trouble && h("p.refused", { role: "alert" }, icon("bad"), `The key was rejected: ${trouble}`),
      h("p.dim", "An admin creates one with ", h("code", "redrive keys create NAME --role viewer"), "."),
    ],
    fields: [{ name: "key", label: "API key", type: "password", required: true, autocomplete: "off" }],
    act: "Sign in",
    isRequired: true,
  });
  key.keep(given.key.trim());
}

function signOut() {
  key.forget();
  location.reload();
}

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

// Streams restart with the new identity.
me.watch((who) => who && reconnect());
