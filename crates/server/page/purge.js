/** Purges dead letters: counts them first, and deletes only those that were counted. */

import { open } from "./api.js";
import { ask, toast } from "./dialog.js";
import { h } from "./dom.js";
import { counted } from "./format.js";

/** The result of a purge. A long purge sends progress lines; the last line is the result. */
async function request(body) {
  const answer = await open("v1/dead-letters/purge", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const last = JSON.parse((await answer.text()).trim().split("\n").at(-1));
  if (last.error) throw new Error(last.error);
  return last;
}

/** Confirms, then deletes the dead letters that match `filter`; true if it was done. */
export async function purge(filter, target) {
  let survey;
  try {
    survey = await request({ ...filter, dry_run: true });
  } catch (error) {
    toast(error.message, "bad");
    return false;
  }
  let deleted = 0;
  const done = await ask({
    title: `Purge ${target}?`,
    description: [
      h("p", h("b", counted(survey.deleted, "dead letter")), " will be deleted, with event, attempts and reason. This cannot be undone."),
      survey.holding > 0 && h("p", `${counted(survey.holding, "blocked session")} will resume without them.`),
      survey.claimed > 0 && h("p", `${counted(survey.claimed, "dead letter")} in open replays will be kept.`),
      h("p.dim", "Deliveries that fail from now on are kept."),
    ],
    fields: [{ name: "note", label: "Why", hint: "Saved in the audit log.", autocomplete: "off" }],
    act: `Delete ${counted(survey.deleted, "dead letter")}`,
    danger: true,
    submit: async ({ note }) => {
      ({ deleted } = await request({ ...filter, died_until: survey.died_until, ...(note && { note }) }));
    },
  });
  if (done) toast(`${counted(deleted, "dead letter")} deleted`);
  return done !== null;
}
