//! Filters of dead letters: API and command-line keys, and their description in words.

use clap::Args;
use redrive_core::book::pattern::EventPattern;
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::policy::category::Category;
use redrive_core::text::{InvalidQuantity, parse_duration};
use redrive_core::time::Timestamp;
use redrive_node::store::letter::{LetterFilter, LetterNumber};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api::request::{WrongField, read};

/// Filter of dead letters: query and body keys, and command arguments.
#[derive(Clone, Debug, Default, Args, Serialize, Deserialize, ToSchema)]
#[command(next_help_heading = "Which letters")]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterKeys {
    /// Of this service and its channels, or of service/channel
    #[arg(long)]
    #[schema(min_length = 1)]
    pub(crate) service: Option<String>,
    /// Of this channel
    #[arg(long)]
    #[schema(min_length = 1)]
    pub(crate) channel: Option<String>,
    /// Of the dead-letter queue with this name (`dead_letter.name` in the rule book)
    #[arg(long, value_name = "QUEUE")]
    #[schema(min_length = 1)]
    pub(crate) name: Option<String>,
    /// Of the rule-book row with this id, as `redrive dlq show` shows it
    #[arg(long, value_name = "ID")]
    #[schema(min_length = 1)]
    pub(crate) subscription: Option<String>,
    /// Of this failure category: transient, rate-limited, permanent, invalid, fatal, unknown or internal
    #[arg(long)]
    #[schema(inline, value_type = Option<Category>)]
    pub(crate) category: Option<String>,
    /// With this reason code or last failure code
    #[arg(long)]
    #[schema(min_length = 1)]
    pub(crate) code: Option<String>,
    /// Of this failure group
    #[arg(long, visible_alias = "group", value_name = "GROUP")]
    #[schema(pattern = "^[0-9a-f]{16}$")]
    pub(crate) fingerprint: Option<String>,
    /// With events of this type, or matching a pattern such as `orders.*`
    #[arg(long = "type", value_name = "TYPE")]
    #[serde(rename = "type")]
    #[schema(max_length = 256, pattern = "^[A-Za-z0-9_:/-]+(\\.[A-Za-z0-9_:/-]+){0,30}(\\.\\*)?$")]
    pub(crate) event_type: Option<String>,
    /// Of this session
    #[arg(long, value_name = "KEY")]
    #[schema(min_length = 1)]
    pub(crate) session: Option<String>,
    /// With this correlation id
    #[arg(long, value_name = "ID")]
    #[schema(min_length = 1)]
    pub(crate) correlation_id: Option<String>,
    /// Of this tier: dead or poison
    #[arg(long)]
    #[schema(inline, value_type = Option<Tier>)]
    pub(crate) tier: Option<String>,
    /// Died at or after: a time, or an age such as 2h
    #[arg(long, value_name = "TIME")]
    #[schema(min_length = 1)]
    pub(crate) from: Option<String>,
    /// Died before: a time, or an age
    #[arg(long, value_name = "TIME")]
    #[schema(min_length = 1)]
    pub(crate) until: Option<String>,
    /// With this text in the message or the event; requires a group or a time
    #[arg(long)]
    #[schema(min_length = 1)]
    pub(crate) text: Option<String>,
}

impl FilterKeys {
    pub(crate) fn filter(self, now: Timestamp) -> Result<LetterFilter, WrongField> {
        let filter = LetterFilter {
            category: read("category", self.category.as_deref(), category)?,
            fingerprint: read("fingerprint", self.fingerprint.as_deref(), str::parse::<Fingerprint>)?,
            event_type: read("type", self.event_type.as_deref(), EventPattern::parse)?,
            tier: read("tier", self.tier.as_deref(), tier)?,
            from: read("from", self.from.as_deref(), |text| time(text, now))?,
            until: read("until", self.until.as_deref(), |text| time(text, now))?,
            service: self.service,
            channel: self.channel,
            name: self.name,
            subscription: self.subscription,
            code: self.code,
            session: self.session,
            correlation_id: self.correlation_id,
            text: self.text,
            kinds: None,
            replays_below: None,
        };
        let is_bounded = filter.fingerprint.is_some() || filter.from.is_some() || filter.until.is_some();
        if filter.text.is_some() && !is_bounded {
            let reason = "requires a failure group or a time: add `fingerprint`, `from` or `until`";
            return Err(WrongField::new("text", reason));
        }
        Ok(split(filter))
    }

    /// The keys as the API takes them.
    pub(crate) fn keys(&self) -> Map<String, Value> {
        let keys = serde_json::to_value(self).expect("texts are JSON");
        let keys = keys.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        keys.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// Splits `service/channel`.
fn split(filter: LetterFilter) -> LetterFilter {
    let name = filter.service.as_deref().and_then(|name| name.split_once('/'));
    match (name, &filter.channel) {
        (Some((service, channel)), None) => {
            let (service, channel) = (Some(service.to_owned()), Some(channel.to_owned()));
            LetterFilter { service, channel, ..filter }
        }
        (Some(_), Some(_)) | (None, _) => filter,
    }
}

pub(crate) fn is_empty(filter: &LetterFilter) -> bool {
    *filter == LetterFilter::default()
}

fn category(word: &str) -> Result<Category, String> {
    Category::from_word(word).ok_or_else(|| {
        let known: Vec<&str> = Category::ALL.into_iter().map(Category::as_str).collect();
        format!("expected one of {}", known.join(", "))
    })
}

fn tier(word: &str) -> Result<Tier, &'static str> {
    match word {
        "dead" => Ok(Tier::Dead),
        "poison" => Ok(Tier::Poison),
        _ => Err("expected dead or poison"),
    }
}

/// A time, or an age.
pub(crate) fn time(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    parse_duration(text).map(|span| now - span).map_err(|error| match error {
        InvalidQuantity::TooLong { .. } | InvalidQuantity::IsoDuration { .. } => error.to_string(),
        _ => format!("expected a time such as 2026-01-31T12:00:00Z or an age such as 2h, got {text:?}"),
    })
}

/// An opaque cursor.
pub(crate) fn cursor(number: LetterNumber) -> String {
    format!("{:x}", number.0)
}

pub(crate) fn read_cursor(text: &str) -> Result<LetterNumber, &'static str> {
    u64::from_str_radix(text, 16).map(LetterNumber).map_err(|_| "not a cursor of an earlier answer")
}

