/** API keys and roles, for admins: list, create and revoke. */

import { get, key, part, post } from "../api.js";
import { ask, showDialog, toast } from "../dialog.js";
import { fill, h, slot } from "../dom.js";
import { when } from "../format.js";
import { action, me } from "../session.js";
import { badge, card, command, empty, heading, table } from "../ui.js";
import { watch } from "../watch.js";

const KEYS_MS = 10_000;
const ROLES = [
  ["viewer", "viewer: read-only"],
  ["operator", "operator: read, send, replay, pause"],
  ["admin", "admin: everything"],
  ["ingest", "ingest: send events only"],
];

export async function view(place, page) {
  const body = slot("div");
  let looking = null;
  fill(
    place,
    heading("Keys", {
      description: "API keys and roles. The first key turns on authentication for everyone, event senders included.",
      acts: action("administer", "New key…", () => create(looking.again), { class: "main" }),
    }),
    card("All keys", null, body),
  );
  looking = watch(page, body, { load: (signal) => get("v1/keys", {}, signal), draw: ({ keys }) => drawKeys(keys, () => looking.again()), every: KEYS_MS });
}

const STATES = { good: "healthy", expired: "removed", revoked: "cancelled" };

function drawKeys(keys, again) {
  if (keys.length === 0) return empty("No keys", h("p", "Authentication is off: every client has full access. The first key must be an admin key."));
  const columns = [
    { name: "Name", cell: (one) => h("b", one.name) },
    { name: "Role", cell: (one) => one.role },
    { name: "State", cell: (one) => badge(STATES[one.state], one.state === "good" ? "active" : one.state) },
    { name: "Scope", cell: (one) => [...(one.services ?? []), ...(one.sources ?? [])].join(", ") || h("span.dim", "all"), wide: true },
    { name: "Rate limit", cell: (one) => one.rate ?? "" },
    { name: "Created", cell: (one) => when(one.created_at) },
    { name: "Last used", cell: (one) => (one.last_used_at ? when(one.last_used_at) : h("span.dim", "never")) },
    { name: "Expires", cell: (one) => (one.expires_at ? when(one.expires_at) : "") },
    { name: "Action", cell: (one) => one.state === "good" && action("administer", "Revoke…", () => revoke(one, again)), end: true },
  ];
  return table({ label: "Keys", columns, rows: [...keys].reverse(), key: (one) => one.id });
}

async function create(again) {
  const isFirst = me.value.authentication === "off";
  let made = null;
  const done = await ask({
    title: isFirst ? "Create the first key?" : "Create a key",
    description: isFirst ? [h("p", "This turns on authentication: every client needs a key, event senders included. This tab uses the new key.")] : [],
    fields: [
      { name: "name", label: "Name", hint: "Shown in the audit log.", required: true, autocomplete: "off" },
      // Without an admin key, no further key could be created.
      { name: "role", label: "Role", options: isFirst ? ROLES.filter(([role]) => role === "admin") : ROLES },
      { name: "services", label: "Services", hint: "Comma-separated names; all if empty.", autocomplete: "off" },
      { name: "expires", label: "Expires after", hint: "For example 90d; never if empty.", autocomplete: "off" },
    ],
    act: "Create key",
    submit: async (values) => {
      made = await post("v1/keys", wanted(values));
      if (isFirst) key.keep(made.key);
    },
  });
  if (!done) return;
  if (isFirst) me.set(await get("v1/whoami"));
  showDialog(`Key of ${made.name}`, h("p", "Copy the key now. It is not shown again."), command(made.key));
  again();
}

function wanted({ name, role, services, expires }) {
  const names = services.split(",").map((one) => one.trim()).filter(Boolean);
  return { name: name.trim(), role, ...(names.length > 0 && { services: names }), ...(expires.trim() && { expires: expires.trim() }) };
}

async function revoke(one, again) {
  let ended = null;
  const done = await ask({
    title: `Revoke the key of ${one.name}?`,
    description: [h("p", "Clients that use it are rejected from now on. This cannot be undone.")],
    fields: [{ name: "note", label: "Reason", hint: "Saved in the audit log.", autocomplete: "off" }],
    act: "Revoke key",
    danger: true,
    submit: async ({ note }) => (ended = await post(`v1/keys/${part(one.id)}/revoke`, note ? { note } : {})),
  });
  if (done) toast(ended.note ?? `Key of ${one.name} revoked`);
  again();
}
