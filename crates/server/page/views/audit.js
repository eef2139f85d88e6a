/** The audit: who did what and when, by hand or by rule, the latest first. */

import { get, part } from "../api.js";
import { toast } from "../dialog.js";
import { fill, h, slot } from "../dom.js";
import { count, exact, when } from "../format.js";
import { me } from "../session.js";
import { empty, failure, heading, skeleton, table } from "../ui.js";

const PAGE_ROWS = 100;
const LOOK_MS = 5000;

export async function view(place, page) {
  const body = slot("section.card");
  const records = new Map();
  let next = null;
  let wanted = page.query.get("find") ?? "";
  const draw = () => fill(body, drawRecords([...records.values()], wanted), next && h("div.pages", h("button", { type: "button", onclick: older }, "Older records")));
  const keep = (found) => {
    for (const record of found.audit) records.set(record.number, record);
  };
  /** The latest page again and again; older ones come when they are asked for, and do not change. */
  const look = async () => {
    try {
      const found = await get("v1/audit", { limit: PAGE_ROWS }, page.signal);
      if (records.size === 0) next = found.next;
      keep(found);
      draw();
    } catch (error) {
      if (!page.signal.aborted && records.size === 0) fill(body, failure(error, look));
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
  const label = "Filter by who, what or why";
  const oninput = (event) => ((wanted = event.target.value), draw());
  const filter = h("input", { type: "search", "aria-label": label, placeholder: label, value: wanted, oninput });
  fill(place, heading("Audit", { says: "Whatever is done with letters, services, breakers and keys leaves a record." }), h("div.filters", filter), body);
  fill(body, skeleton(6));
  page.every(LOOK_MS, () => document.hidden || look());
  await look();
}

const COLUMNS = [
  { name: "Act", cell: (record) => h("b", record.act) },
  { name: "At", cell: (record) => h("span", when(record.at), h("span.dim.small.exact", exact(record.at))) },
  { name: "Letters", cell: (record) => (record.letters > 0 ? count(record.letters) : ""), end: true },
  { name: "What", cell: (record) => whatOf(record), wide: true },
  { name: "Why", cell: (record) => record.note ?? "", wide: true },
];
const BY = { name: "By", cell: (record) => record.by ?? "the rule book" };

/** Ids lead to what they name. */
function whatOf({ what, act }) {
  const letter = what.match(/\b[0-9a-f]{32}\b/)?.[0];
  const group = what.match(/failure group ([0-9a-f]{16})/)?.[1];
  if (group) return h("a", { href: `#/groups/${group}` }, what);
  if (letter && !act.startsWith("key")) return h("a", { href: `#/letters/${part(letter)}` }, what);
  return what;
}

function drawRecords(records, wanted) {
  const word = wanted.trim().toLowerCase();
  const holds = (record) => [record.act, record.what, record.note, record.by].some((text) => text?.toLowerCase().includes(word));
  const shown = records.filter((record) => word === "" || holds(record)).sort((a, b) => b.number - a.number);
  if (records.length === 0) return empty("Nothing is on record yet", h("p", "Replays, purges, pauses, edits and keys will be listed here: when, what, how many, by whom and why."));
  if (shown.length === 0) return empty("No record says that", h("p", "The filter looks through the records that are listed; older ones can be fetched below."));
  // Where nobody is asked for a key, nobody is known by name.
  const columns = me.value.authentication === "off" ? COLUMNS : [...COLUMNS.slice(0, 2), BY, ...COLUMNS.slice(2)];
  return table({ label: "Records", columns, rows: shown, key: (record) => record.number });
}
