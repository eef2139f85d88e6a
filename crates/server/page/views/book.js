/** The rule book: its text with findings, the resolved rule of an event, and the retry policies. */

import { get, part } from "../api.js";
import { fill, h, slot } from "../dom.js";
import { count, counted, queueOf, when } from "../format.js";
import { highlighted, withCode } from "../highlight.js";
import { icon } from "../icons.js";
import { policyPlots } from "../policies.js";
import { badge, card, command, empty, facts, heading, lineLink } from "../ui.js";
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
      // Scroll to the line only once, not after every refresh.
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
      description: [book.path ? h("code", book.path) : "Built-in rule book", ", loaded ", when(book.read_at), ", version ", version(book)],
    }),
    refusal && h("div.callout.bad", { role: "status" }, h("p", h("b", refusal.why)), book.path && command(`redrive check ${book.path}`)),
    h(
      "div.columns.book",
      card("Text", h("span.dim", counted(lines(book.text).length, "line")), listing(book, wanted)),
      card("Findings", h("span.dim", counted(findings.length, "finding")), drawFindings(findings)),
    ),
    resolved(book),
    card("Retry policies", h("span.dim", "earliest and latest start of each retry"), h("div.policies", policyPlots(book.policies, describe))),
  ];
}

const version = ({ hash }) => h("code", { title: "Hash of this version" }, String(hash).slice(0, 16));

const lines = (text) => text.replace(/\n$/, "").split("\n");

// --- Text ------------------------------------------------------------------------------------------

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
      h("code", line === "" ? "\u200b" : highlighted(line)),
      marks.length > 0 && h("div.marks", marks.map(mark)),
    );
  };
  return h("div.listing", { tabindex: "0", role: "region", "aria-label": "Rule book text" }, h("ol", lines(text).map(row)));
}

function byLine(findings) {
  const at = new Map();
  for (const finding of findings) at.set(finding.line, [...(at.get(finding.line) ?? []), finding]);
  return at;
}

const toneOf = (severity) => ({ error: "bad", warning: "warn", info: "info" })[severity] ?? "quiet";

const mark = ({ severity, code, message, help }) =>
  h("div.mark", badge(severity), h("span", h("b", withCode(message)), help && h("span.help", withCode(help)), h("code.dim", code)));

function drawFindings(findings) {
  if (findings.length === 0) return empty("No findings", h("p", "All checks of the rule book passed."));
  return h("ul.findings", findings.map((finding) =>
    h(
      "li",
      { key: `${finding.code}-${finding.line}-${finding.column}` },
      h(
        "a",
        { href: `#/book/${finding.line}` },
        badge(finding.severity),
        h("span", h("span.dim", `line ${finding.line} `), withCode(finding.message)),
      ),
    )));
}

// --- Resolved rule ---------------------------------------------------------------------------------

/** A form that resolves the rule of a service and an event type. The result stays while the book is redrawn. */
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
    // Not a slot: `fill` patches it and keeps the typed text and the cursor.
    const type = h("input", { name: "type", id: "rule-type", list: "rule-types", required: true, autocomplete: "off", placeholder: "orders.placed" });
    return card(
      "Resolved rule",
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

/** The values in sections, as `redrive rules` prints them. */
function drawRule(rule) {
  const queue = queueOf(rule);
  const groups = Map.groupBy(rule.values, ({ group }) => group);
  return [
    h("p.sum", h("code", rule.type), " → ", h("a", { href: `#/services/${part(rule.service)}` }, queue), ", ", lineLink(rule.line)),
    h(
      "div.scroll",
      { tabindex: "0", role: "region", "aria-label": `Rule of ${queue} for ${rule.type}` },
      h(
        "table.rule",
        h("thead", h("tr", ["Name", "Value", "From"].map((name) => h("th", { scope: "col" }, name)))),
        [...groups].map(([group, values]) => h("tbody", { key: group }, h("tr.section", h("th", { colspan: 3, scope: "rowgroup" }, group)), values.map(ruleRow))),
      ),
    ),
  ];
}

const ruleRow = ({ name, value, note, from, line }) =>
  h("tr", { key: name },
    h("td", { "data-name": "Name" }, name),
    h("td", { "data-name": "Value" }, h("code", withThousands(value)), note && h("span.dim", ` ${note}`)),
    h("td", { "data-name": "From" }, sourceOf(from, line)));

const withThousands = (value) => (/^\d{5,}$/.test(value) ? count(Number(value)) : value);

/** `from` ends with the line number: that part becomes the link. */
const sourceOf = (from, line) => (line ? [from.replace(/,? ?line \d+$/, ""), " ", lineLink(line)] : h("span.dim", from));

// --- Retry policies --------------------------------------------------------------------------------

const describe = (policy) =>
  facts(
    ["Defined at", policy.line ? lineLink(policy.line) : "built in"],
    ["Used by", policy.used_by.length > 0 ? policy.used_by.map((user) => h("span.one-of", user)) : "nothing"],
  );
