/** Syntax highlighting for YAML and JSON, line by line. It is not a parser: unknown text stays plain. */

import { toast } from "./dialog.js";
import { h } from "./dom.js";
import { counted } from "./format.js";
import { icon } from "./icons.js";

const TOKENS = [
  ["remark", /(?<=^|\s)#.*$/],
  ["key", /"(?:[^"\\]|\\.)*"(?=\s*:)|(?<![\w.*-])[A-Za-z_][\w.*-]*(?=\s*:(?:\s|$))/],
  ["text", /"(?:[^"\\]|\\.)*"?|'(?:[^']|'')*'?/],
  ["number", /(?<![\w.-])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+|ms|[smhd]|[KMG]i?B|B|%|\/(?:s|min|m|h))?(?![\w.-])/],
  ["word", /(?<![\w.-])(?:true|false|null|none)(?![\w.-])/],
  ["mark", /[{}[\],]|:(?=\s|$)|^\s*-(?=\s)/],
];
const ANY = new RegExp(TOKENS.map(([, pattern]) => `(${pattern.source})`).join("|"), "g");

/** The pieces of a line, highlighted. */
export function highlighted(line) {
  const pieces = [];
  let end = 0;
  for (const found of line.matchAll(ANY)) {
    if (found.index > end) pieces.push(line.slice(end, found.index));
    const kind = TOKENS[found.slice(1).findIndex((group) => group !== undefined)][0];
    pieces.push(h(`span.tint-${kind}`, found[0]));
    end = found.index + found[0].length;
  }
  if (end < line.length) pieces.push(line.slice(end));
  return pieces;
}

function highlightedText(text) {
  return text.split("\n").flatMap((line, index) => (index === 0 ? highlighted(line) : ["\n", ...highlighted(line)]));
}

/** Text with `code` in backticks. */
export const withCode = (sentence) => sentence.split("`").map((piece, at) => (at % 2 === 1 ? h("code", piece) : piece));

/** Longer texts are not highlighted: every piece is an element. */
const HIGHLIGHTED_CHARS_MAX = 50_000;
/** The rest of a longer text is not shown. */
const SHOWN_CHARS_MAX = 500_000;

function limited(text) {
  if (text.length <= HIGHLIGHTED_CHARS_MAX) return highlightedText(text);
  const more = text.length - SHOWN_CHARS_MAX;
  return more > 0 ? [text.slice(0, SHOWN_CHARS_MAX), h("span.dim", `\n… ${counted(more, "more character")}, included when copied`)] : text;
}

/** A block of text with a copy button. */
export function snippet(text, label = "Copy") {
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  };
  return h(
    "div.snippet",
    h("pre", { tabindex: "0", role: "region", "aria-label": "Text" }, h("code", limited(text))),
    h("button.quiet", { type: "button", onclick: copy, "aria-label": label, title: label }, icon("copy")),
  );
}
