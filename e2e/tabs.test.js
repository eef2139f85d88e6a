/**
 * Many tabs at once: a browser has six connections to a server for all of them together, and a tab that nobody sees
 * holds none.
 */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { BY_DEFAULT } from "./support/books.js";
import { Stage } from "./support/stage.js";
import { Window } from "./support/window.js";

const TABS = 8;

let stage;
let window;

before(async () => {
  stage = await Stage.open(BY_DEFAULT);
  window = await Window.open();
});
after(async () => {
  await window?.close();
  await stage?.close();
});

test("each of eight tabs is live when it is shown", async () => {
  const tabs = await opened("#/overview", (page) => page.getByRole("region", { name: "Services" }).getByText("billing"));
  for (const [at, page] of tabs.entries()) {
    await window.show(page);
    await page.locator("#live").getByText("live", { exact: true }).waitFor();
    await stage.server.send(`orders.of-tab-${at}`);
    await page.getByRole("log", { name: "What happens now" }).getByText(`orders.of-tab-${at}`).first().waitFor();
  }
  await closed(tabs);
});

test("each of eight tabs with a replay under way follows it when it is shown", async () => {
  stage.target.status = 422;
  await stage.server.send("orders.refused", 3);
  await stage.server.hasDead(3);
  const { id } = await stage.server.ask("POST", "/v1/replays", { all: true, rate: "1/h" });
  const tabs = await opened(`#/replays/${id}`, (page) => page.locator("main").getByText(/^Running:/));
  await stage.server.ask("POST", `/v1/replays/${id}/pause`, {});
  for (const page of tabs) {
    await window.show(page);
    await page.locator("main").getByText(/^Paused, nothing more is sent:/).waitFor();
  }
  await closed(tabs);
});

/** Tabs one after the other, each opened when what it is to show stands in the one before. */
async function opened(at, shown) {
  const tabs = [];
  while (tabs.length < TABS) {
    const page = await window.tab();
    page.troubles = stage.watch(page, []);
    await page.goto(`${stage.server.address}/${at}`);
    await shown(page).waitFor();
    tabs.push(page);
  }
  return tabs;
}

async function closed(tabs) {
  for (const page of tabs) {
    await page.close();
    assert.deepEqual(page.troubles, [], "the page must be quiet");
  }
}
