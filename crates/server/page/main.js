/**
 * The page of a Redrive server: starts it, draws what is around every view, and goes from view to view.
 *
 * How a view is written. A module of `views/` exports `async function view(place, page)` and has a row in
 * `VIEWS` below and one in the table of `src/api/page.rs`. It fills `place` with `fill(place, …)` from
 * `dom.js`, where `h("tag.class", { props }, …children)` makes elements: text goes in as text, and there is no
 * `innerHTML`, no inline style and no style attribute anywhere (the page's policy forbids them; `style: {}` of
 * `h` uses the object model). `page` has:
 *   - `path`: what follows the view's name in the address, decoded: `#/services/orders` → `["orders"]`;
 *   - `query`: its `URLSearchParams`; `go(query)` changes them without leaving the view;
 *   - `signal`: aborts when the view is left; give it to `get`;
 *   - `every(ms, act)`: calls `act` until the view is left;
 *   - `title(text)`: what the tab is called.
 * What comes from the server is shown with `watch(page, place, { load, draw, every })` of `watch.js`, which
 * knows about waiting, errors and old figures. What happens now comes from `pulse` and `onHappening` of
 * `live.js`. Parts are in `ui.js`, `plot.js` and `dialog.js`; a button that changes something is made by
 * `action(permission, …)` of `session.js` and asks with `ask` first, naming what will happen. Colours are
 * tones (`good`, `warn`, `bad`, `hold`, `info`, `quiet`), never the only sign. Words are those of the docs.
 */

import { fill, h } from "./dom.js";
import { startTicking } from "./format.js";
import { listenForKeys } from "./keyboard.js";
import { stayConnected } from "./live.js";
import { signIn } from "./session.js";
import { dressShell, markPlace } from "./shell.js";
import { empty, failure, skeleton } from "./ui.js";

/** Every view: the name in its address, its module, its name for people, and the group it stands in. */
const VIEWS = {
  overview: { load: () => import("./views/overview.js"), name: "Overview", group: "Watch" },
};
const FIRST = "overview";

const main = document.getElementById("main");
let leave = new AbortController();

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { name: name ?? FIRST, path: rest, query: new URLSearchParams(query) };
}

async function show() {
  // The skip link is an address too, and no view.
  if (location.hash === "#main") return main.focus();
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const { name, path, query } = parse(location.hash);
  const view = VIEWS[name];
  const title = (text) => (document.title = `${text} · Redrive`);
  title(view?.name ?? "Not found");
  markPlace(name);
  const place = h("div.view", { class: `v-${name}` }, skeleton(6));
  main.replaceChildren(place);
  scrollTo(0, 0);
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

dressShell(VIEWS);
listenForKeys();
startTicking();
await signIn();
stayConnected();
addEventListener("hashchange", show);
show();
