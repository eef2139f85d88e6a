/**
 * Entry point: draws the shell and routes between views.
 *
 * A view is a module of `views/` that exports `async function view(place, page)`. It has a row in `VIEWS` below and one
 * in the file table of the server. It fills `place` with `fill(place, …)`; `h("tag.class", { props }, …children)` makes
 * elements. No `innerHTML`, no inline styles: the content security policy forbids them. `page` has:
 *   - `path`: the segments after the view's name, decoded: `#/services/orders` → `["orders"]`;
 *   - `query`: its `URLSearchParams`; `go(query)` changes them without leaving the view;
 *   - `signal`: aborts when the view is left; pass it to `get`;
 *   - `every(ms, act)`: calls `act` until the view is left;
 *   - `leadTo(href)`: goes to another view, unless this one was left meanwhile;
 *   - `title(text)`: the title of the tab.
 * `watch(page, place, { load, draw, every })` of `watch.js` shows data that is loaded repeatedly; `pulse` and
 * `onActivity` of `live.js` are pushed by the server. A button that changes something is made by
 * `action(permission, …)` and confirms with `ask`. Tones: `good`, `warn`, `bad`, `hold`, `info`, `quiet`; never the
 * only sign.
 */

import { fill, h } from "./dom.js";
import { startTicking } from "./format.js";
import { followDemo } from "./guide.js";
import { listenForKeys } from "./keyboard.js";
import { stayConnected } from "./live.js";
import { may, signIn } from "./session.js";
import { drawShell, markView } from "./shell.js";
import { empty, failure, skeleton } from "./ui.js";

/**
 * Every view by its name in the address: module, title, and group in the navigation. A view without a group is reached
 * from the view that it is `under`. `needs`: the permission that lists it. `whole`: hidden from keys that are limited
 * to some services.
 */
const VIEWS = {
  overview: { load: () => import("./views/overview.js"), name: "Overview", group: "Monitor" },
  services: { load: () => import("./views/services.js"), name: "Services", group: "Monitor" },
  deliveries: { load: () => import("./views/deliveries.js"), name: "Deliveries", group: "Monitor" },
  breakers: { load: () => import("./views/breakers.js"), name: "Breakers", group: "Monitor" },
  alerts: { load: () => import("./views/alerts.js"), name: "Alerts", group: "Monitor", whole: true },
  groups: { load: () => import("./views/groups.js"), name: "Failure groups", group: "Recover" },
  letters: { load: () => import("./views/letters.js"), name: "Dead letter", under: "groups" },
  replays: { load: () => import("./views/replays.js"), name: "Replays", group: "Recover" },
  doctor: { load: () => import("./views/doctor.js"), name: "Doctor", group: "Recover", whole: true },
  book: { load: () => import("./views/book.js"), name: "Rule book", group: "Configure", whole: true },
  simulate: { load: () => import("./views/simulate.js"), name: "Simulate", group: "Configure", whole: true },
  audit: { load: () => import("./views/audit.js"), name: "Audit", group: "Configure", whole: true },
  keys: { load: () => import("./views/keys.js"), name: "Keys", group: "Configure", needs: "administer", whole: true },
};
const FIRST = "overview";

const main = document.getElementById("main");
let leave = new AbortController();
/** The current view without its query: a changed filter keeps the scroll position. */
let shownAt = null;

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#(main$|\/?)/, "").split("?");
  const [name, ...rest] = path.split("/").filter(Boolean).map(decoded);
  return { name: name ?? FIRST, path: rest, query: new URLSearchParams(query) };
}

/** `name` comes from the address and may be any string. */
const viewOf = (name) => (Object.hasOwn(VIEWS, name) ? VIEWS[name] : undefined);

/** Text that is not a valid escape is taken literally. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Replaces the view; a change of the query keeps the height, so that the page does not jump. */
function replaceView(place, at) {
  const isSame = at === shownAt;
  main.style.minHeight = isSame ? `${main.offsetHeight}px` : "";
  main.replaceChildren(place);
  if (!isSame) {
    scrollTo(0, 0);
    // The next Tab starts at the top of the new view.
    if (shownAt !== null) main.focus({ preventScroll: true });
  }
  shownAt = at;
}

async function show() {
  // `#main` is the skip link, not a view.
  if (location.hash === "#main" && shownAt !== null) return main.focus();
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const { name, path, query } = parse(location.hash);
  const view = viewOf(name);
  const title = (text) => (document.title = `${text} · Redrive`);
  title(view?.name ?? "Not found");
  markView(view?.under ?? name);
  const place = h("div.view", { class: `v-${name}` }, skeleton(6));
  replaceView(place, [name, ...path].join("/"));
  if (!may("read")) return fill(place, cannotView());
  if (!view) return fill(place, empty("Page not found", h("p", h("a", { href: "#/overview" }, "Go to the overview"))));
  const page = {
    path,
    query,
    signal,
    title,
    every(ms, act) {
      const timer = setInterval(act, ms);
      signal.addEventListener("abort", () => clearInterval(timer));
    },
    leadTo(href) {
      if (!signal.aborted) location.assign(href);
    },
    go(changed) {
      const next = new URLSearchParams(query);
      for (const [key, value] of Object.entries(changed)) value ? next.set(key, value) : next.delete(key);
      const [path] = location.hash.split("?");
      location.hash = next.size > 0 ? `${path}?${next}` : path;
    },
  };
  try {
    const module = await view.load();
    if (!signal.aborted) await module.view(place, page);
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    fill(place, failure(error, show));
    console.error(error);
  }
}

const cannotView = () =>
  empty(
    "This API key cannot view the dashboard",
    h("p", "It has the role ingest, for programs that send events. Sign out and sign in with a viewer key."),
  );

drawShell(VIEWS);
listenForKeys();
startTicking();
// Load the first view while the server checks the key; `show` reports a failure.
viewOf(parse(location.hash).name)?.load().catch(() => {});
await signIn();
if (may("read")) {
  followDemo();
  stayConnected();
}
addEventListener("hashchange", show);
show();
