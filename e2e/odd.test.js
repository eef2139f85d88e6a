/** Edge cases: unknown addresses, wrong clocks, abandoned dialogs, huge data. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { ONE_TRY } from "./support/books.js";
import { Stage } from "./support/stage.js";
import { until } from "./support/until.js";

/** Too many for one element per token. */
const KEYS = 20_000;
const ELEMENTS_MAX = 5000;
const HOUR_MS = 3_600_000;

let stage;

before(async () => {
  stage = await Stage.open(ONE_TRY);
  stage.target.status = 422;
});
after(() => stage?.close());

/** Sends an event and returns its dead letter. */
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

test("an unknown address shows an error", async () => {
  for (const name of ["nothing", "constructor", "__proto__", "toString", "%"]) {
    await stage.visit({ at: `#/${name}` }, (page) => page.getByText("Page not found").waitFor());
  }
});

test("a rejected request is not repeated", async () => {
  await stage.visit({ at: "#/overview", forgive: [/400/] }, async (page) => {
    let asked = 0;
    page.on("request", (request) => (asked += request.url().endsWith("/v1/deliveries/zzzz") ? 1 : 0));
    await page.clock.install();
    await page.evaluate(() => (location.hash = "#/deliveries/zzzz"));
    await page.getByText("Request failed").waitFor();
    const active = page.evaluate(() => import("./page/live.js").then(({ onActivity }) => new Promise((seen) => onActivity(seen, new AbortController().signal))));
    await stage.server.ask("POST", "/v1/services/billing/pause");
    await stage.server.ask("POST", "/v1/services/billing/resume");
    await active;
    await page.clock.fastForward(60_000);
    assert.equal(asked, 1);
  });
});

test("the address of the skip link loads the overview", async () => {
  await stage.visit({ at: "#main" }, (page) => page.getByRole("heading", { level: 1, name: "Overview" }).waitFor());
});

test("going back closes the dialog without an action", async () => {
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

test("times and plots use the server's clock", async () => {
  const letter = await letterOf({ id: "of-just-now" });
  for (const wrong of [-HOUR_MS, HOUR_MS]) {
    await stage.visit({ at: `#/letters/${letter.id}` }, async (page) => {
      await page.clock.install({ time: Date.now() + wrong });
      await page.reload();
      const died = page.locator("dt", { hasText: "Dead since" }).locator("+ dd");
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

test("huge data is shortened, and markup in it is text", async () => {
  const data = Object.fromEntries(Array.from({ length: KEYS }, (_, at) => [`key${at}`, [at, "<img src=x onerror=alert(1)>\u202E"]]));
  const letter = await letterOf({ id: "<img src=x onerror=alert(1)>\u202E", data });
  await stage.visit({ at: `#/letters/${letter.id}` }, async (page) => {
    await page.locator(".snippet pre").waitFor();
    const [elements, images] = await page.evaluate(() => ["*", "main img"].map((what) => document.querySelectorAll(what).length));
    assert.ok(elements < ELEMENTS_MAX, `${elements} elements`);
    assert.equal(images, 0);
  });
});
