/** A key limited to two of three services: every list has both of them, and nothing of the third. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { Stage } from "./support/stage.js";

/** The browser logs the 401 of the request before the sign-in. */
const REFUSED = [/status of 401/];
/** More than one page of deliveries. */
const MANY = 30;

let stage;
let key;

before(async () => {
  const service = (target, name) => `
  ${name}:
    target: { http: "${target}/${name}" }
    retry: none
    breaker: none
    events: ["${name}.*"]`;
  const book = (target) => `version: 1\nservices:${["billing", "search", "other"].map((name) => service(target, name)).join("")}\n`;
  stage = await Stage.open(book, ["admin"]);
  stage.target.status = 422;
  for (const name of ["billing", "search", "other"]) await stage.server.send(`${name}.asked`, 3);
  await stage.server.hasDead(9);
  const wanted = { name: "two-desks", role: "operator", services: ["billing", "search"] };
  ({ key } = await stage.server.ask("POST", "/v1/keys", wanted));
});
after(() => stage?.close());

const visit = (at, play) => stage.visit({ at, key, forgive: REFUSED }, play);

test("the overview and the failure groups have both services", async () => {
  await visit("#/overview", async (page) => {
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    for (const at of ["#/overview", "#/groups"]) {
      await page.evaluate((to) => (location.hash = to), at);
      const groups = page.getByRole("region", { name: "Failure groups" });
      for (const name of ["billing", "search"]) await groups.getByRole("cell", { name, exact: true }).waitFor();
      assert.equal(await groups.getByText("other").count(), 0, at);
    }
    await page.getByText("6 dead letters").waitFor();
  });
});

test("a group of the second service can be opened and replayed", async () => {
  await visit("#/groups", async (page) => {
    const row = page.getByRole("row").filter({ has: page.getByRole("cell", { name: "search", exact: true }) });
    await row.getByRole("link").click();
    await page.getByRole("region", { name: "Dead letters" }).getByRole("cell", { name: "search.asked" }).first().waitFor();
    await page.getByRole("button", { name: "Replay group…" }).click();
    await page.getByRole("button", { name: "Replay 3 dead letters" }).waitFor();
  });
});

test("the search finds deliveries of the second service", async () => {
  await visit("#/deliveries?find=search.asked", async (page) => {
    await page.getByText("3 found").waitFor();
  });
});

test("the list of deliveries has both services, and either by itself", async () => {
  for (const name of ["billing", "search"]) await stage.server.send(`${name}.many`, MANY);
  await visit("#/deliveries", async (page) => {
    const list = page.getByRole("region", { name: "Deliveries" });
    await list.getByRole("cell", { name: "billing.many" }).first().waitFor();
    await list.getByRole("cell", { name: "search.many" }).first().waitFor();
    assert.equal(await list.getByText("other.asked").count(), 0);
    await page.getByText("Select a service to see older deliveries").waitFor();
    await page.getByRole("combobox", { name: "Service" }).selectOption("search");
    await list.getByRole("cell", { name: "search.asked" }).first().waitFor();
    assert.equal(await list.getByText("billing.many").count(), 0);
  });
});
