/** A server that has nothing yet: each view says that there is nothing, and what to do next. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { appendFile } from "node:fs/promises";
import { join } from "node:path";
import test, { after, before } from "node:test";
import { promisify } from "node:util";

import { binary } from "./support/server.js";
import { barriers, picture, Stage } from "./support/stage.js";

const run = promisify(execFile);

let stage;

before(async () => {
  stage = await Stage.open(() => "version: 1\n");
});
after(() => stage?.close());

/** Each view, what it says, and what it says of the next step. */
const VIEWS = [
  ["#/overview", "Nothing happens at the moment", /curl -d .*\/v1\/events\/greeting\.sent/],
  ["#/overview", "The rule book names no service", "redrive init"],
  ["#/overview", "No dead letters", /grouped by its cause, and can be sent again/],
  ["#/overview", "All is well", /No alert fires/],
  ["#/services", "The rule book names no service", "redrive init"],
  ["#/deliveries", "No deliveries yet", /curl -d .*\/v1\/events\/greeting\.sent/],
  ["#/deliveries?type=orders.*", "No delivery is like that", "look at all of them"],
  ["#/deliveries?find=nothing", "Nothing goes by that", /the id of a delivery/],
  ["#/breakers", "No dependencies yet", /Every target of the rule book is one/],
  ["#/alerts", "The rule book names no alerts", "alerts: [{ use: dead-letters, to: [desk] }]"],
  ["#/alerts", "Nobody is told yet", /A receiver in the rule book says how/],
  ["#/alerts", "Nothing was told yet", /Once an alert fires/],
  ["#/groups", "No dead letters", /until somebody sends it again or gives it up/],
  ["#/groups?category=fatal", "No dead letters like that", "Show all failure groups"],
  ["#/groups/0123456789abcdef", "This cause has no dead letters any more", "Replays"],
  ["#/letters", "Which letter?", "Failure groups lead to their letters"],
  ["#/replays", "Nothing was replayed yet", "failure groups"],
  ["#/doctor", "Nothing to complain about", /What happens fits the rule book/],
  ["#/audit", "Nothing is on record yet", /will be listed here/],
  ["#/keys", "There are no keys", /The first key is an admin's/],
];

test("a view that has nothing says what to do next", async () => {
  // Whether anything goes by a name is found out by asking for it.
  await stage.visit({ forgive: [/status of 404 .*\/v1\/events\/nothing/] }, async (page) => {
    for (const [at, title, next] of VIEWS) {
      await page.evaluate((to) => (location.hash = to), at);
      const place = page.locator("main .empty").filter({ has: page.locator(".title", { hasText: title }) });
      await place.getByText(next).first().waitFor().catch((error) => assert.fail(`${at}, ${title}: ${error.message}`));
      assert.deepEqual(await barriers(page), [], at);
    }
  });
});

test("the lines that the page of alerts offers make an alert and a receiver", async () => {
  let lines = "";
  await stage.visit({ at: "#/alerts" }, async (page) => {
    lines = await page.locator("main .snippet pre").innerText();
    await picture(page, "no-alerts");
  });
  const book = join(stage.server.folder, "redrive.yaml");
  await appendFile(book, `${lines}\n`);
  await run(binary, ["check", book]);
  await stage.server.leave();
  await stage.server.come();
  const { alerts, receivers } = await stage.server.ask("GET", "/v1/alerts");
  assert.equal(alerts[0].name, "dead-letters", "what is built in stands behind it");
  assert.deepEqual(receivers.map(({ name }) => name), ["desk"]);
});
