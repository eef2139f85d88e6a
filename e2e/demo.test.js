/** The demo as a newcomer meets it: alive at once, and its story by the guide from the break to the last letter. */

import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { Stage, barriers, picture } from "./support/stage.js";
import { until } from "./support/until.js";

let stage;

before(async () => {
  stage = await Stage.openDemo();
});
after(() => stage?.close());

test("the demo comes alive, and its guide leads from what broke to nothing lost", async () => {
  await stage.visit({}, async (page) => {
    const guide = page.getByRole("region", { name: "Guide through the demo" });
    const step = (name) => guide.getByRole("listitem").filter({ hasText: name });
    await page.getByRole("link", { name: "invoicing" }).first().waitFor();
    await until("events show up by themselves", async () => (await page.locator(".feed li").count()) > 5);
    await step("See why").and(page.locator("[aria-current=step]")).waitFor();

    await guide.getByRole("link", { name: "Show me" }).click();
    await page.locator("main").getByRole("link", { name: /422 Unprocessable/ }).click();
    await page.getByRole("region", { name: "Dead letters" }).getByRole("link").first().click();
    await page.getByText("The rule takes this for a failure that no retry would mend.").waitFor();
    await page.getByText("orders from the EU need the field `vat_id`").first().waitFor();
    assert.deepEqual(await barriers(page), []);
    await guide.getByRole("button", { name: "I have seen why" }).click();

    await step("Fix it").and(page.locator("[aria-current=step]")).waitFor();
    await guide.getByRole("button", { name: "Deploy the fix" }).click();
    await step("Replay").and(page.locator("[aria-current=step]")).waitFor();
    await until("what was under way before the fix has ended", async () => {
      const { services } = await stage.server.ask("GET", "/v1/status");
      return services.some(({ service, waiting }) => service === "invoicing" && waiting === 0);
    });

    await guide.getByRole("link", { name: "Show me" }).click();
    await page.locator("main").getByRole("link", { name: /422 Unprocessable/ }).click();
    await page.getByRole("button", { name: "Replay the group…" }).click();
    await page.locator("main").getByText(/would be sent again/).waitFor();
    await page.getByRole("button", { name: /Begin: send \d+ letters?/ }).click();
    await page.locator("main").getByText(/Done: \d+ delivered/).waitFor();
    await guide.getByRole("button", { name: "Break it again" }).waitFor();
    await picture(page, "demo");
  });
});
