/** Builds and patches the document. Data from the server is always inserted as text, never as markup. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element: `h("a.quiet", { href: "#/services", onclick: go }, "Services")`. Classes follow the tag;
 * attributes that are null, undefined or false are left out, and so are such children.
 */
export function h(tag, ...rest) {
  const [name, ...classes] = tag.split(".");
  return filled(document.createElement(name), classes, rest);
}

/** The same for SVG: `s("path", { d })`. */
export function s(tag, ...rest) {
  const [name, ...classes] = tag.split(".");
  return filled(document.createElementNS(SVG, name), classes, rest);
}

/** An element that is kept and filled later: `fill` inserts it as is and never patches another element into it. */
export function slot(tag, ...rest) {
  const element = h(tag, ...rest);
  element.$kept = true;
  return element;
}

function filled(element, classes, rest) {
  const given = rest.length > 0 && isProps(rest[0]) ? rest.shift() : {};
  for (const [key, value] of Object.entries(given)) put(element, key, value);
  if (classes.length > 0) element.classList.add(...classes);
  element.append(...nodes(rest));
  return element;
}

const isProps = (value) =>
  value !== null && typeof value === "object" && !(value instanceof Node) && !Array.isArray(value);

function put(element, key, value) {
  if (value === null || value === undefined || value === false) return;
  if (key.startsWith("on")) {
    element[key] = value;
    (element.$handlers ??= []).push(key);
  } else if (key === "style") {
    // The content security policy forbids the attribute, not the object model.
    for (const [name, text] of Object.entries(value)) element.style.setProperty(name, text);
  } else if (key === "key") {
    element.dataset.key = value;
  } else {
    element.setAttribute(key, value === true ? "" : value);
  }
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/**
 * Patches the content of `place` to equal `children`. Equal elements stay, so that focus, scroll position and
 * selection survive a refresh. List items need a `key`. Elements that are filled later must be a `slot`; any other
 * element may be reused for a different one.
 */
export function fill(place, ...children) {
  patchChildren(place, nodes(children));
}

function patchChildren(place, wanted) {
  const known = new Map();
  for (const child of place.children) {
    if (child.dataset.key !== undefined) known.set(child.dataset.key, child);
  }
  let at = place.firstChild;
  for (const next of wanted) {
    const key = next.dataset?.key;
    const unkeyed = at && at.dataset?.key === undefined ? at : null;
    const old = next.$kept ? next : key === undefined ? unkeyed : known.get(key);
    if (!old || old.parentNode !== place || old.nodeName !== next.nodeName || (old.$kept && old !== next)) {
      place.insertBefore(next, at);
      continue;
    }
    if (old === at) at = at.nextSibling;
    else place.insertBefore(old, at);
    patch(old, next);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** Attributes that belong to the user and that a refresh must not change. */
const USER_ATTRIBUTES = new Set(["open", "value", "checked"]);

function patch(old, next) {
  if (old === next) return;
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && !USER_ATTRIBUTES.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (USER_ATTRIBUTES.has(name) || old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = next.style.cssText;
    else old.setAttribute(name, value);
  }
  for (const name of old.$handlers ?? []) old[name] = null;
  for (const name of next.$handlers ?? []) old[name] = next[name];
  old.$handlers = next.$handlers;
  patchChildren(old, [...next.childNodes]);
}

export function observable(value) {
  const watchers = new Set();
  return {
    get value() {
      return value;
    },
    set(next) {
      value = next;
      for (const watcher of [...watchers]) watcher(value);
    },
    /** Calls `watcher` now and after every change, until `signal` aborts. */
    watch(watcher, signal) {
      watchers.add(watcher);
      signal?.addEventListener("abort", () => watchers.delete(watcher));
      watcher(value);
    },
  };
}
