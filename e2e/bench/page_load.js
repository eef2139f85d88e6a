/**
 * Load time of each view, with an empty store and with a full one.
 *
 *   scripts/page-load [EVENTS]
 *
 * Every event goes to two services: one accepts it, the other rejects it permanently. A million events become a
 * million deliveries and a million dead letters. A load is measured from the start of the navigation to the first
 * frame without a placeholder.
 */

import { Server } from "../support/server.js";
import { launch } from "../support/stage.js";
import { Target } from "../support/target.js";

const EVENTS = Number(process.argv[2] ?? 1_000_000);
const BATCH = 1_000;
const LOADS = 5;
const VIEWS = ["overview", "services", "deliveries", "groups", "replays", "breakers", "book", "alerts", "audit"];

// Without a log line per dead letter.
process.env.REDRIVE_LOG = "error";

const service = (name, target, retry) => `
  ${name}:
    target: { http: "${target.address}", format: batch, batch_max: 500 }
    breaker: none
    retry: ${retry}
    events: ["*"]`;
const bookOf = (taker, refuser) => `version: 1\nservices:${service("taker", taker, "standard")}${service("refuser", refuser, "none")}\n`;

const taker = await Target.start();
const refuser = await Target.start();
refuser.status = 422;
const server = await Server.start(bookOf(taker, refuser));
try {
  const empty = await measured();
  await filled();
  print(empty, await measured());
} finally {
  await server.stop();
  await taker.stop();
  await refuser.stop();
}

/** Sends all events and waits for all outcomes. */
async function filled() {
  for (let sent = 0; sent < EVENTS; sent += BATCH) {
    const body = Array.from({ length: Math.min(BATCH, EVENTS - sent) }, (_, at) => ({
      specversion: "1.0",
      id: `order-${sent + at}`,
      source: "/page-load",
      type: "orders.placed",
      data: { order: sent + at, customer: `c-${(sent + at) % 1_000}` },
    }));
    const headers = { "content-type": "application/cloudevents-batch+json" };
    const answer = await fetch(`${server.address}/v1/events`, { method: "POST", headers, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  }
  for (;;) {
    const { services } = await server.ask("GET", "/v1/status");
    const left = services.reduce((sum, { waiting }) => sum + waiting, 0);
    process.stderr.write(`\r${left} left to settle   `);
    if (left === 0) break;
    await new Promise((go) => setTimeout(go, 500));
  }
  process.stderr.write("\r");
}

/** Load times in milliseconds, each in a new context of a new browser. */
async function measured() {
  const browser = await launch();
  const loads = new Map();
  try {
    for (const view of VIEWS) {
      loads.set(view, []);
      for (let round = 0; round < LOADS; round += 1) loads.get(view).push(await load(browser, view));
    }
  } finally {
    await browser.close();
  }
  return loads;
}

async function load(browser, view) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  await page.goto(`${server.address}/#/${view}`, { waitUntil: "commit" });
  const isThere = () => document.querySelector("main .view") && !document.querySelector("main .skeleton") && performance.now();
  const took = await (await page.waitForFunction(isThere)).jsonValue();
  await context.close();
  return Math.round(took);
}

function print(empty, full) {
  console.log(`load time in milliseconds, ${LOADS} loads each`);
  console.log(`${"view".padEnd(12)}${"empty store".padEnd(36)}${EVENTS} delivered and ${EVENTS} dead`);
  for (const view of VIEWS) console.log(view.padEnd(12) + empty.get(view).join(" ").padEnd(36) + full.get(view).join(" "));
}
