/**
 * Tints YAML and JSON a line at a time, so that keys, texts, numbers and remarks can be told apart.
 *
 * It is no parser: what it does not know stays plain, and no character is ever added or lost.
 */

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

/** The pieces of a line, tinted. */
export function tinted(line) {
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

/** A whole text, tinted. */
function tintedText(text) {
  return text.split("\n").flatMap((line, index) => (index === 0 ? tinted(line) : ["\n", ...tinted(line)]));
}

/** A sentence whose words of the book stand between backticks, as the terminal shows it too. */
export const spoken = (sentence) => sentence.split("`").map((piece, at) => (at % 2 === 1 ? h("code", piece) : piece));

/** More than this of a text is not tinted: every piece is an element, and a browser has to carry them all. */
const TINTED_CHARS_MAX = 50_000;
/** More than this is not shown at all. */
const SHOWN_CHARS_MAX = 500_000;

/** As much of a text as a browser bears. */
function bearable(text) {
  if (text.length <= TINTED_CHARS_MAX) return tintedText(text);
  const more = text.length - SHOWN_CHARS_MAX;
  return more > 0 ? [text.slice(0, SHOWN_CHARS_MAX), h("span.dim", `\n… ${counted(more, "more character")}: copying takes them all`)] : text;
}

/** A text of several lines with a button that copies it. */
export function snippet(text, label = "Copy") {
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    toast("copied");
  };
  return h(
    "div.snippet",
    h("pre", { tabindex: "0", role: "region", "aria-label": "Text" }, h("code", bearable(text))),
    h("button.quiet", { type: "button", onclick: copy, "aria-label": label, title: label }, icon("copy")),
  );
}
