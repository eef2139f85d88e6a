/** Deletes dead letters: says first how many it would be, and deletes no more than that. */

import { open } from "./api.js";
import { ask, toast } from "./dialog.js";
import { h } from "./dom.js";
import { counted } from "./format.js";

/** What the server says of a purge; a long one tells how far it is, a line at a time, and the last counts. */
async function asked(body) {
  const answer = await open("v1/dead-letters/purge", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const last = JSON.parse((await answer.text()).trim().split("\n").at(-1));
  if (last.error) throw new Error(last.error);
  return last;
}

/** Asks, and deletes the letters that `filter` names, or that its `letters` are; true if it was done. */
export async function purge(filter, words) {
  let survey;
  try {
    survey = await asked({ ...filter, dry_run: true });
  } catch (error) {
    toast(error.message, "bad");
    return false;
  }
  let deleted = 0;
  const done = await ask({
    title: `Purge ${words}?`,
    says: [
      h("p", h("b", counted(survey.deleted, "dead letter")), " will be deleted, with event, attempts and reason. Nobody can bring them back."),
      survey.holding > 0 && h("p", `${counted(survey.holding, "session")} that they hold will go on without them.`),
      survey.claimed > 0 && h("p", `${counted(survey.claimed, "letter")} of open replays will stay.`),
      h("p.dim", "What dies from now on stays."),
    ],
    fields: [{ name: "note", label: "Why", hint: "Kept on record.", autocomplete: "off" }],
    act: `Delete ${counted(survey.deleted, "letter")}`,
    danger: true,
    doing: async ({ note }) => {
      ({ deleted } = await asked({ ...filter, died_until: survey.died_until, ...(note && { note }) }));
    },
  });
  if (done) toast(`${counted(deleted, "dead letter")} deleted`);
  return done !== null;
}
