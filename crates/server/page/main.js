/**
 * The page of a Redrive server: starts it, draws what is around every view, and goes from view to view.
 *
 * How a view is written. A module of `views/` exports `async function view(place, page)` and has a row in
 * `VIEWS` below and one in the table of `src/api/page.rs`. It fills `place` with `fill(place, …)` from
 * `dom.js`, where `h("tag.class", { props }, …children)` makes elements: text goes in as text, and there is no
 * `innerHTML`, no inline style and no style attribute anywhere (the page's policy forbids them; `style: {}` of
 * `h` uses the object model). An element that is held on to and filled later is a `slot`. `page` has:
 *   - `path`: what follows the view's name in the address, decoded: `#/services/orders` → `["orders"]`;
 *   - `query`: its `URLSearchParams`; `go(query)` changes them without leaving the view;
 *   - `signal`: aborts when the view is left; give it to `get`;
 *   - `every(ms, act)`: calls `act` until the view is left;
 *   - `leadTo(href)`: goes to another view once something is done, unless this one was left meanwhile;
 *   - `title(text)`: what the tab is called.
 * What comes from the server is shown with `watch(page, place, { load, draw, every })` of `watch.js`, which
 * knows about waiting, errors and old figures. What happens now comes from `pulse` and `onHappening` of
 * `live.js`. Parts are in `ui.js`, `plot.js` and `dialog.js`; a button that changes something is made by
 * `action(permission, …)` of `session.js` and asks with `ask` first, naming what will happen. Colours are
 * tones (`good`, `warn`, `bad`, `hold`, `info`, `quiet`), never the only sign. Words are those of the docs.
 */

import { fill, h } from "./dom.js";
import { startTicking } from "./format.js";
import { followStory } from "./guide.js";
import { listenForKeys } from "./keyboard.js";
import { stayConnected } from "./live.js";
import { may, signIn } from "./session.js";
import { dressShell, markPlace } from "./shell.js";
import { empty, failure, skeleton } from "./ui.js";

/**
 * Every view: the name in its address, its module, its name for people, and the group it stands in; one
 * without a group is reached from the view that it is `under`. What `needs` a permission, or concerns the
 * `whole` server, is listed only for those who may see it.
 */
const VIEWS = {
  overview: { load: () => import("./views/overview.js"), name: "Overview", group: "Watch" },
  services: { load: () => import("./views/services.js"), name: "Services", group: "Watch" },
  deliveries: { load: () => import("./views/deliveries.js"), name: "Deliveries", group: "Watch" },
  breakers: { load: () => import("./views/breakers.js"), name: "Breakers", group: "Watch" },
  alerts: { load: () => import("./views/alerts.js"), name: "Alerts", group: "Watch", whole: true },
  groups: { load: () => import("./views/groups.js"), name: "Failure groups", group: "Mend" },
  letters: { load: () => import("./views/letters.js"), name: "Dead letter", under: "groups" },
  replays: { load: () => import("./views/replays.js"), name: "Replays", group: "Mend" },
  doctor: { load: () => import("./views/doctor.js"), name: "Doctor", group: "Mend", whole: true },
  book: { load: () => import("./views/book.js"), name: "Rule book", group: "Rules and records", whole: true },
  simulate: { load: () => import("./views/simulate.js"), name: "Simulate", group: "Rules and records", whole: true },
  audit: { load: () => import("./views/audit.js"), name: "Audit", group: "Rules and records", whole: true },
  keys: { load: () => import("./views/keys.js"), name: "Keys", group: "Rules and records", needs: "administer", whole: true },
};
const FIRST = "overview";

const main = document.getElementById("main");
let leave = new AbortController();
/** Where we are, without the query: whoever only filters stays where they have scrolled to. */
let shownAt = null;

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#(main$|\/?)/, "").split("?");
  const [name, ...rest] = path.split("/").filter(Boolean).map(decoded);
  return { name: name ?? FIRST, path: rest, query: new URLSearchParams(query) };
}

/** The view of that name, which may be any word. */
const viewOf = (name) => (Object.hasOwn(VIEWS, name) ? VIEWS[name] : undefined);

/** What is no escape stands for itself. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Makes room for what comes, so that the page neither jumps up nor loses the reader. */
function takePlace(place, at) {
  const isSame = at === shownAt;
  main.style.minHeight = isSame ? `${main.offsetHeight}px` : "";
  main.replaceChildren(place);
  if (!isSame) {
    scrollTo(0, 0);
    // Whoever goes by keyboard goes on from the top of the new view.
    if (shownAt !== null) main.focus({ preventScroll: true });
  }
  shownAt = at;
}

async function show() {
  // The skip link is an address too, and no view.
  if (location.hash === "#main" && shownAt !== null) return main.focus();
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const { name, path, query } = parse(location.hash);
  const view = viewOf(name);
  const title = (text) => (document.title = `${text} · Redrive`);
  title(view?.name ?? "Not found");
  markPlace(view?.under ?? name);
  const place = h("div.view", { class: `v-${name}` }, skeleton(6));
  takePlace(place, [name, ...path].join("/"));
  if (!may("read")) return fill(place, notForLooking());
  if (!view) return fill(place, empty("There is no such page", h("p", h("a", { href: "#/overview" }, "To the overview"))));
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

/** What those see whose key is for sending events. */
const notForLooking = () =>
  empty(
    "This key is not for looking",
    h("p", "It is for programs that send events. To see what becomes of them, sign out and come again with the key of a viewer."),
  );

dressShell(VIEWS);
listenForKeys();
startTicking();
// What will be shown is on its way while the server says who we are; `show` tells if it does not come.
viewOf(parse(location.hash).name)?.load().catch(() => {});
await signIn();
if (may("read")) {
  followStory();
  stayConnected();
}
addEventListener("hashchange", show);
show();
