//! The two small languages of the book: when an alert is raised, and when people may be told.
//!
//! An alert: `METRIC OP VALUE [over D] [for D] [by WHAT]`, such as `error_rate > 5% over 2m by dependency`,
//! or `METRIC [for D] [by WHAT]` for a state, such as `breaker_open for 10m`.
//! Hours: `DAYS FROM-TO [ZONE]`, such as `Mon-Fri 09:00-17:00 Europe/Berlin`.

use std::fmt;
use std::time::Duration;

use super::problem::suggest;
use crate::alerts::{IncidentScope, IncidentEnd, Incident};
use crate::limits;
use crate::text::{self, InvalidQuantity, Rate, Share};
use crate::time::Timestamp;

/// When an alert is raised.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// What is looked at.
    pub metric: AlertMetric,
    /// The limit; none for a state.
    pub limit: Option<Threshold>,
    /// Over which time the figure is taken.
    pub over: Option<Duration>,
    /// For how long it must hold.
    pub lasting: Option<Duration>,
    /// For each of what.
    pub by: Option<Grouping>,
    /// The time that its rate is written in: an hour for `10/h`.
    rate_per: Option<Duration>,
    text: String,
}

/// A comparison with a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// Above or below.
    pub op: ThresholdOp,
    /// The value.
    pub value: Quantity,
}

/// Above or below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdOp {
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `<=`
    AtMost,
}

/// A value with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// A share of all.
    Share(Share),
    /// A number.
    Count(u64),
    /// So many in a time.
    Rate(Rate),
    /// A time.
    Duration(Duration),
}

/// What kind of value a metric has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricUnit {
    Share,
    Count,
    Rate,
    Duration,
    /// It is so or it is not.
    State,
}

/// A figure that alerts look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertMetric {
    /// The share of attempts that failed.
    ErrorRate,
    /// The share of attempts that failed and may heal.
    TransientRate,
    /// The share of answers that were 503.
    UnavailableRate,
    /// The share of deliveries that needed a retry.
    RetryRate,
    /// The share of deliveries that ran out of retries.
    ExhaustedRate,
    /// How many dead letters there are.
    DeadLetters,
    /// How many dead letters arrive.
    DeadLetterInflow,
    /// The age of the oldest dead letter.
    DeadLetterAge,
    /// A breaker is open.
    BreakerOpen,
    /// A breaker has opened.
    BreakerOpened,
    /// How many answers said that our credentials are wrong.
    AuthFailures,
    /// How many failures said that the configuration is wrong.
    ConfigFailures,
    /// How many events wait; by source, how many messages wait upstream.
    ConsumerLag,
    /// The age of the oldest event that waits.
    OldestWaiting,
    /// How long 99 of 100 attempts took at most.
    LatencyP99,
    /// Something that people are told of at once.
    Trouble(Incident),
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
    ("credentials_refused", AlertMetric::Trouble(Incident::CredentialsRefused), MetricUnit::State),
    ("misconfigured", AlertMetric::Trouble(Incident::Misconfigured), MetricUnit::State),
    ("internal_failure", AlertMetric::Trouble(Incident::InternalFailure), MetricUnit::State),
    ("policy_exhausted", AlertMetric::Trouble(Incident::PolicyExhausted), MetricUnit::State),
    ("event_damaged", AlertMetric::Trouble(Incident::EventDamaged), MetricUnit::State),
    ("service_removed", AlertMetric::Trouble(Incident::ServiceRemoved), MetricUnit::State),
    ("secret_gone", AlertMetric::Trouble(Incident::SecretGone), MetricUnit::State),
    ("archive_stuck", AlertMetric::Trouble(Incident::ArchiveStuck), MetricUnit::State),
    ("archive_incomplete", AlertMetric::Trouble(Incident::ArchiveIncomplete), MetricUnit::State),
    ("issuer_gone", AlertMetric::Trouble(Incident::IssuerGone), MetricUnit::State),
    ("certificate_refused", AlertMetric::Trouble(Incident::CertificateRefused), MetricUnit::State),
];

/// For each of what a figure is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Each service.
    Service,
    /// Each channel.
    Channel,
    /// Each dependency.
    Dependency,
    /// Each category.
    Category,
    /// Each event type.
    EventType,
    /// Each failure group.
    Fingerprint,
    /// Each door that callers come to: a webhook source, or the API; of `consumer_lag` each source that is read.
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

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCondition {
    /// No such metric.
    #[error("unknown metric `{word}`")]
    Metric {
        /// What was written.
        word: String,
    },
    /// No such grouping.
    #[error("alerts cannot be grouped by `{word}`")]
    Grouping {
        /// What was written.
        word: String,
    },
    /// The metric needs a comparison.
    #[error("`{metric}` must be compared (`>`, `>=`, `<`, `<=`) with {unit}")]
    NoLimit {
        /// The metric.
        metric: &'static str,
        /// What it is compared with.
        unit: &'static str,
    },
    /// The metric is a state.
    #[error("`{metric}` is a state and takes no comparison")]
    NeedsNoLimit {
        /// The metric.
        metric: &'static str,
    },
    /// The value does not fit the metric.
    #[error("`{metric}` must be compared with {unit}, got `{value}`")]
    Value {
        /// The metric.
        metric: &'static str,
        /// What it is compared with.
        unit: &'static str,
        /// What was written.
        value: String,
    },
    /// A word that does not belong there.
    #[error("unexpected `{word}`")]
    Word {
        /// What was written.
        word: String,
    },
    /// The metric is looked at as it stands.
    #[error("`{metric}` is a current value and takes no `over`")]
    NeedsNoWindow {
        /// The metric.
        metric: &'static str,
    },
    /// The metric is a moment.
    #[error("`{metric}` is a single moment and takes no `for`")]
    DoesNotLast {
        /// The metric.
        metric: &'static str,
    },
    /// Nobody counts the metric for each of those.
    #[error("`{metric}` cannot be grouped by {by}")]
    Combination {
        /// The metric.
        metric: &'static str,
        /// The grouping.
        by: &'static str,
        /// The groupings that it has.
        known: &'static [Grouping],
    },
    /// A duration is missing or wrong.
    #[error("`{word}` must be followed by a duration such as 5m")]
    Span {
        /// The word before it.
        word: &'static str,
    },
    /// A duration of ISO 8601.
    #[error(transparent)]
    IsoDuration(InvalidQuantity),
}

