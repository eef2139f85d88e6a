//! The two expression languages of the book: alert conditions and receiver hours.
//!
//! Condition: `METRIC OP VALUE [over D] [for D] [by WHAT]`, such as `error_rate > 5% over 2m by dependency`, or
//! `METRIC [for D] [by WHAT]` for a state, such as `breaker_open for 10m`.
//! Hours: `DAYS FROM-TO [ZONE]`, such as `Mon-Fri 09:00-17:00 Europe/Berlin`.

use std::fmt;
use std::time::Duration;

use super::problem::suggest;
use crate::alerts::{Incident, IncidentEnd, IncidentScope};
use crate::limits;
use crate::text::{self, InvalidQuantity, Rate, Share};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub metric: AlertMetric,
    /// `None` for a state.
    pub limit: Option<Threshold>,
    pub over: Option<Duration>,
    pub lasting: Option<Duration>,
    pub by: Option<Grouping>,
    /// The unit of its rate: an hour for `10/h`.
    rate_per: Option<Duration>,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    pub op: ThresholdOp,
    pub value: Quantity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdOp {
    Above,
    AtLeast,
    Below,
    AtMost,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    Share(Share),
    Count(u64),
    Rate(Rate),
    Duration(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricUnit {
    Share,
    Count,
    Rate,
    Duration,
    State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertMetric {
    ErrorRate,
    /// Share of attempts with transient failures.
    TransientRate,
    /// Share of answers that were 503.
    UnavailableRate,
    /// Share of deliveries that were retried.
    RetryRate,
    ExhaustedRate,
    DeadLetters,
    DeadLetterInflow,
    DeadLetterAge,
    BreakerOpen,
    BreakerOpened,
    AuthFailures,
    ConfigFailures,
    /// Waiting events; by source, messages waiting upstream.
    ConsumerLag,
    OldestWaiting,
    /// 99th percentile of attempt duration.
    LatencyP99,
    /// Notified at once, without a threshold.
    Incident(Incident),
}

const METRICS: [(&str, AlertMetric, MetricUnit); 26] = [
    ("error_rate", AlertMetric::ErrorRate, MetricUnit::Share),
    ("transient_rate", AlertMetric::TransientRate, MetricUnit::Share),
    ("unavailable_rate", AlertMetric::UnavailableRate, MetricUnit::Share),
    ("retry_rate", AlertMetric::RetryRate, MetricUnit::Share),
    ("exhausted_rate", AlertMetric::ExhaustedRate, MetricUnit::Share),
    ("dead_letters", AlertMetric::DeadLetters, MetricUnit::Count),
    ("dead_letter_inflow", AlertMetric::DeadLetterInflow, MetricUnit::Rate),
    ("dead_letter_age", AlertMetric::DeadLetterAge, MetricUnit::Duration),
    ("breaker_open", AlertMetric::BreakerOpen, MetricUnit::State),
    ("breaker_opened", AlertMetric::BreakerOpened, MetricUnit::State),
    ("auth_failures", AlertMetric::AuthFailures, MetricUnit::Rate),
    ("config_failures", AlertMetric::ConfigFailures, MetricUnit::Count),
    ("consumer_lag", AlertMetric::ConsumerLag, MetricUnit::Count),
    ("oldest_waiting", AlertMetric::OldestWaiting, MetricUnit::Duration),
    ("latency_p99", AlertMetric::LatencyP99, MetricUnit::Duration),
    ("credentials_refused", AlertMetric::Incident(Incident::CredentialsRefused), MetricUnit::State),
    ("misconfigured", AlertMetric::Incident(Incident::Misconfigured), MetricUnit::State),
    ("internal_failure", AlertMetric::Incident(Incident::InternalFailure), MetricUnit::State),
    ("policy_exhausted", AlertMetric::Incident(Incident::PolicyExhausted), MetricUnit::State),
    ("event_damaged", AlertMetric::Incident(Incident::EventDamaged), MetricUnit::State),
    ("service_removed", AlertMetric::Incident(Incident::ServiceRemoved), MetricUnit::State),
    ("secret_gone", AlertMetric::Incident(Incident::SecretGone), MetricUnit::State),
    ("archive_stuck", AlertMetric::Incident(Incident::ArchiveStuck), MetricUnit::State),
    ("archive_incomplete", AlertMetric::Incident(Incident::ArchiveIncomplete), MetricUnit::State),
    ("issuer_gone", AlertMetric::Incident(Incident::IssuerGone), MetricUnit::State),
    ("certificate_refused", AlertMetric::Incident(Incident::CertificateRefused), MetricUnit::State),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    Service,
    Channel,
    Dependency,
    Category,
    EventType,
    Fingerprint,
    /// A webhook source or the API; for `consumer_lag`, a source that is read.
    Source,
}

const GROUPINGS: [(&str, Grouping); 7] = [
    ("service", Grouping::Service),
    ("channel", Grouping::Channel),
    ("dependency", Grouping::Dependency),
    ("category", Grouping::Category),
    ("event_type", Grouping::EventType),
    ("fingerprint", Grouping::Fingerprint),
    ("source", Grouping::Source),
];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCondition {
    #[error("unknown metric `{word}`")]
    Metric { word: String },
    #[error("alerts cannot be grouped by `{word}`")]
    Grouping { word: String },
    #[error("`{metric}` must be compared (`>`, `>=`, `<`, `<=`) with {unit}")]
    NoLimit { metric: &'static str, unit: &'static str },
    #[error("`{metric}` is a state and takes no comparison")]
    NeedsNoLimit { metric: &'static str },
    #[error("`{metric}` must be compared with {unit}, got `{value}`")]
    Value { metric: &'static str, unit: &'static str, value: String },
    #[error("unexpected `{word}`")]
    Word { word: String },
    #[error("`{metric}` is a current value and takes no `over`")]
    NeedsNoWindow { metric: &'static str },
    #[error("`{metric}` is a single moment and takes no `for`")]
    DoesNotLast { metric: &'static str },
    #[error("`{metric}` cannot be grouped by {by}")]
    Combination { metric: &'static str, by: &'static str, known: &'static [Grouping] },
    #[error("`{word}` must be followed by a duration such as 5m")]
    Span { word: &'static str },
    #[error(transparent)]
    IsoDuration(InvalidQuantity),
}

impl InvalidCondition {
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Metric { word } => suggest(word, METRICS.map(|(name, ..)| name)),
            Self::Grouping { word } => suggest(word, GROUPINGS.map(|(name, _)| name)),
            Self::NeedsNoWindow { .. } => "remove `over`; `for` sets how long the condition must hold".to_owned(),
            Self::DoesNotLast { metric: "breaker_opened" } => {
                "remove `for`, or write \"breaker_open for 10m\"".to_owned()
            }
            Self::DoesNotLast { .. } => "remove `for`".to_owned(),
            Self::IsoDuration(_) => String::new(),
            Self::Combination { known: [], .. } => "remove `by`".to_owned(),
            Self::Combination { known, .. } => {
                let known: Vec<String> = known.iter().map(|by| format!("`by {}`", by.as_str())).collect();
                format!("remove `by`, or use one of {}", known.join(", "))
            }
            Self::NoLimit { .. }
            | Self::NeedsNoLimit { .. }
            | Self::Value { .. }
            | Self::Word { .. }
            | Self::Span { .. } => "METRIC OP VALUE [over D] [for D] [by WHAT], such as \"error_rate > 5% over 2m by dependency\"".to_owned(),
        }
    }
}

pub fn metrics() -> impl Iterator<Item = (&'static str, &'static str)> {
    METRICS.into_iter().map(|(name, _, unit)| (name, unit.about()))
}

pub fn groupings() -> impl Iterator<Item = &'static str> {
    GROUPINGS.into_iter().map(|(name, _)| name)
}

impl AlertMetric {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    pub(crate) fn unit(self) -> MetricUnit {
        self.row().1
    }

    fn row(self) -> (&'static str, MetricUnit) {
        let found = METRICS.into_iter().find(|(_, metric, _)| *metric == self);
        found.map(|(name, _, unit)| (name, unit)).expect("every metric is in the table")
    }

    #[must_use]
    pub const fn groupings(self) -> &'static [Grouping] {
        use Grouping::{Category, Channel, Dependency, EventType, Fingerprint, Service, Source};
        match self {
            Self::ErrorRate => &[Service, Channel, Dependency, EventType, Category],
            Self::TransientRate
            | Self::UnavailableRate
            | Self::RetryRate
            | Self::ExhaustedRate
            | Self::DeadLetterInflow
            | Self::ConfigFailures => &[Service, Channel, Dependency, EventType],
            Self::AuthFailures => &[Service, Channel, Dependency, EventType, Source],
            Self::DeadLetters | Self::DeadLetterAge => {
                &[Service, Channel, Dependency, EventType, Category, Fingerprint]
            }
            Self::BreakerOpen | Self::BreakerOpened => &[Dependency],
            Self::ConsumerLag => &[Service, Channel, Source],
            Self::OldestWaiting => &[Service, Channel],
            Self::LatencyP99 => &[Service, Channel, Dependency],
            Self::Incident(incident) => match incident.concerns() {
                IncidentScope::Service => &[Service, Channel],
                IncidentScope::Secret | IncidentScope::Process => &[],
            },
        }
    }

    /// Whether it is counted over a window; otherwise it is a current value.
    #[must_use]
    pub fn has_window(self) -> bool {
        match self.unit() {
            MetricUnit::Share | MetricUnit::Rate => true,
            MetricUnit::Count | MetricUnit::Duration | MetricUnit::State => {
                matches!(self, Self::ConfigFailures | Self::LatencyP99)
            }
        }
    }

    /// Whether it is an occurrence rather than a state.
    const fn is_moment(self) -> bool {
        match self {
            Self::BreakerOpened => true,
            Self::Incident(incident) => matches!(incident.lasts(), IncidentEnd::Expires),
            _ => false,
        }
    }
}

impl Grouping {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        GROUPINGS.into_iter().find(|(_, by)| *by == self).expect("every grouping is in the table").0
    }
}

impl MetricUnit {
    const fn about(self) -> &'static str {
        match self {
            Self::Share => "a share such as 5%",
            Self::Count => "a number such as 100",
            Self::Rate => "a rate such as 10/m",
            Self::Duration => "a duration such as 48h",
            Self::State => "nothing",
        }
    }

    fn read(self, text: &str) -> Option<Quantity> {
        match self {
            Self::Share => text::parse_share(text).ok().map(Quantity::Share),
            Self::Count => text.parse().ok().map(Quantity::Count),
            Self::Rate => text::parse_rate(text).ok().map(Quantity::Rate),
            Self::Duration => text::parse_duration(text).ok().map(Quantity::Duration),
            Self::State => None,
        }
    }
}

impl Condition {
    pub fn parse(text: &str) -> Result<Self, InvalidCondition> {
        let mut words = text.split_whitespace().peekable();
        let first = words.next().unwrap_or_default();
        let known = METRICS.into_iter().find(|(name, ..)| *name == first);
        let (name, metric, unit) =
            known.ok_or_else(|| InvalidCondition::Metric { word: first.to_owned() })?;

        let op = words.peek().and_then(|word| match *word {
            ">" => Some(ThresholdOp::Above),
            ">=" => Some(ThresholdOp::AtLeast),
            "<" => Some(ThresholdOp::Below),
            "<=" => Some(ThresholdOp::AtMost),
            _ => None,
        });
        let mut rate_per = None;
        let limit = match op {
            Some(_) if unit == MetricUnit::State => {
                return Err(InvalidCondition::NeedsNoLimit { metric: name });
            }
            None if unit == MetricUnit::State => None,
            None => return Err(InvalidCondition::NoLimit { metric: name, unit: unit.about() }),
            Some(op) => {
                words.next();
                let word = words.next().unwrap_or_default();
                let wrong = || match text::parse_duration(word) {
                    Err(iso @ InvalidQuantity::IsoDuration { .. }) => InvalidCondition::IsoDuration(iso),
                    _ => InvalidCondition::Value { metric: name, unit: unit.about(), value: word.to_owned() },
                };
                rate_per = rate_span(word).filter(|_| unit == MetricUnit::Rate);
                Some(Threshold { op, value: unit.read(word).ok_or_else(wrong)? })
            }
        };
        let mut condition =
            Self { metric, limit, over: None, lasting: None, by: None, rate_per, text: text.to_owned() };
        while let Some(word) = words.next() {
            let next = words.next().unwrap_or_default();
            let span = |word| match text::parse_duration(next) {
                Ok(span) if !span.is_zero() => Ok(span),
                Err(iso @ InvalidQuantity::IsoDuration { .. }) => Err(InvalidCondition::IsoDuration(iso)),
                Ok(_) | Err(_) => Err(InvalidCondition::Span { word }),
            };
            match word {
                "over" if condition.over.is_none() && unit != MetricUnit::State => {
                    if !metric.has_window() {
                        return Err(InvalidCondition::NeedsNoWindow { metric: name });
                    }
                    condition.over = Some(span("over")?);
                }
                "for" if metric.is_moment() => {
                    return Err(InvalidCondition::DoesNotLast { metric: name });
                }
                "for" if condition.lasting.is_none() => condition.lasting = Some(span("for")?),
                "by" if condition.by.is_none() => {
                    let grouping = GROUPINGS.into_iter().find(|(name, _)| *name == next);
                    let unknown = || InvalidCondition::Grouping { word: next.to_owned() };
                    let (word, by) = grouping.ok_or_else(unknown)?;
                    let known = metric.groupings();
                    if !known.contains(&by) {
                        return Err(InvalidCondition::Combination { metric: name, by: word, known });
                    }
                    condition.by = Some(by);
                }
                _ => return Err(InvalidCondition::Word { word: word.to_owned() }),
            }
        }
        Ok(condition)
    }

    /// The window of the metric: `over`, else the unit of its rate, else a few minutes; `None` for a current
    /// value.
    #[must_use]
    pub fn window(&self) -> Option<Duration> {
        let stated = self.over.or(self.rate_per).unwrap_or(limits::ALERT_OVER_DEFAULT);
        self.metric.has_window().then_some(stated)
    }
}

fn rate_span(text: &str) -> Option<Duration> {
    Some(match text.split_once('/')?.1.chars().next()? {
        's' => Duration::from_secs(1),
        'm' => Duration::from_mins(1),
        'h' => Duration::from_hours(1),
        _ => return None,
    })
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Hours {
    pub days: [bool; 7],
    /// Minutes after midnight.
    pub from_minute: u16,
    /// Minutes after midnight.
    pub to_minute: u16,
    pub zone: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHours {
    #[error("invalid hours `{text}`; expected the form \"Mon-Fri 09:00-17:00 Europe/Berlin\"")]
    Form { text: String },
    #[error("the hours `{text}` end before they begin")]
    Backwards { text: String },
    #[error("unknown time zone `{zone}`")]
    Zone { zone: String },
}

/// By the bundled time-zone database, not the machine's.
pub(super) fn is_zone(name: &str) -> bool {
    jiff::tz::TimeZoneDatabase::bundled().get(name).is_ok()
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

impl Hours {
    pub fn parse(text: &str) -> Result<Self, InvalidHours> {
        let form = || InvalidHours::Form { text: text.to_owned() };
        let mut words = text.split_whitespace();
        let (days, times) = (words.next().ok_or_else(form)?, words.next().ok_or_else(form)?);
        let zone = words.next().unwrap_or("UTC").to_owned();
        if words.next().is_some() {
            return Err(form());
        }
        let days = parse_days(days).ok_or_else(form)?;
        let (from, to) = times.split_once('-').ok_or_else(form)?;
        let (from_minute, to_minute) =
            (parse_minute(from).ok_or_else(form)?, parse_minute(to).ok_or_else(form)?);
        if from_minute >= to_minute {
            return Err(InvalidHours::Backwards { text: times.to_owned() });
        }
        if !is_zone(&zone) {
            return Err(InvalidHours::Zone { zone });
        }
        Ok(Self { days, from_minute, to_minute, zone })
    }
}

impl Hours {
    /// In the hours' own time zone.
    #[must_use]
    pub fn contain(&self, at: Timestamp) -> bool {
        // Validated when the book was read.
        let Ok(zone) = jiff::tz::TimeZoneDatabase::bundled().get(&self.zone) else { return true };
        let Ok(instant) = jiff::Timestamp::from_nanosecond(i128::from(at.as_nanos())) else { return true };
        let clock = zone.to_datetime(instant);
        let day = usize::try_from(clock.weekday().to_monday_zero_offset()).unwrap_or_default();
        let minute = u16::try_from(i32::from(clock.hour()) * 60 + i32::from(clock.minute()));
        self.days[day] && (self.from_minute..self.to_minute).contains(&minute.unwrap_or_default())
    }
}

/// As written: `Mon-Fri 09:00-17:00 Europe/Berlin`.
impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut spans: Vec<String> = Vec::new();
        let mut day = 0;
        while let Some(first) = (day..DAYS.len()).find(|day| self.days[*day]) {
            let last = (first..DAYS.len()).take_while(|day| self.days[*day]).last().unwrap_or(first);
            let span = if first == last {
                DAYS[first].to_owned()
            } else {
                format!("{}-{}", DAYS[first], DAYS[last])
            };
            spans.push(span);
            day = last + 1;
        }
        let clock = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        let (from, to) = (clock(self.from_minute), clock(self.to_minute));
        write!(f, "{} {from}-{to} {}", spans.join(","), self.zone)
    }
}

fn parse_days(text: &str) -> Option<[bool; 7]> {
    let day = |text: &str| DAYS.iter().position(|day| *day == text);
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        if first > last {
            return None;
        }
        days[first..=last].fill(true);
    }
    Some(days)
}

fn parse_minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    (hour < 24 && minute < 60 || (hour, minute) == (24, 0)).then(|| hour * 60 + minute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read() {
        #[rustfmt::skip]
        let good = [
            "dead_letters > 100", "breaker_open for 10m by dependency", "error_rate > 5% over 2m by dependency",
            "dead_letter_inflow > 10/m", "dead_letter_age > 48h", "auth_failures > 10/h", "breaker_opened",
            "retry_rate > 20% over 5m for 1m by service",
        ];
        for text in good {
            assert!(Condition::parse(text).is_ok(), "{text}");
        }
        #[rustfmt::skip]
        let bad = [
            ("", "metric"), ("errors > 5", "metric"), ("error_rate", "must be compared (`>`"), ("dead_letters == 5", "must be compared (`>`"), ("error_rate > 5", "compared with a share"),
            ("breaker_open > 5", "is a state"), ("error_rate > 5% over soon", "a duration"), ("error_rate > 5% by moon", "grouped"),
            ("error_rate > 5% within 2m", "unexpected `"), ("breaker_open over 5m", "unexpected `"),
            ("dead_letters > 5 over 5m", "a current value"), ("breaker_opened for 5m", "a single moment"), ("breaker_open by event_type", "cannot be grouped"), ("latency_p99 > 5s by category", "cannot be grouped"),
            ("error_rate > 5% over 0s", "a duration"), ("error_rate >", "compared with a share"),
        ];
        for (text, expected) in bad {
            let error = Condition::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_rate_says_what_it_is_taken_over() {
        #[rustfmt::skip]
        let cases = [
            ("error_rate > 5% over 2m",            Some(120)),
            ("error_rate > 5%",                    Some(300)),
            ("auth_failures > 10/h",               Some(3_600)),
            ("dead_letter_inflow > 10/m",          Some(60)),
            ("dead_letter_inflow > 10/min",        Some(60)),
            ("dead_letter_inflow > 10/m over 10m", Some(600)),
            ("config_failures > 0",                Some(300)),
            ("dead_letters > 0",                   None),
            ("breaker_open for 2m",                None),
        ];
        for (text, secs) in cases {
            assert_eq!(Condition::parse(text).unwrap().window(), secs.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn every_metric_leads_back_to_its_name() {
        for (name, metric, _) in METRICS {
            assert_eq!(metric.as_str(), name);
        }
    }

    #[test]
    fn hours_are_read() {
        let hours = Hours::parse("Mon-Fri 09:00-17:00 Europe/Berlin").unwrap();
        assert_eq!(hours.days, [true, true, true, true, true, false, false]);
        assert_eq!((hours.from_minute, hours.to_minute), (540, 1_020));
        assert!(Hours::parse("Sat,Sun 00:00-24:00").is_ok());
        for text in [
            "",
            "Mon",
            "Mon 9-17",
            "Fri-Mon 09:00-17:00",
            "Mon 17:00-09:00",
            "Mon 09:00-17:00 Moon/Base",
            "Mon 25:00-26:00",
            "Mon 9000:00-17:00",
            "a b c d",
        ] {
            assert!(Hours::parse(text).is_err(), "{text:?}");
        }
    }
    #[test]
    fn hours_follow_the_clocks_of_their_zone() {
        #[rustfmt::skip]
        let cases = [
            ("before they begin",        "Mon-Fri 09:00-17:00 UTC",           "2026-03-02T08:59:59Z", false),
            ("when they begin",          "Mon-Fri 09:00-17:00 UTC",           "2026-03-02T09:00:00Z", true),
            ("when they end",            "Mon-Fri 09:00-17:00 UTC",           "2026-03-02T17:00:00Z", false),
            ("on a Sunday",              "Mon-Fri 09:00-17:00 UTC",           "2026-03-01T12:00:00Z", false),
            ("in winter, further east",  "Mon-Fri 09:00-17:00 Europe/Berlin", "2026-03-02T08:30:00Z", true),
            ("in summer, earlier still", "Mon-Fri 09:00-17:00 Europe/Berlin", "2026-07-06T07:30:00Z", true),
            ("until midnight",           "Sun 00:00-24:00 UTC",               "2026-03-01T23:59:59Z", true),
        ];
        for (name, hours, at, expected) in cases {
            let hours = Hours::parse(hours).unwrap();
            assert_eq!(hours.contain(at.parse().unwrap()), expected, "{name}");
        }
    }
}
