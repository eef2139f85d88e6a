/** Rule books that several tests use. */

/** One service without retries and without a breaker. */
export const ONE_TRY = (target) => `
version: 1
services:
  billing:
    target: { http: "${target}/billing" }
    retry: none
    breaker: none
    events: ["orders.*"]
`;

/** The same with default rules. */
export const BY_DEFAULT = (target) => `
version: 1
services:
  billing:
    target: { http: "${target}/billing" }
    events: ["orders.*"]
`;
