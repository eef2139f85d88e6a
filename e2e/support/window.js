/**
 * A browser window in which only one tab is visible.
 *
 * Playwright makes every tab of its own browser visible; here it connects to a running browser without overrides.
 */

import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { attach, BROWSER, FLAGS } from "./stage.js";
import { PATIENCE_MS, until } from "./until.js";

export class Window {
  static async open() {
    const window = new Window();
    window.folder = await mkdtemp(join(tmpdir(), "redrive-e2e-"));
    const flags = [...FLAGS, "--headless", "--remote-debugging-port=0", `--user-data-dir=${window.folder}`];
    window.process = spawn(BROWSER, flags, { stdio: ["ignore", "ignore", "pipe"] });
    window.gone = new Promise((gone) => window.process.on("exit", gone));
    let printed = "";
    window.process.stderr.on("data", (bytes) => (printed += bytes));
    const address = await until("the browser prints its address", () => printed.match(/listening on (ws:\S+)/)?.[1]);
    window.browser = await attach(address);
    [window.context] = window.browser.contexts();
    window.context.setDefaultTimeout(PATIENCE_MS);
    return window;
  }

  /** Opens a tab, which becomes the visible one. */
  async tab() {
    return this.context.newPage();
  }

  /** Makes a tab the visible one. */
  async show(page) {
    await page.bringToFront();
    await until("the tab is visible", () => page.evaluate(() => !document.hidden));
  }

  async close() {
    await this.browser.close();
    this.process.kill();
    await this.gone;
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
