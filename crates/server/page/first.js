/** The line that sends a first event: to this server, of a type that somebody wants, with a key if one is needed. */

import { get } from "./api.js";
import { fill, slot } from "./dom.js";
import { me } from "./session.js";
import { command } from "./ui.js";

const UNWANTED = "greeting.sent";
let line = null;

/** The line; the rule book is asked for a type once. */
export function firstEvent() {
  if (line) return line;
  line = slot("div.command-place");
  write(UNWANTED);
  get("v1/services").then(({ services }) => {
    const types = services.flatMap((service) => service.rows.map((row) => row.type));
    const type = types.find((type) => type !== "*");
    if (type) write(type.replaceAll("*", "tried"));
  }, () => {});
  return line;
}

function write(type) {
  const key = me.value?.authentication === "on" ? ' -H "Authorization: Bearer $REDRIVE_KEY"' : "";
  const address = new URL(`v1/events/${type}`, location.href.split("#")[0]);
  fill(line, command(`curl${key} -d '{"hello":"world"}' ${address}`));
}
