/**
 * What a test file plays on: a server, a service that it delivers to, and a browser.
 *
 * Every page is watched: an error on its console, a breach of its content policy or a request to another
 * host fails the test, whatever the test looks at.
 */

import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

import { Server } from "./server.js";
import { Target } from "./target.js";
import { PATIENCE_MS } from "./until.js";

// What was fetched for the tests lies under target, where node does not look by itself.
const modules = resolve(process.env.REDRIVE_E2E ?? "target/e2e");
const require = createRequire(join(modules, "package.json"));
const { chromium } = require("playwright-core");
const axePath = require.resolve("axe-core/axe.min.js");

export const BROWSER = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const DESK = { width: 1440, height: 900 };
const PHONE = { width: 375, height: 812 };

/** Starts a browser that asks nobody for anything of its own accord. */
export function launch() {
  return chromium.launch({ executablePath: BROWSER, args: FLAGS });
}

/** Comes to a browser that runs already, and changes nothing about it. */
export function attach(address) {
  return chromium.connectOverCDP(address, { noDefaults: true });
}

export class Stage {
  /**
   * @param {(target: string) => string} book the rule book, given where the service listens
   * @param {string[]} roles a key is made for each
   */
  static async open(book, roles = []) {
    const stage = new Stage();
    stage.target = await Target.start();
    stage.server = await Server.start(book(stage.target.address), roles);
    await stage.openBrowser();
    return stage;
  }

  /** The same with the demo in its place: it has services of its own. */
  static async openDemo() {
    const stage = new Stage();
    stage.server = await Server.demo();
    await stage.openBrowser();
    return stage;
  }

  async openBrowser() {
    this.browser = await launch();
  }

  async close() {
    await this.browser.close();
    await this.server.stop();
    await this.target?.stop();
  }

  /**
   * Opens the page and lets the test play with it.
   * @param {object} how `at`: the route; `colour`: light or dark; `on`: desk or phone; `key`: who comes;
   *   `forgive`: what the console may say in this test
   */
  async visit(how, play) {
    const { at = "#/overview", colour = "light", on = "desk", key, forgive = [] } = how;
    const context = await this.browser.newContext({
      viewport: on === "phone" ? PHONE : DESK,
      hasTouch: on === "phone",
      colorScheme: colour,
      reducedMotion: "reduce",
    });
    context.setDefaultTimeout(PATIENCE_MS);
    const page = await context.newPage();
    const troubles = this.watch(page, forgive);
    try {
      await page.goto(`${this.server.address}/${at}`);
      if (key) await signIn(page, key);
      await play(page);
    } finally {
      await context.close();
    }
    assert.deepEqual(troubles, [], "the page must be quiet");
  }

  /** Collects what a page must never do. */
  watch(page, forgive) {
    const troubles = [];
    const note = (text) => {
      if (!forgive.some((pattern) => pattern.test(text))) troubles.push(text);
    };
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) {
        note(`console: ${message.text()} (${message.location().url})`);
      }
    });
    page.on("pageerror", (error) => note(`thrown: ${error.stack ?? error}`));
    const host = new URL(this.server.address).host;
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.protocol !== "data:" && url.host !== host) note(`asked elsewhere: ${url}`);
    });
    return troubles;
  }
}

/** Gives the key that the page asks for. */
export async function signIn(page, key) {
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(/key/i).fill(key);
  await dialog.getByRole("button", { name: /sign in/i }).click();
}

/** What axe finds on the page as it is now, of those findings that shut somebody out. */
export async function barriers(page) {
  // The page allows no script but its own; axe comes in by the debugger, which no policy holds back.
  await page.evaluate(await axeSource());
  const results = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return results.violations
    .filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ target }) => target).join(" ; ")}`);
}

let source;
async function axeSource() {
  source ??= await readFile(axePath, "utf8");
  return source;
}

/** Keeps a picture of the page for people to look at. */
export async function picture(page, name) {
  const folder = join(modules, "screenshots");
  await mkdir(folder, { recursive: true });
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
}
