/** A chart as a standalone SVG file with its own styles; runs in the page. */

/** The text of an SVG file with the chart of `plot`. */
export async function alone(plot) {
  const STYLE =
    ".alone{color-scheme:light dark;font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif;" +
    "--ground:#fffefb;--line:#dedbd2;--strong:#b9b5a9;--ink:#1b1a17;--dim:#5f5b52}" +
    ".info{--fill:#2f80c4}.good{--fill:#1d9e6c}.warn{--fill:#e0931f}.bad{--fill:#d63c31}.hold{--fill:#8261d8}.ink{--fill:#1b1a17}" +
    "@media(prefers-color-scheme:dark){.alone{--ground:#1a1b1d;--line:#2d2f33;--strong:#4a4d53;--ink:#ebe9e4;--dim:#a5a29a}" +
    ".info{--fill:#5aa9e8}.good{--fill:#3fb583}.warn{--fill:#dd9d33}.bad{--fill:#f26b5c}.hold{--fill:#a78bf0}.ink{--fill:#ebe9e4}}" +
    ".ground{fill:var(--ground)}svg{overflow:visible}text{fill:var(--dim)}.title{font-size:15px;font-weight:600;fill:var(--ink)}" +
    ".end{text-anchor:end}.middle{text-anchor:middle}.grid{stroke:var(--line)}.axis{stroke:var(--strong)}" +
    ".band,.shade{fill:var(--fill);opacity:.13}.state{fill:var(--fill)}.rest{fill:var(--line)}" +
    ".limit,.bound{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:2 4}.named{fill:var(--ink)}" +
    ".stroke{fill:none;stroke:var(--fill);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}" +
    ".dashed{stroke-dasharray:6 5}.single{stroke-width:7}.area{fill:var(--fill);opacity:.16}";
  const [WIDTH, MARGIN, LEFT, HEIGHT, BOTTOM, ROW, LETTER, SWATCH, GAP] = [760, 20, 62, 210, 36, 20, 7, 20, 18];
  const { chart } = await import("/page/simulation/chart.js");
  const { s } = await import("/page/dom.js");
  const figure = chart(plot);
  let [x, y] = [MARGIN, 49];
  const entries = [...figure.querySelectorAll(".legend li")].map((entry) => {
    const width = SWATCH + entry.textContent.length * LETTER;
    if (x > MARGIN && x + width > WIDTH - MARGIN) [x, y] = [MARGIN, y + ROW];
    const [tone, mark] = entry.classList;
    const swatch = { solid: "stroke", dashes: "stroke dashed", bound: "bound" }[mark];
    const drawn = swatch
      ? s("path", { class: `${swatch} ${tone}`, d: `M${x} ${y - 4}H${x + 14}` })
      : s("rect", { class: `${mark} ${tone}`, x, y: y - 9, width: 14, height: 10, rx: 2 });
    const text = s("text", { x: x + SWATCH, y }, entry.textContent);
    x += width + GAP;
    return ["\n", drawn, text];
  });
  const top = y + 29;
  const height = top + HEIGHT + BOTTOM;
  const canvas = figure.querySelector("svg.canvas");
  const [title, desc, ...field] = canvas.children;
  const unit = figure.querySelector("figcaption > .dim")?.textContent;
  const picture = s("svg.alone", { width: WIDTH, height, viewBox: `0 0 ${WIDTH} ${height}`, role: "img" }, [
    "\n", title, desc, s("style", STYLE),
    "\n", s("rect.ground", { width: WIDTH, height, rx: 8 }),
    "\n", s("text.title", { x: MARGIN, y: 26 }, title.textContent),
    unit && s("text.end", { x: WIDTH - MARGIN, y: 26 }, unit),
    entries,
    "\n", s("svg", { x: LEFT, y: top, width: WIDTH - LEFT - MARGIN, height: HEIGHT }, field.map((part) => ["\n", part])),
    "\n",
  ]);
  return `${new XMLSerializer().serializeToString(picture)}\n`;
}
