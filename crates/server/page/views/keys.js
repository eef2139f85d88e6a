/** Keys, for admins: who may come in and as what; made here, told once, and ended here. */

import { get, key, part, post } from "../api.js";
import { ask, tell, toast } from "../dialog.js";
import { fill, h, slot } from "../dom.js";
import { when } from "../format.js";
import { action, me } from "../session.js";
import { badge, card, command, empty, heading, table } from "../ui.js";
import { watch } from "../watch.js";

const KEYS_MS = 10_000;
const ROLES = [
  ["viewer", "viewer: looks and changes nothing"],
  ["operator", "operator: looks, sends, replays and pauses"],
  ["admin", "admin: may do everything"],
  ["ingest", "ingest: sends events and sees nothing"],
];

export async function view(place, page) {
  const body = slot("div");
  let looking = null;
  fill(
    place,
    heading("Keys", {
      says: "Who may come in, and as what. From the first key on, everybody is asked for one.",
      acts: action("administer", "New key…", () => create(looking.again), { class: "main" }),
    }),
    card("All keys", null, body),
  );
  looking = watch(page, body, { load: (signal) => get("v1/keys", {}, signal), draw: ({ keys }) => drawKeys(keys, () => looking.again()), every: KEYS_MS });
}

const STATES = { good: "well", expired: "removed", revoked: "cancelled" };

function drawKeys(keys, again) {
  if (keys.length === 0) return empty("There are no keys", h("p", "Whoever reaches this server may do everything. The first key is an admin's."));
  const columns = [
    { name: "Name", cell: (one) => h("b", one.name) },
    { name: "Role", cell: (one) => one.role },
    { name: "State", cell: (one) => badge(STATES[one.state], one.state) },
    { name: "Bound to", cell: (one) => [...(one.services ?? []), ...(one.sources ?? [])].join(", ") || h("span.dim", "everything"), wide: true },
    { name: "Rate", cell: (one) => one.rate ?? "" },
    { name: "Made", cell: (one) => when(one.created_at) },
    { name: "Last used", cell: (one) => (one.last_used_at ? when(one.last_used_at) : h("span.dim", "never")) },
    { name: "Ends", cell: (one) => (one.expires_at ? when(one.expires_at) : "") },
    { name: "Act", cell: (one) => one.state === "good" && action("administer", "Revoke…", () => revoke(one, again)), end: true },
  ];
  return table({ label: "Keys", columns, rows: [...keys].reverse(), key: (one) => one.id });
}

async function create(again) {
  const isFirst = me.value.authentication === "off";
  let made = null;
  const done = await ask({
    title: isFirst ? "Make the first key?" : "Make a key",
    says: isFirst ? [h("p", "From then on everybody who comes is asked for a key, also whoever sends events. This tab goes on with the new one.")] : [],
    fields: [
      { name: "name", label: "Name", hint: "Whose it is, as the audit will say it.", required: true, autocomplete: "off" },
      // Whoever makes the first key must not lock everybody out.
      { name: "role", label: "Role", options: isFirst ? ROLES.filter(([role]) => role === "admin") : ROLES },
      { name: "services", label: "Only for services", hint: "Names with commas between them; all if empty.", autocomplete: "off" },
      { name: "expires", label: "Ends after", hint: "Such as 90d; never if empty.", autocomplete: "off" },
    ],
    act: "Make the key",
    doing: async (values) => {
      made = await post("v1/keys", wanted(values));
      if (isFirst) key.keep(made.key);
    },
  });
  if (!done) return;
  if (isFirst) me.set(await get("v1/whoami"));
  tell(`The key of ${made.name}`, h("p", "This is the only time that it is told."), command(made.key));
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
    says: [h("p", "Whoever uses it is refused from now on. This cannot be undone.")],
    fields: [{ name: "note", label: "Why", hint: "Goes on record.", autocomplete: "off" }],
    act: "Revoke the key",
    danger: true,
    doing: async ({ note }) => (ended = await post(`v1/keys/${part(one.id)}/revoke`, note ? { note } : {})),
  });
  if (done) toast(ended.note ?? `the key of ${one.name} has ended`);
  again();
}
