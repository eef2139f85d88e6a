/** What people do to a page that it was not made for: odd addresses, wrong clocks, dialogs left behind, huge data. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { ONE_TRY } from "./support/books.js";
import { Stage } from "./support/stage.js";
import { until } from "./support/until.js";

/** More than a browser can carry as one element for every piece. */
const KEYS = 20_000;
const ELEMENTS_MAX = 5000;
const HOUR_MS = 3_600_000;

let stage;

before(async () => {
  stage = await Stage.open(ONE_TRY);
  stage.target.status = 422;
});
after(() => stage?.close());

/** The letter that becomes of an event. */
async function letterOf(event) {
  const sent = { specversion: "1.0", source: "/odd", type: "orders.placed", ...event };
  const response = await fetch(`${stage.server.address}/v1/events`, {
    method: "POST",
    headers: { "content-type": "application/cloudevents+json" },
    body: JSON.stringify(sent),
  });
  assert.equal(response.status, 202, await response.text());
  return until("the event is a dead letter", async () => {
    const found = await stage.server.ask("GET", "/v1/dead-letters?limit=100");
    return found.dead_letters.find(({ event_id }) => event_id === event.id);
  });
}

test("an address that names no view says so, whatever it names", async () => {
  for (const name of ["nothing", "constructor", "__proto__", "toString", "%"]) {
    await stage.visit({ at: `#/${name}` }, (page) => page.getByText("There is no such page").waitFor());
  }
});

test("what the server refuses is asked for once, whatever happens and however long it takes", async () => {
  await stage.visit({ at: "#/overview", forgive: [/400/] }, async (page) => {
    let asked = 0;
    page.on("request", (request) => (asked += request.url().endsWith("/v1/deliveries/zzzz") ? 1 : 0));
    await page.clock.install();
    await page.evaluate(() => (location.hash = "#/deliveries/zzzz"));
    await page.getByText("That did not work").waitFor();
    const happened = page.evaluate(() => import("./page/live.js").then(({ onHappening }) => new Promise((told) => onHappening(told, new AbortController().signal))));
    await stage.server.ask("POST", "/v1/services/billing/pause");
    await stage.server.ask("POST", "/v1/services/billing/resume");
    await happened;
    await page.clock.fastForward(60_000);
    assert.equal(asked, 1);
  });
});

test("the skip link's own address leads to the overview when the page is loaded there", async () => {
  await stage.visit({ at: "#main" }, (page) => page.getByRole("heading", { level: 1, name: "Overview" }).waitFor());
});

test("whoever goes back leaves the dialog behind, and nothing is done", async () => {
  await stage.visit({ at: "#/overview" }, async (page) => {
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await page.evaluate(() => (location.hash = "#/services/billing"));
    await page.getByRole("button", { name: /pause/i }).click();
    await page.getByRole("dialog").waitFor();
    await page.goBack();
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
    await page.goForward();
    await page.getByRole("heading", { level: 1, name: "billing" }).waitFor();
    await page.getByRole("dialog").waitFor({ state: "detached" });
  });
  const { services } = await stage.server.ask("GET", "/v1/status");
  assert.equal(services.find(({ service }) => service === "billing").paused_since, undefined);
});

test("times and plots go by the server's clock when the browser's is wrong", async () => {
  const letter = await letterOf({ id: "of-just-now" });
  for (const wrong of [-HOUR_MS, HOUR_MS]) {
    await stage.visit({ at: `#/letters/${letter.id}` }, async (page) => {
      await page.clock.install({ time: Date.now() + wrong });
      await page.reload();
      const died = page.locator("dt", { hasText: "Died" }).locator("+ dd");
      await died.waitFor();
      assert.match(await died.innerText(), /^(now|\d+[sm] ago)$/, `${wrong} ms off`);
      await page.evaluate(() => (location.hash = "#/overview"));
      await page.locator(".plot path.stroke").first().waitFor({ state: "attached" });
      const paths = await page.locator(".plot path.stroke").evaluateAll((all) => all.map((one) => one.getAttribute("d")));
      const xs = paths.flatMap((path) => [...path.matchAll(/[ML](-?[\d.]+)/g)].map(([, x]) => Number(x)));
      assert.ok(xs.every((x) => x >= 0 && x <= 1100), `${wrong} ms off: ${xs}`);
    });
  }
});

test("huge data are shown as far as a browser bears, and markup in them is text", async () => {
  const data = Object.fromEntries(Array.from({ length: KEYS }, (_, at) => [`key${at}`, [at, "<img src=x onerror=alert(1)>\u202E"]]));
  const letter = await letterOf({ id: "<img src=x onerror=alert(1)>\u202E", data });
  await stage.visit({ at: `#/letters/${letter.id}` }, async (page) => {
    await page.locator(".snippet pre").waitFor();
    const [elements, images] = await page.evaluate(() => ["*", "main img"].map((what) => document.querySelectorAll(what).length));
    assert.ok(elements < ELEMENTS_MAX, `${elements} elements`);
    assert.equal(images, 0);
  });
});
