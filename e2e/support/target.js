/** A service that events are delivered to: it answers what the test tells it to, and can be mended. */

import { createServer } from "node:http";

/** What is remembered of the calls: those who measure call a million times. */
const KEPT_MAX = 1000;

export class Target {
  /** The status of every answer from now on. */
  status = 200;
  /** The status at a path that has one of its own. */
  statusAt = {};
  /** How often it was called. */
  calls = 0;
  /** The latest that came, with the path that it came to. */
  came = [];

  static async start() {
    const target = new Target();
    target.server = createServer((request, response) => {
      let body = "";
      request.setEncoding("utf8");
      request.on("data", (text) => (body += text));
      request.on("end", () => {
        target.calls += 1;
        target.came.push({ path: request.url, body });
        if (target.came.length > KEPT_MAX) target.came.shift();
        const status = target.statusAt[request.url] ?? target.status;
        response.writeHead(status, { "content-type": "text/plain" });
        response.end(status < 300 ? "taken" : `order ${target.calls} has no customer`);
      });
    });
    await new Promise((ready) => target.server.listen(0, "127.0.0.1", ready));
    target.address = `http://127.0.0.1:${target.server.address().port}`;
    return target;
  }

  /** The bodies that came to a path. */
  cameTo(path) {
    return this.came.filter((one) => one.path === path).map(({ body }) => body);
  }

  async stop() {
    this.server.closeAllConnections();
    await new Promise((closed) => this.server.close(closed));
  }
}
