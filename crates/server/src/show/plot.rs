//! Plots as SVG: lines over an axis, with times that are shaded, limits, and a strip of states above.
//!
//! [`figure`] makes a part of a page, which brings the styles; `svg` a picture that stands alone, for the docs. What is
//! drawn lies at shares of its place, so that text keeps its size on a phone and on a wall.
//!
//! Invariants:
//! - the same plot gives the same bytes, on every machine;
//! - it takes no points, one, or many; what is no number is a gap, and no coordinate is ever anything but a number;
//! - every text is escaped; nothing is asked for from elsewhere; a part of a page has no style and no script.

#[cfg(test)]
mod alone;
mod ticks;

use std::fmt::Write as _;

#[cfg(test)]
pub(crate) use self::alone::svg;
use self::ticks::trimmed;
use super::markup::escape;

/// What is drawn. Values are not below zero; those of an axis of time are seconds.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// What it shows, in a few words.
    pub(crate) title: String,
    /// What is counted from left to right.
    pub(crate) unit_x: Unit,
    /// What is counted from bottom to top.
    pub(crate) unit_y: Unit,
    /// The lines, the one in front last.
    pub(crate) series: Vec<Line>,
    /// What is shaded from top to bottom.
    pub(crate) bands: Vec<Band>,
    /// What is drawn from left to right.
    pub(crate) limits: Vec<Limit>,
    /// How something was over time, above all.
    pub(crate) strip: Option<Strip>,
    /// What is marked from left to right, on the axis and on the lines; where nothing is, the axis has even marks.
    pub(crate) places: Vec<Place>,
}

/// A place on the axis that has a name.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Where it lies.
    pub(crate) at: f64,
    /// What it is called.
    pub(crate) name: String,
}

/// What an axis counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Seconds, shown in the unit that suits them.
    Time,
    /// Whole things of this name.
    Count(String),
    /// A number of this name.
    Number(String),
}

/// A line, which has gaps where a value is no number.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// What it is.
    pub(crate) name: String,
    /// Its colour.
    pub(crate) tone: Tone,
    /// How it is drawn.
    pub(crate) look: Look,
    /// Where it goes, from left to right.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A time that is shaded.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    /// What it is; those of the same name are one in the legend, and those without a name are not in it.
    pub(crate) name: String,
    /// Its colour.
    pub(crate) tone: Tone,
    /// Where it begins.
    pub(crate) from: f64,
    /// Where it ends.
    pub(crate) to: f64,
}

/// A value that is not to be passed.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    /// What it is.
    pub(crate) name: String,
    /// Where it lies.
    pub(crate) at: f64,
}

/// How something was over time.
#[derive(Clone, Debug)]
pub(crate) struct Strip {
    /// What it was that was so.
    pub(crate) name: String,
    /// How it was, and when; in between it was as it should be.
    pub(crate) spans: Vec<Band>,
}

/// The colours of lines and bands, named as on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Info,
    Good,
    Warn,
    Bad,
    Hold,
    Ink,
}

impl Tone {
    /// Its class.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Hold => "hold",
            Self::Ink => "ink",
        }
    }
}

/// How a line is drawn, so that lines differ even to those who see no colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// As a line.
    Solid,
    /// As a line with what is below it filled.
    Filled,
    /// As a line of dashes.
    Dashed,
}

/// A part of a page: the drawing with its title and legend above.
pub(crate) fn figure(plot: &Plot) -> String {
    let mut out = String::from("<figure class=\"drawn\">\n<figcaption>");
    let _ = write!(out, "<b>{}</b>", escape(&plot.title));
    let unit = caption(&plot.unit_y);
    if !unit.is_empty() {
        let _ = write!(out, " <span class=\"dim\">{}</span>", escape(unit));
    }
    let entries = legend(plot);
    // The title says what a single line is.
    if entries.len() > 1 {
        out.push_str("<ul class=\"legend\">");
        for Entry { name, tone, mark } in entries {
            let (tone, mark, name) = (tone.as_str(), mark.as_str(), escape(&name));
            let _ = write!(out, "<li class=\"{tone} {mark}\"><i></i>{name}</li>");
        }
        out.push_str("</ul>");
    }
    let captioned = if caption(&plot.unit_x).is_empty() { "" } else { " captioned" };
    let striped = if plot.strip.is_some() { " striped" } else { "" };
    let _ = write!(
        out,
        "</figcaption>\n<svg class=\"canvas{captioned}{striped}\" role=\"img\">\n{}{}</svg>\n</figure>\n",
        words(plot),
        field(plot)
    );
    out
}

