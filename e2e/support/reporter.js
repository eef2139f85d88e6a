/**
 * Tells how the tests went, a line for each and one at the end with the sums.
 *
 * Files are tests too for some versions of node: they count only if they fail on their own account.
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

/** What a test died of; node wraps it in an error of its own. */
function reason(error) {
  const cause = error.cause ?? error;
  const text = cause.stack ?? String(cause);
  // The browser's log comes with colours, which a file does not want.
  return text.replace(/\u001b\[\d+m/g, "").replace(/^/gm, "    ");
}
