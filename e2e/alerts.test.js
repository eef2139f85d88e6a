/** Alerts: what fires stands with the worst on top, and a receiver can be tried out. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { picture, Stage } from "./support/stage.js";
import { until } from "./support/until.js";

/** As they stand in the book; by their severity it is the other way round. */
const IN_THE_BOOK = ["warns", "is-medium", "is-high", "is-critical"];

/** Enough for the doctor to have an opinion. */
const REFUSED = 30;

let stage;

before(async () => {
  stage = await Stage.open((target) => `
version: 1
alerts:
  - { name: warns, when: "dead_letters > 0", severity: warning, to: [desk] }
  - { name: is-medium, when: "dead_letters > 0", severity: medium, to: [desk] }
  - { name: is-high, when: "dead_letters > 0", severity: high, to: [desk] }
  - { name: is-critical, when: "dead_letters > 0", severity: critical, to: [desk] }
receivers:
  desk: { webhook: "${target}/desk" }
services:
  billing:
    target: { http: "${target}/billing" }
    alerts: [{ use: dead-letters, to: [desk] }]
    events: ["orders.*"]
  search:
    target: { http: "${target}/search" }
    alerts: [{ use: dead-letters, to: [desk] }]
    events: ["orders.*"]
`);
  stage.target.statusAt = { "/billing": 422, "/search": 422 };
  await stage.server.send("orders.placed", REFUSED);
  await until("every alert fires", async () => {
    const { alerts } = await stage.server.ask("GET", "/v1/alerts");
    const ours = alerts.filter(({ name }) => [...IN_THE_BOOK, "dead-letters"].includes(name));
    return ours.length === 6 && ours.every(({ state }) => state === "firing");
  });
});
after(() => stage?.close());

test("the page of alerts has the worst on top", async () => {
  await stage.visit({ at: "#/alerts" }, async (page) => {
    await page.getByText("6 firing").waitFor();
    const shown = await page.locator("section.loud h2").allTextContents();
    const wanted = IN_THE_BOOK.toReversed();
    assert.deepEqual(shown.map((text) => wanted.find((name) => text.startsWith(name))).filter(Boolean), wanted);
  });
});

test("the overview has the worst on top, and an alert of one name for each service that has it", async () => {
  await stage.server.ask("POST", "/v1/services/search/pause", {});
  await stage.server.send("orders.refused", REFUSED);
  await stage.visit({}, async (page) => {
    const rows = page.locator("ul.needs li");
    // What was paused a moment ago is told of as failing until the server has looked again.
    const wanted = ["critical", "high", "high", "high", "failing", "high", "medium"].join();
    const marks = () => rows.locator(".badge").allTextContents();
    await until("the worst is on top", async () => (await marks()).join() === wanted);
    // The doctor's finding, whose words of the book stand between backticks in a terminal.
    await rows.getByText(/^(billing|search) rejects 100% of its attempts$/).waitFor();
    for (const service of ["billing", "search"]) await rows.getByText(`dead-letters (service ${service})`).waitFor();
    await page.getByText("and 2 more").waitFor();
    await picture(page, "needs");
  });
});

test("a receiver is sent a test, and the page tells what became of it", async () => {
  const isTest = (body) => /test/i.test(body);
  await stage.visit({ at: "#/alerts" }, async (page) => {
    await page.getByRole("button", { name: "Send a test…" }).click();
    await page.getByRole("dialog").getByText("Whoever is there will see it.").waitFor();
    assert.deepEqual(stage.target.cameTo("/desk").filter(isTest), [], "nothing is sent before it is meant");
    await page.getByRole("dialog").getByRole("button", { name: "Send the test" }).click();
    await page.getByText(/desk took the test/).waitFor();
    assert.equal(stage.target.cameTo("/desk").filter(isTest).length, 1);
    stage.target.statusAt["/desk"] = 403;
    await page.getByRole("button", { name: "Send a test…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Send the test" }).click();
    await page.getByText(/the test failed/).waitFor();
  });
});
