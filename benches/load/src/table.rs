//! A report as text: the machine, then a line per result.

use redrive_server::terminal::style;
use redrive_server::terminal::table::{Cell, CellAlign, Table};

use super::report::{Budget, Noise, Quantity, Report, Row, Unit, Verdict};

pub(super) fn text(report: &Report) -> String {
    let Report { length, machine, bare, rows } = report;
    let mut text = format!(
        "{}, {} cores, {} MiB, {}: fdatasync takes {} (p99 {})\n",
        machine.model,
        machine.cores,
        grouped(machine.memory_mib as f64),
        machine.file_system,
        shown(Quantity::millis(machine.sync.p50_ms)),
        shown(Quantity::millis(machine.sync.p99_ms)),
    );
    text += &format!(
        "bare handler: {}, {} of CPU each; {length} run of a {} build\n",
        shown(Quantity::per_second(bare.per_second)),
        shown(Quantity::micros(bare.cpu_micros)),
        machine.build,
    );
    if bare.noise == Noise::Noisy {
        text += &format!(
            "{}: the machine is slow or busy ({} used by others), so missed speed budgets mean little\n",
            style::warning("noisy"),
            percent(bare.others_busy),
        );
    }
    text.push('\n');
    let mut table = Table::new(&[
        CellAlign::Left,
        CellAlign::Left,
        CellAlign::Right,
        CellAlign::Left,
        CellAlign::Right,
        CellAlign::Left,
        CellAlign::Left,
    ]);
    table.head(&["scenario", "what", "measured", "beside", "ratio", "budget", "verdict"]);
    let mut last = "";
    for row in rows {
        let scenario = row.key.split('.').next().unwrap_or_default();
        table.push(vec![
            Cell::bold(if scenario == last { "" } else { scenario }),
            Cell::plain(&row.what),
            Cell::plain(shown(row.measured)),
            Cell::dim(beside(row)),
            Cell::plain(row.ratio().map(percent).unwrap_or_default()),
            Cell::dim(budgets(row).unwrap_or_default()),
            Cell::plain(verdict(row.verdict(bare.noise))),
        ]);
        last = scenario;
    }
    for line in table.lines() {
        text += &line;
        text.push('\n');
    }
    text
}

pub(super) fn budgets(row: &Row) -> Option<String> {
    let of_unit = |value| shown(Quantity { value, unit: row.measured.unit });
    let words = row.budgets.iter().map(|budget| match *budget {
        Budget::AtMost(most) => format!("≤ {}", of_unit(most)),
        Budget::RatioAtLeast(least) => format!("≥ {}", percent(least)),
        Budget::RatioAtMost(most) => format!("≤ {}", percent(most)),
        Budget::RatioAtMostOrPlus { ratio, plus } => format!("≤ {} or + {}", percent(ratio), of_unit(plus)),
    });
    let words: Vec<_> = words.collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn beside(row: &Row) -> String {
    let Some(beside) = &row.beside else { return String::new() };
    format!("{} {}", beside.what, shown(beside.quantity))
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Kept => "✓",
        Verdict::Missed => "✗",
        Verdict::Noisy => "noisy",
        Verdict::None => "",
    }
}

fn percent(ratio: f64) -> String {
    format!("{} %", digits(ratio * 100.0))
}

fn shown(quantity: Quantity) -> String {
    let unit = match quantity.unit {
        Unit::PerSecond => "/s",
        Unit::Micros => " µs",
        Unit::Millis => " ms",
        Unit::Mebibytes => " MiB",
        Unit::Count => return grouped(quantity.value),
    };
    format!("{}{unit}", digits(quantity.value))
}

/// Three significant digits, or all before the point.
fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 || value == 0.0 => grouped(value),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// With thousands separators.
fn grouped(value: f64) -> String {
    let plain = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in plain.chars().enumerate() {
        if place > 0 && (plain.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        #[rustfmt::skip]
        let cases = [
            (Quantity::per_second(61_234.5), "61,234/s"),
            (Quantity::micros(9.876),        "9.88 µs"),
            (Quantity::millis(12.34),        "12.3 ms"),
            (Quantity::bytes(30 << 20),      "30.0 MiB"),
            (Quantity::count(1_000_000),     "1,000,000"),
            (Quantity::millis(0.0),          "0 ms"),
        ];
        for (quantity, expected) in cases {
            assert_eq!(shown(quantity), expected);
        }
    }
}
