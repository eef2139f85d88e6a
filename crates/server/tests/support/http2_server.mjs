// An HTTPS server for tests, on Node's own HTTP/2.
//
//   node http2_server.mjs FOLDER MODE
//
// FOLDER has cert.pem and key.pem. MODE is `slow` (answers after a while), `goodbye` (ends each
// session after one answer) or `http1` (speaks no HTTP/2). Prints its port, then a line of JSON for each connection and
// request.
import { readFileSync } from "node:fs";
import http2 from "node:http2";
import https from "node:https";

const [folder, mode] = process.argv.slice(2);
const keys = { cert: readFileSync(`${folder}/cert.pem`), key: readFileSync(`${folder}/key.pem`) };
const say = (what) => console.log(JSON.stringify(what));
let open = 0;

function answer(request, response) {
  open += 1;
  say({ version: request.httpVersion, open });
  request.resume();
  if (mode === "goodbye") {
    const { session } = request.stream;
    response.on("finish", () => session.close());
  }
  const end = () => {
    open -= 1;
    response.end("taken");
  };
  if (mode === "slow") setTimeout(end, 500);
  else end();
}

const server = mode === "http1" ? https.createServer(keys, answer) : http2.createSecureServer(keys, answer);
server.on(mode === "http1" ? "secureConnection" : "session", () => say({ connection: true }));
server.listen(0, "127.0.0.1", () => console.log(`port ${server.address().port}`));
