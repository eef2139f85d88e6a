/** Keyboard navigation. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { ONE_TRY } from "./support/books.js";
import { Stage } from "./support/stage.js";

let stage;

before(async () => {
  stage = await Stage.open(ONE_TRY);
  stage.target.status = 422;
  await stage.server.send("orders.placed", 3);
  await stage.server.hasDead(3);
});
after(() => stage?.close());

test("shortcuts open every view", async () => {
  const pages = {
    o: "Overview", s: "Services", d: "Deliveries", b: "Breakers", f: "Failure groups",
    p: "Replays", r: "Rule book", a: "Alerts", h: "Doctor", u: "Audit", k: "Keys",
  };
  await stage.visit({}, async (page) => {
    await heading(page, "Overview");
    for (const [key, name] of Object.entries(pages)) {
      await page.keyboard.press("g");
      await page.keyboard.press(key);
      await heading(page, name);
    }
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  });
});

test("the first Tab reaches the skip link", async () => {
  await stage.visit({}, async (page) => {
    await heading(page, "Overview");
    await page.keyboard.press("Tab");
    await focused(page, "Skip to content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  });
});

test("search and replay work by keyboard", async () => {
  stage.target.status = 200;
  // The search also requests an event of that ID.
  await stage.visit({ forgive: [/status of 404/] }, async (page) => {
    await heading(page, "Overview");
    await page.keyboard.press("/");
    await page.keyboard.type("orders.placed");
    await page.keyboard.press("Enter");
    await heading(page, /Results for/);

    await page.keyboard.press("g");
    await page.keyboard.press("f");
    await heading(page, "Failure groups");
    await reach(page, /422 Unprocessable/);
    await page.keyboard.press("Enter");
    await heading(page, /422 Unprocessable/);
    await reach(page, /^[0-9a-f]{8,}$/);
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await heading(page, /orders\.placed → billing/);
    await reach(page, "Skip…");
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await reach(page, "Replay…");
    await page.keyboard.press("Enter");
    await heading(page, "New replay");
    await page.getByRole("button", { name: "Replay 1 dead letter" }).waitFor();
    await reach(page, "Replay 1 dead letter");
    await page.keyboard.press("Enter");
    await page.locator("main").getByText("Done: 1 delivered").waitFor();
  });
});

async function heading(page, name) {
  await page.locator("main").getByRole("heading", { level: 1, name }).waitFor();
}

/** More tab stops than any view has. */
const STOPS_MAX = 150;

/** Presses Tab until a link or button with this text has the focus. */
async function reach(page, text) {
  await page.locator("main").getByText(text).first().waitFor();
  for (let stop = 0; stop < STOPS_MAX; stop += 1) {
    await page.keyboard.press("Tab");
    const read = await page.evaluate(() => (document.activeElement.matches("a, button") ? document.activeElement.textContent.trim() : ""));
    if (typeof text === "string" ? read === text : text.test(read)) return;
  }
  assert.fail(`Tab does not reach ${text}`);
}

async function focused(page, text) {
  assert.equal(await page.evaluate(() => document.activeElement.textContent.trim()), text);
}
