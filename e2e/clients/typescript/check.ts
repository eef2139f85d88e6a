/** Calls a server with the types that openapi-typescript made: node check.js ADDRESS KEY. */

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

import createClient from "openapi-fetch";

import type { components, operations, paths } from "./schema.js";

type Schemas = components["schemas"];
type Delivery = Schemas["DeliveryJson"];
type Attempt = Schemas["AttemptJson"];
type Replay = Schemas["ReplayJson"];

const TYPE = "orders.typescript";
const [address = "", key = ""] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: address, headers: { authorization: `Bearer ${key}` } });

/** The data of an answer that is a success. */
function ok<Data>(answer: { data?: Data; error?: Schemas["ErrorBody"] }): Data {
  assert.ok(answer.data !== undefined, answer.error?.error.message);
  return answer.data;
}

/** Asks until there is an answer, for at most 20 seconds. */
async function until<Answer>(ask: () => Promise<Answer | undefined>): Promise<Answer> {
  for (const end = Date.now() + 20_000; Date.now() < end; await sleep(50)) {
    const answer = await ask();
    if (answer !== undefined) return answer;
  }
  throw new Error("it took too long");
}

async function deadDelivery(): Promise<Delivery | undefined> {
  const query: operations["listDeliveries"]["parameters"]["query"] = { type: TYPE, service: "billing" };
  const { deliveries } = ok(await client.GET("/v1/deliveries", { params: { query } }));
  return deliveries.find((delivery) => delivery.state === "dead");
}

const steps: Record<string, () => Promise<void>> = {
  async "sends an event"() {
    const params = { path: { name: TYPE } };
    const accepted = ok(await client.POST("/v1/events/{name}", { params, body: { order: 1 } }));
    assert.equal(accepted.deliveries, 2);
    assert.equal(accepted.duplicate, false);
    const found = ok(await client.GET("/v1/events/{name}", { params: { path: { name: accepted.receipt } } }));
    assert.deepEqual(found.events.map((event) => event.receipt), [accepted.receipt]);
  },

  async "lists deliveries"() {
    const delivery = await until(deadDelivery);
    assert.equal(delivery.attempts, 1);
    assert.equal(delivery.death?.code, "UNPROCESSABLE");
  },

  async "gets a delivery with its attempts"() {
    const { id } = await until(deadDelivery);
    const delivery: Delivery = ok(await client.GET("/v1/deliveries/{id}", { params: { path: { id } } }));
    assert.equal(delivery.stories?.length, 1);
    const attempt: Attempt | undefined = delivery.stories?.[0];
    const end: "delivered" | "failed" | "held" | undefined = attempt?.end;
    assert.equal(end, "failed");
    assert.equal(attempt?.status, 422);
    assert.equal(attempt?.category, "permanent");
    assert.equal(attempt?.verdict.is, "dead");
    assert.equal(attempt?.verdict.tier, "dead");
  },

  async "lists and gets dead letters"() {
    const { dead_letters } = ok(await client.GET("/v1/dead-letters", { params: { query: { type: TYPE } } }));
    assert.equal(dead_letters.length, 1);
    assert.equal(dead_letters[0]?.code, "UNPROCESSABLE");
    const path = { id: dead_letters[0]?.id ?? "" };
    const letter = ok(await client.GET("/v1/dead-letters/{id}", { params: { path } }));
    assert.ok("consumerService" in letter);
    assert.equal(letter.retryAttempts[0]?.httpStatus, 422);
  },

  async "replays dead letters"() {
    const { id } = await until(deadDelivery);
    const body: Schemas["NewReplayRequest"] = { letters: [id], to: "ledger", note: "checked" };
    const begun = ok(await client.POST("/v1/replays", { body }));
    assert.ok("state" in begun);
    const replay: Replay = await until(async () => {
      const answer = ok(await client.GET("/v1/replays/{id}", { params: { path: { id: begun.id } } }));
      return answer.state === "done" ? answer : undefined;
    });
    assert.deepEqual([replay.total, replay.delivered, replay.to, replay.note], [1, 1, "ledger", "checked"]);
  },

  async "reads an error"() {
    const { error } = await client.GET("/v1/deliveries/{id}", { params: { path: { id: "0".repeat(32) } } });
    assert.equal(error?.error.code, "DELIVERY_NOT_FOUND");
  },
};

for (const [name, step] of Object.entries(steps)) {
  try {
    await step();
    console.log(`test typescript: ${name} ... ok`);
  } catch (error) {
    console.log(`test typescript: ${name} ... FAILED\n${error instanceof Error ? error.stack : error}`);
    process.exitCode = 1;
  }
}
