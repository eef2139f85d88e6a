/**
 * The environment of a test file: a server, a target and a browser.
 *
 * A console error, a violation of the content security policy or a request to another host fails every test.
 */

import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

import { Server } from "./server.js";
import { Target } from "./target.js";
import { PATIENCE_MS } from "./until.js";

// The test dependencies are installed under target.
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

/** Starts a browser without background requests. */
export function launch() {
  return chromium.launch({ executablePath: BROWSER, args: FLAGS });
}

/** Connects to a running browser. */
export function attach(address) {
  return chromium.connectOverCDP(address, { noDefaults: true });
}

export class Stage {
  /**
   * @param {(target: string) => string} book the rule book for a target address
   * @param {string[]} roles a key is created for each
   */
  static async open(book, roles = []) {
    const stage = new Stage();
    stage.target = await Target.start();
    stage.server = await Server.start(book(stage.target.address), roles);
    await stage.openBrowser();
    return stage;
  }

  /** The same with the demo, which has its own services. */
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
   * Opens the page and runs the test on it.
   * @param {object} how `at`: the route; `colour`: light or dark; `on`: desk or phone; `key`: the API key;
   *   `forgive`: allowed console messages
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

  /** Collects violations. */
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
      if (url.protocol !== "data:" && url.host !== host) note(`request to another host: ${url}`);
    });
    return troubles;
  }
}

/** Signs in with a key. */
export async function signIn(page, key) {
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(/key/i).fill(key);
  await dialog.getByRole("button", { name: /sign in/i }).click();
}

/** Serious and critical accessibility violations found by axe. */
export async function barriers(page) {
  // The content security policy blocks other scripts; evaluation by the debugger is exempt.
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

/** Saves a screenshot. */
export async function picture(page, name) {
  const folder = join(modules, "screenshots");
  await mkdir(folder, { recursive: true });
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
}
