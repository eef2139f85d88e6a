/** The audit log: who did what and when, latest first. */

import { get, part } from "../api.js";
import { toast } from "../dialog.js";
import { fill, h, slot } from "../dom.js";
import { count, exact, when } from "../format.js";
import { me } from "../session.js";
import { empty, failure, heading, skeleton, table } from "../ui.js";

const PAGE_ROWS = 100;
const REFRESH_MS = 5000;

export async function view(place, page) {
  const body = slot("section.card");
  const records = new Map();
  let next = null;
  let wanted = page.query.get("find") ?? "";
  const draw = () => fill(body, drawRecords([...records.values()], wanted), next && h("div.pages", h("button", { type: "button", onclick: older }, "Older entries")));
  const keep = (found) => {
    for (const record of found.audit) records.set(record.number, record);
  };
  /** Refreshes the latest page; older entries never change and are loaded on demand. */
  const refresh = async () => {
    try {
      const found = await get("v1/audit", { limit: PAGE_ROWS }, page.signal);
      if (records.size === 0) next = found.next;
      keep(found);
      draw();
    } catch (error) {
      if (!page.signal.aborted && records.size === 0) fill(body, failure(error, refresh));
    }
  };
  const older = async () => {
    try {
      const found = await get("v1/audit", { limit: PAGE_ROWS, before: next }, page.signal);
      next = found.next;
      keep(found);
      draw();
    } catch (error) {
      if (!page.signal.aborted) toast(error.message, "bad");
    }
  };
  const label = "Filter by user, target or reason";
  const oninput = (event) => ((wanted = event.target.value), draw());
  const filter = h("input", { type: "search", "aria-label": label, placeholder: label, value: wanted, oninput });
  fill(place, heading("Audit", { description: "Every change to dead letters, services, breakers and keys is recorded." }), h("div.filters", filter), body);
  fill(body, skeleton(6));
  page.every(REFRESH_MS, () => document.hidden || refresh());
  await refresh();
}

const COLUMNS = [
  { name: "Action", cell: (record) => h("b", record.act) },
  { name: "Time", cell: (record) => h("span", when(record.at), h("span.dim.small.exact", exact(record.at))) },
  { name: "Who", cell: whoOf },
  { name: "Dead letters", cell: (record) => (record.letters > 0 ? count(record.letters) : ""), end: true },
  { name: "Target", cell: whatOf, wide: true },
  { name: "Reason", cell: (record) => record.note ?? "", wide: true },
];

/** The only action that the server takes by itself even where authentication is off. */
const AUTOMATIC = "retention";

/** Without authentication there are no names. */
function whoOf({ by, act }) {
  const isLocal = me.value.authentication === "off" && act !== AUTOMATIC;
  return by ?? h("span.dim", isLocal ? "local, no key" : "rule book");
}

/** IDs in the text become links. */
function whatOf({ what, act }) {
  const letter = what.match(/\b[0-9a-f]{32}\b/)?.[0];
  const group = what.match(/failure group ([0-9a-f]{16})/)?.[1];
  if (group) return h("a", { href: `#/groups/${group}` }, what);
  if (letter && !act.startsWith("key")) return h("a", { href: `#/letters/${part(letter)}` }, what);
  return what;
}

function drawRecords(records, wanted) {
  const word = wanted.trim().toLowerCase();
  const matches = (record) => [record.act, record.what, record.note, record.by].some((text) => text?.toLowerCase().includes(word));
  const shown = records.filter((record) => word === "" || matches(record)).sort((a, b) => b.number - a.number);
  if (records.length === 0) return empty("No entries yet", h("p", "Replays, purges, pauses, edits and key changes are listed here with time, user and reason."));
  if (shown.length === 0) return empty("No matching entries", h("p", "The filter applies to the loaded entries. Load older ones below."));
  return table({ label: "Audit log", columns: COLUMNS, rows: shown, key: (record) => record.number });
}
