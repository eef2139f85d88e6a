/** A service that events are delivered to: it answers what the test tells it to, and can be mended. */

import { createServer } from "node:http";

export class Target {
  /** The status of every answer from now on. */
  status = 200;
  /** How often it was called. */
  calls = 0;

  static async start() {
    const target = new Target();
    target.server = createServer((request, response) => {
      request.resume();
      request.on("end", () => {
        target.calls += 1;
        response.writeHead(target.status, { "content-type": "text/plain" });
        response.end(target.status < 300 ? "taken" : `order ${target.calls} has no customer`);
      });
    });
    await new Promise((ready) => target.server.listen(0, "127.0.0.1", ready));
    target.address = `http://127.0.0.1:${target.server.address().port}`;
    return target;
  }

  async stop() {
    this.server.closeAllConnections();
    await new Promise((closed) => this.server.close(closed));
  }
}
