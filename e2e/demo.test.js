/** The demo: live at once, with a guide from the failure to the last replayed dead letter. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { Stage, barriers, picture } from "./support/stage.js";
import { until } from "./support/until.js";

let stage;

before(async () => {
  stage = await Stage.openDemo();
});
after(() => stage?.close());

test("the guide leads from the failure to the replay", async () => {
  await stage.visit({}, async (page) => {
    const guide = page.getByRole("region", { name: "Demo guide" });
    const step = (name) => guide.getByRole("listitem").filter({ hasText: name });
    await page.getByRole("link", { name: "invoicing" }).first().waitFor();
    await until("activity is shown", async () => (await page.locator(".feed li").count()) > 5);
    await step("See why").and(page.locator("[aria-current=step]")).waitFor();

    await showGroup(page, guide);
    await page.getByRole("region", { name: "Dead letters" }).getByRole("link").first().click();
    await page.getByText("Classified as permanent, so it was not retried.").waitFor();
    await page.getByText("orders from the EU need the field `vat_id`").first().waitFor();
    assert.deepEqual(await barriers(page), []);
    await guide.getByRole("button", { name: "I have seen why" }).click();

    await step("Fix it").and(page.locator("[aria-current=step]")).waitFor();
    await guide.getByRole("button", { name: "Deploy the fix" }).click();
    await step("Replay").and(page.locator("[aria-current=step]")).waitFor();
    await until("deliveries from before the fix have ended", async () => {
      const { services } = await stage.server.ask("GET", "/v1/status");
      return services.some(({ service, waiting }) => service === "invoicing" && waiting === 0);
    });

    await guide.getByText("tick “Include letters that already failed a replay”").waitFor();
    await showGroup(page, guide);
    await page.getByRole("button", { name: "Replay group…" }).click();
    await page.locator("main").getByText(/would be replayed/).waitFor();
    await page.getByRole("button", { name: /Replay [\d,]+ dead letters?/ }).click();
    await page.locator("main").getByText(/Done: \d+ delivered/).waitFor();
    await guide.getByRole("button", { name: "Break it again" }).waitFor();
    await guide.getByRole("link", { name: "Show me" }).click();
    await page.locator("main").getByText("Replayed", { exact: true }).waitFor();
    await page.locator("main").getByText("delivered", { exact: true }).first().waitFor();
    await picture(page, "demo");
  });
});

/** "Show me" opens the failure group, not the list. */
async function showGroup(page, guide) {
  await guide.getByRole("link", { name: "Show me" }).and(page.locator("[href^='#/groups/']")).click();
  await page.getByRole("heading", { level: 1, name: /422 Unprocessable/ }).waitFor();
}
