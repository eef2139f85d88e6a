//! A plot as a picture that stands alone, as a file or in a document: the pictures of the docs, which tests make.
//!
//! It brings its own styles, for light and dark, because nobody else does.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

use super::{Entry, Mark, Plot, caption, escape, field, legend, words};

// Its measures, in pixels, and its colours.

const WIDTH: usize = 760;
const MARGIN: usize = 20;
const FIELD_LEFT: usize = 62;
const FIELD_TOP: usize = 78;
const FIELD_HEIGHT: usize = 210;
const FIELD_BOTTOM: usize = 36;
const CAPTION_ROOM: usize = 20;
const LEGEND_TOP: usize = 49;
const LEGEND_ROW: usize = 20;

/// How wide a letter is about, and what lies before the words of an entry and behind them.
const LETTER: usize = 7;
const SWATCH: usize = 20;
const ENTRY_GAP: usize = 18;

const STYLE: &str = "\
.alone{color-scheme:light dark;font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif;\
--ground:#fffefb;--line:#dedbd2;--strong:#b9b5a9;--ink:#1b1a17;--dim:#5f5b52}\
.info{--fill:#2f80c4}.good{--fill:#1d9e6c}.warn{--fill:#e0931f}.bad{--fill:#d63c31}.hold{--fill:#8261d8}\
.ink{--fill:#1b1a17}\
@media(prefers-color-scheme:dark){.alone{--ground:#1a1b1d;--line:#2d2f33;--strong:#4a4d53;--ink:#ebe9e4;--dim:#a5a29a}\
.info{--fill:#5aa9e8}.good{--fill:#3fb583}.warn{--fill:#dd9d33}.bad{--fill:#f26b5c}.hold{--fill:#a78bf0}\
.ink{--fill:#ebe9e4}}\
.ground{fill:var(--ground)}svg{overflow:visible}text{fill:var(--dim)}.title{font-size:15px;font-weight:600;fill:var(--ink)}\
.end{text-anchor:end}.middle{text-anchor:middle}.grid{stroke:var(--line)}.axis{stroke:var(--strong)}\
.band{fill:var(--fill);opacity:.13}.state{fill:var(--fill)}.rest{fill:var(--line)}\
.limit{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:2 4}.named{fill:var(--ink)}\
.stroke{fill:none;stroke:var(--fill);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\
.dashed{stroke-dasharray:6 5}.single{stroke-width:7}.area{fill:var(--fill);opacity:.16}";

/// A picture of its own.
pub(crate) fn svg(plot: &Plot) -> String {
    let legend = legend(plot);
    let (entries, legend_rows) = legend_in_rows(&legend);
    let top = FIELD_TOP + LEGEND_ROW * (legend_rows.max(1) - 1);
    let caption_room = if caption(&plot.unit_x).is_empty() { 0 } else { CAPTION_ROOM };
    let height = top + FIELD_HEIGHT + FIELD_BOTTOM + caption_room;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"alone\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n{}<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n\
         <text class=\"title\" x=\"{MARGIN}\" y=\"26\">{}</text>\n{entries}",
        words(plot),
        escape(&plot.title),
    );
    let unit = caption(&plot.unit_y);
    if !unit.is_empty() {
        let right = WIDTH - MARGIN;
        let _ = writeln!(out, "<text class=\"end\" x=\"{right}\" y=\"26\">{}</text>", escape(unit));
    }
    let width = WIDTH - FIELD_LEFT - MARGIN;
    let _ = write!(
        out,
        "<svg class=\"canvas\" x=\"{FIELD_LEFT}\" y=\"{top}\" width=\"{width}\" height=\"{FIELD_HEIGHT}\">\n{}</svg>\n</svg>\n",
        field(plot),
    );
    out
}

/// The legend as SVG, and how many rows it takes.
fn legend_in_rows(entries: &[Entry]) -> (String, usize) {
    let mut out = String::new();
    let (mut x, mut row) = (MARGIN, 0);
    for Entry { name, tone, mark } in entries {
        let width = SWATCH + name.width() * LETTER;
        if x > MARGIN && x + width > WIDTH - MARGIN {
            (x, row) = (MARGIN, row + 1);
        }
        let y = LEGEND_TOP + row * LEGEND_ROW;
        let tone = tone.as_str();
        let (middle, right, high) = (y - 4, x + 14, y - 9);
        let swatch = match mark {
            Mark::Solid => format!("<path class=\"stroke {tone}\" d=\"M{x} {middle}H{right}\"/>"),
            Mark::Dashed => format!("<path class=\"stroke dashed {tone}\" d=\"M{x} {middle}H{right}\"/>"),
            Mark::Band => format!(
                "<rect class=\"band {tone}\" x=\"{x}\" y=\"{high}\" width=\"14\" height=\"10\" rx=\"2\"/>"
            ),
            Mark::State => format!(
                "<rect class=\"state {tone}\" x=\"{x}\" y=\"{high}\" width=\"14\" height=\"10\" rx=\"2\"/>"
            ),
            Mark::Limit => {
                format!("<line class=\"limit\" x1=\"{x}\" x2=\"{right}\" y1=\"{middle}\" y2=\"{middle}\"/>")
            }
        };
        let _ = writeln!(out, "{swatch}<text x=\"{}\" y=\"{y}\">{}</text>", x + SWATCH, escape(name));
        x += width + ENTRY_GAP;
    }
    (out, row + 1)
}
