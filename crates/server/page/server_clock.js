/** The server's clock: the browser's may be hours off. */

/** The `Date` header has whole seconds and arrives late: smaller differences are ignored. */
const SLACK_MS = 3000;
/** The average that rounding down to a second removes. */
const CUT_MS = 500;

let ahead = 0;

export const now = () => Date.now() + ahead;

/** Learns the offset from a `Date` header. */
export function learnTime(date) {
  const difference = Date.parse(date) + CUT_MS - Date.now();
  if (Number.isNaN(difference) || Math.abs(difference - ahead) <= SLACK_MS) return;
  ahead = Math.abs(difference) <= SLACK_MS ? 0 : difference;
}
