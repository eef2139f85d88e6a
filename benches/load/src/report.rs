//! Results with baseline, budget and verdict.
//!
//! A missed speed budget on a noisy machine is no verdict; a missed memory budget is, and a broken promise
//! always is.

use serde::Serialize;

use super::machine::Machine;

/// A bare handler above this CPU time, in microseconds, means a busy or slow machine.
pub(super) const BARE_MICROS_MAX: f64 = 15.0;

/// So does a larger share of the machine used by others.
pub(super) const OTHERS_BUSY_MAX: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Unit {
    PerSecond,
    Micros,
    Millis,
    Mebibytes,
    Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Quantity {
    pub value: f64,
    pub unit: Unit,
}

/// The baseline of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Beside {
    pub what: &'static str,
    #[serde(flatten)]
    pub quantity: Quantity,
}

/// A limit of a figure, or of its ratio to the baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Budget {
    AtMost(f64),
    RatioAtLeast(f64),
    RatioAtMost(f64),
    /// Either is enough.
    RatioAtMostOrPlus {
        ratio: f64,
        plus: f64,
    },
}

/// Severity of a missed budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Nature {
    Figure,
    /// Wrong on every machine.
    Promise,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Kept,
    Missed,
    /// Missed, on a busy or slow machine.
    Noisy,
    /// No budget.
    None,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    /// A stable name: `scenario.figure`.
    pub key: String,
    pub what: String,
    pub measured: Quantity,
    pub beside: Option<Beside>,
    /// All must be kept.
    pub budgets: Vec<Budget>,
    pub nature: Nature,
    /// The figure of each round; the result is their median.
    pub rounds: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Noise {
    Quiet,
    Noisy,
}

/// The bare handler, measured first.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Bare {
    pub per_second: f64,
    /// CPU per request; median of all measurements.
    pub cpu_micros: f64,
    /// Share of the machine used by others before or after the run, whichever is larger.
    pub others_busy: f64,
    pub noise: Noise,
}

#[derive(Clone, Debug)]
pub(super) struct Report {
    pub length: &'static str,
    pub machine: Machine,
    pub bare: Bare,
    pub rows: Vec<Row>,
}

impl Quantity {
    pub(super) const fn per_second(value: f64) -> Self {
        Self { value, unit: Unit::PerSecond }
    }

    pub(super) const fn micros(value: f64) -> Self {
        Self { value, unit: Unit::Micros }
    }

    pub(super) const fn millis(value: f64) -> Self {
        Self { value, unit: Unit::Millis }
    }

    pub(super) const fn bytes(bytes: u64) -> Self {
        Self { value: bytes as f64 / (1_024.0 * 1_024.0), unit: Unit::Mebibytes }
    }

    pub(super) const fn count(count: u64) -> Self {
        Self { value: count as f64, unit: Unit::Count }
    }
}

impl Row {
    pub(super) fn new(key: impl Into<String>, what: impl Into<String>, measured: Quantity) -> Self {
        Self {
            key: key.into(),
            what: what.into(),
            measured,
            beside: None,
            budgets: Vec::new(),
            nature: Nature::Figure,
            rounds: Vec::new(),
        }
    }

    pub(super) fn beside(mut self, what: &'static str, quantity: Quantity) -> Self {
        self.beside = Some(Beside { what, quantity });
        self
    }

    pub(super) fn budget(mut self, budget: Budget) -> Self {
        self.budgets.push(budget);
        self
    }

    pub(super) fn rounds(mut self, rounds: Vec<f64>) -> Self {
        self.rounds = rounds;
        self
    }

    /// The figure must be zero.
    pub(super) fn never(mut self) -> Self {
        self.nature = Nature::Promise;
        self.budget(Budget::AtMost(0.0))
    }

    pub(super) fn ratio(&self) -> Option<f64> {
        let beside = self.beside.as_ref()?.quantity;
        (beside.unit == self.measured.unit && beside.value > 0.0).then(|| self.measured.value / beside.value)
    }

    pub(super) fn verdict(&self, noise: Noise) -> Verdict {
        if self.budgets.is_empty() {
            return Verdict::None;
        }
        if self.budgets.iter().all(|budget| self.keeps(*budget)) {
            return Verdict::Kept;
        }
        let noise = if self.bare_limit_misses() { Noise::Noisy } else { noise };
        match (noise, self.measured.unit) {
            (Noise::Noisy, Unit::PerSecond | Unit::Micros | Unit::Millis) => Verdict::Noisy,
            (Noise::Noisy, Unit::Mebibytes | Unit::Count) | (Noise::Quiet, _) => Verdict::Missed,
        }
    }

