/**
 * Lists for API keys that are limited to some services. The server requires a service for such keys, so the page sends
 * one request per service and merges the results. Other keys need one request.
 */

import { get } from "./api.js";
import { boundTo } from "./session.js";

export const isBoundToSeveral = () => boundTo()?.length > 1;

/** The default service of a key that is limited to exactly one. */
export const onlyService = () => (isBoundToSeveral() ? null : boundTo()?.[0]);

/** The list at `path` for each service of the key, or for the service in the query. */
function answers(path, query, signal) {
  const services = query.service ? [query.service] : (boundTo() ?? [null]);
  return Promise.all(services.map((service) => get(path, { ...query, service }, signal)));
}

/** Failure groups, largest first. A group belongs to one service, so no two responses share one. */
export async function failureGroups(query, signal) {
  const found = await answers("v1/failure-groups", query, signal);
  return { groups: found.flatMap(({ groups }) => groups).sort((a, b) => b.count - a.count) };
}

/** Deliveries, latest first. */
export const deliveries = (query, signal) => latest("v1/deliveries", "deliveries", "accepted_at", query, signal);

/** Dead letters, latest first. */
export const deadLetters = (query, signal) => latest("v1/dead-letters", "dead_letters", "died_at", query, signal);

/**
 * The latest rows of all services as one list. Cursors of several services cannot be merged: `isCut` means that there
 * are more rows, which are visible after choosing one service.
 */
async function latest(path, name, at, query, signal) {
  const found = await answers(path, query, signal);
  const filled = found.filter((answer) => answer[name].length > 0 || answer.next);
  if (filled.length < 2) return filled[0] ?? found[0];
  const rows = filled.flatMap((answer) => answer[name]).sort((a, b) => Date.parse(b[at]) - Date.parse(a[at]));
  return { [name]: rows.slice(0, query.limit), isCut: rows.length > query.limit || filled.some(({ next }) => next) };
}
