/** Accessibility and overflow of every view, in light and dark, on a desktop and on a phone; keeps screenshots. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { barriers, picture, Stage } from "./support/stage.js";
import { until } from "./support/until.js";

let stage;
/** Address and heading of each view, by the name of its screenshot. */
let views;

before(async () => {
  stage = await Stage.open((target) => `
version: 1
alerts:
  - { when: "dead_letters > 2 by service", severity: high, to: [desk], action: "Look at the failure groups" }
  - { when: "breaker_open for 2m by dependency", severity: warning, to: [desk] }
receivers:
  desk: { webhook: "${target}/desk" }
retry_policies:
  quick: { initial: 20ms, factor: 2, max: 10s, retries: 6, jitter: full }
services:
  billing:
    target: { http: "${target}/billing" }
    retry: none
    breaker: none
    events: ["orders.*"]
  search:
    target: { http: "${target}/search" }
    retry: quick
    events: [orders.placed, "stock.*"]
`);
  stage.target.status = 422;
  await stage.server.send("orders.placed", 6);
  await stage.server.hasDead(12);
  stage.target.status = 200;
  await stage.server.send("orders.paid", 6);
  const { groups } = await stage.server.ask("GET", "/v1/failure-groups");
  const { dead_letters: letters } = await stage.server.ask("GET", "/v1/dead-letters");
  const replay = await stage.server.ask("POST", "/v1/replays", { letters: [letters[0].id], canary: true });
  await until("the replay is done", async () => (await stage.server.ask("GET", `/v1/replays/${replay.id}`)).state === "done");
  // Alert notifications are deliveries too.
  const { deliveries } = await stage.server.ask("GET", "/v1/deliveries?state=delivered&type=orders.*");
  const { dependencies } = await stage.server.ask("GET", "/v1/dependencies");
  views = {
    overview: ["#/overview", "Overview"],
    services: ["#/services", "Services"],
    service: ["#/services/billing", /billing/],
    deliveries: ["#/deliveries", "Deliveries"],
    delivery: [`#/deliveries/${deliveries[0].id}`, /orders/],
    breakers: ["#/breakers", "Breakers"],
    breaker: [`#/breakers/${encodeURIComponent(dependencies[0].name)}`, /./],
    alerts: ["#/alerts", "Alerts"],
    groups: ["#/groups", "Failure groups"],
    "no-groups": ["#/groups?category=fatal", "Failure groups"],
    group: [`#/groups/${groups[0].fingerprint}`, /422/],
    letter: [`#/letters/${letters[1].id}`, /orders\.placed/],
    "new-replay": [`#/replays/new?fingerprint=${groups[0].fingerprint}`, "New replay"],
    replays: ["#/replays", "Replays"],
    replay: [`#/replays/${replay.id}`, /Replay/],
    doctor: ["#/doctor", "Doctor"],
    book: ["#/book/8", "Rule book"],
    simulate: ["#/simulate?scenario=outage", "Simulate"],
    audit: ["#/audit", "Audit"],
    keys: ["#/keys", "Keys"],
    nowhere: ["#/nowhere", null],
  };
});
after(() => stage?.close());

const LOOKS = [
  ["light", "desk"],
  ["dark", "desk"],
  ["light", "phone"],
  ["dark", "phone"],
];

for (const [colour, on] of LOOKS) {
  test(`every view is accessible, ${colour} on a ${on}`, async () => {
    await stage.visit({ colour, on }, async (page) => {
      const found = [];
      for (const [name, [hash, heading]] of Object.entries(views)) {
        await page.evaluate((to) => (location.hash = to), hash);
        await settled(page, heading);
        await picture(page, `${name}-${colour}-${on}`);
        for (const barrier of await barriers(page)) found.push(`${name}: ${barrier}`);
        const excess = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (excess > 0) found.push(`${name}: overflows by ${excess} pixels`);
      }
      assert.deepEqual(found, []);
    });
  });
}

/** Waits until a view has its heading and no placeholder. */
async function settled(page, heading) {
  if (heading) await page.locator("main").getByRole("heading", { level: 1, name: heading }).waitFor();
  else await page.getByText("Page not found").waitFor();
  await page.waitForFunction(() => document.querySelectorAll("main .skeleton").length === 0);
}