pub(crate) fn describe(filter: &LetterFilter) -> String {
    let LetterFilter { service, channel, subscription, category, code, fingerprint, event_type, .. } = filter;
    let LetterFilter { name, session, correlation_id, tier, from, until, text, .. } = filter;
    let shown = |value: &Option<String>| value.clone();
    let parts = [
        ("service", shown(service)),
        ("channel", shown(channel)),
        ("queue", shown(name)),
        ("subscription", shown(subscription)),
        ("category", category.map(|category| category.to_string())),
        ("code", shown(code)),
        ("failure group", fingerprint.map(|fingerprint| fingerprint.to_string())),
        ("type", event_type.as_ref().map(|pattern| pattern.as_str().to_owned())),
        ("session", shown(session)),
        ("correlation id", shown(correlation_id)),
        ("tier", tier.map(|tier| tier.to_string())),
        ("from", from.map(|at| at.to_string())),
        ("until", until.map(|at| at.to_string())),
        ("text", text.as_ref().map(|text| format!("{text:?}"))),
    ];
    let words: Vec<String> =
        parts.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?))).collect();
    if words.is_empty() { "all dead letters".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use utoipa::PartialSchema;

    use super::*;
    use crate::api::request::of_query;

    fn now() -> Timestamp {
        "2026-01-31T12:00:00Z".parse().expect("a time")
    }

    fn filter_words(query: &str) -> Result<String, String> {
        let keys = of_query::<FilterKeys>(Some(query));
        let filter = keys.and_then(|keys| keys.filter(now())).map_err(|wrong| wrong.to_string())?;
        Ok(describe(&filter))
    }

    #[test]
    fn filters_are_read_and_told() {
        let text = "`text` requires a failure group or a time: add `fingerprint`, `from` or `until`";
        #[rustfmt::skip]
        let cases = [
            ("nothing",            "",                                          Ok("all dead letters")),
            ("a service",          "service=billing",                           Ok("service billing")),
            ("a channel",          "service=billing%2Femail",                   Ok("service billing, channel email")),
            ("a queue's name",     "name=_billing.deadletter",                  Ok("queue _billing.deadletter")),
            ("several",            "type=orders.*&code=GONE&tier=poison",       Ok("code GONE, type orders.*, tier poison")),
            ("a span ago",         "from=2h&text=a+b",                          Ok("from 2026-01-31T10:00:00Z, text \"a b\"")),
            ("a time",             "until=2026-01-30T00:00:00Z",                Ok("until 2026-01-30T00:00:00Z")),
            ("a group",            "fingerprint=00000000000000ff&text=x",       Ok("failure group 00000000000000ff, text \"x\"")),
            ("text alone",         "text=x",                                    Err(text)),
            ("text of a service",  "text=x&service=billing",                    Err(text)),
            ("no such key",        "sevice=billing",                            Err("`sevice` is unknown")),
            ("twice",              "code=A&code=B",                             Err("`code` is given twice")),
            ("empty",              "code=",                                     Err("`code` is empty")),
            ("no tier",            "tier=gone",                                 Err("`tier` is not valid: expected dead or poison")),
            ("no time",            "from=soon",                                 Err("`from` is not valid: expected a time such as 2026-01-31T12:00:00Z or an age such as 2h, got \"soon\"")),
            ("no group",           "fingerprint=xyz",                           Err("`fingerprint` is not valid: \"xyz\" is not a fingerprint: expected 16 hexadecimal digits")),
        ];
        for (name, query, expected) in cases {
            assert_eq!(
                filter_words(query),
                expected.map(ToOwned::to_owned).map_err(ToOwned::to_owned),
                "{name}"
            );
        }
    }

    #[test]
    fn each_key_that_is_described_is_part_of_the_filter() {
        let described = serde_json::to_value(FilterKeys::schema()).expect("a schema is JSON");
        let keys: Vec<&String> = described["properties"].as_object().expect("it has keys").keys().collect();
        let value = |key: &str| match key {
            "category" => "transient",
            "tier" => "dead",
            "fingerprint" => "00000000000000ff",
            "from" | "until" => "2h",
            _ => "word",
        };
        let query: Vec<String> = keys.iter().map(|key| format!("{key}={}", value(key))).collect();
        let words = filter_words(&query.join("&")).expect("every key that is described is taken");
        assert_eq!(words.matches(", ").count() + 1, keys.len(), "{words}");
    }

    #[test]
    fn a_cursor_comes_back() {
        let number = LetterNumber(1_761_057_000_250_999_999);
        assert_eq!(read_cursor(&cursor(number)), Ok(number));
        assert!(read_cursor("later").is_err());
    }
}