impl InvalidCondition {
    /// What to write instead.
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

/// Every metric with what it is compared with.
pub fn metrics() -> impl Iterator<Item = (&'static str, &'static str)> {
    METRICS.into_iter().map(|(name, _, unit)| (name, unit.about()))
}

/// Every word that may follow `by`.
pub fn groupings() -> impl Iterator<Item = &'static str> {
    GROUPINGS.into_iter().map(|(name, _)| name)
}

impl AlertMetric {
    /// Its name in rule books.
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

    /// For each of what it is counted.
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
            Self::Trouble(trouble) => match trouble.concerns() {
                IncidentScope::Service => &[Service, Channel],
                IncidentScope::Secret | IncidentScope::Process => &[],
            },
        }
    }

    /// Whether it is taken over a time; else it is looked at as it stands.
    #[must_use]
    pub fn has_window(self) -> bool {
        match self.unit() {
            MetricUnit::Share | MetricUnit::Rate => true,
            MetricUnit::Count | MetricUnit::Duration | MetricUnit::State => {
                matches!(self, Self::ConfigFailures | Self::LatencyP99)
            }
        }
    }

    /// Whether it says that something has happened, and not that something is so.
    const fn is_moment(self) -> bool {
        match self {
            Self::BreakerOpened => true,
            Self::Trouble(trouble) => matches!(trouble.lasts(), IncidentEnd::AWhile),
            _ => false,
        }
    }
}

impl Grouping {
    /// The word that follows `by`.
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
    /// Reads a condition.
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
            Some(_) if unit == MetricUnit::State => return Err(InvalidCondition::NeedsNoLimit { metric: name }),
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

    /// The time that the figure is taken over: as stated, else the time that its rate is written in, else a few
    /// minutes; none for what is looked at as it stands.
    #[must_use]
    pub fn window(&self) -> Option<Duration> {
        let stated = self.over.or(self.rate_per).unwrap_or(limits::ALERT_OVER_DEFAULT);
        self.metric.has_window().then_some(stated)
    }
}

/// The time that a rate is written in.
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

/// When people may be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Hours {
    /// Monday is 0.
    pub days: [bool; 7],
    /// Minutes after midnight at which they begin.
    pub from_minute: u16,
    /// Minutes after midnight at which they end.
    pub to_minute: u16,
    /// The zone's name.
    pub zone: String,
}

/// Why a text is no hours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHours {
    /// Not of that form at all.
    #[error("invalid hours `{text}`; expected the form \"Mon-Fri 09:00-17:00 Europe/Berlin\"")]
    Form {
        /// What was written.
        text: String,
    },
    /// The hours end before they begin.
    #[error("the hours `{text}` end before they begin")]
    Backwards {
        /// What was written.
        text: String,
    },
    /// No such zone.
    #[error("unknown time zone `{zone}`")]
    Zone {
        /// What was written.
        zone: String,
    },
}

/// Whether there is such a time zone, by the list that is built in: the machine's own is not asked.
pub(super) fn is_zone(name: &str) -> bool {
    jiff::tz::TimeZoneDatabase::bundled().get(name).is_ok()
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

impl Hours {
    /// Reads hours.
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
    /// Whether that point in time lies within them, by the clocks of their zone.
    #[must_use]
    pub fn contain(&self, at: Timestamp) -> bool {
        // Zones were looked up when the book was read.
        let Ok(zone) = jiff::tz::TimeZoneDatabase::bundled().get(&self.zone) else { return true };
        let Ok(instant) = jiff::Timestamp::from_nanosecond(i128::from(at.as_nanos())) else { return true };
        let clock = zone.to_datetime(instant);
        let day = usize::try_from(clock.weekday().to_monday_zero_offset()).unwrap_or_default();
        let minute = u16::try_from(i32::from(clock.hour()) * 60 + i32::from(clock.minute()));
        self.days[day] && (self.from_minute..self.to_minute).contains(&minute.unwrap_or_default())
    }
}

/// As they are written: `Mon-Fri 09:00-17:00 Europe/Berlin`.
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
            ("", "metric"), ("errors > 5", "metric"), ("error_rate", "needs `>`"), ("dead_letters == 5", "needs `>`"), ("error_rate > 5", "compared with a share"),
            ("breaker_open > 5", "is a state"), ("error_rate > 5% over soon", "a duration"), ("error_rate > 5% by moon", "grouped"),
            ("error_rate > 5% within 2m", "not understood"), ("breaker_open over 5m", "not understood"),
            ("dead_letters > 5 over 5m", "as it stands"), ("breaker_opened for 5m", "a moment"), ("breaker_open by event_type", "nobody counts"), ("latency_p99 > 5s by category", "nobody counts"),
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
