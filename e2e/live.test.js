/** The page comes alive: what happens shows up by itself, and what is done on the page is done. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { BY_DEFAULT } from "./support/books.js";
import { Stage } from "./support/stage.js";
import { until } from "./support/until.js";

/** Pages that the server lets one caller listen with at once. */
const LISTENERS_MAX = 16;
/** How long a button that is there takes to be clicked at most. */
const CLICK_MS = 1_000;
const SLOW_ANSWER_MS = 400;

let stage;

before(async () => {
  stage = await Stage.open(BY_DEFAULT);
});
after(() => stage?.close());

test("events that are sent show up without a reload", async () => {
  await stage.visit({}, async (page) => {
    await page.getByText("Nothing happens at the moment").waitFor();
    await live(page);
    await stage.server.send("orders.placed", 3);
    const feed = page.getByRole("log", { name: "What happens now" });
    await feed.getByText("orders.placed").first().waitFor();
    await feed.getByText("delivered").first().waitFor();
    await page.getByRole("region", { name: "Services" }).getByText("healthy").waitFor();
  });
});

test("a service is paused and resumed after a question", async () => {
  await stage.visit({ at: "#/services/billing" }, async (page) => {
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("dialog").getByText("Nothing of billing starts from now on").waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Leave it" }).click();
    assert.equal(await isPaused(), false, "nothing happens before it is meant");
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Pause it" }).click();
    await page.getByRole("button", { name: "Resume" }).waitFor();
    assert.equal(await isPaused(), true);
    const calls = stage.target.calls;
    await stage.server.send("orders.paid");
    await page.locator(".tile", { hasText: "Waiting" }).getByText("1", { exact: true }).waitFor();
    assert.equal(stage.target.calls, calls, "a paused service is not called");
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Resume it" }).click();
    await page.getByRole("button", { name: "Pause" }).waitFor();
    await until("what waited is delivered", () => stage.target.calls === calls + 1);
  });
});

test("a breaker is tripped and reset by hand, and its turns are on record", async () => {
  const [{ name }] = (await stage.server.ask("GET", "/v1/dependencies")).dependencies;
  await stage.visit({ at: `#/breakers/${encodeURIComponent(name)}` }, async (page) => {
    await page.getByRole("button", { name: "Trip" }).click();
    await page.getByRole("dialog").getByLabel("Why").fill("they deploy");
    await page.getByRole("dialog").getByRole("button", { name: "Trip it" }).click();
    await page.getByRole("button", { name: "Reset" }).waitFor();
    await page.getByRole("region", { name: "Turns of the breaker" }).getByText("they deploy").waitFor();
    const calls = stage.target.calls;
    await stage.server.send("orders.held");
    await page.getByRole("button", { name: "Reset" }).click();
    assert.equal(stage.target.calls, calls, "nothing goes through an open breaker");
    await page.getByRole("dialog").getByRole("button", { name: "Reset it" }).click();
    await page.getByRole("button", { name: "Trip" }).waitFor();
    await until("what was held is delivered", () => stage.target.calls === calls + 1);
  });
});

test("a server that goes away is told of, and comes back by itself", async () => {
  const forgive = [/ERR_CONNECTION_REFUSED/, /ERR_INCOMPLETE_CHUNKED_ENCODING/, /ERR_CONNECTION_RESET/, /ERR_EMPTY_RESPONSE/];
  await stage.visit({ forgive }, async (page) => {
    await live(page);
    await stage.server.leave();
    const away = page.getByRole("alert").locator("b").getByText("The server cannot be reached");
    await away.waitFor();
    await stage.server.come();
    await away.waitFor({ state: "hidden" });
    await live(page);
    await stage.server.send("orders.back");
    await page.getByRole("log", { name: "What happens now" }).getByText("orders.back").first().waitFor();
  });
});

test("a server that lets no more pages listen is not away: it says so itself, and lets in whoever tries again", async () => {
  const others = new AbortController();
  for (let at = 0; at < LISTENERS_MAX; at += 1) {
    const answer = await fetch(`${stage.server.address}/v1/live`, { signal: others.signal });
    assert.equal(answer.status, 200, `listener ${at}`);
  }
  await stage.visit({ forgive: [/status of 503/] }, async (page) => {
    const strip = page.getByRole("alert");
    await strip.getByText(`The server says: this caller has ${LISTENERS_MAX} live pages already: close one of them.`).waitFor();
    assert.equal(await page.getByText("cannot be reached").count(), 0);
    await page.getByRole("region", { name: "Failure groups" }).or(page.getByText("No dead letters")).first().waitFor();
    others.abort();
    // Answers take longer than a second click: it must not undo the try that the first one began.
    await page.route("**/v1/live", async (route) => {
      await new Promise((go) => setTimeout(go, SLOW_ANSWER_MS));
      await route.continue();
    });
    await until("a try is let in", async () => {
      // The strip goes when a try is let in, perhaps between a look and a click; then there is nothing to click.
      if (await strip.isVisible()) {
        await strip.getByRole("button", { name: "Try now" }).click({ timeout: CLICK_MS }).catch(() => {});
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