    /// Whether the baseline misses the budget too: then the machine is to blame.
    fn bare_limit_misses(&self) -> bool {
        let Some(beside) = self.beside.as_ref().filter(|beside| beside.quantity.unit == self.measured.unit)
        else {
            return false;
        };
        self.budgets
            .iter()
            .any(|budget| matches!(budget, Budget::AtMost(most) if beside.quantity.value > *most))
    }

    fn keeps(&self, budget: Budget) -> bool {
        let ratio = self.ratio();
        match budget {
            Budget::AtMost(most) => self.measured.value <= most,
            Budget::RatioAtLeast(least) => ratio.is_some_and(|ratio| ratio >= least),
            // Without a baseline there is no ratio.
            Budget::RatioAtMost(most) => ratio.is_none_or(|ratio| ratio <= most),
            Budget::RatioAtMostOrPlus { ratio: most, plus } => {
                let beside = self.beside.as_ref().map_or(0.0, |beside| beside.quantity.value);
                ratio.is_some_and(|ratio| ratio <= most) || self.measured.value <= beside + plus
            }
        }
    }
}

impl Report {
    pub(super) fn breaks_a_promise(&self) -> bool {
        let promises = self.rows.iter().filter(|row| row.nature == Nature::Promise);
        promises.into_iter().any(|row| row.verdict(self.bare.noise) == Verdict::Missed)
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let rows: Vec<_> = self.rows.iter().map(|row| json_of(row, self.bare.noise)).collect();
        serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "length": self.length,
            "machine": self.machine,
            "bare_handler": self.bare,
            "rows": rows,
        })
    }
}

fn json_of(row: &Row, noise: Noise) -> serde_json::Value {
    serde_json::json!({
        "key": row.key,
        "scenario": row.key.split('.').next(),
        "what": row.what,
        "measured": row.measured,
        "beside": row.beside,
        "ratio": row.ratio(),
        "budget": super::table::budgets(row),
        "nature": row.nature,
        "verdict": row.verdict(noise),
        "rounds": row.rounds,
    })
}

pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (length, middle) if length % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_from_the_figures() {
        let rate = |value| {
            Row::new("a.b", "a", Quantity::per_second(value)).beside("bare", Quantity::per_second(100.0))
        };
        let time =
            |value| Row::new("a.b", "a", Quantity::millis(value)).beside("none", Quantity::millis(2.0));
        let plus = Budget::RatioAtMostOrPlus { ratio: 1.5, plus: 2.0 };
        let memory = Row::new("a.b", "a", Quantity::bytes(2 << 20));
        let lost = |count| Row::new("a.b", "a", Quantity::count(count)).never();
        #[rustfmt::skip]
        let cases = [
            ("nothing is asked",                rate(10.0),                                             Noise::Quiet, Verdict::None),
            ("just enough",                     rate(60.0).budget(Budget::RatioAtLeast(0.6)),           Noise::Quiet, Verdict::Kept),
            ("not enough",                      rate(59.0).budget(Budget::RatioAtLeast(0.6)),           Noise::Quiet, Verdict::Missed),
            ("not enough, but on a noisy machine",  rate(59.0).budget(Budget::RatioAtLeast(0.6)),           Noise::Noisy, Verdict::Noisy),
            ("enough in spite of all",          rate(60.0).budget(Budget::RatioAtLeast(0.6)),           Noise::Noisy, Verdict::Kept),
            ("one of two is missed",            time(3.0).budget(Budget::RatioAtMost(1.1)).budget(Budget::AtMost(9.0)), Noise::Quiet, Verdict::Missed),
            ("by the ratio or by the sum",      time(4.0).budget(plus),                                 Noise::Quiet, Verdict::Kept),
            ("by neither",                      time(4.1).budget(plus),                                 Noise::Quiet, Verdict::Missed),
            ("the bare limit is too slow too",  time(3.0).budget(Budget::AtMost(1.5)),                  Noise::Quiet, Verdict::Noisy),
            ("the bare limit is quick enough",  time(3.0).budget(Budget::AtMost(2.5)),                  Noise::Quiet, Verdict::Missed),
            ("memory is no matter of speed",    memory.budget(Budget::AtMost(1.0)),                     Noise::Noisy, Verdict::Missed),
            ("nothing lost",                    lost(0),                                                Noise::Noisy, Verdict::Kept),
            ("no noise excuses a loss",         lost(1),                                                Noise::Noisy, Verdict::Missed),
        ];
        for (name, row, noise, expected) in cases {
            assert_eq!(row.verdict(noise), expected, "{name}");
        }
    }

    #[test]
    fn a_median_is_in_the_middle() {
        for (values, expected) in
            [(vec![], 0.0), (vec![3.0], 3.0), (vec![9.0, 1.0, 2.0], 2.0), (vec![1.0, 2.0], 1.5)]
        {
            assert!((median(&values) - expected).abs() < f64::EPSILON, "{values:?}");
        }
    }
}