// --- What stands in words ---------------------------------------------------------------------------

/// A line of the legend.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    tone: Tone,
    mark: Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Solid,
    Dashed,
    Band,
    State,
    Limit,
}

impl Mark {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Solid => "solid",
            Self::Dashed => "dashes",
            Self::Band => "shade",
            Self::State => "state",
            Self::Limit => "bound",
        }
    }
}

fn legend(plot: &Plot) -> Vec<Entry> {
    let of_line = |line: &Line| {
        let mark = match line.look {
            Look::Solid | Look::Filled => Mark::Solid,
            Look::Dashed => Mark::Dashed,
        };
        Entry { name: line.name.clone(), tone: line.tone, mark }
    };
    let top = Scale::of(plot).top();
    let of_limit = |limit: &Limit| {
        let at = ticks::label(&plot.unit_y, limit.at);
        let beyond = if limit.at > top { ", above all this" } else { "" };
        Entry { name: format!("{} {at}{beyond}", limit.name), tone: Tone::Ink, mark: Mark::Limit }
    };
    let of_band = |mark: Mark| move |band: &Band| Entry { name: band.name.clone(), tone: band.tone, mark };
    let mut entries: Vec<Entry> = plot.series.iter().map(of_line).collect();
    entries.extend(plot.limits.iter().filter(|limit| limit.at.is_finite()).map(of_limit));
    let spans = plot.strip.iter().flat_map(|strip| &strip.spans);
    for entry in plot.bands.iter().map(of_band(Mark::Band)).chain(spans.map(of_band(Mark::State))) {
        if !entry.name.is_empty() && !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries
}

/// What it shows for those who do not see it.
fn words(plot: &Plot) -> String {
    let said: Vec<String> = plot.series.iter().map(|line| summary(line, plot)).collect();
    format!("<title>{}</title><desc>{}</desc>\n", escape(&plot.title), escape(&said.join("; ")))
}

fn summary(line: &Line, plot: &Plot) -> String {
    let told = || line.points.iter().filter(|point| is_told(point));
    let highest = told().max_by(|(_, one), (_, other)| one.total_cmp(other));
    let (Some((x, most)), Some((_, last))) = (highest, told().next_back()) else {
        return format!("{}: nothing", line.name);
    };
    let x = name_at(plot, *x);
    let (most, last) = (ticks::label(&plot.unit_y, *most), ticks::label(&plot.unit_y, *last));
    format!("{}: at most {most}, at {x}; {last} at the end", line.name)
}

/// What the axis says of a place.
#[expect(clippy::float_cmp, reason = "a point that is marked lies exactly there")]
fn name_at(plot: &Plot, x: f64) -> String {
    let place = plot.places.iter().find(|place| place.at == x);
    place.map_or_else(|| ticks::label(&plot.unit_x, x), |place| place.name.clone())
}

fn caption(unit: &Unit) -> &str {
    match unit {
        Unit::Time => "",
        Unit::Count(name) | Unit::Number(name) => name,
    }
}

// --- The drawing ------------------------------------------------------------------------------------

/// No value is drawn that is larger: beyond it there is no telling numbers from noise.
const VALUE_MAX: f64 = 1e18;
/// Lines are drawn in so many units each way.
const UNITS: f64 = 1_000.0;
/// At most so many steps between marks.
const STEPS_X: u32 = 6;
const STEPS_Y: u32 = 4;
/// A limit that is more than so many times what is drawn is left to the legend.
const LIMIT_TIMES_MAX: f64 = 2.5;
const ROOM_ABOVE_LIMIT: f64 = 1.15;

fn is_told((x, y): &(f64, f64)) -> bool {
    x.abs() < VALUE_MAX && y.abs() < VALUE_MAX
}

/// How values become places.
struct Scale {
    from: f64,
    to: f64,
    marks_x: Vec<f64>,
    marks_y: Vec<f64>,
}

impl Scale {
    fn of(plot: &Plot) -> Self {
        let points = || plot.series.iter().flat_map(|line| &line.points).filter(|point| is_told(point));
        let most = points().map(|(_, y)| *y).fold(0.0, f64::max);
        let is_near = |at: &f64| *at < VALUE_MAX && (most <= 0.0 || *at <= most * LIMIT_TIMES_MAX);
        // The name of a limit stands above it, and must not reach into the strip.
        let room = if plot.strip.is_some() { ROOM_ABOVE_LIMIT } else { 1.0 };
        let limits = plot.limits.iter().map(|limit| limit.at).filter(is_near);
        let top = limits.map(|at| at * room).fold(most, f64::max);
        let shaded = plot.bands.iter().flat_map(|band| [band.from, band.to]).filter(|x| x.abs() < VALUE_MAX);
        // Where there is nothing to draw, there still is time, so that plots beside each other have the same.
        let all = plot.series.iter().flat_map(|line| &line.points).map(|(x, _)| *x);
        let all = all.filter(|x| x.abs() < VALUE_MAX);
        let xs: Vec<f64> = if points().next().is_some() { all.collect() } else { shaded.collect() };
        let from = xs.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let to = xs.iter().copied().reduce(f64::max).unwrap_or(1.0);
        let to = if to > from { to } else { from + 1.0 };
        let is_named = !plot.places.is_empty();
        let marks_x = if is_named { Vec::new() } else { ticks::between(&plot.unit_x, from, to, STEPS_X) };
        Self { from, to, marks_x, marks_y: ticks::from_zero(&plot.unit_y, top, STEPS_Y) }
    }

    fn top(&self) -> f64 {
        self.marks_y.last().copied().unwrap_or(1.0)
    }

    /// From 0 at the left to 1 at the right.
    fn x(&self, value: f64) -> f64 {
        if value.is_nan() { 0.0 } else { ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0) }
    }

    /// From 0 at the top to 1 at the bottom.
    fn y(&self, value: f64) -> f64 {
        1.0 - (value / self.top()).clamp(0.0, 1.0)
    }
}

