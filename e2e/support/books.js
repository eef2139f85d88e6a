/** The rule books that several tests begin with. */

/** One service that wants all orders; what it refuses is a dead letter at once, and no breaker opens. */
export const ONE_TRY = (target) => `
version: 1
services:
  billing:
    target: { http: "${target}/billing" }
    retry: none
    breaker: none
    events: ["orders.*"]
`;

/** The same by the rules that hold where a book says nothing. */
export const BY_DEFAULT = (target) => `
version: 1
services:
  billing:
    target: { http: "${target}/billing" }
    events: ["orders.*"]
`;
