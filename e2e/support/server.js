/**
 * The server under test: the binary named by `REDRIVE`, with its own data folder and a free port. Its output is kept
 * for error messages.
 */

import { execFile, spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

import { until } from "./until.js";

/** The kept end of its output. */
const PRINTED_MAX = 200_000;

const run = promisify(execFile);
export const binary = resolve(process.env.REDRIVE ?? "target/debug/redrive");

export class Server {
  /** API keys by role. */
  keys = {};
  printed = "";

  /**
   * @param {string} book the rule book
   * @param {string[]} roles a key is created for each; without any, authentication is off
   */
  static async start(book, roles = []) {
    const server = new Server();
    server.folder = await mkdtemp(join(tmpdir(), "redrive-e2e-"));
    server.data = join(server.folder, "data");
    await writeFile(join(server.folder, "redrive.yaml"), book);
    for (const role of roles) {
      const args = ["keys", "create", `the-${role}`, "--role", role, "--quiet", "--data", server.data];
      server.keys[role] = (await run(binary, args)).stdout.trim();
    }
    await server.come("127.0.0.1:0");
    return server;
  }

  /** The demo, with its own rule book, services and traffic. */
  static async demo() {
    const server = new Server();
    server.folder = await mkdtemp(join(tmpdir(), "redrive-e2e-"));
    await server.begin(["demo", "--listen", "127.0.0.1:0", "--data", server.folder]);
    return server;
  }

  /** Starts the server; after `leave`, at the same address. */
  async come(listen = new URL(this.address).host) {
    const rules = join(this.folder, "redrive.yaml");
    await this.begin(["serve", "--rules", rules, "--data", this.data, "--listen", listen]);
  }

  /** Runs the binary and waits for its address. */
  async begin(args) {
    this.printed = "";
    this.process = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
    const keep = (bytes) => (this.printed = (this.printed + bytes).slice(-PRINTED_MAX));
    this.process.stdout.on("data", keep);
    this.process.stderr.on("data", keep);
    this.gone = new Promise((gone) => this.process.on("exit", gone));
    this.address = await until("the server prints its address", () => {
      if (this.process.exitCode !== null) throw new Error(this.printed);
      return this.printed.match(/^redrive .*?(http:\/\/\S+)/m)?.[1];
    });
  }

  /** Stops the process and keeps the data. */
  async leave() {
    this.process.kill("SIGTERM");
    await this.gone;
  }

  async stop() {
    await this.leave();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** Sends an API request with the admin key, if there is one. */
  async ask(method, path, body) {
    const key = this.keys.admin;
    const response = await fetch(this.address + path, {
      method,
      headers: { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  }

  /** Sends numbered events of a type. */
  async send(type, count = 1) {
    for (let number = 1; number <= count; number += 1) {
      await this.ask("POST", `/v1/events/${type}`, { order: number, customer: "c-7" });
    }
  }

  /** Waits for at least `count` dead letters. */
  async hasDead(count) {
    await until(`${count} letters are dead`, async () => {
      const found = await this.ask("GET", "/v1/dead-letters?limit=100");
      return found.dead_letters.length >= count;
    });
  }
}
