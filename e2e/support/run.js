/**
 * Runs the test files, two at a time; each starts its own server, target and browser.
 *
 *   node e2e/support/run.js FILE...
 */

import { run } from "node:test";
import { resolve } from "node:path";

import report from "./reporter.js";

const tests = run({ files: process.argv.slice(2).map((file) => resolve(file)), concurrency: 2 });
tests.on("test:fail", () => (process.exitCode = 1));
tests.compose(report).pipe(process.stdout);
