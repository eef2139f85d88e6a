/**
 * Lists for those whose key is bound to services. The server wants to hear which of them is meant, so each is asked
 * for by itself, and what comes is put together; whoever is bound to none asks once, for all.
 */

import { get } from "./api.js";
import { boundTo } from "./session.js";

/** Whether the one who looks may see several services, and can ask for all of them only one by one. */
export const isBoundToSeveral = () => boundTo()?.length > 1;

/** The service that is meant where none was chosen: the only one that the one who looks is bound to. */
export const onlyService = () => (isBoundToSeveral() ? null : boundTo()?.[0]);

/** What the list at `path` has for each service, or for the one that the query names. */
function answers(path, query, signal) {
  const services = query.service ? [query.service] : (boundTo() ?? [null]);
  return Promise.all(services.map((service) => get(path, { ...query, service }, signal)));
}

/** Failure groups, the most frequent first; a cause is one of a single service, so no two answers share one. */
export async function failureGroups(query, signal) {
  const found = await answers("v1/failure-groups", query, signal);
  return { groups: found.flatMap(({ groups }) => groups).sort((a, b) => b.count - a.count) };
}

/** Deliveries, the latest first. */
export const deliveries = (query, signal) => latest("v1/deliveries", "deliveries", "accepted_at", query, signal);

/** Dead letters, the latest first. */
export const deadLetters = (query, signal) => latest("v1/dead-letters", "dead_letters", "died_at", query, signal);

/**
 * The latest of all services as one list, as long as the list of one would be. Where several have something, nobody
 * knows a place at which all of them go on: `isCut` says that there is more, and one service has to be chosen to see it.
 */
async function latest(path, name, at, query, signal) {
  const found = await answers(path, query, signal);
  const telling = found.filter((answer) => answer[name].length > 0 || answer.next);
  if (telling.length < 2) return telling[0] ?? found[0];
  const rows = telling.flatMap((answer) => answer[name]).sort((a, b) => Date.parse(b[at]) - Date.parse(a[at]));
  return { [name]: rows.slice(0, query.limit), isCut: rows.length > query.limit || telling.some(({ next }) => next) };
}
