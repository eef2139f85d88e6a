/** The rule book: its text with what hurts in it, the rule for any event, and every retry policy as a picture. */

import { get, part } from "../api.js";
import { fill, h, slot } from "../dom.js";
import { counted, when } from "../format.js";
import { icon } from "../icons.js";
import { policyPlots } from "../policies.js";
import { spoken, tinted } from "../tint.js";
import { badge, card, command, empty, facts, heading, lineLink, table } from "../ui.js";
import { watch } from "../watch.js";

const BOOK_MS = 10_000;
const SEVERITIES = ["error", "warning", "info"];

export async function view(place, page) {
  const wanted = Number(page.path[0]) || null;
  page.title(wanted ? `Rule book, line ${wanted}` : "Rule book");
  const resolved = resolver(page);
  let reached = false;
  watch(page, place, {
    load: async (signal) => {
      const [book, { degraded = [] }] = await Promise.all([get("v1/book", {}, signal), get("v1/status", {}, signal)]);
      return { book, refusal: degraded.find(({ what }) => what === "book-refused") };
    },
    draw: ({ book, refusal }) => {
      // A line is gone to once: whoever scrolls on from there is not brought back.
      if (!reached && wanted) requestAnimationFrame(() => document.getElementById(`line-${wanted}`)?.scrollIntoView({ block: "center" }));
      reached = true;
      return drawBook(book, refusal, wanted, resolved);
    },
    every: BOOK_MS,
    lines: 12,
  });
}

function drawBook(book, refusal, wanted, resolved) {
  const findings = [...book.findings].sort((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) || a.line - b.line);
  return [
    heading("Rule book", {
      acts: h("a.button", { href: "#/simulate" }, icon("simulate"), "Simulate"),
      says: [book.path ? h("code", book.path) : "The built-in book", ", read ", when(book.read_at), ", ", version(book)],
    }),
    refusal && h("div.standing.bad", { role: "status" }, h("p", h("b", refusal.why)), book.path && command(`redrive check ${book.path}`)),
    h(
      "div.columns.book",
      card("Text", h("span.dim", counted(lines(book.text).length, "line")), listing(book, wanted)),
      h("div.stack", card("What could hurt", h("span.dim", counted(findings.length, "finding")), drawFindings(findings)), resolved(book)),
    ),
    card("Retry policies", h("span.dim", "when each retry comes, at the earliest and the latest"), h("div.policies", policyPlots(book.policies, describe))),
  ];
}

const version = ({ hash }) => h("code", { title: "What tells this version from others" }, String(hash).slice(0, 16));

const lines = (text) => text.replace(/\n$/, "").split("\n");

// --- The text --------------------------------------------------------------------------------------

function listing({ text, findings }, wanted) {
  const at = byLine(findings);
  const row = (line, index) => {
    const number = index + 1;
    const marks = at.get(number) ?? [];
    const worst = SEVERITIES.find((severity) => marks.some((mark) => mark.severity === severity));
    return h(
      "li",
      {
        key: number,
        id: `line-${number}`,
        class: [worst && `marked ${toneOf(worst)}`, number === wanted && "wanted"].filter(Boolean).join(" ") || null,
        "aria-current": number === wanted ? "location" : null,
      },
      h("a.number", { href: `#/book/${number}`, tabindex: marks.length > 0 || number === wanted ? null : "-1", "aria-label": `Line ${number}` }, number),
      h("code", line === "" ? "\u200b" : tinted(line)),
      marks.length > 0 && h("div.marks", marks.map(mark)),
    );
  };
  return h("div.listing", { tabindex: "0", role: "region", "aria-label": "The text of the rule book" }, h("ol", lines(text).map(row)));
}

function byLine(findings) {
  const at = new Map();
  for (const finding of findings) at.set(finding.line, [...(at.get(finding.line) ?? []), finding]);
  return at;
}

const toneOf = (severity) => ({ error: "bad", warning: "warn", info: "info" })[severity] ?? "quiet";

const mark = ({ severity, code, message, help }) =>
  h("div.mark", badge(severity), h("span", h("b", spoken(message)), help && h("span.help", spoken(help)), h("code.dim", code)));

function drawFindings(findings) {
  if (findings.length === 0) return empty("Nothing stands out", h("p", "Every check of the book passed: nothing in it contradicts itself or is known to hurt."));
  return h("ul.findings", findings.map((finding) =>
    h(
      "li",
      { key: `${finding.code}-${finding.line}-${finding.column}` },
      h(
        "a",
        { href: `#/book/${finding.line}` },
        badge(finding.severity),
        h("span", h("span.dim", `line ${finding.line} `), spoken(finding.message)),
      ),
    )));
}

// --- The rule for an event -------------------------------------------------------------------------

const RULE_COLUMNS = [
  { name: "What", cell: (value) => h("code", value.name) },
  { name: "Value", cell: (value) => value.value, wide: true },
  { name: "From", cell: (value) => [value.from, value.line && [", ", lineLink(value.line)]] },
];

/** Asks which rule holds for what the reader chooses, and keeps the answer while the book is drawn again. */
function resolver(page) {
  const answer = slot("div");
  const ask = async (form) => {
    const { queue, type } = Object.fromEntries(new FormData(form));
    const [service, channel] = queue.split("/");
    try {
      fill(answer, drawRule(await get("v1/rule", { service, channel, type }, page.signal)));
    } catch (error) {
      if (!page.signal.aborted) fill(answer, h("div.pad", h("p.refused", { role: "alert" }, error.message)));
    }
  };
  return (book) => {
    const queues = book.services.flatMap(({ service, channels }) => (channels?.length > 0 ? channels.map((channel) => `${service}/${channel}`) : [service]));
    if (queues.length === 0) return null;
    const types = [...new Set(book.services.flatMap((service) => service.types))].filter((one) => !one.includes("*"));
    // Made anew each time, so that the one on the page stays where it is, with what is typed and the cursor in it.
    const type = h("input", { name: "type", id: "rule-type", list: "rule-types", required: true, autocomplete: "off", placeholder: "orders.placed" });
    return card(
      "Which rule holds",
      null,
      h(
        "form.rule-form",
        { onsubmit: (event) => (event.preventDefault(), ask(event.currentTarget)) },
        h("div.field", h("label", { for: "rule-queue" }, "Service"), h("select", { id: "rule-queue", name: "queue" }, queues.map((name) => h("option", { value: name }, name)))),
        h("div.field", h("label", { for: "rule-type" }, "Event type"), type, h("datalist", { id: "rule-types" }, types.map((value) => h("option", { value })))),
        h("button", { type: "submit" }, "Resolve"),
      ),
      answer,
    );
  };
}

function drawRule(rule) {
  const queue = rule.channel ? `${rule.service}/${rule.channel}` : rule.service;
  return [
    h("p.sum", h("code", rule.type), " → ", h("a", { href: `#/services/${part(rule.service)}` }, queue), ", ", lineLink(rule.line)),
    table({ label: `The rule of ${queue} for ${rule.type}`, columns: RULE_COLUMNS, rows: rule.values, key: (value) => value.name }),
  ];
}

// --- Retry policies --------------------------------------------------------------------------------

const describe = (policy) =>
  facts(
    ["Stands at", policy.line ? lineLink(policy.line) : "built in"],
    ["Used by", policy.used_by.length > 0 ? policy.used_by.map((user) => h("span.one-of", user)) : "nobody"],
  );
