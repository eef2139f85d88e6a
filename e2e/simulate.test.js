/** Simulation: scenarios run from the page, problems at their line, and HTML reports. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { after, before } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

import { binary } from "./support/server.js";
import { barriers, picture, Stage } from "./support/stage.js";

const BOOK = (target) => `version: 1
retry_policies:
  steps: { delays: [1s, 2s, 4s], retries: 3, jitter: none }
dependencies:
  warehouse: { kind: webhook }
services:
  shop:
    target: { http: "${target}/shop" }
    depends_on: warehouse
    retry: steps
    events: ["orders.*"]
  mail:
    target: { http: "${target}/mail" }
    retry: steps
    breaker: none
    events: ["orders.*"]
`;

/** With markup in its name. */
const SCENARIO = `version: 1
about: "<img src=x onerror=alert(1)> & <script>alert(2)</script>"
duration: 2m
arrivals: [{ type: orders.placed, rate: 5/s }]
dependencies:
  all: { latency: 20ms, capacity: { rate: 20/s }, phases: [{ at: 30s, for: 20s, is: down }] }
expect: ["dead_letters == 0"]
`;

/** The longest seed that the page accepts. */
const SEED = "900719925474099";

let stage;

before(async () => {
  stage = await Stage.open(BOOK);
});
after(() => stage?.close());

const text = (page) => page.getByLabel("Scenario text");
const run = (page) => page.getByRole("button", { name: "Run" });
const result = (page) => page.getByRole("region", { name: "Result", exact: true });

test("a built-in scenario is opened from the rule book and run", async () => {
  await stage.visit({ at: "#/book" }, async (page) => {
    await page.locator("main").getByRole("link", { name: "Simulate" }).click();
    await page.getByRole("heading", { level: 1, name: "Simulate" }).waitFor();
    await page.getByLabel("Built-in scenario").selectOption("brown-out");
    assert.match(await text(page).inputValue(), /503/);
    await page.getByLabel("Built-in scenario").selectOption("outage");
    await run(page).click();
    await result(page).getByRole("heading", { level: 2, name: "Verdict" }).waitFor();
    await result(page).getByRole("heading", { level: 2, name: "warehouse" }).waitFor();
    const plots = result(page).locator("figure svg[role=img]");
    assert.equal(await plots.count(), 8, "four per dependency");
    assert.ok(await result(page).locator(".drawn path.stroke").count() > 8);
    assert.equal(await run(page).isEnabled(), true);
    const ground = await result(page).locator(".drawn .band").first().evaluate((band) => getComputedStyle(band).fill);
    assert.notEqual(ground, "rgb(0, 0, 0)", "the plots have their colours");
  });
});

