/**
 * Takes in a part of a page that the server has drawn: only elements and attributes that show something come in,
 * whatever else it may hold.
 */

import { h, s } from "./dom.js";

const ELEMENTS = new Set(
  "div section header h2 p ul li span b i small code pre details summary table thead tbody tr th td figure figcaption".split(" "),
);
const DRAWN = new Set("svg title desc g path rect line text".split(" "));
const ATTRIBUTES = new Set(
  ("class role tabindex scope aria-label aria-hidden data-name x y x1 x2 y1 y2 dy d rx width height viewBox " +
    "preserveAspectRatio vector-effect").split(" "),
);

/** The nodes of a text of HTML. */
export function fragment(text) {
  const { body } = new DOMParser().parseFromString(text, "text/html");
  return [...body.childNodes].map(copied).filter((node) => node !== null);
}

function copied(node) {
  if (node.nodeType === Node.TEXT_NODE) return document.createTextNode(node.data);
  const make = ELEMENTS.has(node.localName) ? h : DRAWN.has(node.localName) ? s : null;
  if (node.nodeType !== Node.ELEMENT_NODE || make === null) return null;
  const kept = [...node.attributes].filter(({ name }) => ATTRIBUTES.has(name));
  const props = Object.fromEntries(kept.map(({ name, value }) => [name, value]));
  return make(node.localName, props, [...node.childNodes].map(copied));
}
