//! Which letters are meant: from the keys that every question for letters takes, and back into words.

use redrive_core::book::pattern::EventPattern;
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::policy::category::Category;
use redrive_core::text::{InvalidQuantity, parse_duration};
use redrive_core::time::Timestamp;
use redrive_node::store::letter::{LetterFilter, LetterNumber};

use super::fields::{Fields, WrongField};

/// Takes the keys of a filter.
pub(crate) fn take(fields: &mut Fields, now: Timestamp) -> Result<LetterFilter, WrongField> {
    let filter = LetterFilter {
        service: fields.text("service")?,
        channel: fields.text("channel")?,
        name: fields.text("name")?,
        subscription: fields.text("subscription")?,
        category: fields.read("category", category)?,
        code: fields.text("code")?,
        fingerprint: fields.read("fingerprint", str::parse::<Fingerprint>)?,
        event_type: fields.read("type", EventPattern::parse)?,
        session: fields.text("session")?,
        correlation_id: fields.text("correlation_id")?,
        tier: fields.read("tier", tier)?,
        from: fields.read("from", |text| time(text, now))?,
        until: fields.read("until", |text| time(text, now))?,
        text: fields.text("text")?,
        kinds: None,
        replays_below: None,
    };
    let is_bounded = filter.fingerprint.is_some() || filter.from.is_some() || filter.until.is_some();
    if filter.text.is_some() && !is_bounded {
        let reason =
            "is looked for within a failure group or a time only: add `fingerprint`, `from` or `until`";
        return Err(WrongField::new("text", reason));
    }
    Ok(split(filter))
}

/// `billing/email` means the channel of the service.
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

/// Whether it says nothing at all.
pub(crate) fn is_empty(filter: &LetterFilter) -> bool {
    *filter == LetterFilter::default()
}

fn category(word: &str) -> Result<Category, String> {
    Category::from_word(word).ok_or_else(|| {
        let known: Vec<&str> = Category::ALL.into_iter().map(Category::as_str).collect();
        format!("it is none of {}", known.join(", "))
    })
}

fn tier(word: &str) -> Result<Tier, &'static str> {
    match word {
        "dead" => Ok(Tier::Dead),
        "poison" => Ok(Tier::Poison),
        _ => Err("it is neither dead nor poison"),
    }
}

/// A point in time, or how long ago it was.
pub(crate) fn time(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    parse_duration(text).map(|span| now - span).map_err(|error| match error {
        InvalidQuantity::TooLong { .. } | InvalidQuantity::IsoDuration { .. } => error.to_string(),
        _ => format!("{text:?} is neither a time such as 2026-01-31T12:00:00Z nor a span such as 2h"),
    })
}

/// What a list goes on with, as text that means nothing to anybody else.
pub(crate) fn cursor(number: LetterNumber) -> String {
    format!("{:x}", number.0)
}

/// Where a list goes on.
pub(crate) fn read_cursor(text: &str) -> Result<LetterNumber, &'static str> {
    u64::from_str_radix(text, 16).map(LetterNumber).map_err(|_| "it is no `next` of an earlier answer")
}

/// The filter in words.
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
    use crate::api::shape::wanted::FilterKeys;

    fn now() -> Timestamp {
        "2026-01-31T12:00:00Z".parse().expect("a time")
    }

    fn told(query: &str) -> Result<String, String> {
        let mut fields = Fields::of_query(Some(query)).map_err(|wrong| wrong.to_string())?;
        let filter = take(&mut fields, now()).map_err(|wrong| wrong.to_string())?;
        fields.finish().map_err(|wrong| wrong.to_string())?;
        Ok(describe(&filter))
    }

    #[test]
    fn filters_are_read_and_told() {
        let text = "`text` is looked for within a failure group or a time only: add `fingerprint`, `from` or `until`";
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
            ("no such key",        "sevice=billing",                            Err("`sevice` is not known here")),
            ("twice",              "code=A&code=B",                             Err("`code` stands twice")),
            ("empty",              "code=",                                     Err("`code` is empty")),
            ("no tier",            "tier=gone",                                 Err("`tier` is not right: it is neither dead nor poison")),
            ("no time",            "from=soon",                                 Err("`from` is not right: \"soon\" is neither a time such as 2026-01-31T12:00:00Z nor a span such as 2h")),
            ("no group",           "fingerprint=xyz",                           Err("`fingerprint` is not right: \"xyz\" is no fingerprint: it takes 16 hexadecimal digits")),
        ];
        for (name, query, expected) in cases {
            assert_eq!(told(query), expected.map(ToOwned::to_owned).map_err(ToOwned::to_owned), "{name}");
        }
    }

    #[test]
    fn the_keys_that_are_described_are_those_that_are_taken() {
        let described = serde_json::to_value(FilterKeys::schema()).expect("a schema is JSON");
        let keys: Vec<&String> = described["properties"].as_object().expect("it has keys").keys().collect();
        let value = |key: &str| match key {
            "category" => "transient",
            "tier" => "dead",
            "fingerprint" => "00000000000000ff",
            "from" | "until" => "2h",
            _ => "word",
        };
        let pairs = keys.iter().map(|key| (key.as_str(), value(key).to_owned()));
        let mut fields = Fields::of_pairs(pairs);
        let filter = take(&mut fields, now()).expect("every key that is described is taken");
        assert_eq!(fields.finish(), Ok(()), "each is known");
        assert_eq!(describe(&filter).matches(", ").count() + 1, keys.len(), "and none is taken that is not");
    }

    #[test]
    fn a_cursor_comes_back() {
        let number = LetterNumber(1_761_057_000_250_999_999);
        assert_eq!(read_cursor(&cursor(number)), Ok(number));
        assert!(read_cursor("later").is_err());
    }
}