fn percent(share: f64) -> String {
    format!("{}%", trimmed(share * 100.0, 2))
}

fn field(plot: &Plot) -> String {
    let scale = Scale::of(plot);
    let mut out = String::new();
    for band in &plot.bands {
        out.push_str(&rect(band, &scale, "band", "y=\"0\" height=\"100%\""));
    }
    out.push_str(&axes(plot, &scale));
    out.push_str(
        "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" width=\"100%\" height=\"100%\">\n",
    );
    for line in &plot.series {
        out.push_str(&paths(line, &scale));
    }
    out.push_str("</svg>\n");
    if !plot.places.is_empty() {
        out.push_str(&dots(plot, &scale));
    }
    for limit in plot.limits.iter().filter(|limit| limit.at <= scale.top()) {
        let y = percent(scale.y(limit.at));
        let _ = writeln!(
            out,
            "<line class=\"limit\" x1=\"0\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\"/>\
             <text class=\"end named\" x=\"100%\" y=\"{y}\" dy=\"-5\">{}</text>",
            escape(&limit.name)
        );
    }
    if let Some(strip) = &plot.strip {
        let _ = writeln!(
            out,
            "<g><title>{}</title><rect class=\"rest\" y=\"-15\" width=\"100%\" height=\"7\" rx=\"2\"/>",
            escape(&strip.name)
        );
        for span in &strip.spans {
            out.push_str(&rect(span, &scale, "state", "y=\"-15\" height=\"7\""));
        }
        out.push_str("</g>\n");
    }
    out
}

fn rect(band: &Band, scale: &Scale, class: &str, upright: &str) -> String {
    let (from, to) = (scale.x(band.from), scale.x(band.to));
    let (x, width) = (percent(from), percent((to - from).max(0.002)));
    format!("<rect class=\"{class} {}\" x=\"{x}\" width=\"{width}\" {upright}/>\n", band.tone.as_str())
}

fn axes(plot: &Plot, scale: &Scale) -> String {
    let mut out = String::new();
    for mark in &scale.marks_y {
        let y = percent(scale.y(*mark));
        let class = if *mark > 0.0 { "grid" } else { "axis" };
        let _ = writeln!(
            out,
            "<line class=\"{class}\" x1=\"0\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\"/>\
             <text class=\"end\" x=\"-8\" y=\"{y}\" dy=\".35em\">{}</text>",
            escape(&ticks::label(&plot.unit_y, *mark))
        );
    }
    for mark in &scale.marks_x {
        let x = percent(scale.x(*mark));
        let _ = writeln!(
            out,
            "<text class=\"middle\" x=\"{x}\" y=\"100%\" dy=\"1.5em\">{}</text>",
            escape(&ticks::label(&plot.unit_x, *mark))
        );
    }
    out.push_str(&named_places(&plot.places, scale));
    let caption = caption(&plot.unit_x);
    if !caption.is_empty() {
        let _ = writeln!(
            out,
            "<text class=\"middle\" x=\"50%\" y=\"100%\" dy=\"3em\">{}</text>",
            escape(caption)
        );
    }
    out
}

