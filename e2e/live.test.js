/** Live updates, and actions on services and breakers. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { BY_DEFAULT } from "./support/books.js";
import { Stage } from "./support/stage.js";
import { until } from "./support/until.js";

/** Live streams that the server allows per client. */
const LISTENERS_MAX = 16;
/** The longest time to click a visible button. */
const CLICK_MS = 1_000;
const SLOW_ANSWER_MS = 400;

let stage;

before(async () => {
  stage = await Stage.open(BY_DEFAULT);
});
after(() => stage?.close());

test("events appear without a reload", async () => {
  await stage.visit({}, async (page) => {
    await page.getByText("No activity yet").waitFor();
    await live(page);
    await stage.server.send("orders.placed", 3);
    const feed = page.getByRole("log", { name: "Live activity" });
    await feed.getByText("orders.placed").first().waitFor();
    await feed.getByText("delivered").first().waitFor();
    await page.getByRole("region", { name: "Services" }).getByText("healthy").waitFor();
  });
});

test("a service is paused and resumed after confirmation", async () => {
  await stage.visit({ at: "#/services/billing" }, async (page) => {
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("dialog").getByText("No new deliveries to billing start.").waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    assert.equal(await isPaused(), false, "nothing changes before it is confirmed");
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Pause service" }).click();
    await page.getByRole("button", { name: "Resume" }).waitFor();
    assert.equal(await isPaused(), true);
    const calls = stage.target.calls;
    await stage.server.send("orders.paid");
    await page.locator(".tile", { hasText: "Waiting" }).getByText("1", { exact: true }).waitFor();
    assert.equal(stage.target.calls, calls, "a paused service is not called");
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Resume service" }).click();
    await page.getByRole("button", { name: "Pause" }).waitFor();
    await until("the waiting delivery is delivered", () => stage.target.calls === calls + 1);
  });
});

test("a breaker is tripped and reset, and its state changes are listed", async () => {
  const [{ name }] = (await stage.server.ask("GET", "/v1/dependencies")).dependencies;
  await stage.visit({ at: `#/breakers/${encodeURIComponent(name)}` }, async (page) => {
    await page.getByRole("button", { name: "Trip" }).click();
    await page.getByRole("dialog").getByLabel("Reason").fill("they deploy");
    await page.getByRole("dialog").getByRole("button", { name: "Trip breaker" }).click();
    await page.getByRole("button", { name: "Reset" }).waitFor();
    await page.getByRole("region", { name: "State changes" }).getByText("they deploy").waitFor();
    const calls = stage.target.calls;
    await stage.server.send("orders.held");
    await page.getByRole("button", { name: "Reset" }).click();
    assert.equal(stage.target.calls, calls, "no calls pass an open breaker");
    await page.getByRole("dialog").getByRole("button", { name: "Reset breaker" }).click();
    await page.getByRole("button", { name: "Trip" }).waitFor();
    await until("the held delivery is delivered", () => stage.target.calls === calls + 1);
  });
});

test("a lost connection is reported, and restored automatically", async () => {
  const forgive = [/ERR_CONNECTION_REFUSED/, /ERR_INCOMPLETE_CHUNKED_ENCODING/, /ERR_CONNECTION_RESET/, /ERR_EMPTY_RESPONSE/];
  await stage.visit({ forgive }, async (page) => {
    await live(page);
    await stage.server.leave();
    const offline = page.getByRole("alert").locator("b").getByText("Cannot reach the server");
    await offline.waitFor();
    await stage.server.come();
    await offline.waitFor({ state: "hidden" });
    await live(page);
    await stage.server.send("orders.back");
    await page.getByRole("log", { name: "Live activity" }).getByText("orders.back").first().waitFor();
  });
});

test("a refused live stream shows the reason of the server, and a retry connects", async () => {
  const others = new AbortController();
  for (let at = 0; at < LISTENERS_MAX; at += 1) {
    const answer = await fetch(`${stage.server.address}/v1/live`, { signal: others.signal });
    assert.equal(answer.status, 200, `listener ${at}`);
  }
  await stage.visit({ forgive: [/status of 503/] }, async (page) => {
    const strip = page.getByRole("alert");
    await strip.getByText("Live updates are off").waitFor();
    assert.equal(await page.getByText("Cannot reach the server").count(), 0);
    await page.getByRole("region", { name: "Failure groups" }).or(page.getByText("No dead letters")).first().waitFor();
    others.abort();
    // A second click during a slow response must not cancel the first try.
    await page.route("**/v1/live", async (route) => {
      await new Promise((go) => setTimeout(go, SLOW_ANSWER_MS));
      await route.continue();
    });
    await until("a retry connects", async () => {
      // The strip may disappear between the check and the click.
      if (await strip.isVisible()) {
        await strip.getByRole("button", { name: "Retry now" }).click({ timeout: CLICK_MS }).catch(() => {});
      }
      return page.locator("#live").getByText("live", { exact: true }).isVisible();
    });
    await strip.waitFor({ state: "hidden" });
  });
});

async function live(page) {
  await page.locator("#live").getByText("live", { exact: true }).waitFor();
}

async function isPaused() {
  const { services } = await stage.server.ask("GET", "/v1/services");
  return services.some(({ paused_since: since }) => since !== undefined && since !== null);
}
