/** The `curl` command for a first event: to this server, of a subscribed type, with a key if one is required. */

import { get } from "./api.js";
import { fill, slot } from "./dom.js";
import { me } from "./session.js";
import { command } from "./ui.js";

const DEFAULT_TYPE = "greeting.sent";
let line = null;

export function firstEvent() {
  if (line) return line;
  line = slot("div.command-place");
  write(DEFAULT_TYPE);
  get("v1/services").then(({ services }) => {
    const types = services.flatMap((service) => service.rows.map((row) => row.type));
    const type = types.find((type) => type !== "*");
    if (type) write(type.replaceAll("*", "test"));
  }, () => {});
  return line;
}

function write(type) {
  const key = me.value?.authentication === "on" ? ' -H "Authorization: Bearer $REDRIVE_KEY"' : "";
  const address = new URL(`v1/events/${type}`, location.href.split("#")[0]);
  fill(line, command(`curl${key} -d '{"hello":"world"}' ${address}`));
}
