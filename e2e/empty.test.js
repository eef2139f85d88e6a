/** Empty states: each shows what is missing and what to do next. */

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

/** View, title of the empty state, and its next step. */
const VIEWS = [
  ["#/overview", "No activity yet", /curl -d .*\/v1\/events\/greeting\.sent/],
  ["#/overview", "No services defined", "redrive init"],
  ["#/overview", "No dead letters", /grouped by cause, and can be replayed/],
  ["#/overview", "No problems", /No alert is firing/],
  ["#/services", "No services defined", "redrive init"],
  ["#/deliveries", "No deliveries yet", /curl -d .*\/v1\/events\/greeting\.sent/],
  ["#/deliveries?type=orders.*", "No matching deliveries", "show all deliveries"],
  ["#/deliveries?find=nothing", "No results", /delivery ID/],
  ["#/breakers", "No dependencies yet", /Every target in the rule book is a dependency/],
  ["#/alerts", "No alerts defined", "alerts: [{ use: dead-letters, to: [desk] }]"],
  ["#/alerts", "No receivers defined", /Receivers in the rule book get alerts/],
  ["#/alerts", "No notifications yet", /Notifications of firing alerts/],
  ["#/groups", "No dead letters", /until it is replayed, skipped or purged/],
  ["#/groups?category=fatal", "No matching dead letters", "Show all failure groups"],
  ["#/groups/0123456789abcdef", "This failure group is empty", "Replays"],
  ["#/letters", "No dead letter selected", "Show failure groups"],
  ["#/replays", "No replays yet", "failure groups"],
  ["#/doctor", "No problems found", /fit the recent traffic/],
  ["#/audit", "No entries yet", /are listed here/],
  ["#/keys", "No keys", /The first key must be an admin key/],
];

test("an empty view shows the next step", async () => {
  // The search also requests an event of that ID.
  await stage.visit({ forgive: [/status of 404 .*\/v1\/events\/nothing/] }, async (page) => {
    for (const [at, title, next] of VIEWS) {
      await page.evaluate((to) => (location.hash = to), at);
      const place = page.locator("main .empty").filter({ has: page.locator(".title", { hasText: title }) });
      await place.getByText(next).first().waitFor().catch((error) => assert.fail(`${at}, ${title}: ${error.message}`));
      assert.deepEqual(await barriers(page), [], at);
    }
  });
});

test("the suggested lines define an alert and a receiver", async () => {
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
  assert.equal(alerts[0].name, "dead-letters", "built-in alerts follow");
  assert.deepEqual(receivers.map(({ name }) => name), ["desk"]);
});
