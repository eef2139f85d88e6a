/** The docs images are drawn by the page's charts. `REDRIVE_UPDATE=1` writes them. */

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import test, { after, before } from "node:test";

import { alone } from "./support/alone.js";
import { Stage } from "./support/stage.js";

const IMAGES = new URL("../docs/images/", import.meta.url);
const BOOK = (target) => `version: 1\nservices: { shop: { target: { http: "${target}/" }, events: ["orders.*"] } }\n`;

let stage;

before(async () => {
  stage = await Stage.open(BOOK);
});
after(() => stage?.close());

test("the docs images are up to date", async () => {
  const charts = JSON.parse(await readFile(new URL("charts.json", IMAGES), "utf8"));
  await stage.visit({}, async (page) => {
    for (const [name, chart] of Object.entries(charts)) {
      const file = new URL(`${name}.svg`, IMAGES);
      const picture = await page.evaluate(alone, chart);
      if (process.env.REDRIVE_UPDATE) await writeFile(file, picture);
      assert.ok((await readFile(file, "utf8")) === picture, `docs/images/${name}.svg is out of date: run REDRIVE_UPDATE=1 scripts/browser-test`);
    }
  });
});

/** The drawn parts of a chart that the tests check. */
const drawn = (page, plot) =>
  page.evaluate(async (plot) => {
    const { chart } = await import("/page/simulation/chart.js");
    const figure = chart({ title: "Calls", y: { unit: "number" }, ...plot });
    const found = (what) => [...figure.querySelectorAll(what)];
    return {
      text: figure.outerHTML,
      strokes: found(".stroke").length,
      singles: found(".stroke.single").length,
      limits: found(".limit").length,
      legend: found(".legend li").map((entry) => entry.textContent),
      marks: found("text.end:not(.named)").map((mark) => mark.textContent),
      dots: found("circle").length,
      names: found("text[dy='1.5em']").map((mark) => mark.textContent),
    };
  }, plot);

const lineOf = (points, name = "calls") => ({ name, tone: "info", look: "filled", points });

test("charts accept no points, one point, gaps and any number", async () => {
  await stage.visit({}, async (page) => {
    const cases = [
      ["nothing", [], 0],
      ["one point", [[1, 2]], 1],
      ["a gap", [[0, 1], [1, 1], [2, null], [3, 1], [4, 1]], 2],
      ["only gaps", [[0, null], [1, null]], 0],
      ["all at one time", [[5, 1], [5, 2]], 1],
      ["a huge number", [[0, 1e300], [1, 1e17]], 1],
      ["a tiny number", [[0, 1e-12], [1, 2e-12]], 1],
    ];
    for (const [name, points, strokes] of cases) {
      for (const unit of ["time", "count", "number"]) {
        const found = await drawn(page, { y: { unit, name: "calls" }, lines: [lineOf(points)], bands: [{ name: "down", tone: "bad", from: null, to: 1 }] });
        assert.equal(found.strokes, strokes, `${name} in ${unit}`);
        assert.doesNotMatch(found.text, /NaN|Infinity|undefined/, `${name} in ${unit}`);
      }
    }
    assert.equal((await drawn(page, { lines: [lineOf([[1, 2]])] })).singles, 1);
  });
});

test("a distant limit does not flatten the lines", async () => {
  await stage.visit({}, async (page) => {
    for (const [at, limits, legend] of [[15, 1, "capacity 15"], [1000, 0, "capacity 1K, off the chart"]]) {
      const found = await drawn(page, { lines: [lineOf([[0, 1], [1, 10]])], limits: [{ name: "capacity", at }] });
      assert.equal(found.limits, limits);
      assert.ok(found.legend.includes(legend), found.legend.join());
    }
  });
});

test("axes have few marks, at round numbers", async () => {
  await stage.visit({}, async (page) => {
    const cases = [
      ["number", 0, "0 0.5 1"], ["count", 0, "0 1 2 3 4"], ["count", 7, "0 2 4 6 8"], ["count", 80, "0 20 40 60 80"],
      ["number", 317, "0 100 200 300 400"], ["count", 5300, "0 2K 4K 6K"], ["count", 1.9e6, "0 500K 1M 1.5M 2M"],
      ["number", 0.37, "0 0.1 0.2 0.3 0.4"], ["number", 0.004, "0 0.001 0.002 0.003 0.004"],
      ["time", 0.35, "0 100ms 200ms 300ms 400ms"], ["time", 40, "0 10s 20s 30s 40s"], ["time", 1800, "0 10m 20m 30m"], ["time", 864_000, "0 5d 10d"],
    ];
    for (const [unit, top, marks] of cases) {
      const found = await drawn(page, { y: { unit }, lines: [lineOf([[0, 0], [1, top]])] });
      assert.equal(found.marks.join(" "), marks, `${unit} up to ${top}`);
    }
    const across = [["time", 0, 1800, "0 5m 10m 15m 20m 25m 30m"], ["time", 0, 1937, "0 10m 20m 30m"], ["number", 37, 93, "40 50 60 70 80 90"], ["number", 0, 0.6, "0 0.1 0.2 0.3 0.4 0.5 0.6"]];
    for (const [unit, from, to, marks] of across) {
      const found = await drawn(page, { x: { unit }, lines: [lineOf([[from, 1], [to, 1]])] });
      assert.equal(found.names.join(" "), marks, `${unit} from ${from} to ${to}`);
    }
  });
});

test("all places are marked, and as many named as fit", async () => {
  await stage.visit({}, async (page) => {
    for (const [count, name, named] of [[3, "n", 3], [40, "n", 8], [2, "a-long-name-", 2]]) {
      const places = Array.from({ length: count }, (_, at) => ({ at, name: `${name}${at}` }));
      const found = await drawn(page, { lines: [lineOf(places.map(({ at }) => [at, at]))], places });
      assert.deepEqual([found.dots, found.names.length], [count, named], `${count} of ${name}`);
    }
  });
});
