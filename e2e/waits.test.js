/** Why deliveries wait, how services and breakers are, and what to do when a service has left the rule book. */

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import test, { after, before } from "node:test";

import { Stage } from "./support/stage.js";

/** One service whose rows need a dependency each, and another that fails. */
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

test("only deliveries of the row whose breaker is open are held", async () => {
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
    const rows = page.getByRole("region", { name: "What it wants" });
    await rows.getByRole("row").filter({ hasText: "orders.held" }).getByText("the circuit breaker of down is open").waitFor();
    assert.equal(await rows.getByRole("row").filter({ hasText: "orders.free" }).getByText("breaker").count(), 0);
  });
});

test("a breaker's card says nothing of the time before the server started", async () => {
  stage.target.statusAt["/billing"] = 503;
  await stage.server.send("orders.free");
  await stage.server.hasDead(1);
  delete stage.target.statusAt["/billing"];
  await stage.server.ask("POST", "/v1/dead-letters/purge", { service: "billing" });
  await stage.visit({ at: "#/breakers" }, async (page) => {
    const card = (name) => page.locator(".breaker").filter({ has: page.getByRole("heading", { name, exact: true }) });
    await card("billing").getByText("closed since the server started").waitFor();
    assert.match(await card("billing").locator(".strip rect title").first().textContent(), /^not running for /);
    await card("billing").getByText("1 failure in a row so far", { exact: true }).waitFor();
    await card("down").getByText(/^opened once, last /).waitFor();
    for (const text of await page.locator(".picture .dim").allTextContents()) assert.doesNotMatch(text, /^,/);
  });
});

test("the number at the failure groups counts groups", async () => {
  stage.target.statusAt["/mail"] = 422;
  await stage.server.send("mail.sent", 3);
  await stage.server.hasDead(3);
  await stage.visit({ at: "#/groups" }, async (page) => {
    const link = page.locator("#nav").getByRole("link", { name: /Failure groups/ });
    await link.getByText("1", { exact: true }).waitFor();
    const [pill, whole] = [await link.locator(".count").boundingBox(), await link.boundingBox()];
    assert.ok(pill.x + pill.width <= whole.x + whole.width, "it keeps within its place");
  });
  await stage.visit({ at: "#/services" }, async (page) => {
    const mail = page.getByRole("row").filter({ hasText: "mail" });
    await mail.getByText("failing", { exact: true }).waitFor();
  });
});

test("what waits for a service that has left the rule book is sent to another", async () => {
  await writeFile(join(stage.server.folder, "redrive.yaml"), BOOK(stage.target.address, "payments"));
  stage.server.process.kill("SIGHUP");
  // When nothing waits for it any more, the server knows no such service.
  await stage.visit({ at: "#/services/billing", forgive: [/status of 404/] }, async (page) => {
    await page.getByText("no longer in the rule book, 1 delivery waits").waitFor();
    await page.getByRole("button", { name: "Send elsewhere" }).click();
    await page.getByRole("dialog").getByLabel("To").selectOption("payments");
    await page.getByRole("dialog").getByRole("button", { name: "Send them" }).click();
    await page.getByText("1 delivery sent to payments").waitFor();
  });
  const { deliveries } = await stage.server.ask("GET", "/v1/deliveries?service=payments");
  assert.equal(deliveries.length, 1);
});

test("what waits for a service that has left the rule book is turned into dead letters", async () => {
  await stage.server.ask("POST", "/v1/services/payments/pause", {});
  await stage.server.send("orders.free", 2);
  await writeFile(join(stage.server.folder, "redrive.yaml"), BOOK(stage.target.address, "ledger"));
  stage.server.process.kill("SIGHUP");
  await stage.visit({ at: "#/services/payments", forgive: [/status of 404/] }, async (page) => {
    await page.getByText(/no longer in the rule book, \d deliveries wait/).waitFor();
    await page.getByRole("button", { name: "Dead-letter", exact: true }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("will end as dead letters (SERVICE_REMOVED)").waitFor();
    await dialog.getByRole("button", { name: "Dead-letter them" }).click();
    await page.getByText(/\d deliveries turned into dead letters/).waitFor();
  });
  const { dead_letters: letters } = await stage.server.ask("GET", "/v1/dead-letters?code=SERVICE_REMOVED");
  assert.equal(letters.filter(({ service }) => service === "payments").length, 3);
});

test("what no row of a service takes any more is turned into dead letters", async () => {
  await stage.server.ask("POST", "/v1/services/ledger/pause", {});
  await stage.server.send("orders.free");
  const book = BOOK(stage.target.address, "ledger").replace(", { type: orders.free }", "");
  await writeFile(join(stage.server.folder, "redrive.yaml"), book);
  stage.server.process.kill("SIGHUP");
  await stage.visit({ at: "#/services/ledger" }, async (page) => {
    await page.getByRole("button", { name: "Dead-letter", exact: true }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("1 delivery waits that no row takes and will end as dead letters (RULE_REMOVED)").waitFor();
    await dialog.getByRole("button", { name: "Dead-letter them" }).click();
    await page.getByText("1 delivery turned into dead letters").waitFor();
    await page.getByRole("button", { name: "Dead-letter", exact: true }).waitFor({ state: "hidden" });
  });
  const { dead_letters: letters } = await stage.server.ask("GET", "/v1/dead-letters?code=RULE_REMOVED");
  assert.equal(letters.length, 1);
});
