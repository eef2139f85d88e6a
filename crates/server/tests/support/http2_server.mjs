// An HTTPS server for tests, on Node's own HTTP/2.
//
//   node http2_server.mjs FOLDER MODE
//
// FOLDER has cert.pem and key.pem. MODE is `together` (answers once 50 requests are open), `each` (at once),
// `goodbye` (ends each session after one answer) or `http1` (speaks no HTTP/2). Prints its port, then a line of JSON
// for each session and request.
import { readFileSync } from "node:fs";
import http2 from "node:http2";
import https from "node:https";

const [folder, mode] = process.argv.slice(2);
const keys = { cert: readFileSync(`${folder}/cert.pem`), key: readFileSync(`${folder}/key.pem`) };
const say = (what) => console.log(JSON.stringify(what));
const waiting = [];

function answer(request, response) {
  say({ version: request.httpVersion, path: request.url, host: request.headers[":authority"] ?? request.headers.host });
  request.resume();
  if (mode === "goodbye") {
    response.on("finish", () => request.stream.session.close());
  }
  if (mode !== "together") {
    response.end("taken");
    return;
  }
  waiting.push(response);
  if (waiting.length === 50) {
    for (const one of waiting) one.end("taken");
  }
}

const server = mode === "http1" ? https.createServer(keys, answer) : http2.createSecureServer(keys, answer);
server.on(mode === "http1" ? "secureConnection" : "session", () => say({ connection: true }));
server.listen(0, "127.0.0.1", () => console.log(`port ${server.address().port}`));
