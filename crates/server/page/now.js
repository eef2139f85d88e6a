/** What time it is on the server, whose points in time the page shows: the clock of a browser may be hours off. */

/** Answers tell the time in whole seconds, and take a moment to come: what differs by less is no difference. */
const SLACK_MS = 3000;
/** They cut off what follows the second. */
const CUT_MS = 500;

let ahead = 0;

/** Now, by the server's clock. */
export const now = () => Date.now() + ahead;

/** Takes note of the time that an answer tells. */
export function learnTime(told) {
  const difference = Date.parse(told) + CUT_MS - Date.now();
  if (Number.isNaN(difference) || Math.abs(difference - ahead) <= SLACK_MS) return;
  ahead = Math.abs(difference) <= SLACK_MS ? 0 : difference;
}
