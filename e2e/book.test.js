/** The rule book: text with findings, resolved rules, and retry policies. */

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test, { after, before } from "node:test";

import { Stage } from "./support/stage.js";
import { until } from "./support/until.js";

let stage;

before(async () => {
  stage = await Stage.open((target) => `version: 1
retry_policies:
  unused: { initial: 1s, factor: 2, max: 1m, retries: 7, jitter: full }
services:
  billing:
    target: { http: "${target}/billing" }
    retry: standard
    events: ["orders.*"]
`);
});
after(() => stage?.close());

test("findings are shown at their line", async () => {
  const { findings } = await stage.server.ask("GET", "/v1/book");
  assert.ok(findings.length > 0, "the rule book of this test has findings");
  await stage.visit({ at: "#/book" }, async (page) => {
    const text = page.getByRole("region", { name: "Rule book text" });
    for (const finding of findings.filter(({ line }) => line > 0)) {
      const line = text.locator(`#line-${finding.line}`);
      await line.getByText(finding.message.replaceAll("`", ""), { exact: true }).first().waitFor();
    }
  });
});

test("a line has an address", async () => {
  await stage.visit({ at: "#/book/7" }, async (page) => {
    const line = page.locator("#line-7");
    await line.getByText("standard").waitFor();
    assert.equal(await line.getAttribute("aria-current"), "location");
  });
});

test("a resolved rule has sections, and each value its source", async () => {
  await stage.visit({ at: "#/book" }, async (page) => {
    await page.getByLabel("Event type").fill("orders.placed");
    await page.getByRole("button", { name: "Resolve" }).click();
    const rule = page.getByRole("region", { name: "Rule of billing for orders.placed" });
    for (const section of ["Delivery", "On failure", "Breaker", "Dead letters"]) await rule.getByRole("rowheader", { name: section, exact: true }).waitFor();
    assert.match(await rule.getByRole("row").filter({ hasText: "events" }).first().innerText(), /20,000,000/);
    const excess = await rule.evaluate((region) => region.scrollWidth - region.clientWidth);
    assert.equal(excess, 0, "no column is cut off");
    for (const text of await rule.locator("td:last-child").allInnerTexts()) assert.ok((text.match(/line \d+/g) ?? []).length < 2, text);
    await rule.getByRole("link", { name: "line 7" }).first().click();
    await page.waitForFunction(() => location.hash === "#/book/7");
  });
});

test("every retry policy is drawn", async () => {
  const { policies } = await stage.server.ask("GET", "/v1/book");
  await stage.visit({ at: "#/book" }, async (page) => {
    for (const { name } of policies) {
      await page.getByRole("heading", { level: 3, name: new RegExp(`^${name}\\b`) }).waitFor();
    }
    const bars = await page.locator("#policy-unused .retry").count();
    assert.equal(bars, 7, "a bar for each retry");
  });
});

test("a refused rule book is reported beside the active one until it is fixed", async () => {
  const file = join(stage.server.folder, "redrive.yaml");
  const good = await readFile(file, "utf8");
  const isRefused = async () => ((await stage.server.ask("GET", "/v1/status")).degraded ?? []).some(({ what }) => what === "book-refused");
  await writeFile(file, good.replace("retry: standard", "retry: standrd"));
  await until("the rule book is refused", isRefused);
  await stage.visit({ at: "#/overview" }, async (page) => {
    await page.getByRole("link", { name: /invalid rule book rejected/ }).click();
    await page.getByText(/invalid rule book rejected, the previous one stays active/).waitFor();
    await page.locator("#line-7").getByText("standard").waitFor();
  });
  await writeFile(file, good);
  await until("the rule book is accepted", async () => !(await isRefused()));
  await stage.visit({ at: "#/book" }, async (page) => {
    await page.locator("#line-7").getByText("standard").waitFor();
    assert.equal(await page.getByText(/invalid rule book rejected/).count(), 0);
  });
});