/// About so many letters stand beside each other below an axis.
const LETTERS_MAX: usize = 40;
/// And so many between two names.
const LETTERS_BETWEEN: usize = 2;
/// A longer name at an end of the axis does not reach beyond it.
const LETTERS_AT_END_MAX: usize = 6;

/// A line upright at each place, and the names of as many as fit.
fn named_places(places: &[Place], scale: &Scale) -> String {
    let mut out = String::new();
    let letters = |every: usize| {
        places.iter().step_by(every).map(|it| it.name.chars().count() + LETTERS_BETWEEN).sum::<usize>()
    };
    let every =
        (1..=places.len()).find(|every| letters(*every) <= LETTERS_MAX).unwrap_or(places.len().max(1));
    for (number, place) in places.iter().enumerate() {
        let share = scale.x(place.at);
        let x = percent(share);
        let _ = writeln!(out, "<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"100%\"/>");
        if number % every != 0 {
            continue;
        }
        let is_long = place.name.chars().count() > LETTERS_AT_END_MAX;
        let class = match share {
            ..0.1 if is_long => "start",
            0.9.. if is_long => "end",
            _ => "middle",
        };
        let name = escape(&place.name);
        let _ = writeln!(out, "<text class=\"{class}\" x=\"{x}\" y=\"100%\" dy=\"1.5em\">{name}</text>");
    }
    out
}

/// A dot where a line passes a place, which says what it is there.
fn dots(plot: &Plot, scale: &Scale) -> String {
    let mut out = String::new();
    for line in &plot.series {
        for (x, y) in line.points.iter().filter(|point| is_told(point)) {
            let name = escape(&format!("{}: {}", name_at(plot, *x), ticks::label(&plot.unit_y, *y)));
            let (tone, x, y) = (line.tone.as_str(), percent(scale.x(*x)), percent(scale.y(*y)));
            let _ = writeln!(
                out,
                "<circle class=\"dot {tone}\" cx=\"{x}\" cy=\"{y}\" r=\"3.5\"><title>{name}</title></circle>"
            );
        }
    }
    out
}

fn paths(line: &Line, scale: &Scale) -> String {
    let mut out = String::new();
    let tone = line.tone.as_str();
    let dashed = if line.look == Look::Dashed { " dashed" } else { "" };
    for run in line.points.split(|point| !is_told(point)).filter(|run| !run.is_empty()) {
        let places: Vec<(f64, f64)> =
            run.iter().map(|(x, y)| (scale.x(*x) * UNITS, scale.y(*y) * UNITS)).collect();
        let (first, last) = (places[0], places[places.len() - 1]);
        if places.len() == 1 {
            let at = format!("{} {}", trimmed(first.0, 1), trimmed(first.1, 1));
            let _ = writeln!(
                out,
                "<path class=\"stroke single {tone}\" vector-effect=\"non-scaling-stroke\" d=\"M{at}h.01\"/>"
            );
            continue;
        }
        let way = way(&places);
        if line.look == Look::Filled {
            let ends = (trimmed(last.0, 1), trimmed(first.0, 1));
            let _ = writeln!(out, "<path class=\"area {tone}\" d=\"{way}L{} 1000H{}Z\"/>", ends.0, ends.1);
        }
        let _ = writeln!(
            out,
            "<path class=\"stroke {tone}{dashed}\" vector-effect=\"non-scaling-stroke\" d=\"{way}\"/>"
        );
    }
    out
}

/// The way through some places; what lies between two on a level line needs no word.
fn way(places: &[(f64, f64)]) -> String {
    let shown: Vec<(String, String)> = places.iter().map(|(x, y)| (trimmed(*x, 1), trimmed(*y, 1))).collect();
    let mut out = String::new();
    for (at, (x, y)) in shown.iter().enumerate() {
        let is_like = |other: Option<&(String, String)>| other.is_some_and(|(_, level)| level == y);
        if at > 0 && is_like(shown.get(at - 1)) && is_like(shown.get(at + 1)) {
            continue;
        }
        let step = if at == 0 { 'M' } else { 'L' };
        let _ = write!(out, "{step}{x} {y}");
    }
    out
}

#[cfg(test)]
mod tests;
