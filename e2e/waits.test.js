/** Reasons of waiting deliveries, health, breaker cards, and services removed from the rule book. */

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import test, { after, before } from "node:test";

import { Stage } from "./support/stage.js";

/** One service with a dependency per subscription, and another that fails. */
const BOOK = (target, name = "billing") => `
version: 1
dependencies:
  down: { kind: webhook }
services:
  ${name}:
    target: { http: "${target}/billing" }
    retry: none
    events: [{ type: orders.held, depends_on: down }, { type: orders.free }]
  mail:
    target: { http: "${target}/mail" }
    retry: none
    breaker: none
    events: ["mail.*"]
`;

let stage;
before(async () => {
  stage = await Stage.open(BOOK);
});
after(() => stage?.close());

test("only deliveries of the subscription with the open breaker are held", async () => {
  await stage.server.ask("POST", "/v1/dependencies/down/trip", {});
  await stage.server.send("orders.held");
  await stage.server.send("orders.free");
  await stage.visit({ at: "#/deliveries" }, async (page) => {
    const row = (type) => page.getByRole("row").filter({ hasText: type });
    await row("orders.held").getByText("the circuit breaker of down is open until").waitFor();
    await row("orders.free").getByText("delivered", { exact: true }).waitFor();
  });
  await stage.visit({ at: "#/services/billing" }, async (page) => {
    await page.getByText("events of type orders.held wait: the circuit breaker of down is open").first().waitFor();
    const rows = page.getByRole("region", { name: "Subscriptions" });
    await rows.getByRole("row").filter({ hasText: "orders.held" }).getByText("the circuit breaker of down is open").waitFor();
    assert.equal(await rows.getByRole("row").filter({ hasText: "orders.free" }).getByText("breaker").count(), 0);
  });
});

test("a breaker card is grey for the time before the server started", async () => {
  stage.target.statusAt["/billing"] = 503;
  await stage.server.send("orders.free");
  await stage.server.hasDead(1);
  delete stage.target.statusAt["/billing"];
  await stage.server.ask("POST", "/v1/dead-letters/purge", { service: "billing" });
  await stage.visit({ at: "#/breakers" }, async (page) => {
    const card = (name) => page.locator(".breaker").filter({ has: page.getByRole("heading", { name, exact: true }) });
    await card("billing").getByText("closed since the server started").waitFor();
    assert.match(await card("billing").locator(".strip rect title").first().textContent(), /^not running for /);
    await card("billing").getByText("1 consecutive failure", { exact: true }).waitFor();
    await card("down").getByText(/^1 trip, last /).waitFor();
    for (const text of await page.locator(".picture .dim").allTextContents()) assert.doesNotMatch(text, /^,/);
  });
});

test("the badge of failure groups counts groups", async () => {
  stage.target.statusAt["/mail"] = 422;
  await stage.server.send("mail.sent", 3);
  await stage.server.hasDead(3);
  await stage.visit({ at: "#/groups" }, async (page) => {
    const link = page.locator("#nav").getByRole("link", { name: /Failure groups/ });
    await link.getByText("1", { exact: true }).waitFor();
    const [pill, whole] = [await link.locator(".count").boundingBox(), await link.boundingBox()];
    assert.ok(pill.x + pill.width <= whole.x + whole.width, "the badge stays inside the link");
  });
  await stage.visit({ at: "#/services" }, async (page) => {
    const mail = page.getByRole("row").filter({ hasText: "mail" });
    await mail.getByText("failing", { exact: true }).waitFor();
  });
});

test("waiting deliveries of a removed service are moved to another", async () => {
  await writeFile(join(stage.server.folder, "redrive.yaml"), BOOK(stage.target.address, "payments"));
  stage.server.process.kill("SIGHUP");
  // A removed service without waiting deliveries is unknown to the server.
  await stage.visit({ at: "#/services/billing", forgive: [/status of 404/] }, async (page) => {
    await page.getByText("no longer in the rule book, 1 delivery waits").waitFor();
    await page.getByRole("button", { name: "Move…" }).click();
    await page.getByRole("dialog").getByLabel("To").selectOption("payments");
    await page.getByRole("dialog").getByRole("button", { name: "Move deliveries" }).click();
    await page.getByText("1 delivery moved to payments").waitFor();
  });
  const { deliveries } = await stage.server.ask("GET", "/v1/deliveries?service=payments");
  assert.equal(deliveries.length, 1);
});

test("waiting deliveries of a removed service are dead-lettered", async () => {
  await stage.server.ask("POST", "/v1/services/payments/pause", {});
  await stage.server.send("orders.free", 2);
  await writeFile(join(stage.server.folder, "redrive.yaml"), BOOK(stage.target.address, "ledger"));
  stage.server.process.kill("SIGHUP");
  await stage.visit({ at: "#/services/payments", forgive: [/status of 404/] }, async (page) => {
    await page.getByText(/no longer in the rule book, \d deliveries wait/).waitFor();
    await page.getByRole("button", { name: "Dead-letter…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("will become dead letters (SERVICE_REMOVED)").waitFor();
    await dialog.getByRole("button", { name: "Dead-letter deliveries" }).click();
    await page.getByText(/\d deliveries dead-lettered/).waitFor();
  });
  const { dead_letters: letters } = await stage.server.ask("GET", "/v1/dead-letters?code=SERVICE_REMOVED");
  assert.equal(letters.filter(({ service }) => service === "payments").length, 3);
});

test("waiting deliveries without a subscription are dead-lettered", async () => {
  await stage.server.ask("POST", "/v1/services/ledger/pause", {});
  await stage.server.send("orders.free");
  const book = BOOK(stage.target.address, "ledger").replace(", { type: orders.free }", "");
  await writeFile(join(stage.server.folder, "redrive.yaml"), book);
  stage.server.process.kill("SIGHUP");
  await stage.visit({ at: "#/services/ledger" }, async (page) => {
    await page.getByRole("button", { name: "Dead-letter…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("1 waiting delivery without a subscription will become dead letters (RULE_REMOVED)").waitFor();
    await dialog.getByRole("button", { name: "Dead-letter deliveries" }).click();
    await page.getByText("1 delivery dead-lettered").waitFor();
    await page.getByRole("button", { name: "Dead-letter…" }).waitFor({ state: "hidden" });
  });
  const { dead_letters: letters } = await stage.server.ask("GET", "/v1/dead-letters?code=RULE_REMOVED");
  assert.equal(letters.length, 1);
});
