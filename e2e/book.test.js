/** The rule book: its text with what could hurt, the rule for an event, and its retries as a picture. */

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

test("the text shows what could hurt at its line, with its cure", async () => {
  const { findings } = await stage.server.ask("GET", "/v1/book");
  assert.ok(findings.length > 0, "the book of this test has something to find");
  await stage.visit({ at: "#/book" }, async (page) => {
    const text = page.getByRole("region", { name: "The text of the rule book" });
    for (const finding of findings.filter(({ line }) => line > 0)) {
      const line = text.locator(`#line-${finding.line}`);
      await line.getByText(finding.message.replaceAll("`", ""), { exact: true }).first().waitFor();
    }
  });
});

test("a line is reached by its address", async () => {
  await stage.visit({ at: "#/book/7" }, async (page) => {
    const line = page.locator("#line-7");
    await line.getByText("standard").waitFor();
    assert.equal(await line.getAttribute("aria-current"), "location");
  });
});

test("the rule for an event says where each value came from", async () => {
  await stage.visit({ at: "#/book" }, async (page) => {
    await page.getByLabel("Event type").fill("orders.placed");
    await page.getByRole("button", { name: "Resolve" }).click();
    const rule = page.getByRole("region", { name: "The rule of billing for orders.placed" });
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

test("a book that is refused is told of beside the one that holds, until it is mended", async () => {
  const file = join(stage.server.folder, "redrive.yaml");
  const good = await readFile(file, "utf8");
  const isRefused = async () => ((await stage.server.ask("GET", "/v1/status")).degraded ?? []).some(({ what }) => what === "book-refused");
  await writeFile(file, good.replace("retry: standard", "retry: standrd"));
  await until("the book is refused", isRefused);
  await stage.visit({ at: "#/overview" }, async (page) => {
    await page.getByRole("link", { name: /a rule book was refused/ }).click();
    await page.getByText(/invalid rule book rejected, the previous one stays active/).waitFor();
    await page.locator("#line-7").getByText("standard").waitFor();
  });
  await writeFile(file, good);
  await until("the book is taken", async () => !(await isRefused()));
  await stage.visit({ at: "#/book" }, async (page) => {
    await page.locator("#line-7").getByText("standard").waitFor();
    assert.equal(await page.getByText(/a rule book was refused/).count(), 0);
  });
});
