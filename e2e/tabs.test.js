/** Many tabs: a browser has six connections per server for all tabs, so hidden tabs must hold none. */

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
    await page.getByRole("log", { name: "Live activity" }).getByText(`orders.of-tab-${at}`).first().waitFor();
  }
  await closed(tabs);
});

test("each of eight tabs with a running replay follows it when it is shown", async () => {
  stage.target.status = 422;
  await stage.server.send("orders.refused", 3);
  await stage.server.hasDead(3);
  const { id } = await stage.server.ask("POST", "/v1/replays", { all: true, rate: "1/h" });
  const tabs = await opened(`#/replays/${id}`, (page) => page.locator("main").getByText(/^Running:/));
  await stage.server.ask("POST", `/v1/replays/${id}/pause`, {});
  for (const page of tabs) {
    await window.show(page);
    await page.locator("main").getByText(/^Paused:/).waitFor();
  }
  await closed(tabs);
});

/** Opens tabs one after the other, each after the previous one has drawn its content. */
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
