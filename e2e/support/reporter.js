/**
 * Prints one line per test and the totals.
 *
 * Some versions of node report files as tests: they count only if they fail by themselves.
 */

export default async function* report(events) {
  const sums = { passed: 0, failed: 0 };
  for await (const { type, data } of events) {
    if (type === "test:pass" && !isFile(data)) {
      sums.passed += 1;
      yield `test ${data.name} ... ok (${seconds(data)})\n`;
    }
    if (type === "test:fail" && data.details.error.failureType !== "subtestsFailed") {
      sums.failed += 1;
      yield `test ${data.name} ... FAILED (${seconds(data)})\n${reason(data.details.error)}\n`;
    }
    if (type === "test:stdout" || type === "test:stderr") yield data.message;
  }
  yield `\ne2e: ${sums.passed} passed, ${sums.failed} failed\n`;
}

function isFile({ name }) {
  return name.endsWith(".test.js");
}

function seconds({ details }) {
  return `${(details.duration_ms / 1000).toFixed(1)} s`;
}

/** The failure of a test; node wraps it in another error. */
function reason(error) {
  const cause = error.cause ?? error;
  const text = cause.stack ?? String(cause);
  // Remove terminal colours.
  return text.replace(/\u001b\[\d+m/g, "").replace(/^/gm, "    ");
}
