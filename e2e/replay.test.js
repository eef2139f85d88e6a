/** Dead letters: found by group, explained, replayed, edited, skipped and purged. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { ONE_TRY } from "./support/books.js";
import { Stage } from "./support/stage.js";
import { until } from "./support/until.js";

const LETTERS = 12;

let stage;

before(async () => {
  stage = await Stage.open(ONE_TRY);
  stage.target.status = 422;
  await stage.server.send("orders.placed", LETTERS);
  await stage.server.hasDead(LETTERS);
});
after(() => stage?.close());

test("a failure group leads to a dead letter with its reason", async () => {
  await stage.visit({ at: "#/groups" }, async (page) => {
    await page.getByText(`${LETTERS} dead letters`).waitFor();
    await page.getByRole("link", { name: /422 Unprocessable/ }).click();
    await page.getByRole("heading", { level: 1, name: /422 Unprocessable/ }).waitFor();
    const letters = page.getByRole("region", { name: "Dead letters" });
    await letters.getByRole("link").first().click();
    await page.getByRole("heading", { level: 1, name: /orders\.placed → billing/ }).waitFor();
    await page.getByText("Classified as permanent, so it was not retried.").waitFor();
    await page.getByRole("figure", { name: "Timeline of attempts" }).waitFor();
    await page.getByText('"customer": "c-7"').waitFor();
  });
});

test("the canary stops after one failed attempt", async () => {
  await stage.visit({ at: "#/groups" }, async (page) => {
    await prepare(page);
    const calls = stage.target.calls;
    await page.getByRole("button", { name: `Replay ${LETTERS} dead letters` }).click();
    await page.locator("main").getByText(/Stopped because a dead letter failed again/).waitFor();
    assert.equal(stage.target.calls, calls + 1, "the canary sends one dead letter");
    await page.getByRole("button", { name: "Cancel…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel replay" }).click();
    await page.locator("main").getByText(/^Cancelled/).waitFor();
  });
});

test("a group is replayed with a dry run and a canary after the fix", async () => {
  const rest = LETTERS - 1;
  stage.target.status = 200;
  await stage.visit({ at: "#/groups" }, async (page) => {
    const calls = stage.target.calls;
    await prepare(page);
    await page.getByText(/dry run, nothing was sent/).waitFor();
    await page.getByText(/1 dead letter skipped; tick “Include letters/).waitFor();
    assert.equal(stage.target.calls, calls, "a dry run sends nothing");
    await page.getByRole("button", { name: `Replay ${rest} dead letters` }).click();
    await page.getByRole("heading", { level: 1, name: /Replay \d+/ }).waitFor();
    await page.locator("main").getByText(`Done: ${rest} delivered`).waitFor();
    const bar = page.getByRole("progressbar");
    assert.equal(await bar.getAttribute("aria-valuenow"), "100");
    assert.equal(stage.target.calls, calls + rest);
  });
  const found = await stage.server.ask("GET", "/v1/dead-letters");
  assert.equal(found.dead_letters.length, 1, "only the poison one is left");
});

test("a replay is paused, resumed and cancelled", async () => {
  stage.target.status = 422;
  await stage.server.send("orders.slow", 30);
  await stage.server.hasDead(31);
  stage.target.status = 200;
  const replay = await stage.server.ask("POST", "/v1/replays", { type: "orders.slow", rate: "2/s" });
  await stage.visit({ at: `#/replays/${replay.id}` }, async (page) => {
    await page.getByRole("button", { name: "Pause" }).click();
    await page.locator("main").getByText(/^Paused:/).waitFor();
    await page.getByRole("button", { name: "Resume" }).click();
    await page.locator("main").getByText(/^Running/).waitFor();
    const delivered = await shownDelivered(page);
    await until("progress continues without a reload", async () => (await shownDelivered(page)) > delivered);
    await page.getByRole("button", { name: "Cancel…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel replay" }).click();
    await page.locator("main").getByText(/^Cancelled/).waitFor();
  });
});

test("dead letters are edited, skipped and purged, each after confirmation", async () => {
  stage.target.status = 422;
  await stage.server.send("orders.wrong", 3);
  await until("they are dead", async () => (await letters("orders.wrong")).length === 3);
  const [edited, skipped, purged] = await letters("orders.wrong");
  stage.target.status = 200;
  await stage.visit({ at: `#/letters/${edited.id}` }, async (page) => {
    await page.getByRole("button", { name: "Edit…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Data (JSON)").fill("{ this is no JSON");
    await dialog.getByRole("button", { name: "Send edited event" }).click();
    await dialog.getByText(/Data is not valid JSON/).waitFor();
    await dialog.getByLabel("Data (JSON)").fill('{ "order": 4711 }');
    await dialog.getByRole("button", { name: "Send edited event" }).click();
    await page.getByText("Delivered after 1 attempt").waitFor();

    await page.goto(`${stage.server.address}/#/letters/${skipped.id}`);
    await page.getByRole("button", { name: "Skip…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Skip…" }).click();
    await page.getByRole("dialog").getByLabel("Reason").fill("cancelled by phone");
    await page.getByRole("dialog").getByRole("button", { name: "Skip dead letter" }).click();
    await page.getByText("This dead letter is skipped").waitFor();

    await page.goto(`${stage.server.address}/#/letters/${purged.id}`);
    await page.getByRole("button", { name: "Purge…" }).click();
    const answer = await heldBack(page, "**/v1/dead-letters/purge");
    await page.getByRole("dialog").getByRole("button", { name: "Delete 1 dead letter" }).click();
    await until("the dead letter is deleted", async () => (await letters("orders.wrong")).length === 0);

    // A late response must not navigate away from another view.
    await page.goto(`${stage.server.address}/#/audit`);
    answer.letGo();
    await page.getByText("1 dead letter deleted").waitFor();
    await page.getByRole("cell", { name: "cancelled by phone" }).waitFor();
    assert.match(page.url(), /#\/audit$/);
  });
});

/** From the list of groups to the dry run of the largest. */
async function prepare(page) {
  await page.getByRole("link", { name: /422 Unprocessable/ }).first().click();
  await page.getByRole("button", { name: "Replay group…" }).click();
  await page.locator("main").getByText(/would be replayed/).waitFor();
  assert.ok(await page.getByLabel("Canary").isChecked(), "the canary is the default");
}

/** Forwards requests to an address, and delays the response until `letGo`. */
async function heldBack(page, address) {
  let letGo;
  const gone = new Promise((resolve) => (letGo = resolve));
  await page.route(address, async (route) => {
    const response = await route.fetch();
    await gone;
    await route.fulfill({ response });
  });
  return { letGo };
}

async function letters(type) {
  return (await stage.server.ask("GET", `/v1/dead-letters?type=${type}`)).dead_letters;
}

async function shownDelivered(page) {
  const tile = page.locator(".tile", { hasText: "Delivered" }).locator(".value");
  return Number(await tile.textContent());
}
