/** Sign-in and roles: wrong keys are rejected, and each role sees only its actions. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { ONE_TRY } from "./support/books.js";
import { Stage, signIn } from "./support/stage.js";

let stage;
let letter;
/** The browser logs the expected 401. */
const REFUSED = [/status of 401/];

before(async () => {
  stage = await Stage.open(ONE_TRY, ["admin", "operator", "viewer", "ingest"]);
  stage.target.status = 422;
  await stage.server.send("orders.placed", 2);
  await stage.server.hasDead(2);
  [letter] = (await stage.server.ask("GET", "/v1/dead-letters")).dead_letters;
});
after(() => stage?.close());

test("a wrong key is rejected and a valid one accepted", async () => {
  await stage.visit({ forgive: REFUSED }, async (page) => {
    await signIn(page, "rdk_wrong");
    await page.getByRole("dialog").getByText(/key was rejected/).waitFor();
    await signIn(page, stage.server.keys.viewer);
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await page.getByText("the-viewer").waitFor();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("dialog").getByLabel("Key").waitFor();
  });
});

test("the sign-in dialog cannot be closed", async () => {
  await stage.visit({ forgive: REFUSED }, async (page) => {
    await page.getByRole("dialog").getByLabel("Key").waitFor();
    for (let times = 0; times < 4; times += 1) await page.keyboard.press("Escape");
    await signIn(page, stage.server.keys.viewer);
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  });
});

test("an ingest key cannot view the dashboard, which is not reported as a lost connection", async () => {
  await stage.visit({ key: stage.server.keys.ingest, forgive: REFUSED }, async (page) => {
    await page.getByText("This API key cannot view the dashboard").waitFor();
    assert.equal(await page.locator("#offline").isVisible(), false);
    assert.equal(await page.locator("#nav").getByRole("link").count(), 0);
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("dialog").getByLabel("Key").waitFor();
  });
});

test("a key that is revoked while in use leads to the sign-in with the reason", async () => {
  const made = await stage.server.ask("POST", "/v1/keys", { name: "guest", role: "viewer" });
  await stage.visit({ key: made.key, forgive: REFUSED }, async (page) => {
    await page.getByText("guest").waitFor();
    await stage.server.ask("POST", `/v1/keys/${made.id}/revoke`, {});
    await page.getByRole("dialog").getByText(/has expired or was revoked/).waitFor();
    await signIn(page, stage.server.keys.viewer);
    await page.getByText("the-viewer").waitFor();
  });
});

test("a viewer sees no actions, and the server refuses them", async () => {
  await stage.visit({ at: `#/letters/${letter.id}`, key: stage.server.keys.viewer, forgive: REFUSED }, async (page) => {
    await page.getByRole("heading", { level: 1, name: /orders\.placed/ }).waitFor();
    await page.getByRole("figure", { name: "Timeline of attempts" }).waitFor();
    for (const name of ["Replay…", "Edit…", "Skip…", "Purge…"]) {
      assert.equal(await page.getByRole("button", { name }).count(), 0, name);
    }
    await page.evaluate(() => (location.hash = "#/services/billing"));
    await page.getByRole("heading", { level: 1, name: /billing/ }).waitFor();
    assert.equal(await page.getByRole("button", { name: /pause/i }).count(), 0);
    await page.evaluate(() => (location.hash = "#/replays/new?all=true"));
    await page.getByText("Replay not allowed").waitFor();
  });
  const answer = await fetch(`${stage.server.address}/v1/dead-letters/${letter.id}/skip`, {
    method: "POST",
    headers: { authorization: `Bearer ${stage.server.keys.viewer}`, "content-type": "application/json" },
    body: "{}",
  });
  assert.equal(answer.status, 403);
});

test("an operator replays a dead letter, and the audit log has the name", async () => {
  stage.target.status = 200;
  await stage.visit({ at: `#/letters/${letter.id}`, key: stage.server.keys.operator, forgive: REFUSED }, async (page) => {
    await page.getByRole("button", { name: "Replay…" }).click();
    await page.getByRole("button", { name: "Replay 1 dead letter" }).click();
    await page.locator("main").getByText("Done: 1 delivered").waitFor();
    await page.evaluate(() => (location.hash = "#/audit"));
    await page.getByRole("cell", { name: "the-operator" }).first().waitFor();
  });
});

test("an admin creates a key that is shown once, and revokes it", async () => {
  const { admin } = stage.server.keys;
  await stage.visit({ at: "#/keys", key: admin, forgive: REFUSED }, async (page) => {
    await page.getByRole("button", { name: "New key…" }).click();
    await page.getByRole("dialog").getByLabel("Name").fill("night-shift");
    await page.getByRole("dialog").getByLabel("Role").selectOption("viewer");
    await page.getByRole("dialog").getByRole("button", { name: "Create key" }).click();
    const shown = page.getByRole("dialog", { name: "Key of night-shift" });
    const made = await shown.locator("code").textContent();
    assert.equal(await whoIs(made), 200);
    await shown.getByRole("button", { name: "Close" }).click();
    await page.getByRole("row", { name: /night-shift/ }).getByRole("button", { name: "Revoke…" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Revoke key" }).click();
    await page.getByRole("row", { name: /night-shift/ }).getByText("revoked").waitFor();
    assert.equal(await whoIs(made), 401);
  });
});

async function whoIs(key) {
  const answer = await fetch(`${stage.server.address}/v1/whoami`, { headers: { authorization: `Bearer ${key}` } });
  return answer.status;
}
