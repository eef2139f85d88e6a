/** Alerts: sorted by severity, and test notifications to receivers. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { picture, Stage } from "./support/stage.js";
import { until } from "./support/until.js";

/** In the order of the rule book, which is the reverse of their severity. */
const IN_THE_BOOK = ["warns", "is-medium", "is-high", "is-critical"];

/** Enough attempts for a doctor finding. */
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
  await until("every alert is firing", async () => {
    const { alerts } = await stage.server.ask("GET", "/v1/alerts");
    const ours = alerts.filter(({ name }) => [...IN_THE_BOOK, "dead-letters"].includes(name));
    return ours.length === 6 && ours.every(({ state }) => state === "firing");
  });
});
after(() => stage?.close());

test("alerts are sorted by severity", async () => {
  await stage.visit({ at: "#/alerts" }, async (page) => {
    await page.getByText("6 firing").waitFor();
    const shown = await page.locator("section.prominent h2").allTextContents();
    const wanted = IN_THE_BOOK.toReversed();
    assert.deepEqual(shown.map((text) => wanted.find((name) => text.startsWith(name))).filter(Boolean), wanted);
  });
});

test("the overview lists the worst first, with one row per service for an alert of the same name", async () => {
  await stage.server.ask("POST", "/v1/services/search/pause", {});
  await stage.server.send("orders.refused", REFUSED);
  await stage.visit({}, async (page) => {
    const rows = page.locator("ul.attention li");
    // The health of a paused service is "failing" until the server refreshes it.
    const wanted = ["critical", "high", "high", "high", "failing", "high", "medium"].join();
    const marks = () => rows.locator(".badge").allTextContents();
    await until("the worst is on top", async () => (await marks()).join() === wanted);
    // The doctor finding, without the backticks of the terminal.
    await rows.getByText(/^(billing|search) rejects 100% of its attempts$/).waitFor();
    for (const service of ["billing", "search"]) await rows.getByText(`dead-letters (service ${service})`).waitFor();
    await page.getByText("and 2 more").waitFor();
    await picture(page, "attention");
  });
});

test("a test notification is sent, and the page shows its outcome", async () => {
  const isTest = (body) => /test/i.test(body);
  await stage.visit({ at: "#/alerts" }, async (page) => {
    await page.getByRole("button", { name: "Send test…" }).click();
    await page.getByRole("dialog").getByText("A message marked as a test is sent to").waitFor();
    assert.deepEqual(stage.target.bodiesAt("/desk").filter(isTest), [], "nothing is sent before it is confirmed");
    await page.getByRole("dialog").getByRole("button", { name: "Send test", exact: true }).click();
    await page.getByText(/Test delivered to desk/).waitFor();
    assert.equal(stage.target.bodiesAt("/desk").filter(isTest).length, 1);
    stage.target.statusAt["/desk"] = 403;
    await page.getByRole("button", { name: "Send test…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Send test", exact: true }).click();
    await page.getByText(/Test failed/).waitFor();
  });
});