test("the same seed gives the same result as the command", async () => {
  const folder = await mkdtemp(join(tmpdir(), "redrive-e2e-"));
  try {
    await writeFile(join(folder, "scenario.yaml"), SCENARIO);
    const args = ["simulate", "scenario.yaml", "--rules", join(stage.server.folder, "redrive.yaml"), "--seed", SEED, "--format", "json"];
    const { stdout } = await promisify(execFile)(binary, args, { cwd: folder, maxBuffer: 10_000_000 });
    const { attempts } = JSON.parse(stdout);
    await stage.visit({ at: "#/simulate" }, async (page) => {
      await text(page).fill(SCENARIO);
      await page.getByLabel("Random seed").fill(SEED);
      await text(page).press("Control+Enter");
      const tile = result(page).locator(".tile").filter({ hasText: "Attempts" }).locator(".value");
      assert.equal(await tile.innerText(), attempts.toLocaleString("en"));
    });
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("problems are shown at their line, and the text is kept", async () => {
  await stage.visit({ at: "#/simulate", forgive: [/400/] }, async (page) => {
    await text(page).fill(SCENARIO.replace("rate: 5/s", "rate: fast"));
    await run(page).click();
    const problem = page.getByRole("alert").getByRole("listitem");
    await problem.getByText(/is no rate|not a rate|invalid rate/).waitFor();
    await problem.getByText("arrivals: [{ type: orders.placed, rate: fast }]").waitFor();
    const chosen = await text(page).evaluate((area) => area.value.slice(area.selectionStart, area.selectionEnd));
    assert.equal(chosen, "fast }]", "the place is selected in the text");
    assert.equal(await text(page).getAttribute("aria-invalid"), "true");
    await problem.getByRole("button", { name: "line 4" }).click();
    assert.equal(await text(page).evaluate((area) => document.activeElement === area), true);
    assert.deepEqual(await barriers(page), []);
    await picture(page, "simulate-problem");
    await page.evaluate(() => (location.hash = "#/book"));
    await page.getByRole("heading", { level: 1, name: "Rule book" }).waitFor();
    await page.goBack();
    assert.match(await text(page).inputValue(), /rate: fast/);
    await text(page).fill(SCENARIO);
    await run(page).click();
    await result(page).getByRole("heading", { level: 2, name: "Verdict" }).waitFor();
    assert.equal(await page.getByRole("alert").getByRole("listitem").count(), 0);
  });
});

for (const [colour, on] of [["light", "desk"], ["dark", "desk"], ["light", "phone"], ["dark", "phone"]]) {
  test(`the result is accessible, ${colour} on a ${on}`, async () => {
    await stage.visit({ at: "#/simulate", colour, on }, async (page) => {
      await text(page).fill(SCENARIO);
      await run(page).click();
      await result(page).getByRole("heading", { level: 2, name: "Verdict" }).waitFor();
      await result(page).getByText("Show the change").first().click();
      assert.equal(await result(page).locator("img, script").count(), 0);
      assert.deepEqual(await barriers(page), []);
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, "no overflow");
      await picture(page, `simulated-${colour}-${on}`);
    });
  });
}

test("an HTML report makes no requests and logs nothing", async () => {
  const folder = await mkdtemp(join(tmpdir(), "redrive-e2e-"));
  try {
    await writeFile(join(folder, "scenario.yaml"), SCENARIO);
    await writeFile(join(folder, "other.yaml"), BOOK(stage.target.address).replace("retries: 3", "retries: 2"));
    const kinds = [["one"], ["many", "--runs", "3"], ["against", "--against", "other.yaml"], ["sweep", "--sweep", "retries.steps.retries=1,3"]];
    for (const [name, ...more] of kinds) {
      const args = ["simulate", "scenario.yaml", "--rules", join(stage.server.folder, "redrive.yaml"), "--html", `${name}.html`, ...more];
      await promisify(execFile)(binary, args, { cwd: folder });
      for (const [colour, width] of [["light", 1200], ["dark", 375]]) {
        const context = await stage.browser.newContext({ colorScheme: colour, viewport: { width, height: 900 } });
        const page = await context.newPage();
        const troubles = [];
        const file = pathToFileURL(join(folder, `${name}.html`)).href;
        page.on("console", (message) => troubles.push(message.text()));
        page.on("pageerror", (error) => troubles.push(String(error)));
        page.on("request", (request) => request.url() !== file && troubles.push(`asked for ${request.url()}`));
        await page.goto(file);
        await page.getByRole("heading", { level: 1, name: "<img src=x onerror=alert(1)> & <script>alert(2)</script>" }).waitFor();
        assert.equal(await page.locator("img, link, iframe").count(), 0);
        assert.equal(await page.locator("script").count(), 2, "the report and the page's own modules");
        assert.ok((await page.locator("h2").count()) > 1, `${name}: it shows the report`);
        if (name !== "many") assert.ok((await page.locator("figure.drawn .stroke").count()) > 0, `${name}: it has charts`);
        assert.doesNotMatch(await page.locator("main").innerHTML(), /NaN|undefined|\[object/);
        assert.deepEqual(await barriers(page), []);
        assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, `${name}: no overflow`);
        await picture(page, `document-${name}-${colour}`);
        assert.deepEqual(troubles, []);
        await context.close();
      }
    }
  } finally {
    await rm(folder, { recursive: true });
  }
});
