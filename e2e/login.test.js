/** Who may do what: a key is asked for, a wrong one refused, and each role sees what it may do. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { ONE_TRY } from "./support/books.js";
import { Stage, signIn } from "./support/stage.js";

let stage;
let letter;
/** A browser says on its console that a request was refused; that one is what these tests are about. */
const REFUSED = [/status of 401/];

before(async () => {
  stage = await Stage.open(ONE_TRY, ["admin", "operator", "viewer", "ingest"]);
  stage.target.status = 422;
  await stage.server.send("orders.placed", 2);
  await stage.server.hasDead(2);
  [letter] = (await stage.server.ask("GET", "/v1/dead-letters")).dead_letters;
});
after(() => stage?.close());

test("a wrong key is refused and a good one lets in", async () => {
  await stage.visit({ forgive: REFUSED }, async (page) => {
    await signIn(page, "rdk_wrong");
    await page.getByRole("dialog").getByText(/refused that key/).waitFor();
    await signIn(page, stage.server.keys.viewer);
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await page.getByText("the-viewer").waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("dialog").getByLabel("Key").waitFor();
  });
});

test("the question for a key cannot be closed, however often somebody tries", async () => {
  await stage.visit({ forgive: REFUSED }, async (page) => {
    await page.getByRole("dialog").getByLabel("Key").waitFor();
    for (let times = 0; times < 4; times += 1) await page.keyboard.press("Escape");
    await signIn(page, stage.server.keys.viewer);
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  });
});

test("a key for sending is told that it is not for looking, and not that the server is away", async () => {
  await stage.visit({ key: stage.server.keys.ingest, forgive: REFUSED }, async (page) => {
    await page.getByText("This key is not for looking").waitFor();
    assert.equal(await page.locator("#away").isVisible(), false);
    assert.equal(await page.locator("#nav").getByRole("link").count(), 0);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("dialog").getByLabel("Key").waitFor();
  });
});

test("whoever's key ends while they look is told why they are asked again", async () => {
  const made = await stage.server.ask("POST", "/v1/keys", { name: "guest", role: "viewer" });
  await stage.visit({ key: made.key, forgive: REFUSED }, async (page) => {
    await page.getByText("guest").waitFor();
    await stage.server.ask("POST", `/v1/keys/${made.id}/revoke`, {});
    await page.getByRole("dialog").getByText(/no longer good/).waitFor();
    await signIn(page, stage.server.keys.viewer);
    await page.getByText("the-viewer").waitFor();
  });
});

test("a viewer sees no buttons that change anything, and the server would refuse them", async () => {
  await stage.visit({ at: `#/letters/${letter.id}`, key: stage.server.keys.viewer, forgive: REFUSED }, async (page) => {
    await page.getByRole("heading", { level: 1, name: /orders\.placed/ }).waitFor();
    await page.getByRole("figure", { name: "Attempts on a time line" }).waitFor();
    for (const name of ["Replay…", "Edit…", "Skip…", "Purge…"]) {
      assert.equal(await page.getByRole("button", { name }).count(), 0, name);
    }
    await page.evaluate(() => (location.hash = "#/services/billing"));
    await page.getByRole("heading", { level: 1, name: /billing/ }).waitFor();
    assert.equal(await page.getByRole("button", { name: /pause/i }).count(), 0);
    await page.evaluate(() => (location.hash = "#/replays/new?all=true"));
    await page.getByText("You may look, but not replay").waitFor();
  });
  const answer = await fetch(`${stage.server.address}/v1/dead-letters/${letter.id}/skip`, {
    method: "POST",
    headers: { authorization: `Bearer ${stage.server.keys.viewer}`, "content-type": "application/json" },
    body: "{}",
  });
  assert.equal(answer.status, 403);
});

test("an operator can replay a letter, and the audit names who did", async () => {
  stage.target.status = 200;
  await stage.visit({ at: `#/letters/${letter.id}`, key: stage.server.keys.operator, forgive: REFUSED }, async (page) => {
    await page.getByRole("button", { name: "Replay…" }).click();
    await page.getByRole("button", { name: "Begin: send 1 letter" }).click();
    await page.locator("main").getByText("Done: 1 delivered").waitFor();
    await page.evaluate(() => (location.hash = "#/audit"));
    await page.getByRole("cell", { name: "the-operator" }).first().waitFor();
  });
});

test("an admin makes a key that is told once, and ends it", async () => {
  const { admin } = stage.server.keys;
  await stage.visit({ at: "#/keys", key: admin, forgive: REFUSED }, async (page) => {
    await page.getByRole("button", { name: "New key…" }).click();
    await page.getByRole("dialog").getByLabel("Name").fill("night-shift");
    await page.getByRole("dialog").getByLabel("Role").selectOption("viewer");
    await page.getByRole("dialog").getByRole("button", { name: "Make the key" }).click();
    const told = page.getByRole("dialog", { name: "The key of night-shift" });
    const made = await told.locator("code").textContent();
    assert.equal(await whoIs(made), 200);
    await told.getByRole("button", { name: "Close" }).click();
    await page.getByRole("row", { name: /night-shift/ }).getByRole("button", { name: "Revoke…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Revoke the key" }).click();
    await page.getByRole("row", { name: /night-shift/ }).getByText("revoked").waitFor();
    assert.equal(await whoIs(made), 401);
  });
});

async function whoIs(key) {
  const answer = await fetch(`${stage.server.address}/v1/whoami`, { headers: { authorization: `Bearer ${key}` } });
  return answer.status;
}
