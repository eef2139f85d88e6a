//! Writes the Prometheus text format, version 0.0.4.
//!
//! Invariants: each family occurs once, with help and kind before its figures; label values are escaped;
//! their number is bounded by the names in the rule book and by [`redrive_core::figures`] for event types and
//! codes.

use std::fmt::Write as _;

use redrive_core::figures::{BOUNDS_MS, Histogram};
use redrive_core::metric_names::{MetricKind, MetricName};

#[derive(Default)]
pub(crate) struct ExpositionPage {
    text: String,
}

pub(crate) struct BucketRanges<'a> {
    /// Upper bounds as written; the last range has none.
    pub(crate) bounds: &'a [String],
    /// One more than bounds.
    pub(crate) counts: &'a [u64],
    pub(crate) sum: f64,
}

impl ExpositionPage {
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    pub(crate) fn family<'a>(
        &mut self,
        metric: &MetricName,
        figures: impl IntoIterator<Item = (Vec<&'a str>, f64)>,
    ) {
        assert!(metric.kind != MetricKind::Histogram, "a histogram has ranges");
        let mut has_head = false;
        for (labels, value) in figures {
            if !has_head {
                self.head(metric);
                has_head = true;
            }
            self.line(metric.name, metric.labels, &labels, value);
        }
    }

    pub(crate) fn each<T>(&mut self, metric: &MetricName, rows: &[(Vec<&str>, T)], count: fn(&T) -> u64) {
        self.family(metric, rows.iter().map(|(labels, row)| (labels.clone(), count(row) as f64)));
    }

    /// Several figures per row, distinguished by the last label.
    pub(crate) fn split<'a, 'b: 'a, T>(
        &mut self,
        metric: &MetricName,
        rows: &[(Vec<&'a str>, T)],
        parts: impl Fn(&T) -> Vec<(&'b str, u64)>,
    ) {
        let figures = rows.iter().flat_map(|(labels, row)| {
            let with = |part: &'b str| [&labels[..], &[part]].concat();
            parts(row).into_iter().map(move |(part, count)| (with(part), count as f64))
        });
        self.family(metric, figures);
    }

    pub(crate) fn single(&mut self, metric: &MetricName, value: f64) {
        self.family(metric, [(Vec::new(), value)]);
    }

    pub(crate) fn times<'a>(
        &mut self,
        metric: &MetricName,
        figures: impl IntoIterator<Item = (Vec<&'a str>, &'a Histogram)>,
    ) {
        let bounds = BOUNDS_MS.map(|millis| seconds(f64::from(millis) / 1_000.0));
        let ranges = figures.into_iter().map(|(labels, histogram)| {
            let sum = histogram.sum_micros as f64 / 1e6;
            (labels, BucketRanges { bounds: &bounds, counts: &histogram.counts, sum })
        });
        self.ranges(metric, ranges);
    }

    pub(crate) fn ranges<'a, 'b>(
        &mut self,
        metric: &MetricName,
        figures: impl IntoIterator<Item = (Vec<&'a str>, BucketRanges<'b>)>,
    ) {
        assert!(metric.kind == MetricKind::Histogram, "only a histogram has ranges");
        let mut has_head = false;
        let bucket = format!("{}_bucket", metric.name);
        let names = [metric.labels, &["le"]].concat();
        for (labels, BucketRanges { bounds, counts, sum }) in figures {
            if !has_head {
                self.head(metric);
                has_head = true;
            }
            let mut below = 0;
            let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
            for (bound, count) in bounds.zip(counts) {
                below += count;
                let labels = [&labels[..], &[bound]].concat();
                self.line(&bucket, &names, &labels, below as f64);
            }
            self.line(&format!("{}_sum", metric.name), metric.labels, &labels, sum);
            self.line(&format!("{}_count", metric.name), metric.labels, &labels, below as f64);
        }
    }

    fn head(&mut self, metric: &MetricName) {
        let MetricName { name, kind, help, .. } = metric;
        self.add(format_args!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.as_str()));
    }

    fn line(&mut self, name: &str, names: &[&str], labels: &[&str], value: f64) {
        assert_eq!(names.len(), labels.len(), "{name} has a value for each label");
        self.text.push_str(name);
        for (index, (label, value)) in names.iter().zip(labels).enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            self.add(format_args!("{before}{label}=\"{}\"", escaped(value)));
        }
        self.add(format_args!("{} {value}\n", if names.is_empty() { "" } else { "}" }));
    }

    fn add(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("a String takes everything");
    }
}

fn seconds(seconds: f64) -> String {
    seconds.to_string()
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redrive_core::metric_names::{ATTEMPT_DURATION, BREAKER_TRIPS, EVENTS_ACCEPTED};

    use super::*;

    #[test]
    fn a_page_has_heads_escaped_labels_and_ranges_that_add_up() {
        let mut page = ExpositionPage::default();
        page.single(&EVENTS_ACCEPTED, 7.0);
        page.family(&BREAKER_TRIPS, [(vec!["a \"b\\\n"], 2.0)]);
        page.family(&BREAKER_TRIPS, []);
        let mut took = Histogram::default();
        for millis in [1, 15, 15, 9_000_000] {
            took.add(Duration::from_millis(millis));
        }
        page.times(&ATTEMPT_DURATION, [(vec!["svc", ""], &took)]);
        let text = page.into_text();
        assert!(text.starts_with("# HELP redrive_events_accepted_total New events accepted.\n# TYPE redrive_events_accepted_total counter\nredrive_events_accepted_total 7\n"));
        assert!(text.contains("redrive_breaker_trips_total{dependency=\"a \\\"b\\\\\\n\"} 2\n"));
        assert_eq!(
            text.matches("# TYPE redrive_breaker_trips_total").count(),
            1,
            "an empty family is not there"
        );
        #[rustfmt::skip]
        let expected = [
            "_bucket{service=\"svc\",channel=\"\",le=\"0.001\"} 1",
            "_bucket{service=\"svc\",channel=\"\",le=\"0.02\"} 3",
            "_bucket{service=\"svc\",channel=\"\",le=\"7200\"} 3",
            "_bucket{service=\"svc\",channel=\"\",le=\"+Inf\"} 4",
            "_sum{service=\"svc\",channel=\"\"} 9000.031",
            "_count{service=\"svc\",channel=\"\"} 4",
        ];
        for line in expected {
            assert!(text.contains(&format!("redrive_attempt_duration_seconds{line}\n")), "{line}\n{text}");
        }
    }
}
