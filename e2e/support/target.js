/** An HTTP target whose status the test controls. */

import { createServer } from "node:http";

/** The kept calls: benchmarks make a million. */
const KEPT_MAX = 1000;

export class Target {
  /** The status of every response. */
  status = 200;
  /** The status by path, before `status`. */
  statusAt = {};
  calls = 0;
  /** The latest requests. */
  requests = [];

  static async start() {
    const target = new Target();
    target.server = createServer((request, response) => {
      let body = "";
      request.setEncoding("utf8");
      request.on("data", (text) => (body += text));
      request.on("end", () => {
        target.calls += 1;
        target.requests.push({ path: request.url, body });
        if (target.requests.length > KEPT_MAX) target.requests.shift();
        const status = target.statusAt[request.url] ?? target.status;
        response.writeHead(status, { "content-type": "text/plain" });
        response.end(status < 300 ? "accepted" : `order ${target.calls} has no customer`);
      });
    });
    await new Promise((ready) => target.server.listen(0, "127.0.0.1", ready));
    target.address = `http://127.0.0.1:${target.server.address().port}`;
    return target;
  }

  /** The bodies sent to a path. */
  bodiesAt(path) {
    return this.requests.filter((one) => one.path === path).map(({ body }) => body);
  }

  async stop() {
    this.server.closeAllConnections();
    await new Promise((closed) => this.server.close(closed));
  }
}
